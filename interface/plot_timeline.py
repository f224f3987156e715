"""A timeline of agents: who evaluated when, what it was, and where somebody waited or was away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

if TYPE_CHECKING:
    from fedbo.results import Result

MOST = 40  # more agents than this, and the picture shows so many of them, from the fastest to the slowest

WAITING, AWAY = "#DFE2E8", "#3D434D"
EVALUATING = {"initial": "#B9CFE4", "own": "#3E7CB1", "federated": "#E8743B"}

Bars = list[tuple[int, float, float]]


def draw_timeline(axes: Axes, result: Result, cell: int) -> None:
    """Draw the first replicate of a cell's first federated algorithm, one row for each agent, the fastest on top."""
    label, replicate = _choose(result, cell)
    observations = _mine(result.observations, cell, label, replicate)
    agents = _by_speed(observations)
    place = {agent: number for number, agent in enumerate(agents)}
    kinds = _evaluations(observations, place)
    away = _absences(_mine(result.events, cell, label, replicate), place)
    spans = _spans(observations, place)
    _bars(axes, spans, WAITING)
    for kind, bars in kinds.items():
        _bars(axes, bars, EVALUATING[kind])
    _bars(axes, away, AWAY, hatch=True)
    _dress(axes, agents, f"What the agents did: {label}, replicate {replicate}", _unit(result))
    _crop(axes, {number: end for number, _, end in spans})
    _legend(axes, [kind for kind in EVALUATING if kinds[kind]], bool(away))


def horizon(ends: Sequence[float]) -> float:
    """Choose where a time axis ends: where all have ended, or nearly all when a few stragglers take much longer."""
    nearly, last = float(np.quantile(ends, 0.95)), float(np.max(ends))
    return 1.02 * (last if last <= 1.3 * nearly else 1.1 * nearly)


def _choose(result: Result, cell: int) -> tuple[str, int]:
    rows = [row for row in result.summary() if row.cell == cell]
    # The first in the file: controls come after what they control.
    label = max(rows, key=lambda row: (row.federated > 0, row.bytes_up > 0)).algorithm
    return label, min(t.replicate for t in result.traces if (t.cell, t.algorithm) == (cell, label))


def _mine(table: Any, cell: int, label: str, replicate: int) -> Any:
    right = pc.and_(pc.equal(table["cell"], cell), pc.equal(table["replicate"], replicate))
    return table.filter(pc.and_(right, pc.equal(table["algorithm"], label)))


def _by_speed(observations: Any) -> list[int]:
    """Sort agents by the mean length of their evaluations, and thin them out evenly where there are too many."""
    agent = np.asarray(observations["agent"])
    length = np.asarray(observations["finished"]) - np.asarray(observations["started"])
    names = np.unique(agent)
    means = np.array([length[agent == name].mean() for name in names])
    order = [int(name) for name in names[np.argsort(means, kind="stable")]]
    if len(order) <= MOST:
        return order
    return [order[round(float(spot))] for spot in np.linspace(0, len(order) - 1, MOST)]


def _evaluations(observations: Any, place: dict[int, int]) -> dict[str, Bars]:
    kinds: dict[str, Bars] = {kind: [] for kind in EVALUATING}
    for row in observations.select(["agent", "phase", "origin", "started", "finished"]).to_pylist():
        if row["agent"] in place and row["phase"] != "history":
            origin = "federated" if row["origin"] == "federated" else "own"
            kind = "initial" if row["phase"] == "initial" else origin
            kinds[kind].append((place[row["agent"]], row["started"], row["finished"]))
    return kinds


def _spans(observations: Any, place: dict[int, int]) -> Bars:
    """Give each agent's whole time in the study: what no evaluation covers is waiting."""
    ends = observations.group_by("agent").aggregate([("started", "min"), ("finished", "max")]).to_pylist()
    return [(place[e["agent"]], e["started_min"], e["finished_max"]) for e in ends if e["agent"] in place]


def _absences(events: Any, place: dict[int, int]) -> Bars:
    bars, since = [], dict[int, float]()
    for event in events.select(["kind", "agent", "time"]).to_pylist():
        if event["kind"] == "absent":
            since[event["agent"]] = event["time"]
        elif event["kind"] == "returned" and event["agent"] in since and event["agent"] in place:
            bars.append((place[event["agent"]], since.pop(event["agent"]), event["time"]))
    return bars


def _bars(axes: Axes, bars: Bars, colour: str, hatch: bool = False) -> None:
    half = 0.36
    corners = [[(a, y - half), (a, y + half), (b, y + half), (b, y - half)] for y, a, b in bars]
    look: dict[str, Any] = {"facecolor": "white", "edgecolor": colour, "hatch": "//////", "linewidth": 0.6}
    if not hatch:
        look = {"facecolor": colour, "edgecolor": "white" if colour != WAITING else "none", "linewidth": 0.5}
    axes.add_collection(PolyCollection(corners, **look), autolim=True)


def _dress(axes: Axes, agents: Sequence[int], title: str, unit: str) -> None:
    axes.set_title(title)
    axes.autoscale_view()
    axes.set_ylim(len(agents) - 0.4, -0.6)
    axes.set_yticks(range(len(agents)), [str(agent) for agent in agents], fontsize=9 if len(agents) <= 16 else 7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(unit)
    axes.set_ylabel("agent, fastest first", labelpad=8)


def _crop(axes: Axes, ends: dict[int, float]) -> None:
    """End the axis at its horizon; a straggler that works beyond it has the time of its end written there."""
    right = horizon(list(ends.values()))
    axes.set_xlim(0, right)
    for row, end in ends.items():
        if end > right:
            axes.annotate(
                f"until {end:.4g} \N{BLACK RIGHT-POINTING SMALL TRIANGLE}",
                (right, row),
                xytext=(-3, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7.5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )


def _legend(axes: Axes, kinds: Sequence[str], away: bool) -> None:
    words = {"initial": "initial point", "own": "own query", "federated": "federated query"}
    patches = [Patch(facecolor=EVALUATING[kind], label=words[kind]) for kind in kinds]
    patches.append(Patch(facecolor=WAITING, label="waiting"))
    if away:
        patches.append(Patch(facecolor="white", edgecolor=AWAY, hatch="//////", linewidth=0.6, label="away"))
    axes.legend(handles=patches, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(patches), columnspacing=1.4,
                handlelength=1.3, handleheight=0.9, borderaxespad=0.2)  # fmt: skip


def _unit(result: Result) -> str:
    return "wall-clock seconds" if result.study.timing.clock == "wall" else "virtual time"
