"""A timeline of the workers of a simulated cluster: who evaluates there, what was stopped, and when they were away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from fedbo.plots.marks import AWAY, corners
from fedbo.plots.style import FAINT, PALE, rows_only, time_label
from fedbo.results.grouping import column_of, of_kinds
from fedbo.results.queueing import placements
from fedbo.results.timeline_bars import Bars, one_run

if TYPE_CHECKING:
    from fedbo.results.result import Result

MAX_WORKERS = 40  # more workers than this, and the picture shows so many of them, evenly chosen by their numbers
_EVALUATION, _STOPPED = "#3E7CB1", "#F6E3A8"


def draw_workers(axes: Axes, result: Result, cell: int, label: str) -> None:
    """Draw the workers of an algorithm's first replicate in a cell, one row for each, and when evaluations waited for them."""
    study = result.trusted_cells()[cell].study if result.study.sweep else result.study
    assert study.cluster is not None
    replicate = min(trace.replicate for trace in result.traces if (trace.cell, trace.algorithm) == (cell, label))
    events = one_run(result.events, cell, label, replicate)
    last = float(column_of(events, "time").max())
    count = sum(one.count for one in study.cluster.classes())
    shown = np.unique(np.linspace(0, count - 1, min(count, MAX_WORKERS)).round().astype(int)).tolist()
    place = {worker: row for row, worker in enumerate(shown)}
    evaluated: Bars = []
    stopped: Bars = []
    found = placements(events).to_pylist()
    for one in found:
        if one["worker"] in place:
            bars = stopped if one["preempted"] else evaluated
            bars.append((place[one["worker"]], one["started_at"], one["ended_at"]))
    handles: list[Artist] = [Patch(facecolor=PALE, label="empty")]
    _add(axes, [(row, 0.0, last) for row in place.values()], {"facecolor": PALE, "edgecolor": "none"})
    for bars, word, colour in ((evaluated, "evaluation", _EVALUATION), (stopped, "stopped by a preemption", _STOPPED)):
        if bars:
            options: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.5}
            _add(axes, bars, options)
            handles.append(Patch(label=word, **options))
    away = _away(events, place, last, study)
    if away:
        options = {"facecolor": "white", "edgecolor": AWAY, "hatch": "//////", "linewidth": 0.6}
        _add(axes, away, options)
        handles.append(Patch(label="away", **options))
    waits = [(-1, one["queued_at"], one["started_at"]) for one in found if one["started_at"] > one["queued_at"]]
    if waits:
        axes.add_collection(PolyCollection(corners(waits, 0.1), facecolor=FAINT, edgecolor="none", alpha=0.5))
        handles.append(Patch(facecolor=FAINT, label="somebody waits"))
    _label(axes, shown, f"What the workers did: {label}, replicate {replicate}", time_label(result))
    axes.set_xlim(0, 1.02 * last if last else 1.0)
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), columnspacing=1.4,
                handlelength=1.3, handleheight=0.9, borderaxespad=0.2)  # fmt: skip


def _away(events: Any, place: dict[int, int], last: float, study: Any) -> Bars:
    """List when workers were not there: before they joined, after they left, and while they were taken away."""
    away: Bars = []
    first = 0
    for one in study.cluster.classes():
        for worker in range(first, first + one.count):
            if worker in place:
                spans = ((0.0, min(one.joins, last)), (min(one.leaves, last), last))
                away += [(place[worker], begin, end) for begin, end in spans if end > begin]
        first += one.count
    since: dict[int, float] = {}
    for time, kind, worker in _rows(of_kinds(events, "worker_preempted", "worker_returned")):
        if kind == "worker_preempted":
            since.setdefault(worker, time)
        elif worker in since and worker in place:
            away.append((place[worker], since.pop(worker), time))
    return away + [(place[worker], begin, last) for worker, begin in since.items() if worker in place]


def _rows(events: Any) -> Iterable[tuple[float, str, int]]:
    return zip(*(events[name].to_pylist() for name in ("time", "kind", "step")), strict=True)


def _add(axes: Axes, bars: Bars, options: dict[str, Any]) -> None:
    axes.add_collection(PolyCollection(corners(bars, 0.36), **options), autolim=True)


def _label(axes: Axes, shown: list[int], title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_ylim(len(shown) - 0.4, -1.3)
    axes.set_yticks(range(len(shown)), [str(worker) for worker in shown], fontsize=9 if len(shown) <= 16 else 7.5)
    rows_only(axes)
    axes.set_xlabel(unit)
    axes.set_ylabel("worker", labelpad=8)
