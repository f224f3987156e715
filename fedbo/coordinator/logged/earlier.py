"""Tables of events of this version and earlier ones.

Up to format 2, `detail` held the facts of an event as text, and `step` also the numbers of rounds, answers, workers and classes
of workers. `read_events` converts such a table to the columns of today.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fedbo.actors.storage.rows import RunKey, read_table
from fedbo.coordinator.logged import agents, messages
from fedbo.coordinator.logged.kinds import KINDS, EventLine
from fedbo.coordinator.logged.table import EVENTS, columns_of, declared

Parser = Callable[[float, int, int, int, str], EventLine]  # of time, agent, step, bytes and detail


def read_events(path: Path) -> pa.Table:
    """Read a table of events of this or an earlier version in the columns of `EVENTS`; errors are those of `read_table`."""
    return read_table(path, EVENTS, convert=converted)


def converted(table: pa.Table) -> pa.Table:
    """Return a table of events with one column for each fact; a table without `detail` is returned unchanged.

    Raises:
        ValueError: a detail does not have the form of its event's kind.
    """
    if "detail" not in table.column_names:
        return table
    parts = [_converted(batch) for batch in table.to_batches()]
    return pa.concat_tables(parts or [EVENTS.empty_table()])


def _converted(batch: pa.RecordBatch) -> pa.Table:
    kept = {name: batch[name].cast(EVENTS.field(name).type) for name in (*RunKey._fields, "sequence")}
    packed = zip(*(batch[name].to_pylist() for name in ("kind", "time", "agent", "step", "bytes", "detail")), strict=True)
    return declared({**kept, **columns_of([_PARSERS[kind](*facts) for kind, *facts in packed])}, len(batch))


def _of_step(record: Any) -> Parser:
    return lambda time, agent, step, size, detail: record(time, agent, step)


def _placed(time: float, agent: int, step: int, size: int, detail: str) -> EventLine:
    query, worker, queued_at = detail.split()
    return agents.EvaluationPlaced(time, agent, step, int(query), int(worker), float(queued_at))


def _rung(time: float, agent: int, step: int, size: int, detail: str) -> EventLine:
    query, fidelity, verdict = detail.split()
    return agents.RungReached(time, agent, step, int(query), int(fidelity), verdict)  # type: ignore[arg-type]


def _crashed(time: float, agent: int, step: int, size: int, detail: str) -> EventLine:
    state: Any = detail if detail in ("kept", "lost") else None
    return agents.AgentCrashed(time, agent, step, detail == "for good", state)


def _falsified(time: float, agent: int, step: int, size: int, detail: str) -> EventLine:
    lies = detail.split("; ")
    copied = next((_numbers(lie) for lie in lies if lie.startswith("copy")), (None, None))
    return messages.MessageFalsified(time, agent, step, tuple(lie.partition(" ")[0] for lie in lies), *copied)


def _lost(time: float, agent: int, step: int, size: int, detail: str) -> EventLine:
    direction: Any
    direction, _, why = detail.partition(": ")
    word, _, place = why.partition(" ")
    reason: Any = "fault" if word == "fault" else why.replace(" ", "_") or None  # the first versions had no reason
    number = {"step" if direction == "up" else "answer": step}
    fault = int(place) if word == "fault" else None
    return messages.TransmissionLost(time, agent, direction, reason, size, fault=fault, **number)


_REFUSALS: Final[dict[str, messages.RefusalReason]] = {
    "sent by agent": "forged",
    "there is no agent": "unknown_agent",
    "this algorithm declares": "undeclared",
    "duplicate": "duplicate",
    "stale": "stale",
    "the algorithm cannot use it": "unusable",
    "not sampled": "not_sampled",
    "a newer message": "superseded",
    "the privacy budget": "budget_spent",
    "given up": "given_up",
}


def _rejected(time: float, agent: int, step: int, size: int, detail: str) -> EventLine:
    reason: messages.RefusalReason = "malformed"
    reason = next((one for words, one in _REFUSALS.items() if detail.startswith(words)), reason)
    facts: dict[str, Any] = {"answer" if detail.startswith("duplicate: the agent") else "step": step}
    if reason == "forged":
        facts["claimed_agent"] = _numbers(detail)[1]
    elif reason == "stale":
        facts |= zip(("staleness", "bound"), _numbers(detail), strict=False)
    elif reason == "given_up":
        (facts["attempts"],) = _numbers(detail)
    elif reason in ("unusable", "malformed"):
        facts["message"] = detail.removeprefix("the algorithm cannot use it: ")
    return messages.TransmissionRejected(time, agent, reason, **facts)


def _missed(time: float, agent: int, step: int, size: int, detail: str) -> EventLine:
    if detail.startswith("given up"):
        return messages.AnswerMissed(time, agent, step, "given_up", attempts=_numbers(detail)[0])
    return messages.AnswerMissed(time, agent, step, "agent_ended", size)


def _numbers(words: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", words)]


_PARSERS: Final[dict[str, Parser]] = {
    **{kind: _of_step(record) for kind, record in KINDS.items() if record._fields == ("time", "agent", "step")},
    "down": lambda time, agent, step, size, detail: messages.CoordinatorDown(time, step),
    "up": lambda time, agent, step, size, detail: messages.CoordinatorUp(time, step),
    "released": lambda time, agent, step, size, detail: agents.EvaluationReleased(time, agent, step, *_numbers(detail)),
    "preempted": lambda time, agent, step, size, detail: agents.EvaluationPreempted(time, agent, step, *_numbers(detail)),
    "unmasked": lambda time, agent, step, size, detail: messages.SumUnmasked(time, step, size, *_numbers(detail)),
    "aborted": lambda time, agent, step, size, detail: messages.SumAborted(time, step, size, *_numbers(detail)),
    "started": lambda time, agent, step, size, detail: agents.StepStarted(time, agent, step, detail == "again"),
    "failed": lambda time, agent, step, size, detail: agents.EvaluationFailed(time, agent, step, detail),
    "rung": _rung,
    "promoted": lambda time, agent, step, size, detail: agents.EvaluationPromoted(time, agent, step, *_numbers(detail)),
    "placed": _placed,
    "crashed": _crashed,
    "slowed": lambda time, agent, step, size, detail: agents.AgentSlowed(time, agent, step, float(detail.split()[0])),
    "workers_joined": lambda time, agent, step, size, detail: agents.ClassJoined(time, detail),
    "workers_left": lambda time, agent, step, size, detail: agents.ClassLeft(time, detail),
    "worker_preempted": lambda time, agent, step, size, detail: agents.WorkerTaken(time, step, detail),
    "worker_returned": lambda time, agent, step, size, detail: agents.WorkerRestored(time, step, detail),
    "sent": lambda time, agent, step, size, detail: messages.MessageSent(time, agent, step, size, detail == "again"),
    "lost": _lost,
    "falsified": _falsified,
    "arrived": lambda time, agent, step, size, detail: messages.MessageArrived(
        time, agent, step, size, int(detail) if detail else None
    ),
    "late": lambda time, agent, step, size, detail: messages.MessageLate(time, agent, step, size, *_numbers(detail)),
    "rejected": _rejected,
    "round": lambda time, agent, step, size, detail: messages.RoundClosed(time, step, size),
    "delivered": lambda time, agent, step, size, detail: messages.AnswerDelivered(time, agent, step, size),
    "missed": _missed,
}
