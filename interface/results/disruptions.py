"""The disruptions of a run in numbers: rounds, messages by their fate, staleness, time by state, failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fedbo.results.agent_states import STATES, state_intervals
from fedbo.results.curves import targets_of
from fedbo.results.grouping import by_run, column_of, of_kinds, runs_by_algorithm

Array = npt.NDArray[np.float64]

# What is logged as rejected, but is a second copy of a message or of an answer, or no arrival at all.
_NO_REFUSALS = ("duplicate: this message", "duplicate: the agent", "given up")


@dataclass(frozen=True, slots=True)
class Disruptions:
    """The disruptions of one algorithm in one cell: means over replicates of counts and times in a whole run.

    `round_length` is the mean time from the close of a round to that of the next, None with fewer than two rounds. Of the
    transmissions `sent`, `arrived` took effect, `late` came after their round and were dropped, `lost` never came,
    `rejected` were refused, and `duplicates` are copies that arrived besides and were refused; `given_up` messages were
    never heard of after all their transmissions, and `falsified` ones were sent by agents that lied. `answers` reached an
    agent, `answers_lost` transmissions of them did not, `answer_copies` were refused as copies.

    `staleness` is the mean over all messages that took effect, in rounds, and `max_staleness` the largest in any
    replicate; both are None where nothing is known of it.

    `evaluating` (deciding included), `waiting`, `away` and `down` are the mean times of a target from 0 to the end of its
    life (see `fedbo.results.agent_states`), and `utilisation` is the share of the first in all four. `failed` evaluations gave
    no value; `forgotten` ones were lost by a crash or came too late to count. `barren` targets never had a good observation.
    """

    cell: int
    algorithm: str
    replicates: int
    rounds: float
    round_length: float | None
    sent: float
    arrived: float
    late: float
    lost: float
    rejected: float
    duplicates: float
    given_up: float
    falsified: float
    answers: float
    answers_lost: float
    answer_copies: float
    staleness: float | None
    max_staleness: float | None
    utilisation: float
    evaluating: float
    waiting: float
    away: float
    down: float
    crashes: float
    failed: float
    forgotten: float
    barren: float


def disruptions(observations: Any, events: Any) -> list[Disruptions]:
    """Measure every algorithm in every cell; both tables are in canonical order."""
    targets = targets_of(observations)
    evaluated = dict(by_run(observations))
    nothing = observations.slice(0, 0)
    found = []
    for (cell, label), runs in runs_by_algorithm(events).items():
        mine = targets.get(cell, np.zeros(0, dtype=np.int64))
        facts = [
            {**_messages(own), **_times(own, mine), **_failures(evaluated.get(key, nothing), own, mine), "gaps": _gaps(own)}
            for key, own in runs
        ]
        found.append(_averaged(cell, label, facts))
    return found


def staleness_of(events: Any) -> Array:
    """List how many rounds old each message was that took effect, `(s,)`, where that is known."""
    details = [detail for detail in of_kinds(events, "arrived")["detail"].to_pylist() if detail]
    return np.array(details, dtype=np.float64)


def falsified_arrivals(events: Any) -> int:
    """Count the messages of one run that took effect although the agent that sent them lied."""
    lies = set(_steps_of(events, "falsified"))
    return sum(step in lies for step in _steps_of(events, "arrived"))


def _steps_of(events: Any, kind: str) -> list[tuple[int, int]]:
    found = of_kinds(events, kind)
    return list(zip(found["agent"].to_pylist(), found["step"].to_pylist(), strict=True))


def _averaged(cell: int, label: str, found: Sequence[Mapping[str, Any]]) -> Disruptions:
    gaps, stale = (np.concatenate([facts[name] for facts in found]) for name in ("gaps", "staleness"))
    mean = {name: float(np.mean([facts[name] for facts in found])) for name in found[0] if name not in ("gaps", "staleness")}
    life = sum(mean[state] for state in STATES)
    return Disruptions(
        cell=cell,
        algorithm=label,
        replicates=len(found),
        round_length=float(gaps.mean()) if len(gaps) else None,
        staleness=float(stale.mean()) if len(stale) else None,
        max_staleness=float(stale.max()) if len(stale) else None,
        utilisation=mean["evaluating"] / life if life else 0.0,
        **mean,
    )


def _messages(events: Any) -> dict[str, Any]:
    counts = {item["values"]: item["counts"] for item in pc.value_counts(events["kind"]).to_pylist()}
    refused = of_kinds(events, "rejected")["detail"].to_pylist()
    copies, answered, given_up = (sum(detail.startswith(words) for detail in refused) for words in _NO_REFUSALS)
    astray = of_kinds(events, "lost")["detail"].to_pylist()
    return {
        "rounds": counts.get("round", 0),
        "sent": counts.get("sent", 0),
        "arrived": counts.get("arrived", 0),
        "late": counts.get("late", 0),
        "lost": len(astray) - astray.count("down"),
        "rejected": len(refused) - copies - answered - given_up,
        "duplicates": copies,
        "given_up": given_up,
        "falsified": counts.get("falsified", 0),
        "answers": counts.get("delivered", 0),
        "answers_lost": astray.count("down"),
        "answer_copies": answered,
        "staleness": staleness_of(events),
        "crashes": counts.get("crashed", 0),
    }


def _times(events: Any, targets: npt.NDArray[np.int64]) -> dict[str, float]:
    lived = state_intervals(events)
    return {state: lived.total(state, targets) / max(1, len(targets)) for state in STATES}


def _failures(observations: Any, events: Any, targets: npt.NDArray[np.int64]) -> dict[str, float]:
    good = observations.filter(pc.is_null(observations["error"]))
    forgotten = sum((error or "").startswith("forgotten") for error in observations["error"].to_pylist())
    return {
        "failed": len(of_kinds(events, "failed")),
        "forgotten": forgotten + len(of_kinds(events, "discarded")),
        "barren": len(targets) - len(np.unique(column_of(good, "agent"))),
    }


def _gaps(events: Any) -> Array:
    return np.diff(column_of(of_kinds(events, "round"), "time").astype(np.float64))
