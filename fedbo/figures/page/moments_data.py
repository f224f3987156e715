"""The data of one run for the script that moves through its time: what happened, and what some of its agents believed."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedbo.actors.storage.rows import RunKey
from fedbo.algorithms.base import Array
from fedbo.analysis.finished_run import fault_names, parameters
from fedbo.analysis.grouping import grouped, one_run
from fedbo.analysis.result import Result
from fedbo.analysis.timeline_bars import by_speed
from fedbo.analysis.traces import IncumbentTrace
from fedbo.figures.marks import AWAY, CRASH, HANG
from fedbo.figures.page.beliefs import SIDES, AgentBelief, beliefs_of, no_belief
from fedbo.figures.page.moments import DOING, FATES, SENTENCES, RunMoments, moments_of
from fedbo.figures.style import INK
from fedbo.figures.timeline import EVALUATING

MOST = 60_000  # events of a run; one with more cannot be moved through
FEW = 4  # agents of a run up to which the beliefs of all are drawn, unless some are asked for
COLOURS = {
    "evaluating": EVALUATING["own query"],
    "waiting": EVALUATING["waiting"],
    "away": AWAY,
    "crashed": CRASH,
    "hanging": HANG,
    "done": "#ffffff",
    "lost": INK,
}
TROUBLE = ("absent", "returned", "crashed", "restarted", "hung", "woke", "slowed", "recovered", "cut", "joined", "down", "up")
_PRIVATE = "this study is private, so values of single agents are omitted"


@dataclass(frozen=True, slots=True)
class MomentsPart:
    """One run over its time: its number of events, and the data for the script, None with too many events."""

    events: int
    data: Mapping[str, Any] | None


class Shown(NamedTuple):
    """What a report shows of a run.

    - `agents`: values and messages of single agents.
    - `beliefs`: agents whose beliefs are drawn; None, in the first cell only, for all if they are few, and otherwise for those
      with the best and the worst final value, the fastest, and the slowest.
    - `events`: the largest number of events that a cell may have to be moved through.
    """

    agents: bool = True
    beliefs: Sequence[int] | None = None
    events: int = MOST


def moments_part(result: Result, key: RunKey, shown: Shown) -> MomentsPart:
    """Return a run over its time."""
    events, observations = (one_run(table, *key) for table in (result.events, result.observations))
    if len(events) > shown.events:
        return MomentsPart(len(events), None)
    traces = [one for one in result.traces if (one.cell, one.algorithm, one.replicate) == key]
    metric = result.metric(key.cell)
    found = moments_of(events, traces, metric, fault_names(result.study))
    data = moments_data(found if shown.agents else found.withheld())
    data |= {
        "colours": COLOURS,
        "metric": metric.name,
        "values": shown.agents,
        "running": result.manifest["status"] == "running",
    }
    why = no_belief(result, key) if shown.agents else _PRIVATE
    asked = _chosen(traces, observations) if shown.beliefs is None and not key.cell else shown.beliefs or ()
    chosen = set() if why else set(asked)
    rows = grouped((row for row in observations.to_pylist() if row["agent"] in chosen), lambda row: row["agent"])
    drawn = {agent: beliefs_of(result, key, agent, mine) for agent, mine in rows.items()}
    data["beliefs"] = {str(agent): _belief_data(beliefs, data["end"]) for agent, beliefs in drawn.items() if beliefs}
    data["without"] = why or _others(list(data["beliefs"]), [agent for agent in drawn if not drawn[agent]])
    inputs = [] if why else parameters(result, key.cell)
    data["inputs"] = [{name: one.get(name) for name in ("name", "low", "high", "log")} for one in inputs]
    return MomentsPart(len(events), data)


def moments_data(found: RunMoments) -> dict[str, Any]:
    """Return a run over its time as plain columns: agents by their place in `agents`, texts by their place in a list."""
    place = {agent: number for number, agent in enumerate(found.agents)} | {-2: -1}
    digits = 5 - math.floor(math.log10(found.end or 1.0))
    kinds, words = list(SENTENCES), _Words()

    def times(values: Iterable[float | None]) -> list[float | None]:
        return [None if value is None else round(value, digits) for value in values]

    log = [one for one in found.log if one.agent in place]
    sent = [one for one in found.transmissions if one.agent in place]
    lives = [found.lives.get(agent, ()) for agent in found.agents]
    known = [found.known.get(agent, ()) for agent in found.agents]
    bests = [found.bests.get(agent, ()) for agent in found.agents]
    return {
        "agents": list(found.agents),
        "end": round(found.end, digits),
        "doing": DOING,
        "fates": FATES,
        "sentences": list(SENTENCES.values()),
        "trouble": [kinds.index(kind) for kind in TROUBLE],
        "lives": [
            [times(one.time for one in own), [DOING.index(one.doing) for one in own], [one.step for one in own]]
            for own in lives
        ],
        "log": {
            "time": times(one.time for one in log),
            "kind": [kinds.index(one.kind) for one in log],
            "agent": [place[one.agent] for one in log],
            "number": [one.number for one in log],
            "why": [words.place(one.why) for one in log],
        },
        "sent": {
            "agent": [place[one.agent] for one in sent],
            "up": [int(one.up) for one in sent],
            "number": [one.number for one in sent],
            "begin": times(one.begin for one in sent),
            "end": times(one.end for one in sent),
            "fate": [FATES.index(one.fate) for one in sent],
            "why": [words.place(one.why) for one in sent],
        },
        "rounds": [
            [one.number, *times([one.time, one.before]), None if one.agent is None else place[one.agent], one.kind]
            for one in found.rounds
        ],
        "ticks": times(found.ticks),
        "known": [[times(time for time, _ in own), [count for _, count in own]] for own in known],
        "bests": [
            [times(one.time for one in own), [one.step for one in own], [_short(one.value) for one in own]] for own in bests
        ],
        "words": words.found,
    }


class _Words:
    """Texts, each kept once."""

    def __init__(self) -> None:
        self.found = list[str]()

    def place(self, text: str) -> int:
        """Return the place of a text in the list, adding it if it is new."""
        if text not in self.found:
            self.found.append(text)
        return self.found.index(text)


def _chosen(traces: Sequence[IncumbentTrace], observations: Any) -> list[int]:
    """Choose the agents with the best and the worst final value, the fastest and the slowest; few agents are chosen all."""
    known = sorted((one for one in traces if one.row[-1] >= 0), key=lambda one: float(one.best[-1]))
    if len(known) <= FEW:
        return [one.agent for one in known]
    speed = by_speed(observations)
    return list(dict.fromkeys([known[-1].agent, known[0].agent, speed[0], speed[-1]]))


def _others(drawn: Sequence[str], forgetful: Sequence[int]) -> str:
    """Return why the belief of an agent is not drawn, where those of some are."""
    if forgetful:
        why = f"agents that forgot observations in a crash ({', '.join(map(str, sorted(forgetful)))}) have none; "
    else:
        why = ""
    where = f"agent{'s' * (len(drawn) > 1)} {', '.join(drawn)}" if drawn else "no agent of this cell"
    return f"{why}it is drawn for {where}; fedbo report RUN --belief AGENT chooses others"


def _belief_data(beliefs: Sequence[AgentBelief], end: float) -> dict[str, Any]:
    """Return the beliefs of an agent as plain data; its observations are listed once, each belief has the first `count`."""
    last, digits = beliefs[-1], 5 - math.floor(math.log10(end or 1.0))
    return {
        "name": last.name,
        "points": np.round(last.x, 4).tolist(),
        "moments": [
            {
                "time": round(one.time, digits),
                "step": one.step,
                "origin": one.origin,
                "count": len(one.x),
                "values": np.round(one.y, 3).tolist(),
                "chosen": np.round(one.chosen, 4).tolist(),
                "maps": [_map(values, len(one.chosen)) for values in (one.mean, one.spread, one.acquisition)],
            }
            for one in beliefs
        ],
    }


def _map(values: Array, dim: int) -> dict[str, Any]:
    """Return the values at a grid: numbers for one input, and for two a byte for each, between `low` and `high`."""
    low, high = float(values.min()), float(values.max())
    written: dict[str, Any] = {"low": _short(low), "high": _short(high), "side": SIDES[dim]}
    if dim == 1:
        return written | {"values": [_short(value) for value in values.tolist()]}
    shares = np.round(255 * (values - low) / (high - low or 1.0)).astype(np.uint8)
    return written | {"bytes": base64.b64encode(shares.tobytes()).decode()}


def _short(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
