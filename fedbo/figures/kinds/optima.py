"""The heterogeneity of agents: the location and the value of each agent's best point."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from fedbo.analysis.finished_run import own_metric, trusted_cells
from fedbo.analysis.mean_objective import best_of_mean, federation_of
from fedbo.figures.layout import FigurePanel, PlotError, row_labels
from fedbo.figures.style import INK, PALE
from fedbo.objectives.base import Parameter

if TYPE_CHECKING:
    from fedbo.analysis.result import Result

MAX_PAIRS = 6
CMAP = colormaps["viridis"]
MEAN: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1.2, "zorder": 2}  # where the mean is largest
MAX_LABELLED = 60  # more agents than these are not told apart by their numbers


class Best(NamedTuple):
    """The best point `(k, d)` of each of k agents in native units, its native score `(k,)`, and the agents' numbers."""

    agent: list[int]
    point: np.ndarray
    score: np.ndarray


def optima_panels(result: Result, cell: int) -> tuple[list[FigurePanel], list[Artist]]:
    """Return a panel for each pair of parameters and one of the agents by their best values, and the legend entries."""
    federation = federation_of(result, trusted_cells(result)[cell].study)
    best, seen = _found(result, cell, drawn=federation.random_per_replicate)
    replicate = first_replicate(result) if federation.random_per_replicate else 0
    parameters, mean = federation.parameters, best_of_mean(result, cell, replicate)
    pairs = list(combinations(range(len(parameters)), 2))[:MAX_PAIRS] or [(0, 0)]
    x = None if mean is None else mean.x
    labels = [table.title for table in result.study.algorithm if not table.centralised]
    title = f"Best point of each agent, {'by ' + labels[0] if len(labels) == 1 else 'of all methods'}"
    panels = []
    for pair in pairs:
        draw = partial(_pair, title=title, best=best, seen=seen, pair=pair, parameters=parameters, mean=x)
        panels.append(FigurePanel("-".join(dict.fromkeys(parameters[place].name for place in pair)), draw))
    names, metric = getattr(federation, "agent_names", None), own_metric(result, cell)
    ranked = partial(_ranked, best=best, metric=metric, names=names)
    panels.append(FigurePanel("ranking", ranked, rows=min(len(best.agent), MAX_LABELLED)))
    words = f"best point of an agent{f', replicate {replicate}' if federation.random_per_replicate else ''}"
    legend: list[Artist] = [_dot(CMAP(0.5), 6, words), _dot(PALE, 3, "all evaluated points")]
    if x is not None:
        words = f"best of the mean of all agents: {', '.join(f'{value:.4g}' for value in x)}"
        legend.append(Line2D([], [], label=words, **MEAN))
    return panels, legend


def _dot(colour: Any, size: float, label: str) -> Artist:
    edge = INK if size > 4 else colour
    options: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgewidth": 0.5}
    return Line2D([], [], color=colour, markersize=size, markeredgecolor=edge, label=label, **options)


def first_replicate(result: Result) -> int:
    """Return the first replicate with any data."""
    return min(trace.replicate for trace in result.traces)


def _found(result: Result, cell: int, drawn: bool) -> tuple[Best, np.ndarray]:
    """Return each agent's best point over all algorithms, replicates and earlier tasks, and all points `(n, d)`.

    If every replicate draws new objectives, only the first counts. A centralised run belongs to no agent.

    Raises:
        PlotError: no evaluation succeeded.
    """
    first = first_replicate(result)
    columns = ["cell", "algorithm", "replicate", "agent", "x", "score", "error"]
    central = {table.title for table in result.study.algorithm if table.centralised}
    rows = [
        row
        for table in (result.observations, result.histories)
        for row in table.select(columns).to_pylist()
        if row["cell"] == cell
        and row["error"] is None
        and not (drawn and row["replicate"] != first)
        and row["algorithm"] not in central
    ]
    chosen: dict[int, Any] = {}
    for row in rows:
        if row["agent"] not in chosen or row["score"] > chosen[row["agent"]]["score"]:
            chosen[row["agent"]] = row
    if not chosen:
        raise PlotError(f"no figure 'optima' of cell {cell}: no evaluation has a value; see fedbo show --trouble")
    agents = sorted(chosen)
    score = own_metric(result, cell).native(np.array([chosen[agent]["score"] for agent in agents]))
    return Best(agents, np.array([chosen[agent]["x"] for agent in agents]), score), np.array([row["x"] for row in rows])


def _pair(
    axes: Axes,
    title: str,
    best: Best,
    seen: np.ndarray,
    pair: tuple[int, int],
    parameters: tuple[Parameter, ...],
    mean: tuple[float, ...] | None,
) -> Sequence[Artist]:
    """Draw two parameters of the best points over those of all points; with a single parameter, the points' values."""
    i, j = pair
    places = np.column_stack([best.point[:, 0], best.score]) if i == j else best.point[:, [i, j]]
    axes.set(title=title, xlabel=parameters[i].name, ylabel="best value" if i == j else parameters[j].name)
    if parameters[i].log:
        axes.set_xscale("log")
    if i != j:
        if parameters[j].log:
            axes.set_yscale("log")
        axes.plot(seen[:, i], seen[:, j], ".", color=PALE, markersize=3, zorder=1)
    axes.scatter(places[:, 0], places[:, 1], c=best.score, cmap=CMAP, s=42, edgecolors=INK, linewidths=0.5, zorder=3)
    if mean is not None:
        axes.axvline(mean[i], **MEAN)
        if i != j:
            axes.axhline(mean[j], **MEAN)
    _name(axes, best, places)
    return ()


def _name(axes: Axes, best: Best, places: np.ndarray) -> None:
    """Number the agents beside their points, unless a number would cover another number or point: the ranking has all."""
    if len(best.agent) > MAX_LABELLED:
        return
    points = axes.transData.transform(places)
    area = axes.get_window_extent()
    points[:, 1] *= min(1.0, 0.55 * area.width / area.height)  # the layout, which comes later, makes a panel flatter
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in points]
    for agent, place, (x, y) in zip(best.agent, places, points, strict=True):
        wide, high = 7.0 * len(str(agent)), 10.0
        for dx, dy in ((5, 4), (-5 - wide, 4), (5, -4 - high), (-5 - wide, -4 - high)):
            box = Bbox.from_bounds(x + dx, y + dy, wide, high)
            if not any(box.overlaps(other) for other in taken):
                taken.append(box)
                shift = 72 / axes.figure.dpi * np.array([dx, dy])
                box_of = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4}  # above the lines of the mean
                options: dict[str, Any] = {"textcoords": "offset points", "fontsize": "x-small", "color": INK, "zorder": 2.5}
                axes.annotate(str(agent), tuple(place), tuple(shift), bbox=box_of, **options)
                break


def _ranked(axes: Axes, best: Best, metric: Any, names: Sequence[str] | None) -> Sequence[Artist]:
    """Draw the agents from best to worst, by name if they have names."""
    order = np.argsort(metric.sign * -best.score, kind="stable")
    axes.set_title(f"The {metric.name} at each agent's best point")
    rows = np.arange(len(order))
    axes.scatter(best.score[order], rows, c=best.score[order], cmap=CMAP, s=42, edgecolors=INK, linewidths=0.5)
    axes.set(xlabel=f"{metric.name}, to {metric.direction}", ylabel="agent, best first")
    axes.invert_yaxis()
    if len(order) <= MAX_LABELLED:
        agents = [best.agent[place] for place in order]
        row_labels(axes, [str(agent) if names is None else f"{names[agent]} {agent}" for agent in agents])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return ()
