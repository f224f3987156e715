"""The statistics over many runs as tables: final values, mean ranks, pairs, and costs to reach a level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedbo.analysis.averages import mean_and_error
from fedbo.analysis.comparison import short
from fedbo.analysis.records.text_table import TextTable
from fedbo.analysis.result import Result
from fedbo.analysis.summary import Estimate
from fedbo.lab.benchmarking.significance import PairTest, Ranking, pair_tests, ranking
from fedbo.lab.benchmarking.tasks import AXES, Comparable, CostToLevel, comparable, costs_to_level


@dataclass(frozen=True, slots=True)
class Overview:
    """All statistics of runs: the compared tasks, ranks, pairs of methods, and costs on each axis."""

    found: Comparable
    ranking: Ranking
    pairs: Sequence[PairTest]
    costs: Sequence[CostToLevel]

    def tables(self) -> list[TextTable]:
        """Return all statistics as tables."""
        return [_finals(self.found), _ranks(self.ranking), _pairs(self.pairs), *(_costs(one) for one in self.costs)]

    def scores(self) -> TextTable:
        """List every final value by task, replicate and method, for other programs."""
        rows = [
            (task.name, str(replicate), label, repr(float(task.metric.native(score))))
            for task in self.found.tasks
            for label in self.found.labels
            for replicate, score in sorted(task.finals(label).items())
        ]
        return TextTable("scores", "Every final value.", ("task", "replicate", "algorithm", "value"), rows)


def overview(results: Sequence[Result], labels: Sequence[str] = ()) -> Overview:
    """Compare the methods of runs over their tasks; the first of the labels is the baseline of cost ratios."""
    found = comparable(results, labels)
    costs = [cost for axis in AXES if (cost := costs_to_level(found, axis)) is not None]
    return Overview(found, ranking(found.labels, found.scores()), pair_tests(found), costs)


def _finals(found: Comparable) -> TextTable:
    """Return the mean final value of each method on each task with its standard error over replicates, as in summaries."""
    rows = []
    for task in found.tasks:
        native = np.asarray(task.metric.native(found.replicates(task)))
        best = int(np.argmax(found.replicates(task).mean(axis=0)))
        cells = [_with_error(native[:, place]) + " *" * (place == best) for place in range(native.shape[1])]
        rows.append((f"{task.name} ({task.metric.name})", *cells))
    caption = "Final best value, mean over agents and replicates, ± one standard error over replicates; * best."
    return TextTable("finals", caption, ("task", *found.labels), rows, tuple(f"Omitted: {line}." for line in found.left_out))


def _with_error(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    (mean,), (error,) = mean_and_error(values[:, None])
    return str(Estimate(float(mean), float(error) if len(values) > 1 else None))


def _ranks(found: Ranking) -> TextTable:
    groups = {place: "".join("abcdefghijklmnopqrstuvwxyz"[n % 26] for n, group in enumerate(found.groups) if place in group)
              for place in found.order}  # fmt: skip
    rows = [(found.labels[place], f"{found.mean[place]:.3f}", groups[place] or "–") for place in found.order]
    caption = (
        f"Mean ranks over {found.tasks} tasks; 1 is best. Two methods differ at the level 0.05 if their mean ranks differ by "
        f"{found.critical:.3g} (Nemenyi). Methods that share a letter do not differ. Friedman's chi2 = {found.chi2:.3g}, "
        f"F = {found.f:.3g}, p {'' if found.p < 0.001 else '= '}{_chance(found.p)}."
    )
    if found.tasks == 1:
        caption = "Ranks on the only task; 1 is best. One task does not allow a test."
    warning = ("With so few tasks, ranks can hardly differ significantly.",) if 1 < found.tasks < 5 else ()
    return TextTable("ranks", caption, ("algorithm", "mean rank", "group"), rows, warning)


def _pairs(tests: Sequence[PairTest]) -> TextTable:
    rows = [
        (f"{test.one} – {test.other}", str(test.won), str(test.tied), str(test.lost), f"{test.clearly_won}:{test.clearly_lost}",
         f"{test.gap:+.3f}", _chance(test.wilcoxon), _chance(test.wilcoxon_holm), _chance(test.t), _chance(test.t_holm))
        for test in tests
    ]  # fmt: skip
    headings = ("pair", "won", "tied", "lost", "clearly", "gap", "Wilcoxon p", "Holm", "t p", "Holm t")
    caption = (
        "Pairs of methods over tasks. won, tied, lost: tasks by means, for the first method. clearly: tasks whose 95 % "
        "interval over replicates excludes zero. gap: mean difference of scores, from 0 (worst final value) to 1 "
        "(best). p: two-sided p-values over tasks. Holm: corrected for the number of pairs."
    )
    return TextTable("pairs", caption, headings, rows)


def _costs(found: CostToLevel) -> TextTable:
    rows = []
    for place, label in enumerate(found.labels):
        half = float(np.sort(found.costs[:, place])[len(found.costs) // 2])  # the upper median: never between inf and inf
        median = f"{half:.4g}" if np.isfinite(half) else "not reached"
        ratio = found.ratio(place) if place else None
        share = f"{found.reached[place]:.0%}"
        rows.append((label, share, median, "–" if ratio is None else f"× {ratio}",
                     f"{found.profile(np.array([1.0]))[0, place]:.0%}"))  # fmt: skip
    caption = (
        f"{found.axis.capitalize()} until a method reaches the level of a task, the median of its final values. reached: share "
        "of replicates that reached it. median: over all replicates. ratio: geometric mean ratio to "
        f"{found.labels[0]} with its 95 % interval; a replicate that did not reach the level counts up to the end of the "
        "shorter run. cheapest: share in which no method was cheaper."
    )
    silent = "Methods that send nothing are omitted." if found.axis == "bytes" else ""
    headings = ("algorithm", "reached", "median", "ratio [95 %]", "cheapest")
    return TextTable(f"{found.axis}_to_level", caption, headings, rows, (silent,) if silent else ())


def _chance(value: float) -> str:
    return "–" if value != value else "< 0.001" if value < 0.001 else short(value) if value < 0.1 else f"{value:.2f}"
