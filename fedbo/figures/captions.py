"""The LaTeX caption of a figure: what is drawn, how often it was repeated, what its intervals are, and paired tests."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import scipy

from fedbo.analysis.comparison import metric_of
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
    groups, cell, prefix = by_cell_and_algorithm(scored_traces(part, view.regret)), view.cell or 0, ""
    series = {label: groups[cell, label] for label in part.study.labels if (cell, label) in groups}
    if view.kind == "sweep":
        mine = {at: found for (at, label), found in groups.items() if label == target_in(part, view).algorithm}
        chosen = cell_styles(part, list(mine))
        prefix = f"{' · '.join(map(short, chosen.keys))} = "
        series = {chosen.titles[at]: found for at, found in mine.items()}
    (base, before), *rest = series.items()
    metric, tested = metric_of(part, before[0].cell, view.regret), dict[str, tuple[Difference, float]]()
    for name, found in rest:
        gap = difference(found, before, metric) if metric_of(part, found[0].cell, view.regret) == metric else None
        if gap is not None:
            tested[name] = gap, chance_of(gap, len({one.replicate for one in found} & {one.replicate for one in before}))
    corrected = zip(tested.items(), holm([chance for _, chance in tested.values()]), strict=True)
    words = [f"{name}: {gap}, p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}" for (name, (gap, _)), p in corrected]
    how = "paired by replicate, with 95 % Student intervals and t-tests" + f" corrected by Holm for {len(words)}" * (
        len(words) > 1
    )
    return [f"Final value minus that of {prefix}{base} ({how}): {'; '.join(words)}."] if words else []


def chance_of(gap: Difference, pairs: int) -> float:
    """Return the two-sided p-value of Student's t-test for paired differences; 1 where all are 0."""
    half = (gap.high - gap.low) / 2
    t = gap.mean / half * student_factor(pairs) if half else math.inf if gap.mean else 0.0
    return float(2 * scipy.special.stdtr(pairs - 1, -abs(t)))
