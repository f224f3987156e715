"""The numbers of a figure with their intervals, the published ones, and tests of the paper's statements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedbo.algorithms.base import Origin
from fedbo.analysis.averages import replicate_means
from fedbo.analysis.comparison import At, GeometricMean, geometric, metric_of
from fedbo.analysis.finished_run import scored_traces
from fedbo.analysis.grouping import of_algorithm, of_kinds
from fedbo.analysis.result import Result
from fedbo.analysis.summary import Difference, paired
from fedbo.analysis.traces import Array, IncumbentTrace
from fedbo.objectives.base import Metric
from fedbo.study.study import Study
from fedbo_papers.decision_time import Times
from fedbo_papers.manifest import TIMED, FigureTable, TestTable

Verdict = Literal["holds", "does not hold", "inconclusive"]

FEDERATED_ORIGINS: tuple[Origin, ...] = (
    "federated",
    "uniform",
)  # chosen by what others sent, or uniformly in the place of that
STEADY = 1.5  # a decision time that stays within this factor is steady, unless a margin says otherwise


@dataclass(frozen=True, slots=True)
class FigureData:
    """The data of a figure: the study that was run, the one of full size, its results, and decision times."""

    figure: FigureTable
    study: Study
    full: Study
    result: Result | None = None
    times: Times | None = None

    @property
    def metric(self) -> Metric:
        """Return the metric of the figure."""
        assert self.result is not None
        return metric_of(self.result, self.figure.cell, self.figure.regret)

    def traces(self, label: str) -> list[IncumbentTrace]:
        """Return the traces of one algorithm that the figure shows."""
        assert self.result is not None
        agents, cell = self.figure.agents, self.figure.cell
        found = [t for t in scored_traces(self.result, self.figure.regret) if t.cell == cell and t.algorithm == label]
        return [trace for trace in found if not agents or trace.agent in agents]


@dataclass(frozen=True, slots=True)
class StatementResult:
    """A statement and its verdict; `measured` is the text of the difference or ratio with its 95 % interval."""

    figure: str
    says: str
    verdict: Verdict
    measured: str


@dataclass(frozen=True, slots=True)
class AlgorithmRow:
    """The numbers of one algorithm: numbers per message, its final value, and that minus the first algorithm's, paired.

    `federated` is the number of a target's points in a run that came from the messages of others, or from a control instead.
    """

    algorithm: str
    floats: int
    federated: float
    final: Difference
    gap: Difference | None


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """A published number and ours; `ours` and `gap` are None, with the reason, if the runs cannot be compared."""

    algorithm: str
    at: At
    published: float
    ours: Difference | None
    gap: Difference | None
    reason: str = ""


def algorithm_rows(data: FigureData) -> list[AlgorithmRow]:
    """Summarise every algorithm with runs; empty if there are only decision times."""
    if data.result is None:
        return []
    first, rows = data.study.labels[0], list[AlgorithmRow]()
    for label in data.study.labels:
        mine = replicate_scores(data, (label,), "end")
        if not mine:
            continue
        gap = None if label == first else paired(data.metric.sign * _gaps(mine, replicate_scores(data, (first,), "end")) + 0.0)
        rows.append(
            AlgorithmRow(
                label, message_length(data, label), federated_queries(data, label), native_mean(mine, data.metric), gap
            )
        )
    return rows


def compare_published(data: FigureData) -> list[PublishedComparison]:
    """Compare our numbers with the published ones, which are treated as exact."""
    rows = []
    for each in data.figure.published:
        reason = _incomparable(data, each.at)
        mine = {} if reason or data.result is None else replicate_scores(data, (each.algorithm,), each.at)
        if not mine:
            rows.append(
                PublishedComparison(each.algorithm, each.at, each.value, ours=None, gap=None, reason=reason or "no runs")
            )
            continue
        ours = native_mean(mine, data.metric)
        gap = Difference(*(end - each.value for end in (ours.mean, ours.low, ours.high)))
        rows.append(PublishedComparison(each.algorithm, each.at, each.value, ours, gap))
    return rows


def replicate_scores(data: FigureData, labels: Sequence[str], at: At) -> dict[int, float]:
    """Return each replicate's mean best score over targets and `labels` at a place of the iterations; larger is better."""
    places = np.arange(1.0, data.study.budget.decisions + 1)
    if at != "mean":
        places = np.array([math.inf if at == "end" else float(at)])
    found: dict[int, list[float]] = {}
    for label in labels:
        traces = data.traces(label)
        means = replicate_means(traces, "iteration", places) if traces else {}
        for replicate, scores in means.items():
            found.setdefault(replicate, []).append(float(np.mean(scores)))
    return {replicate: float(np.mean(scores)) for replicate, scores in found.items() if len(scores) == len(labels)}


def message_length(data: FigureData, label: str) -> int:
    """Count the numbers of 8 bytes in an algorithm's largest sent message; 0 if it sends nothing."""
    assert data.result is not None
    sent = of_kinds(of_algorithm(data.result.events, data.figure.cell, label), "sent")
    return int(pc.max(sent["bytes"]).as_py() or 0) // 8


def federated_queries(data: FigureData, label: str) -> float:
    """Count the federated points of one algorithm, or the uniform ones of a control, per target and run."""
    assert data.result is not None
    traces, table = data.traces(label), of_algorithm(data.result.observations, data.figure.cell, label)
    agents = pa.array(sorted({trace.agent for trace in traces}), pa.int32())
    chosen = pc.and_(pc.is_in(table["agent"], agents), pc.is_in(table["origin"], pa.array(FEDERATED_ORIGINS)))
    return len(table.filter(chosen)) / len(traces)


def judge(test: TestTable, data: FigureData, others: Mapping[str, FigureData]) -> StatementResult:
    """Judge whether a statement holds; `others` are the available figures, by id."""

    def found(measured: str, said: Verdict = "inconclusive") -> StatementResult:
        return StatementResult(data.figure.id, test.says, said, measured)

    if test.claim in TIMED:
        return _timed(test, data)
    if test.claim == "shorter":
        return _shorter(test, data)
    other = others.get(test.than_in) if test.than_in else data
    if data.result is None or other is None or other.result is None:
        return found(f"no runs of {test.than_in or 'this figure'}")
    if _world(data) != _world(other):
        return found(f"{test.than_in} has another seed, objective or targets, so replicates are not paired")
    if isinstance(test.at, int) and test.at > min(each.study.budget.decisions for each in (data, other)):
        return found(f"the runs end before t = {test.at}")
    # Replicates of both figures have the same draws, so they are compared in pairs.
    gain = paired(_gaps(replicate_scores(data, test.of, test.at), replicate_scores(other, test.than, test.at)))
    if gain is None:
        return found("fewer than two common replicates")
    ends = (gain.mean, gain.low, gain.high) if data.metric.sign > 0 else (-gain.mean, -gain.high, -gain.low)
    native = Difference(*(end + 0.0 for end in ends))  # which turns -0.0 into 0.0
    measured = f"{native} {data.metric.name}" if gain.low or gain.high else "no difference in any replicate"
    return found(measured, verdict(test.claim, gain, test.margin or 0.0))


def _world(data: FigureData) -> tuple[object, ...]:
    """Return the facts that two figures must share for their replicates to be pairs."""
    return data.study.study.seed, data.study.objective, tuple(data.figure.agents or data.study.targets), data.metric


def verdict(claim: str, gain: Difference, margin: float) -> Verdict:
    """Judge a claim by the 95 % interval of a gain, positive for better: differences below the margin count as none."""
    if not all(map(math.isfinite, (gain.low, gain.high))) or gain.low == gain.high:
        return "inconclusive"  # replicates that are all the same say nothing of how they scatter
    rules: Mapping[str, tuple[bool, bool]] = {  # that it holds, that it does not
        "better": (gain.low > 0 and gain.high >= margin, gain.high < margin or gain.high < 0),
        "not_worse": (gain.low > -margin, gain.high < -margin),
        "alike": (-margin < gain.low and gain.high < margin, gain.low > margin or gain.high < -margin),
    }
    holds, fails = rules[claim]
    return "holds" if holds else "does not hold" if fails else "inconclusive"


def _shorter(test: TestTable, data: FigureData) -> StatementResult:
    """Compare the longest message of `of` with the shortest of `than`; sizes are exact."""
    mine, theirs = (
        max(message_length(data, label) for label in test.of),
        min(message_length(data, label) for label in test.than),
    )
    if not mine or not theirs:
        return StatementResult(data.figure.id, test.says, "inconclusive", "one of the algorithms sends no message")
    return StatementResult(
        data.figure.id, test.says, "holds" if mine < theirs else "does not hold", f"{mine} and {theirs} numbers"
    )


def _timed(test: TestTable, data: FigureData) -> StatementResult:
    """Compare total decision times, repetition by repetition, by their ratios."""
    if data.times is None:
        return StatementResult(data.figure.id, test.says, "inconclusive", "decision times were not measured")
    ratio = _ratio_of(test, data.figure.cell, data.times)
    if ratio is None:
        return StatementResult(data.figure.id, test.says, "inconclusive", "at least two repetitions are required")
    limit = 1.0 / (test.margin or 1.0) if test.claim == "faster" else test.margin or STEADY
    above, below = ratio.low > limit, ratio.high < limit
    holds, fails = (above, below) if test.claim == "grows" else (below, above)
    found: Verdict = "holds" if holds else "does not hold" if fails else "inconclusive"
    return StatementResult(data.figure.id, test.says, found, f"× {ratio}")


def _totals(seconds: Mapping[str, Array], labels: Sequence[str]) -> Array:
    """Return the total of each repetition `(r,)`, averaged over the labels."""
    totals: Array = np.mean([seconds[label].sum(axis=1) for label in labels], axis=0)
    return totals


def _ratio_of(test: TestTable, cell: int, times: Times) -> GeometricMean | None:
    """Return the time of `of` over that of `than`, or with the most agents over that with the fewest."""
    by_cell, others = times.seconds, times.others
    if test.claim == "faster":
        return geometric(_totals(by_cell[cell], test.of) / _totals(by_cell[cell], test.than))
    few, many = (place(range(len(others)), key=others.__getitem__) for place in (min, max))
    return geometric(_totals(by_cell[many], test.of) / _totals(by_cell[few], test.of))


def _gaps(mine: Mapping[int, float], other: Mapping[int, float]) -> Array:
    return np.array([mine[replicate] - other[replicate] for replicate in sorted(set(mine) & set(other))])


def native_mean(mine: Mapping[int, float], metric: Metric) -> Difference:
    """Return the mean over replicates in native units with its interval, which is infinite with a single one."""
    values = np.asarray(metric.native(np.array(list(mine.values()))))
    return paired(values) or Difference(float(values[0]), -math.inf, math.inf)


def _incomparable(data: FigureData, at: At) -> str:
    """Return why a published number has no counterpart in these runs; empty if it has one."""
    ran, full = data.study.document(), data.full.document()
    iterations = data.study.budget.decisions
    if isinstance(at, int) and at > iterations:
        return f"the runs end at t = {iterations}"
    if not isinstance(at, int) and iterations != data.full.budget.decisions:
        return f"the runs end at t = {iterations}"
    for document in (ran, full):
        document["study"] = {"seed": document["study"].get("seed")}
        document.pop("hosting", None)
        document.pop("recovery", None)
        document["budget"].pop("iterations", None)
    return "" if ran == full else "quick run of a smaller study"
