"""The verdict on a cell as text: the conclusions from its intervals, and the open questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedbo.algorithms.catalog import algorithms
from fedbo.analysis.averages import replicate_means
from fedbo.analysis.comparison import ratio_of_times, time_to_target
from fedbo.analysis.grouping import by_cell_and_algorithm, by_replicate
from fedbo.analysis.result import Result
from fedbo.analysis.summary import Difference, SummaryRow, difference, main_algorithm
from fedbo.settings.rooms import optional_or

_MANY = 5_000_000  # agents times evaluations of a run, each of which is looked at


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a cell: the direction of its first sentence, that sentence, and further ones."""

    tone: Literal["better", "worse", "open"]
    headline: str
    further: Sequence[str]


def verdict(result: Result, cell: int, summary: Sequence[SummaryRow]) -> Verdict:
    """Judge the main algorithm of a cell against the first one of the study and against its controls, and all others briefly.

    `summary` is that of the run.
    """
    rows = {row.algorithm: row for row in summary if row.cell == cell}
    baseline = result.study.labels[0]
    if baseline not in rows or len(rows) < 2:
        ends = "; ".join(f"{row.algorithm} ended at {row.final}" for row in rows.values())
        return Verdict("open", f"Nothing to compare: {ends or 'no run has finished'}.", ())
    others = [row for row in rows.values() if row.algorithm != baseline]
    main = rows[main_algorithm(others, result.study.labels)]
    name, sign = result.metric(cell).name, result.metric(cell).sign
    tone = _tone(main.difference, sign)
    equal, told = _controls(result, cell, main)
    spent = [row for row in optional_or("spending", ())(result) if row.cell == cell and row.noise]
    further = [
        *told,
        *_others(result, cell, [row for row in others if row is not main], baseline),
        *_time(result, cell, main.algorithm, baseline),
        *(f"{row.algorithm} spent epsilon {row.epsilon[0]:.3g} at delta {row.deltas[0]:.3g}." for row in spent),
    ]
    if (count := sum(row.difference is not None for row in others)) > 2:
        further.append(f"These are {count} separate 95 % intervals; about one in twenty misses by chance.")
    headline = _headline(main, rows[baseline], tone, name)
    if tone == "better" and equal:  # a reader of this sentence alone must not take the gain for one of the messages
        doubt = f"{main.algorithm} ends better than {baseline}, but not clearly better than {_listed(equal)}"
        return Verdict("open", headline.replace(f"{main.algorithm} ends better than {baseline}", doubt, 1), further)
    return Verdict(tone, headline, further)


def _headline(main: SummaryRow, base: SummaryRow, tone: str, name: str) -> str:
    ends = f"best {name} {main.final} against {base.final}"
    if main.difference is None:
        return f"One replicate does not allow a statistical comparison: {main.algorithm} against {base.algorithm}, {ends}."
    words = {
        "better": f"{main.algorithm} ends better than {base.algorithm}",
        "worse": f"{main.algorithm} ends worse than {base.algorithm}",
        "open": f"{main.algorithm} and {base.algorithm} are not shown to differ at the end",
    }[tone]
    return f"{words}: {ends}, a difference of {main.difference} over {main.replicates} replicates."


def _tone(gap: Difference | None, sign: int) -> Literal["better", "worse", "open"]:
    if gap is None or not (gap.low > 0 or gap.high < 0):
        return "open"
    return "better" if sign * gap.mean > 0 else "worse"


def controls_of(result: Result, label: str) -> list[str]:
    """List the labels of the algorithms that the catalogue declares to be controls for the one of a label."""
    tables = {table.title: table.name for table in result.study.algorithm}
    known = algorithms()
    wanted = f"control for {tables[label]}:"
    return [title for title, name in tables.items() if name in known and known[name].summary.startswith(wanted)]


def _controls(result: Result, cell: int, main: SummaryRow) -> tuple[list[str], list[str]]:
    """List the controls that the algorithm does not beat, and the conclusion: its gain may not come from the messages."""
    groups, metric = by_cell_and_algorithm(result.traces), result.metric(cell)
    found = [label for label in controls_of(result, main.algorithm) if (cell, label) in groups]
    gaps = {label: difference(groups[cell, main.algorithm], groups[cell, label], metric) for label in found}
    known = {label: gap for label, gap in gaps.items() if gap is not None}
    if not known:
        return [], []
    beaten = [label for label, gap in known.items() if _tone(gap, metric.sign) == "better"]
    told = "; ".join(f"minus {label} {gap}" for label, gap in known.items())
    if len(beaten) == len(known):
        return [], [f"It also ends better than {_listed(beaten)} ({told}): the content of the messages matters."]
    left = [label for label in known if label not in beaten]
    return left, [
        f"It does not clearly beat {_listed(left)} ({told}): the data do not show that the content of the messages matters."
    ]


def _others(result: Result, cell: int, rows: Sequence[SummaryRow], baseline: str) -> list[str]:
    words = {"better": "ends better than", "worse": "ends worse than", "open": "does not differ significantly from"}
    sign = result.metric(cell).sign
    told = [row for row in rows if row.difference is not None]
    return [f"{row.algorithm} {words[_tone(row.difference, sign)]} {baseline}: {row.difference}." for row in told]


def _time(result: Result, cell: int, label: str, baseline: str) -> list[str]:
    """Compare the times to a level that is neither's final one, unless that would take too long."""
    groups = by_cell_and_algorithm(result.traces)
    mine, theirs = groups[cell, label], groups[cell, baseline]
    if max(len(found) * sum(len(trace.finished) for trace in found) for found in by_replicate(mine).values()) > _MANY:
        return []
    metric = result.metric(cell)
    ends = [replicate_means(found, "time", np.array([np.inf])).values() for found in (mine, theirs)]
    level = float(metric.native(np.median(np.concatenate([*ends[0], *ends[1]]))))
    if np.isnan(level):
        return []
    both = [time_to_target(found, theirs, metric, level) for found in (mine, theirs)]
    ratio, _ = ratio_of_times(*both)
    reached = " and ".join(f"{one.algorithm} in {len(one.reached)} of {len(one.times)} replicates" for one in both)
    time = "" if ratio is None else f". Counted only up to the earlier end of each two runs, {label} took × {ratio} of the time"
    return [f"{metric.name.capitalize()} {level:.4g}, the median of their final values, was reached by {reached}{time}."]


def _listed(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
