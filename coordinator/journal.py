"""The event log of a run, column by column, written as Parquet parts that appear whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from fedbo.actors.rows import Key, column, part_name, write_table
from fedbo.coordinator.events import Line, Record

EVENTS = pa.schema(
    [
        column("cell", pa.int32()),
        column("algorithm", pa.string()),
        column("replicate", pa.int32()),
        column("sequence", pa.int64()),
        column("time", pa.float64()),
        column("kind", pa.string()),
        column("agent", pa.int32()),
        column("step", pa.int32()),
        column("bytes", pa.int64()),
        column("detail", pa.string()),
    ]
)


class Journal:
    """The records of one run, kept in memory as Arrow arrays until the run is flushed."""

    _BATCH = 100_000

    def __init__(self, key: Key) -> None:
        self.key = key
        self._records: list[Line] = []
        self._tables: list[pa.Table] = []
        self._count = 0

    def extend(self, records: Iterable[Line]) -> None:
        """Append records in their order."""
        self._records.extend(records)
        if len(self._records) >= self._BATCH:
            self._pack()

    def flush(self, folder: Path) -> None:
        """Write the whole log as one part file."""
        self._pack()
        write_table(pa.concat_tables(self._tables), folder / f"{part_name(self.key)}.parquet")

    def _pack(self) -> None:
        size = len(self._records)
        columns = [list(values) for values in zip(*self._records, strict=True)] or [[] for _ in Record._fields]
        head = [[self.key.cell] * size, [self.key.algorithm] * size, [self.key.replicate] * size]
        numbers = list(range(self._count, self._count + size))
        arrays = [pa.array(c, f.type) for c, f in zip([*head, numbers, *columns], EVENTS, strict=True)]
        self._tables.append(pa.Table.from_arrays(arrays, schema=EVENTS))
        self._records, self._count = [], self._count + size
