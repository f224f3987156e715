"""The curves of several runs in one figure, with one legend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedbo.analysis.result import Choices, Result
from fedbo.analysis.side_by_side import run_names
from fedbo.figures.curves import AXES, SHOWN, RunCurves, run_panels
from fedbo.figures.layout import PlotError, Sheet, arrange
from fedbo.figures.plot import View, facts_of, part_of, settled, wanted_panels, write
from fedbo.figures.style import LINES, MARKERS, colour_at, style_at, styled
from fedbo.settings.errors import unknown


def draw_runs(results: Sequence[Result], path: Path, cell: int | None, choices: Choices) -> Path:
    """Draw the curves of several runs into a file, or into a folder as compare.png, and return its path."""
    view = View.of("curves", cell, choices)
    view.look.check()
    with styled(view.look.style()):
        figure = runs_figure(results, view)
    return write(figure, path, "compare", view.look)


def runs_figure(results: Sequence[Result], view: View) -> Figure:
    """Return the figure itself, in the present style; PlotError if a run has no such curves.

    Colours and markers are those of algorithms, line styles those of runs. With one algorithm, colours are those of runs.
    """
    views, names = [settled(result, view) for result in results], run_names(results)
    known = list(dict.fromkeys(label for result in results for label in result.study.labels))
    labels = known if view.algorithms is None else list(dict.fromkeys(view.algorithms))
    if strange := [label for label in labels if label not in known]:
        raise PlotError(unknown("algorithm", strange[0], known))
    titles = [result.study.titles()[own.cell or 0] for result, own in zip(results, views, strict=True)]
    runs, shown = list[RunCurves](), dict[str, dict[str, Any]]()
    for place, (result, own, name) in enumerate(zip(results, views, names, strict=True)):
        mine = [label for label in labels if label in result.study.labels]
        if not mine:
            raise PlotError(f"'{name}': has no algorithm {' or '.join(labels)}; leave the run out, or choose others")
        part = part_of(result, mine, view.replicate)
        there = {trace.algorithm for trace in part.traces if trace.cell == own.cell}
        looks = dict[str, dict[str, Any]]()
        for label in filter(there.__contains__, mine):
            number = labels.index(label)
            marker = MARKERS[(number + len(labels) * (place // len(LINES))) % len(MARKERS)]
            looks[label] = {**style_at(place), "color": colour_at(number if len(labels) > 1 else place), "marker": marker}
        run = f"{name}, {titles[place]}" if len(set(titles)) > 1 and titles[place] else name
        shown |= {run if len(labels) == 1 else f"{run}: {label}": look for label, look in looks.items()}
        runs.append(RunCurves(part, own.cell or 0, looks))
    if len({result.metric(run.cell) for result, run in zip(results, runs, strict=True)}) > 1:
        raise PlotError("these cells have different metrics; choose another cell")
    panels, legend = run_panels(runs, shown, view.regret)
    facts = [facts_of(result, own) for result, own in zip(results, views, strict=True)]
    common = [fact for fact in facts[0] if all(fact in other for other in facts[1:])]
    gone = [axis for axis in AXES[:SHOWN] if axis not in {panel.name for panel in panels}]
    common += [f"no {axis}: its units differ" for axis in gone if view.panels is None]
    title = ", ".join(dict.fromkeys(result.study.study.name for result in results))
    return arrange(Sheet(wanted_panels(panels, view), legend, title, [f"{len(runs)} runs", *common]), view.look)
