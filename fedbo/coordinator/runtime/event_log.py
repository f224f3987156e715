"""The event log of a run, column by column, written as Parquet parts that appear atomically."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fedbo.actors.storage import atomic
from fedbo.actors.storage.checkpoint import FRAME, MAGIC, CheckpointError, pack, unpack
from fedbo.actors.storage.evaluations import column
from fedbo.actors.storage.rows import RunKey, schema_of, write_table
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.sealed import DamagedError
from fedbo.actors.task import StepReport
from fedbo.coordinator.kernel.engine import RecordedEvent
from fedbo.coordinator.logged.columns import EventColumns
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.coordinator.logged.table import events_table
from fedbo.settings.rooms import optional_or

MOMENTS = pa.schema(
    [
        *list(schema_of(RunKey)),
        column("sequence", pa.int64()),
        column("time", pa.float64()),
        column("number", pa.int64()),
        column("agent", pa.int32()),
        column("lease", pa.int64()),
    ]
)


_LENGTH = struct.Struct("<Q")


def read_moments(path: Path) -> Iterator[tuple[RecordedEvent, StepReport | None]]:
    """Read the events recorded after a snapshot, up to the end of its writer; DamagedError if a record is malformed.

    A kill or a power cut may tear the last entry, before it had any effect: it is ignored.
    """
    data = path.read_bytes() if path.exists() else b""
    place = 0
    while place + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        entry = data[place + _LENGTH.size : place + _LENGTH.size + length]
        try:
            if len(entry) < length:
                raise CheckpointError(f"{length} bytes were expected, but {len(entry)} follow")
            recorded, report = unpack(entry)
        except CheckpointError as error:
            if _is_torn(data, place):
                return
            raise DamagedError(path, f"at byte {place}: {error}".partition(";")[0]) from None
        yield recorded, report
        place += _LENGTH.size + length


def _is_torn(data: bytes, place: int) -> bool:
    """Return whether the last entry begins here and its writing was cut off: it is too short, or lacks a sector."""
    if data.find(MAGIC, place + _LENGTH.size + 1) >= 0:  # another entry follows
        return False
    entry, head = data[place + _LENGTH.size :], len(MAGIC) + FRAME.size
    if len(entry) < head:
        return True
    # Its length is written twice; where the two differ, one of them is damaged, and says nothing.
    lengths = {*_LENGTH.unpack_from(data, place), head + FRAME.unpack_from(entry, len(MAGIC))[0]}
    return (len(lengths) == 1 and len(entry) < max(lengths)) or atomic.is_torn(data[place:], place)


class EventLog:
    """The event log of one run, kept in memory as Arrow arrays until it is written; `count` is its number of lines.

    The log of a run in real time also has a record of events and their times. Each event is written to disk before it takes
    effect, so that the run can be resumed when this process dies.
    """

    _BATCH = 100_000

    def __init__(self, home: RunFolder, count: int = 0) -> None:
        self.home, self.count = home, count
        self._records: list[EventLine | EventColumns] = []
        self._lines = 0  # in `_records`
        self._tables: list[pa.Table] = []
        self._moments: list[RecordedEvent] = []
        self.moments = 0
        self._file: int | None = None
        self._entries: list[Any] = []

    def enter(self, entries: Iterable[Any]) -> None:
        """Append releases to the privacy ledger."""
        self._entries.extend(entries)

    def record(self, recorded: RecordedEvent, report: StepReport | None = None) -> None:
        """Append an event, with its report if it has one; OSError when the disk is full."""
        if self._file is not None:
            data = pack((recorded, report))
            # Before the event has any effect: a release that has left must not be forgotten by a power cut.
            atomic.append(self._file, _LENGTH.pack(len(data)) + data, sync=True)
        self._moments.append(recorded)

    def note_from(self, number: int) -> None:
        """Record the events after this snapshot as they happen."""
        self.close()
        self._file = atomic.open_log(self.home.moments(number))

    def close(self) -> None:
        """Close the file of events since the last snapshot, if there is one."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def extend(self, records: Iterable[EventLine | EventColumns]) -> None:
        """Append records in their order."""
        before = len(self._records)
        self._records.extend(records)
        self._lines += sum(len(one) if isinstance(one, EventColumns) else 1 for one in self._records[before:])
        if self._lines >= self._BATCH:
            self._pack()

    def write(self, number: int) -> dict[str, str]:
        """Write the lines since the last call as one part of each kind; return the names and SHA-256 of the non-empty parts."""
        self._pack()
        table, self._tables = pa.concat_tables(self._tables), []
        moments, self._moments = self._moments_table() if self._moments else (), []
        self.moments += len(moments)
        releases, self._entries = optional_or("ledger_table", ())(self._entries, self.home.key) if self._entries else (), []
        names = dict[str, str]()
        for kind, found in (("events", table), ("record", moments), ("releases", releases)):
            if len(found):
                path = self.home.table(kind, number)
                names[path.name] = write_table(found, path)
        return names

    def _pack(self) -> None:
        self._tables.append(events_table(self._records, self.home.key, self.count))
        self._records, self._lines, self.count = [], 0, self.count + self._lines

    def _moments_table(self) -> pa.Table:
        """Return the events of a run in real time since the last time as a table."""
        count = len(self._moments)
        head = [pa.repeat(pa.scalar(value, field.type), count) for value, field in zip(self.home.key, MOMENTS, strict=False)]
        numbers = np.arange(self.moments, self.moments + count)
        columns = list(zip(*self._moments, strict=True))
        fields = list(MOMENTS)[len(head) + 1 :]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
        return pa.Table.from_arrays([*head, pa.array(numbers), *arrays], schema=MOMENTS)
