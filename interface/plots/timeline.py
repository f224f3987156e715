"""A timeline of agents: evaluations by kind, waiting, absences and faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from fedbo.plots.marks import Bars, corners, draw_marks
from fedbo.plots.style import PALE, rows_only, time_label
from fedbo.results.agent_states import EventInterval, event_intervals, state_intervals
from fedbo.results.grouping import by_run, column_of, grouped, of_kinds
from fedbo.results.summary import FEDERATED

if TYPE_CHECKING:
    from fedbo.results.result import Result

MAX_AGENTS = 40  # more agents than this, and the picture shows so many of them, from the fastest to the slowest

EVALUATING = {
    "initial point": "#B9CFE4",
    "own query": "#3E7CB1",
    "federated query": "#E8743B",
    "failed or forgotten": "#F2B8B5",
    "work lost": "#F6E3A8",
    "deciding": "#A9B4C2",
}
PAUSES = (("absent", "returned"), ("crashed", "restarted"), ("hung", "woke"))


def draw_timeline(axes: Axes, result: Result, cell: int, label: str) -> None:
    """Draw an algorithm's first replicate in a cell, one row for each agent, the fastest on top."""
    replicate = min(t.replicate for t in result.traces if (t.cell, t.algorithm) == (cell, label))
    observations, events = (one_run(table, cell, label, replicate) for table in (result.observations, result.events))
    agents = _by_speed(observations)
    place = {agent: number for number, agent in enumerate(agents)}
    kinds = _evaluations(observations, events, place)
    spans = _spans(observations, events, place)
    _bars(axes, spans, PALE)
    for kind, bars in kinds.items():
        _bars(axes, bars, EVALUATING[kind], edge="white")
    handles: list[Artist] = [Patch(facecolor=EVALUATING[kind], label=kind) for kind in EVALUATING if kinds[kind]]
    handles += [
        Patch(facecolor=PALE, label="waiting"),
        *draw_marks(axes, events, place, {agent: spans[row][2] for agent, row in place.items()}),
    ]
    _label_panel(axes, agents, f"What the agents did: {label}, replicate {replicate}", time_label(result))
    _crop(axes, {number: end for number, _, end in spans})
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=min(7, len(handles)), columnspacing=1.4,
                handlelength=1.3, handleheight=0.9, borderaxespad=0.2)  # fmt: skip


def horizon(ends: Sequence[float]) -> float:
    """Choose where a time axis ends: where all have ended, or nearly all when a few stragglers take much longer."""
    nearly, last = float(np.quantile(ends, 0.95)), float(np.max(ends))
    return 1.02 * (last if last <= 1.3 * nearly else 1.1 * nearly)


def one_run(table: Any, cell: int, label: str, replicate: int) -> Any:
    """Give the part of a table that is one run's."""
    return next((part for key, part in by_run(table) if key == (cell, label, replicate)), table.slice(0, 0))


def _by_speed(observations: Any) -> list[int]:
    """Sort agents by the mean length of their evaluations, and thin them out evenly where there are too many."""
    agent = column_of(observations, "agent")
    length = column_of(observations, "finished") - column_of(observations, "started")
    names = np.unique(agent)
    means = np.array([length[agent == name].mean() for name in names])
    order = [int(name) for name in names[np.argsort(means, kind="stable")]]
    if len(order) <= MAX_AGENTS:
        return order
    return [order[round(float(spot))] for spot in np.linspace(0, len(order) - 1, MAX_AGENTS)]


def _evaluations(observations: Any, events: Any, place: Mapping[int, int]) -> dict[str, Bars]:
    """Give the bars of each kind of evaluation, interrupted where its agent paused, and those of work that came to nothing."""
    kinds: dict[str, Bars] = {kind: [] for kind in EVALUATING}
    pauses = _by_agent([interval for pair in PAUSES for interval in event_intervals(events, *pair)])
    covered: dict[int, list[tuple[float, float]]] = {}
    for row in observations.select(["agent", "phase", "origin", "started", "finished", "error"]).to_pylist():
        agent = row["agent"]
        if agent in place and row["phase"] != "history":
            covered.setdefault(agent, []).append((row["started"], row["finished"]))
            bars = without((row["started"], row["finished"]), pauses.get(agent, ()))
            kinds[_kind(row)] += [(place[agent], begin, end) for begin, end in bars]
    broken = _broken(events)
    for agent, begin, end in state_intervals(events).of("evaluating"):
        if agent in place:
            # Between evaluations a step decides; one that was begun again had evaluated too, and to no effect.
            rest = without((begin, end), [span for span in covered.get(agent, ()) if span[0] < end and span[1] > begin])
            kinds["work lost"] += [(place[agent], *cut) for span in rest for cut in within(span, broken.get(agent, ()))]
            kinds["deciding"] += [(place[agent], *cut) for span in rest for cut in without(span, broken.get(agent, ()))]
    tiny = 1e-9 * max((end for bars in kinds.values() for _, _, end in bars), default=0.0)
    return {kind: [bar for bar in bars if bar[2] - bar[1] > tiny] for kind, bars in kinds.items()}


def _kind(row: Mapping[str, Any]) -> str:
    if row["error"] is not None:
        return "failed or forgotten"
    if row["phase"] == "initial":
        return "initial point"
    return "federated query" if row["origin"] == FEDERATED else "own query"


def without(span: tuple[float, float], holes: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Cut holes out of a span of time; give what is left, in order."""
    left, (begin, end) = list[tuple[float, float]](), span
    for opens, closes in sorted(holes):
        if closes <= begin or opens >= end:
            continue
        if opens > begin:
            left.append((begin, opens))
        begin = closes
    return [*left, (begin, end)] if begin < end else left


def within(span: tuple[float, float], others: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Give the parts of a span of time that lie in others."""
    cuts = [(max(span[0], begin), min(span[1], end)) for begin, end in others]
    return [cut for cut in cuts if cut[0] < cut[1]]


def _broken(events: Any) -> dict[int, list[tuple[float, float]]]:
    """List for each agent the steps, from their begin on, that a crash or a return made it begin again."""
    broken, since = dict[int, list[tuple[float, float]]](), dict[int, float]()
    for mark in of_kinds(events, "started", "finished", "crashed").select(["agent", "time", "kind"]).to_pylist():
        begun = since.pop(mark["agent"], None)
        if begun is not None and mark["kind"] != "finished":
            broken.setdefault(mark["agent"], []).append((begun, mark["time"]))
        if mark["kind"] == "started":
            since[mark["agent"]] = mark["time"]
    return broken


def _by_agent(found: Iterable[EventInterval]) -> dict[int, list[tuple[float, float]]]:
    groups = grouped(found, lambda one: one.agent)
    return {agent: [(one.begin, one.end) for one in own] for agent, own in groups.items()}


def _spans(observations: Any, events: Any, place: Mapping[int, int]) -> Bars:
    """Give each agent's whole time in the study: what no evaluation covers is waiting."""
    ends: dict[int, tuple[float, float]] = {}
    rows = zip(*(column_of(observations, name).tolist() for name in ("agent", "started", "finished")), strict=True)
    lived = state_intervals(events)
    life = zip(lived.agent.tolist(), lived.begin.tolist(), lived.end.tolist(), strict=True)
    for agent, begin, end in rows:
        low, high = ends.get(agent, (begin, end))
        ends[agent] = min(low, begin), max(high, end)
    for agent, _, end in life:
        if agent in ends:
            ends[agent] = ends[agent][0], max(ends[agent][1], end)
    return [(row, *ends[agent]) for agent, row in place.items()]


def _bars(axes: Axes, bars: Bars, colour: str, edge: str = "none") -> None:
    axes.add_collection(PolyCollection(corners(bars, 0.36), facecolor=colour, edgecolor=edge, linewidth=0.5), autolim=True)


def _label_panel(axes: Axes, agents: Sequence[int], title: str, unit: str) -> None:
    axes.set_title(title)
    axes.autoscale_view()
    axes.set_ylim(len(agents) - 0.4, -0.6)
    axes.set_yticks(range(len(agents)), [str(agent) for agent in agents], fontsize=9 if len(agents) <= 16 else 7.5)
    rows_only(axes)
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
