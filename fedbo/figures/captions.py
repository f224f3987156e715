"""The LaTeX caption of a figure: what is drawn, how often it was repeated, what its intervals are, and paired tests."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import scipy

from fedbo.analysis.comparison import against_first, metric_of
from fedbo.analysis.finished_run import scored_traces
from fedbo.analysis.grouping import by_cell_and_algorithm
from fedbo.analysis.records.text_table import latex
from fedbo.analysis.summary import Difference, difference, holm, student_factor
from fedbo.figures.cells import cell_styles, short
from fedbo.figures.layout import Look
from fedbo.figures.plot import View, facts_of, figure_of, part_of, settled, shows_regret, target_in
from fedbo.figures.style import labels

if TYPE_CHECKING:
    from fedbo.analysis.result import Choices, Result

# What is said of the intervals that a figure's words name.
INTERVALS = {
    "± 1 standard error": "Bands: ± 1 standard error over the replicates, of their means over agents.",
    "± 1 standard deviation": "Bands: ± 1 standard deviation over the replicates.",
    "± se": "Bars: ± 1 standard error over the replicates.",
    "± deviation": "Bars: ± 1 standard deviation over shuffles.",
    "its 95 % interval": "Boxes: 95 % Student intervals of geometric means over the replicates.",
    "count up to their end": "Hatched: a replicate that missed the level counts with its end.",
}


def caption_of(result: Result, kind: str | None, cell: int | None, choices: Choices) -> str:
    """Return the caption of the figure that `Result.plot` draws; PlotError if there is no such figure."""
    view = settled(result, View.of(kind, cell, choices))
    figure = figure_of(result, replace(view, look=Look()))
    part, said, (agents, *facts) = part_of(result, view.algorithms, view.replicate), labels(figure), facts_of(result, view)
    titles = [axes.get_title("left") or f"{axes.get_ylabel()} against {axes.get_xlabel()}" for axes in figure.axes]
    count = len({trace.replicate for trace in part.traces if view.cell in (trace.cell, None)})
    lines = [
        f"{result.study.study.name}. {'; '.join(titles)}.",
        f"n = {count} replicate{'s' * (count != 1)} of {agents}; {', '.join(facts[view.replicate is None :])}.",
        *(words for word, words in INTERVALS.items() if word in said),
        *_tests(part, view),
    ]
    words = re.sub(r"(?<!\w)-(?=[\d.])", "$-$", latex(" ".join(lines)))
    return r"\caption{" + re.sub(r"(?<!\w)([np]) (?==|\$<)", r"$\1$ ", words) + "}"


def _tests(part: Result, view: View) -> list[str]:
    """Return the sentence on paired differences of final values, of algorithms or of cells; none for other figures."""
    if view.kind not in ("overview", "curves", "sweep") or (view.kind == "overview" and shows_regret(part, view)):
        return []
    if view.kind == "sweep":
        (first, _), *others = against_first(part, target_in(part, view))
        chosen = cell_styles(part, [first.cell, *(one.cell for one, _ in others)])
        base = f"{' · '.join(map(short, chosen.keys))} = {chosen.titles[first.cell]}"
        gaps = {chosen.titles[one.cell]: gap and (gap.final, gap.pairs) for one, gap in others}
    else:
        groups, cell = by_cell_and_algorithm(scored_traces(part, view.regret)), view.cell or 0
        base, *rest = [label for label in part.study.labels if (cell, label) in groups]
        pairs = {label: {trace.replicate for trace in groups[cell, label]} for label in (base, *rest)}
        metric = metric_of(part, cell, view.regret)
        gap_of = {label: difference(groups[cell, label], groups[cell, base], metric) for label in rest}
        gaps = {label: (gap, len(pairs[base] & pairs[label])) for label, gap in gap_of.items()}
    found = {name: (gap[0], gap[1]) for name, gap in gaps.items() if gap is not None and gap[0] is not None}
    chances = holm([_chance(gap, count) for gap, count in found.values()])
    words = [f"{name}: {gap}, p {_written(p)}" for (name, (gap, _)), p in zip(found.items(), chances, strict=True)]
    how = "paired by replicate, with 95 % Student intervals and t-tests" + f" corrected by Holm for {len(words)}" * (
        len(words) > 1
    )
    return [f"Final value minus that of {base} ({how}): {'; '.join(words)}."] if words else []


def _chance(gap: Difference, pairs: int) -> float:
    """Return the two-sided p-value of Student's t-test for paired differences; NaN where all are 0."""
    half = (gap.high - gap.low) / 2
    t = gap.mean / half * student_factor(pairs) if half else math.inf if gap.mean else math.nan
    return float(2 * scipy.special.stdtr(pairs - 1, -abs(t)))


def _written(p: float) -> str:
    return "unknown" if math.isnan(p) else "< 0.001" if p < 0.001 else f"= {p:.2g}"
