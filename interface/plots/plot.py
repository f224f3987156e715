"""Figures of a run: drawn with matplotlib's objects, without a display and without any state outside the figure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedbo.plots.curves import draw_curves
from fedbo.plots.disruptions import draw_disruptions
from fedbo.plots.optima import draw_optima
from fedbo.plots.privacy import draw_privacy
from fedbo.plots.regret import draw_regret
from fedbo.plots.style import FAINT, STYLE, save
from fedbo.plots.sweep import draw_sweep
from fedbo.plots.timeline import draw_timeline
from fedbo.plots.workers import draw_workers
from fedbo.results.compare import target_of
from fedbo.settings.errors import FedboError

if TYPE_CHECKING:
    from fedbo.results.result import Result

KINDS = ("overview", "curves", "regret", "timeline", "trouble", "privacy", "optima", "sweep")


class Choices(TypedDict, total=False):
    """The options of a figure besides its kind and its cell."""

    regret: bool
    algorithm: str | None
    level: float | None


@dataclass(frozen=True, slots=True)
class View:
    """A figure to draw: its kind, its cell, and its options.

    `regret` instead of values, for curves; `algorithm`, by default the first federated one, whose timeline, trouble or sweep
    it is; `level`, which is to be reached in a sweep.
    """

    kind: str = "overview"
    cell: int = 0
    regret: bool = False
    algorithm: str | None = None
    level: float | None = None


class PlotError(FedboError, ValueError):
    """A figure that cannot be drawn."""


def draw(result: Result, path: Path, view: View) -> Path:
    """Draw a figure of a run into a file and give its path; PlotError when there is no such figure."""
    figure = figure_of(result, view)
    FigureCanvasAgg(figure)
    with rc_context(STYLE):
        try:
            save(figure, path, 100)
        except ValueError as error:
            raise PlotError(f"'{path}': {error}") from None
        except OSError as error:
            raise PlotError(f"'{path}': no figure can be written there ({error.strerror}); name another file") from None
    return path


def figure_of(result: Result, view: View) -> Figure:
    """Make the figure itself, to be changed further; PlotError when there is no such figure."""
    _check(result, view)
    with rc_context(STYLE):
        return _figure(result, view)


def _check(result: Result, view: View) -> None:
    if view.kind not in KINDS:
        raise PlotError(f"no figure '{view.kind}'; there are: {', '.join(KINDS)}")
    cells = sorted({trace.cell for trace in result.traces})
    if view.cell not in cells:
        raise PlotError(f"no observations in cell {view.cell}; there are some in: {', '.join(map(str, cells)) or 'none'}")
    if view.kind == "privacy" and not any(row.cell == view.cell and row.noise for row in result.spending()):
        raise PlotError(f"no figure 'privacy' of cell {view.cell}: no algorithm in it is private; draw the curves")
    if view.kind == "sweep" and len(cells) < 2:
        raise PlotError("no figure 'sweep' of this run: it has one cell; sweep something, or draw the curves")
    for given, option, kinds in (
        (view.regret, "regret", ("overview", "curves", "sweep")),
        (view.algorithm is not None, "algorithm", ("overview", "timeline", "trouble", "sweep")),
        (view.level is not None, "level", ("sweep",)),
    ):
        if given and view.kind not in kinds:
            raise PlotError(f"figure '{view.kind}' has no {option}; there is one in: {', '.join(kinds)}")


def _figure(result: Result, view: View) -> Figure:
    target = target_of(result, view.algorithm, view.level, view.regret)
    there = {trace.algorithm for trace in result.traces if view.kind == "sweep" or trace.cell == view.cell}
    if target.algorithm not in there:  # the study was cut short
        if view.algorithm is not None:
            where = "" if view.kind == "sweep" else f" in cell {view.cell}"
            raise PlotError(f"no runs of '{target.algorithm}'{where}; there are some of: {', '.join(sorted(there))}")
        target = replace(target, algorithm=max(there, key=result.study.labels.index))
    if view.kind in ("trouble", "privacy", "optima", "sweep"):
        figure = Figure(figsize=(16, 11))
        _head(figure, result, view)
        if view.kind == "privacy":
            draw_privacy(figure, result, view.cell)
        elif view.kind == "optima":
            draw_optima(figure, result, view.cell)
        elif view.kind == "trouble":
            draw_disruptions(figure, result, view.cell, target.algorithm)
        else:
            draw_sweep(figure, result, target)
        return figure
    if view.kind == "timeline":
        workers = result.study.cluster is not None
        figure = Figure(figsize=(16, 12 if workers else 7))
        _head(figure, result, view)
        agents = (0.06, 0.52, 0.92, 0.36) if workers else (0.06, 0.1, 0.92, 0.69)
        draw_timeline(figure.add_axes(agents), result, view.cell, target.algorithm)
        if workers:
            draw_workers(figure.add_axes((0.06, 0.06, 0.92, 0.36)), result, view.cell, target.algorithm)
        return figure
    figure = Figure(figsize=(16, 11) if view.kind == "overview" else (16, 6.4))
    _head(figure, result, view)
    bottom, height = (0.545, 0.325) if view.kind == "overview" else (0.12, 0.66)
    left, right = (figure.add_axes((x, bottom, 0.42, height)) for x in (0.06, 0.56))
    if view.kind == "regret":
        draw_regret((left, right), result, view.cell)
        return figure
    draw_curves((left, right), result, view.cell, view.regret)
    if view.kind == "overview":
        draw_timeline(figure.add_axes((0.06, 0.065, 0.92, 0.37)), result, view.cell, target.algorithm)
    return figure


def _head(figure: Figure, result: Result, view: View) -> None:
    inches = float(figure.get_size_inches()[1])
    header, study = result.study.study, result.study
    everything = view.kind == "sweep"
    agents = len({trace.agent for trace in result.traces if everything or trace.cell == view.cell})
    values = f"{len(study.titles())} cells" if everything else study.titles()[view.cell]
    figure.text(0.06, 1 - 0.42 / inches, header.name, fontsize=19, fontweight="bold", va="center")
    facts = [
        f"{agents} agents",
        f"{header.replicates} replicate{'s' * (header.replicates > 1)}",
        f"{study.budget.pulls:,} evaluations"
        if study.budget.pulls
        else f"{study.budget.iterations} iterations after {study.agents.initial} initial points",
        f"{study.exchange.mode} exchange",
        f"seed {header.seed}",
        *([values] if values else []),
        *([result.manifest["status"]] if result.manifest["status"] != "complete" else []),
    ]
    swept = [key.split(".")[0] for key in study.sweep]
    shown = [fact for fact in facts if not (fact.endswith(" exchange") and "exchange" in swept)]
    figure.text(0.06, 1 - 0.8 / inches, "   ·   ".join(shown), fontsize=11, color=FAINT, va="center")
