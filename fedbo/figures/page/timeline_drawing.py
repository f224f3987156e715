"""The drawing of a timeline: bars of each agent's activities in one run, marks of faults, and the data of the zoom script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.colors import to_hex
from matplotlib.ticker import MaxNLocator

from fedbo.analysis.agent_states import event_intervals
from fedbo.analysis.finished_run import own_metric
from fedbo.analysis.grouping import one_run
from fedbo.analysis.result import Result
from fedbo.analysis.timeline_bars import (
    EVALUATION_KINDS,
    HALF,
    Bars,
    by_speed,
    crashes,
    during,
    evaluation_bars,
    horizon,
    spans_of,
)
from fedbo.figures.marks import AWAY, CRASH, CUT, HANG, OUTAGE, SLOW
from fedbo.figures.style import on_dark
from fedbo.figures.timeline import EVALUATING

WIDTH, LEFT, RIGHT, TOP = 1120, 46, 1106, 8
_MOST = 4000  # bars of one kind: beyond, only so many of the longest are drawn


class _SpanKind(NamedTuple):
    """A kind of span: the events that begin and end it, its colour, its edges as shares of a row, and its fill pattern."""

    name: str
    events: tuple[str, str]
    colour: str
    top: float
    bottom: float
    pattern: str = ""


_SPANS = (
    _SpanKind("away", ("absent", "returned"), AWAY, top=-0.36, bottom=0.36, pattern="hatch-away"),
    _SpanKind("down after a crash", ("crashed", "restarted"), CRASH, top=-0.36, bottom=0.36, pattern="hatch-crash"),
    _SpanKind("hanging", ("hung", "woke"), HANG, top=-0.36, bottom=0.36, pattern="hatch-hang"),
    _SpanKind("slowed", ("slowed", "recovered"), SLOW, -0.46, -0.36),
    _SpanKind("disconnected", ("cut", "joined"), CUT, 0.36, 0.46),
)


HATCHES = (("away", AWAY, 45), ("crash", CRASH, -45), ("hang", HANG, 0))  # their angles tell them apart in grey
SHADES = [(shade, to_hex(on_dark(shade))) for shade in (*EVALUATING.values(), *(span.colour for span in _SPANS), OUTAGE)]


@dataclass(frozen=True, slots=True)
class Layer:
    """Bars of one kind: its name, its colour, its fill pattern if any, the edges of a bar, and the bars."""

    name: str
    colour: str
    pattern: str
    top: float
    bottom: float
    bars: Sequence[tuple[float, float, float]]


@dataclass(frozen=True, slots=True)
class TimelineDrawing:
    """A drawn timeline: agents from fast to slow, layers of bars, crashes, and evaluations for the pointer."""

    title: str
    replicate: int
    unit: str
    metric: str
    agents: Sequence[int]
    end: float
    row: float
    layers: Sequence[Layer]
    crashed: Sequence[tuple[int, float]]
    lost: Sequence[tuple[int, float]]
    evaluations: Sequence[tuple[int, float, float, int, str, float | None]]

    def without_values(self) -> TimelineDrawing:
        """Return the same drawing without the evaluations' values under the pointer."""
        return replace(self, evaluations=())

    @property
    def size(self) -> int:
        """Return the number of bars."""
        return sum(len(layer.bars) for layer in self.layers)

    @property
    def bottom(self) -> float:
        """Return the place of the axis of time."""
        return TOP + self.row * len(self.agents)

    def at(self, time: float) -> float:
        """Return the place of a time, to a tenth of a pixel."""
        return round(LEFT + time / self.end * (RIGHT - LEFT), 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return the ticks of the axis of time as places and labels."""
        times = MaxNLocator(10, steps=[1, 2, 5, 10]).tick_values(0.0, self.end)
        return [(self.at(time), f"{time:.6g}") for time in times if time <= self.end]

    def path(self, layer: Layer) -> str:
        """Return the bars of a layer as one path."""
        bars = list[str]()
        for row, begin, end in layer.bars:
            if begin < self.end:
                middle = TOP + (row + 0.5) * self.row
                low, high = (round(middle + edge * self.row, 1) for edge in (layer.top, layer.bottom))
                bars.append(f"M{self.at(begin):g} {low:g}H{self.at(min(end, self.end)):g}V{high:g}H{self.at(begin):g}z")
        return "".join(bars)

    def place(self, point: tuple[int, float]) -> tuple[float, float]:
        """Return the place of a moment in a row."""
        return self.at(point[1]), round(TOP + (point[0] + 0.5) * self.row, 1)

    def data(self) -> dict[str, Any]:
        """Return the data for the script that draws a part of the time and shows values under the pointer."""
        return {
            "agents": list(self.agents),
            "end": self.end,
            "left": LEFT,
            "right": RIGHT,
            "top": TOP,
            "row": self.row,
            "metric": self.metric,
            "layers": [{"name": one.name, "top": one.top, "bottom": one.bottom, "bars": one.bars} for one in self.layers],
            "crashed": self.crashed,
            "lost": self.lost,
            "evaluations": self.evaluations,
        }


def draw_timeline(result: Result, cell: int, label: str) -> TimelineDrawing:
    """Draw an algorithm's first replicate in a cell, one row for each agent, the fastest on top."""
    replicate = min(t.replicate for t in result.traces if (t.cell, t.algorithm) == (cell, label))
    observations, events = (one_run(table, cell, label, replicate) for table in (result.observations, result.events))
    agents = by_speed(observations)
    place = {agent: number for number, agent in enumerate(agents)}
    spans = spans_of(observations, events, place)
    ends = {agent: spans[row][2] for agent, row in place.items()}
    last = horizon(list(ends.values())) or 1.0
    digits = 4 - math.floor(math.log10(last))
    layers = list[Layer]()
    kinds, lanes = evaluation_bars(observations, events, place)
    for kind, bars in kinds.items():
        half = HALF / lanes if kind in EVALUATION_KINDS else HALF
        layers.append(Layer(kind, EVALUATING[kind], "", top=-half, bottom=half, bars=_rounded(bars, digits)))
    for span in _SPANS:
        bars = _rounded(during(events, span.events, place, ends), digits)
        layers.append(Layer(span.name, span.colour, span.pattern, top=span.top, bottom=span.bottom, bars=bars))
    down: Bars = [(row, one.begin, one.end) for one in event_intervals(events, "down", "up") for row in place.values()]
    layers.append(Layer("coordinator down", OUTAGE, "veil", top=-0.5, bottom=0.5, bars=_rounded(down, digits)))
    crashed, lost = ([(row, round(time, digits)) for row, time in found] for found in crashes(events, place, ends))
    return TimelineDrawing(
        title=f"{label}, replicate {replicate}",
        replicate=replicate,
        unit=result.study.timing.in_words,
        metric=own_metric(result, cell).name,
        agents=agents,
        end=round(last, digits),
        row=16.0 if len(agents) > 12 else 22.0,
        layers=[layer for layer in layers if layer.bars],
        crashed=crashed,
        lost=lost,
        evaluations=_evaluations(result, cell, observations, place, digits),
    )


def _evaluations(
    result: Result, cell: int, observations: Any, place: Mapping[int, int], digits: int
) -> list[tuple[int, float, float, int, str, float | None]]:
    """List the evaluations as row, begin, end, step, origin and native value; failed ones have no value."""
    metric, found = own_metric(result, cell), []
    columns = ("agent", "started", "finished", "step", "origin", "value", "error")
    shown = observations.select(list(columns)).filter(pc.is_in(observations["agent"], value_set=pa.array(place, pa.int32())))
    for row in shown.slice(0, _MOST).to_pylist():
        good = row["error"] is None and math.isfinite(row["value"])
        value = float(f"{float(metric.native(row['value'])):.5g}") if good else None
        begun, ended = (round(row[name], digits) for name in ("started", "finished"))
        found.append((place[row["agent"]], begun, ended, row["step"], row["origin"], value))
    return found


def _rounded(bars: Bars, digits: int) -> Bars:
    """Round times for the drawing, and keep only the longest bars if there are too many."""
    kept = bars if len(bars) <= _MOST else sorted(sorted(bars, key=lambda bar: bar[1] - bar[2])[:_MOST])
    return [(round(row, 3), round(begin, digits), round(end, digits)) for row, begin, end in kept]
