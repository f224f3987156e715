"""The catalogue of event kinds: the record of each, whose fields are the columns of `events.parquet` that it fills.

`agents.py` and `messages.py` declare the records, each with the name of its kind. A new kind is one record. A field means the
same in all records: `step` is a step of `agent`, `round` a round, `answer` the number of an answer of the coordinator to
`agent`, and `query` the place of a point in its step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

# A record of its fields, `make(StepFinished, (time, agent, step))`, in half the time of a call of its class, for every step.
make: Final = tuple.__new__

EventLine = NamedTuple
Record = TypeVar("Record", bound=EventLine)
KINDS: Final = dict[str, type[EventLine]]()  # complete once `table.py` has imported `agents.py` and `messages.py`


def logged_as(kind: str) -> Callable[[type[Record]], type[Record]]:
    """Return a decorator that enters a record into the catalogue under the name of its kind."""

    def enter(record: type[Record]) -> type[Record]:
        KINDS[kind] = record
        return record

    return enter
