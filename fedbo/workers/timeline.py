"""A timeline of the workers of a simulated cluster: their evaluations, preemptions, and absences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from fedbo.analysis.finished_run import trusted_cells
from fedbo.analysis.grouping import column_of, of_kinds, one_run
from fedbo.analysis.timeline_bars import HALF, Bars, in_lanes, merged, placements
from fedbo.figures.layout import FigurePanel
from fedbo.figures.marks import AWAY, add_bars
from fedbo.figures.style import FAINT, PALE
from fedbo.figures.timeline import name_rows

if TYPE_CHECKING:
    from fedbo.analysis.result import Result

MAX_WORKERS = 40  # more workers than this, and the picture shows so many of them, evenly chosen by their numbers
_QUEUE = -1  # the row above the first worker, which shows when anybody waits


def workers_panel(result: Result, cell: int, label: str) -> FigurePanel:
    """Return the panel of a cell's workers."""
    draw = partial(_draw, result=result, cell=cell, label=label)
    return FigurePanel("workers", draw, wide=True, rows=1 + min(len(_classes(result, cell)), MAX_WORKERS))


def _draw(axes: Axes, result: Result, cell: int, label: str) -> Sequence[Artist]:
    """Draw the workers of an algorithm's first replicate in a cell, one row for each, and the queue for them."""
    replicate = min(trace.replicate for trace in result.traces if (trace.cell, trace.algorithm) == (cell, label))
    events = one_run(result.events, cell, label, replicate)
    last, names = float(column_of(events, "time").max()), _classes(result, cell)
    shown = np.unique(np.linspace(0, len(names) - 1, min(len(names), MAX_WORKERS)).round().astype(int)).tolist()
    place = {worker: row for row, worker in enumerate(shown)}
    title, unit = f"Timeline of workers: {label}, replicate {replicate}", result.study.timing.in_words
    name_rows(axes, [names[worker] for worker in shown], title, (unit, "worker"), -1.5)
    axes.set_xlim(0, 1.02 * last if last else 1.0)
    found = placements(events).to_pylist()
    mine = [one for one in found if one["worker"] in place]
    stays = [(place[one["worker"]], one["started_at"], one["ended_at"]) for one in mine]
    here, lanes = in_lanes([*stays, *_jobs(events, place, last)])
    ended, stopped = ([bar for bar, one in zip(here, mine, strict=False) if one["preempted"] == sign] for sign in (False, True))
    away = _away(events, place, last, _study(result, cell))
    waits: Bars = [(_QUEUE, *span) for span in merged((one["queued_at"], one["started_at"]) for one in found)]
    layers = [
        _BarLayer("empty", [(float(row), 0.0, last) for row in place.values()], HALF, {"facecolor": PALE}),
        _BarLayer("evaluation", ended, HALF / lanes, {"facecolor": "#2C6AA0", "edgecolor": "white", "linewidth": 0.5}),
        _BarLayer("stopped by a preemption", stopped, HALF / lanes,
         {"facecolor": "#D9B04C", "edgecolor": "white", "hatch": "....", "linewidth": 0.5}),
        _BarLayer("job of the log", here[len(mine) :], HALF / lanes, {"facecolor": "#B9B9B9", "edgecolor": "white"}),
        _BarLayer("away", away, HALF, {"facecolor": "white", "edgecolor": AWAY, "hatch": "//////", "linewidth": 0.6}),
        _BarLayer("an evaluation waits", waits, 0.14, {"facecolor": FAINT}),
    ]  # fmt: skip
    for layer in layers:
        add_bars(axes, layer.bars, layer.half, **layer.options)
    return [Patch(label=layer.label, **layer.options) for layer in layers if layer.bars]


class _BarLayer(NamedTuple):
    """Bars of one kind: their label, half their height, and their fill options."""

    label: str
    bars: Bars
    half: float
    options: dict[str, Any]


def _study(result: Result, cell: int) -> Any:
    return trusted_cells(result)[cell].study if result.study.sweep else result.study


def _classes(result: Result, cell: int) -> list[str]:
    """Return the name of each worker: its number, and its class if there are several."""
    classes = _study(result, cell).cluster.classes()
    names = [one.name if len(classes) > 1 else "" for one in classes for _ in range(one.count)]
    return [f"{name} {number}".strip() for number, name in enumerate(names)]


def _away(events: Any, place: dict[int, int], last: float, study: Any) -> Bars:
    """List the absences of workers: before they joined, after they left, while they are stopped, and during preemptions."""
    away: Bars = []
    first, since = 0, dict[int, float]()
    for one in study.cluster.classes():
        for worker in range(first, first + one.count):
            if worker in place:
                spans = ((0.0, min(one.joins, last)), (min(one.leaves, last), last))
                away += [(place[worker], begin, end) for begin, end in spans if end > begin]
        since |= {} if one.least is None else dict.fromkeys(range(first + one.least, first + one.count), 0.0)
        first += one.count
    moves = of_kinds(events, "worker_preempted", "worker_returned", "workers_left", "workers_joined")
    for time, kind, worker in zip(*(moves[name].to_pylist() for name in ("time", "kind", "worker")), strict=True):
        if kind in ("worker_preempted", "workers_left") and worker is not None:
            since.setdefault(worker, time)
        elif worker in since and worker in place:
            away.append((place[worker], since.pop(worker), time))
    return away + [(place[worker], begin, last) for worker, begin in since.items() if worker in place]


def _jobs(events: Any, place: dict[int, int], last: float) -> Bars:
    """List the stays of parts of jobs on workers."""
    bars, since = list[tuple[float, float, float]](), dict[tuple[int, int], list[float]]()
    moves = of_kinds(events, "job_placed", "job_left")
    for time, kind, *key in zip(*(moves[name].to_pylist() for name in ("time", "kind", "job", "worker")), strict=True):
        begun = since.setdefault((key[0], key[1]), [])
        if kind == "job_placed":
            begun.append(time)
        elif (begin := begun.pop(0)) is not None and key[1] in place:
            bars.append((place[key[1]], begin, time))
    return bars + [(place[worker], begin, last) for (_, worker), some in since.items() for begin in some if worker in place]
