"""Lines of the event log as columns, as windows of events write them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedbo.coordinator.logged.agents import AgentDone, StepFinished, StepStarted
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.coordinator.logged.messages import AnswerDelivered, MessageArrived, MessageSent

# The records of the kinds, and the column of `LINE` of each of their fields; `again` never holds.
_FIELDS: Final[tuple[tuple[type[EventLine], dict[str, str]], ...]] = tuple(
    (record, {name: {"answer": "step"}.get(name, name) for name in record._fields})
    for record in (StepFinished, MessageArrived, AnswerDelivered, StepStarted, MessageSent, AgentDone)
)
RECORDS: Final = tuple(record for record, _ in _FIELDS)


@dataclass(slots=True)
class EventColumns:
    """Lines as an array `(n,)` of `kind` (a place in RECORDS), `agent`, `step` or answer, `bytes`, `staleness` and `time`."""

    lines: npt.NDArray[Any]

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self.lines)


def values_of(lines: npt.NDArray[Any], kind: int) -> dict[str, npt.NDArray[Any]]:
    """Return the fields of those lines that are of a kind."""
    found = lines[lines["kind"] == kind]
    names = {name: column for name, column in _FIELDS[kind][1].items() if name != "again"}
    values = {name: found[column] for name, column in names.items()}
    return values | ({"again": np.zeros(len(found), bool)} if len(names) < len(_FIELDS[kind][1]) else {})


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
