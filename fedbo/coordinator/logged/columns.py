"""Lines of the event log as columns, as windows of events write them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedbo.coordinator.logged.agents import AgentDone, StepFinished, StepStarted
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.coordinator.logged.messages import AnswerDelivered, AnswerMissed, MessageArrived, MessageSent, RoundClosed

RECORDS: Final[tuple[type[EventLine], ...]] = (
    *(StepFinished, MessageArrived, AnswerDelivered, StepStarted, MessageSent, AgentDone),
    *(AnswerMissed, RoundClosed),
)
# What the fields of these lines are where they have no column of their own.
_ALWAYS: Final[dict[str, Any]] = {"again": False, "reason": "agent_ended", "attempts": None}


@dataclass(slots=True)
class EventColumns:
    """Lines as an array `(n,)`: `kind` (a place in RECORDS), `agent`, `step`, answer or round, `bytes`, `staleness`, `time`."""

    lines: npt.NDArray[Any]

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self.lines)


def values_of(lines: npt.NDArray[Any], kind: int) -> dict[str, npt.NDArray[Any]]:
    """Return the fields of those lines that are of a kind."""
    found = lines[lines["kind"] == kind]
    return {
        name: np.full(len(found), _ALWAYS[name]) if name in _ALWAYS else found["step" if name in ("answer", "round") else name]
        for name in RECORDS[kind]._fields
    }


def single_lines(log: Iterable[EventLine | EventColumns]) -> list[EventLine]:
    """Return the lines of a log one by one."""
    lines = list[EventLine]()
    for entry in log:
        if not isinstance(entry, EventColumns):
            lines.append(entry)
            continue
        each = [zip(*(c.tolist() for c in values_of(entry.lines, kind).values()), strict=True) for kind in range(len(RECORDS))]
        lines.extend(RECORDS[kind](*next(each[kind])) for kind in entry.lines["kind"].tolist())
    return lines
