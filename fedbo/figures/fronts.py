"""The fronts of agents with several objectives, and the share of evaluations that keep all limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.agent_fronts import AgentFront, agent_fronts, exact_fronts, feasible_traces, goals_of
from fedbo.analysis.averages import curve, grid
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.grouping import by_cell_and_algorithm
from fedbo.analysis.traces import Array, Axis
from fedbo.figures.curves import BAND, POINTS, axis_label, band_alpha, in_units, label_panel, line
from fedbo.figures.layout import FigurePanel, PlotError
from fedbo.figures.style import FAINT, INK, band_entry, entries, mark_at, styles
from fedbo.objectives.base import Metric
from fedbo.objectives.goals import Goals

if TYPE_CHECKING:
    from fedbo.analysis.result import Result

SHOWN = 8  # agents with a panel, unless others are asked for
SHARE = Metric("share of feasible evaluations")
EXACT: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (1, 1)), "zorder": 2}
DOMINATED: dict[str, Any] = {"color": FAINT, "alpha": 0.3, "linestyle": "none", "marker": ".", "markeredgewidth": 0}
_AXES: tuple[Axis, ...] = ("evaluations", "time", "bytes")


@dataclass(frozen=True, slots=True)
class FrontPanel:
    """The outcomes of one agent, or of all where `agent` is None, by two objectives.

    - `names`, `signs`: the two objectives; the second is drawn upwards. A sign of 1 means to be maximised.
    - `ranges`: the ends of both axes, from the best known value to the reference.
    - `staircase`: whether there are only two objectives, so that the front is a line.
    - `outcomes`: by algorithm, the dominated points `(n, 2)` and those of the front `(k, 2)`, sorted by the first objective.
    - `exact (k, 2)`: the exact front; empty if it is not known.
    """

    agent: int | None
    names: tuple[str, str]
    signs: tuple[int, int]
    ranges: tuple[tuple[float, float], tuple[float, float]]
    staircase: bool
    outcomes: Mapping[str, tuple[Array, Array]]
    exact: Array

    @property
    def title(self) -> str:
        """Return the panel's title."""
        return "All agents" if self.agent is None else f"Agent {self.agent}"

    def levels(self, front: Array) -> Array:
        """Return the places `(c, 2)` of a staircase: from each place on, up to the next one, the best attained of the second.

        The region that the front `(k, 2)` dominates ends at the reference of the first objective.
        """
        x, y = front.T
        if not len(x):
            return front
        if self.signs[0] < 0:
            return np.column_stack([np.append(x, self.ranges[0][1]), np.append(y, y[-1])])
        return np.column_stack([np.concatenate([[self.ranges[0][0]], x]), np.append(y, y[-1])])


def front_figures(result: Result, cell: int) -> list[FrontPanel]:
    """Return the fronts of all agents together and of each agent in the first replicate; PlotError with one objective."""
    known = goals_of(result, cell)
    if known is None or not known.several:
        raise PlotError(f"no figure 'fronts' of cell {cell}: the study has one objective; draw the curves")
    here = [trace for trace in result.traces if trace.cell == cell]
    replicate = min(trace.replicate for trace in here)
    found: dict[int | None, dict[str, AgentFront]] = {}
    for label in dict.fromkeys(trace.algorithm for trace in here):
        try:
            fronts = agent_fronts(result, RunKey(cell, label, replicate))
        except ResultError as error:
            raise PlotError(str(error)) from None
        for front in fronts:
            found.setdefault(front.agent, {})[label] = front
    exact, several = exact_fronts(result, cell, replicate), list(combinations(range(len(known.objectives)), 2))
    together = [_panel(known, found[None], exact.get(None), (None, pair)) for pair in several]
    return together + [
        _panel(known, found[agent], exact.get(agent), (agent, several[0])) for agent in found if agent is not None
    ]


def _panel(
    known: Goals, fronts: Mapping[str, AgentFront], exact: Array | None, place: tuple[int | None, tuple[int, int]]
) -> FrontPanel:
    agent, pair = place
    goals, columns = [known.objectives[axis] for axis in reversed(pair)], list(reversed(pair))
    outcomes = {}
    for label, front in fronts.items():
        seen = front.values[:, columns]
        outcomes[label] = seen[~front.best & ~np.isnan(seen).any(axis=1)], _sorted(seen[front.best])
    line = np.empty((0, 2)) if exact is None else _sorted(exact[:, columns])
    best = np.vstack([line, *(front for _, front in outcomes.values())])
    ranges = [_range(best[:, axis], goal.sign, goal.reference) for axis, goal in enumerate(goals)]
    names, signs = [goal.name for goal in goals], [goal.sign for goal in goals]
    return FrontPanel(
        agent=agent,
        names=(names[0], names[1]),
        signs=(signs[0], signs[1]),
        ranges=(ranges[0], ranges[1]),
        staircase=len(known.objectives) == 2,
        outcomes=outcomes,
        exact=line,
    )


def _sorted(points: Array) -> Array:
    return np.asarray(np.unique(points, axis=0))


def _range(best: Array, sign: int, reference: float | None) -> tuple[float, float]:
    """Return the ends of an axis: the best known value with a margin, and the reference, beyond which nothing counts."""
    assert reference is not None, "each of several objectives has a reference"
    length = 1.03 * (max([0.0, *(sign * (best - reference))]) or abs(reference) or 1.0)
    return (reference, reference + length) if sign > 0 else (reference - length, reference)


def front_panels(result: Result, cell: int) -> tuple[list[FigurePanel], list[Artist]]:
    """Return a panel for all agents and one for each agent, and the entries of their legend."""
    known, figures = styles(result), front_figures(result, cell)
    panels = []
    for number, figure in enumerate(figures):
        name = "all" if figure.agent is None else f"agent {figure.agent}"
        name = name if figure.agent is not None or figure.staircase else f"all, {figure.names[1]}-{figure.names[0]}"
        shown = figure.agent is None or number <= SHOWN
        panels.append(FigurePanel(name, partial(draw_front, figure=figure, known=known), shown=shown))
    algorithms = dict.fromkeys(label for figure in figures for label in figure.outcomes)
    legend = entries({label: {**known[label], "marker": mark_at(list(known).index(label))} for label in algorithms})
    legend.append(Line2D([], [], label="dominated or infeasible", **DOMINATED))
    if any(len(figure.exact) for figure in figures):
        legend.append(Line2D([], [], label="exact front", **EXACT))
    return panels, legend


def draw_front(axes: Axes, figure: FrontPanel, known: Mapping[str, Mapping[str, Any]]) -> Sequence[Artist]:
    for dominated, _ in figure.outcomes.values():
        axes.plot(dominated[:, 0], dominated[:, 1], zorder=1, **DOMINATED)
    if len(figure.exact):
        _draw_line(axes, figure, figure.exact, **EXACT)
    for label, (_, front) in figure.outcomes.items():
        options = {name: value for name, value in known[label].items() if name in ("color", "linestyle")}
        _draw_line(axes, figure, front, **options)
        axes.plot(front[:, 0], front[:, 1], mark_at(list(known).index(label)), color=options["color"], markersize=4, zorder=3)
    label_panel(axes, figure.title, axis_name(figure, 0), axis_name(figure, 1))
    axes.set_xlim(*figure.ranges[0])
    axes.set_ylim(*figure.ranges[1])
    return ()


def _draw_line(axes: Axes, figure: FrontPanel, front: Array, **options: Any) -> None:
    """Draw a front as a staircase, or as points where it is the shadow of one in more objectives."""
    if figure.staircase:
        axes.plot(*figure.levels(front).T, drawstyle="steps-post", **options)
    else:
        axes.plot(*front.T, ".", color=options["color"], markersize=3, zorder=2)


def axis_name(figure: FrontPanel, axis: int) -> str:
    """Return the label of an axis: 0 is horizontal."""
    return f"{figure.names[axis]}, to {'maximise' if figure.signs[axis] > 0 else 'minimise'}"


def feasible_panels(result: Result, cell: int) -> tuple[list[FigurePanel], list[Artist]]:
    """Return the share of feasible evaluations so far against evaluations, time and bytes; PlotError without limits."""
    known = goals_of(result, cell)
    if known is None or not known.limits:
        raise PlotError(f"no figure 'feasible' of cell {cell}: the study has no limits; draw the curves")
    groups, shown = by_cell_and_algorithm(feasible_traces(result, cell)), styles(result)
    several = any(len({trace.replicate for trace in mine}) > 1 for mine in groups.values())
    legend = [*entries({label: shown[label] for _, label in groups}), *([band_entry(BAND)] if several else [])]

    def draw(axes: Axes, axis: Axis) -> Sequence[Artist]:
        drawn, unit = in_units([curve(mine, axis, grid(mine, axis, POINTS), SHARE) for mine in groups.values()])
        for one in drawn:
            line(axes, one, np.isfinite(one.mean), band_alpha(len(drawn)), **shown[one.algorithm])
        label_panel(axes, f"Feasible share against {axis}", axis_label(result, axis, unit))
        axes.set_ylabel(f"{SHARE.name}\nso far, mean over agents")
        axes.set_ylim(0.0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        return ()

    return [FigurePanel(axis, partial(draw, axis=axis), shown=place < 2) for place, axis in enumerate(_AXES)], legend
