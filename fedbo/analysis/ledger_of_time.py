"""The ledger of time: what of the work of agents was in vain, and when their evaluations waited for workers, in one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedbo.analysis.agent_states import STATES, StateIntervals
from fedbo.analysis.grouping import column_of, of_kinds
from fedbo.analysis.timeline_bars import placements

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LOST = ("lost_to_crashes", "lost_to_preemption", "lost_to_lateness")
_NO_REFUSALS = ("duplicate", "given_up")  # reasons of the event `rejected`: one took effect, and the other never arrived


class Spans(NamedTuple):
    """Spans of time of agents, `(s,)`, each from `begin` to `end`."""

    agent: npt.NDArray[Any]
    begin: Array
    end: Array

    def of(self, chosen: Flags) -> Spans:
        """Return some of the spans."""
        return Spans(*(column[chosen] for column in self))


class LedgerOfTime:
    """The time of steps that is `queueing` or one of `LOST`; all other time of steps is useful.

    An instant of a step counts for the first of these that holds: all of its agent's evaluations wait for workers; the step,
    or all that ran and ended, was lost in a crash or in an absence with `leaving = "lost"`; all that ran was lost with a
    worker; the step's message came too late or was refused.
    """

    def __init__(self, lived: StateIntervals, observations: Any, events: Any) -> None:
        """Read one run's events, and its rows if there are any."""
        stays, steps = placements(events), _steps(events)
        queued, placed, undone = (_spans(stays, *edges) for edges in _EDGES)
        forgotten = pc.fill_null(pc.starts_with(observations["error"], "forgotten"), False)
        vain = _spans(observations.filter(forgotten), "started", "finished")
        spans = {"queued": queued, "undone": undone, "broken": steps["broken"], "vain": vain, "late": steps["late"]}
        concerned = np.unique(np.concatenate([one.agent for one in spans.values()]))
        is_busy = (lived.state == STATES.index("evaluating")) & np.isin(lived.agent, concerned)
        spans |= {"busy": Spans(lived.agent, lived.begin, lived.end).of(is_busy), "placed": placed}
        counting = _spans(observations.filter(pc.invert(forgotten)), "started", "finished")
        spans["counting"] = counting.of(np.isin(counting.agent, concerned))
        self._agent, self._length, is_in = _pieces(spans)
        queues = is_in["queued"] & ~is_in["placed"]
        crashed = (is_in["broken"] | is_in["vain"]) & ~is_in["counting"]
        whys = (queues, crashed, is_in["undone"] & ~is_in["counting"], is_in["late"])
        self._why = np.where(is_in["busy"], np.select(whys, range(len(whys)), -1), -1)

    def times(self, agents: npt.NDArray[np.int64]) -> dict[str, float]:
        """Return the total times of some agents, `queueing` and those of `LOST`."""
        mine = (self._why >= 0) & np.isin(self._agent, agents)
        total = np.bincount(self._why[mine], self._length[mine], 1 + len(LOST))
        return dict(zip(("queueing", *LOST), total.tolist(), strict=True))


_EDGES = (("queued_at", "started_at"), ("started_at", "ended_at"), ("kept_until", "ended_at"))


def _spans(table: Any, begin: str, end: str) -> Spans:
    first, last = (column_of(table, name).astype(np.float64) for name in (begin, end))
    return Spans(column_of(table, "agent"), first, np.maximum(first, last))


def _steps(events: Any) -> dict[str, Spans]:
    """Return the steps, from their start on, that were begun again or lost, and those whose message took no effect."""
    marks = of_kinds(events, "started", "finished", "crashed")
    agent, time, kind = (column_of(marks, name) for name in ("agent", "time", "kind"))
    order = np.argsort(agent, kind="stable")
    first, then = order[:-1], order[1:]
    begins = (agent[first] == agent[then]) & (kind[first] == "started")
    whole = Spans(agent[first], time[first].astype(np.float64), time[then].astype(np.float64))
    reason = pc.is_in(events["reason"], value_set=pa.array(_NO_REFUSALS, pa.string()))
    refused = of_kinds(events.filter(pc.and_(pc.invert(reason), pc.is_null(events["answer"]))), "late", "rejected")
    in_vain = np.setdiff1d(_numbers(refused), _numbers(of_kinds(events, "arrived")))
    is_over, is_late = kind[then] == "finished", np.isin(_numbers(marks)[first], in_vain)
    return {"broken": whole.of(begins & ~is_over), "late": whole.of(begins & is_over & is_late)}


def _numbers(events: Any) -> npt.NDArray[np.int64]:
    """Number the steps of all agents."""
    steps = np.asarray(pc.fill_null(events["step"], -1), np.int64)
    return column_of(events, "agent").astype(np.int64) * 2**32 + steps


def _pieces(spans: Mapping[str, Spans]) -> tuple[npt.NDArray[Any], Array, dict[str, Flags]]:
    """Cut the time of agents at all edges; return the agent and the length of each piece, and in which kinds of spans it is."""
    agent = np.concatenate([np.tile(one.agent, 2) for one in spans.values()])
    time = np.concatenate([edge for one in spans.values() for edge in (one.begin, one.end)])
    order = np.lexsort((time, agent))
    before, after = order[:-1], order[1:]
    is_in, place = dict[str, Flags](), 0
    for name, one in spans.items():
        change, count = np.zeros(len(time), dtype=np.int64), len(one.begin)
        change[place : place + count], change[place + count : place + 2 * count] = 1, -1
        is_in[name], place = np.cumsum(change[order])[:-1] > 0, place + 2 * count
    return agent[before], np.where(agent[before] == agent[after], time[after] - time[before], 0.0), is_in
