"""The heterogeneity of agents: where each has its best point, and its value there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedbo.objectives.base import Parameter
from fedbo.plots.style import FAINT, INK, PALE, remark
from fedbo.results.mean_objective import best_of_mean

if TYPE_CHECKING:
    from fedbo.results.result import Result

MAX_PAIRS = 6
MAX_LABELLED = 60  # more agents than these are not told apart by their numbers


class Best(NamedTuple):
    """The best point `(k, d)` of each of k agents in native units, its native score `(k,)`, and who they are."""

    agent: list[int]
    point: np.ndarray
    score: np.ndarray


def draw_optima(figure: Figure, result: Result, cell: int) -> None:
    """Draw the page for one cell: a panel for each pair of parameters, and the agents by what they reach."""
    federation = result.trusted_cells()[cell].study.federation()
    best, seen = _found(result, cell, drawn=federation.random_per_replicate)
    parameters = federation.parameters
    pairs = list(combinations(range(len(parameters)), 2))[:MAX_PAIRS] or [(0, 0)]
    columns = 1 if len(pairs) == 1 else 2 if len(pairs) <= 4 else 3
    rows, mean = -(-len(pairs) // columns), best_of_mean(result, cell)
    width, height = 0.56 / columns, 0.8 / rows
    for place, pair in enumerate(pairs):
        column, row = place % columns, place // columns
        box = (0.06 + column * width, 0.07 + (rows - 1 - row) * height, width - 0.055, height - 0.075)
        axes = figure.add_axes(box)
        (_curve if len(parameters) == 1 else _pair)(axes, best, seen, pair, parameters)
        if mean is not None:
            _mark(axes, mean.x, pair, place == 0)
        if place == 0:
            axes.set_title("Every agent's best point, among all that were evaluated")
            if federation.random_per_replicate:
                remark(axes, "replicate 0")
    names = getattr(federation, "agent_names", None)
    left = 0.68 if names is None else 0.76
    _ranked(figure.add_axes((left, 0.07, 0.98 - left, 0.725)), best, result.metric(cell), names)


def _found(result: Result, cell: int, drawn: bool) -> tuple[Best, np.ndarray]:
    """Give each agent's best point over all algorithms, replicates and earlier tasks, and all points `(n, d)`.

    Where objectives are drawn anew in every replicate, those of the first only. A centralised run belongs to no agent.
    """
    columns = ["cell", "algorithm", "replicate", "agent", "x", "score", "error"]
    central = {table.title for table in result.study.algorithm if table.centralised}
    rows = [
        row
        for table in (result.observations, result.histories)
        for row in table.select(columns).to_pylist()
        if row["cell"] == cell and row["error"] is None and not (drawn and row["replicate"]) and row["algorithm"] not in central
    ]
    chosen: dict[int, Any] = {}
    for row in rows:
        if row["agent"] not in chosen or row["score"] > chosen[row["agent"]]["score"]:
            chosen[row["agent"]] = row
    agents = sorted(chosen)
    score = result.metric(cell).native(np.array([chosen[agent]["score"] for agent in agents]))
    return Best(agents, np.array([chosen[agent]["x"] for agent in agents]), score), np.array([row["x"] for row in rows])


def _pair(axes: Axes, best: Best, seen: np.ndarray, pair: tuple[int, int], parameters: tuple[Parameter, ...]) -> None:
    """Draw two parameters of the best points over those of all points."""
    i, j = pair
    axes.plot(seen[:, i], seen[:, j], ".", color=PALE, markersize=3, zorder=1)
    axes.scatter(
        best.point[:, i], best.point[:, j], c=best.score, cmap="viridis", s=42, edgecolors=INK, linewidths=0.5, zorder=3
    )
    _name(axes, best, best.point[:, [i, j]])
    for axis, parameter in (("x", parameters[i]), ("y", parameters[j])):
        getattr(axes, f"set_{axis}label")(parameter.name)
        if parameter.log:
            getattr(axes, f"set_{axis}scale")("log")


def _curve(axes: Axes, best: Best, seen: np.ndarray, pair: tuple[int, int], parameters: tuple[Parameter, ...]) -> None:
    """Draw what the best points reach over the only parameter."""
    axes.scatter(best.point[:, 0], best.score, c=best.score, cmap="viridis", s=42, edgecolors=INK, linewidths=0.5, zorder=3)
    _name(axes, best, np.column_stack([best.point[:, 0], best.score]))
    axes.set_xlabel(parameters[0].name)
    axes.set_ylabel("best value")
    if parameters[0].log:
        axes.set_xscale("log")


def _mark(axes: Axes, x: tuple[float, ...], pair: tuple[int, int], named: bool) -> None:
    """Mark where the mean of all agents' functions is largest."""
    i, j = pair
    options: Any = {"color": INK, "linestyle": "--", "linewidth": 1.2, "zorder": 2}
    axes.axvline(x[i], label=f"best of the mean of all agents: {', '.join(f'{value:.4g}' for value in x)}", **options)
    if i != j:
        axes.axhline(x[j], **options)
    if named:
        axes.legend(loc="best")


def _name(axes: Axes, best: Best, places: np.ndarray) -> None:
    if len(best.agent) > MAX_LABELLED:
        return
    for agent, place in zip(best.agent, places, strict=True):
        axes.annotate(str(agent), tuple(place), (4, 3), textcoords="offset points", fontsize=7.5, color=FAINT, zorder=4)


def _ranked(axes: Axes, best: Best, metric: Any, names: Sequence[str] | None) -> None:
    """Draw the agents from best to worst, by name where they have names."""
    order = np.argsort(metric.sign * -best.score, kind="stable")
    axes.set_title(f"The {metric.name} that it has there")
    axes.scatter(
        best.score[order], np.arange(len(order)), c=best.score[order], cmap="viridis", s=42, edgecolors=INK, linewidths=0.5
    )
    axes.set_xlabel(f"{metric.name}, to {metric.direction}")
    axes.set_ylabel("agent, best first")
    axes.invert_yaxis()
    if len(order) <= MAX_LABELLED:
        words = [
            str(best.agent[place]) if names is None else f"{names[best.agent[place]]} {best.agent[place]}" for place in order
        ]
        axes.set_yticks(np.arange(len(order)), words, fontsize=8)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
