"""Observations and evaluations as tables: their columns, and the Parquet parts that agents write."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast, get_args, get_type_hints
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedbo.actors.storage import atomic
from fedbo.actors.storage.evaluations import EVALUATION_COLUMNS, VECTOR, EvaluationRecord, Query, column, reader, with_outcome
from fedbo.actors.storage.sealed import FORMAT, DamagedError, FormatError, check_format
from fedbo.objectives.outcome import Outcome
from fedbo.settings.errors import FedboError
from fedbo.settings.version import fedbo_version


def schema_of(*kinds: type) -> pa.Schema:
    """Return the schema whose columns are the fields of these named tuples, each annotated with its Arrow type."""
    columns = []
    for kind in kinds:
        for name, hint in get_type_hints(kind, include_extras=True).items():
            python, arrow = get_args(hint)
            columns.append(column(name, arrow, nullable=type(None) in get_args(python)))
    return pa.schema(columns)


class RunKey(NamedTuple):
    """The key of a run in its study: its cell of the sweep, the algorithm's label, and the replicate."""

    cell: Annotated[int, pa.int32()]
    """Cell of the sweep, from 0."""
    algorithm: Annotated[str, pa.string()]
    """Label of the algorithm."""
    replicate: Annotated[int, pa.int32()]
    """Number of the replicate, from 0."""


# The columns of `observations.parquet` but for the run's key.
ROW_COLUMNS = (
    column("agent", pa.int32()),
    column("phase", pa.string()),
    column("step", pa.int32()),
    column("query", pa.int32()),
    column("origin", pa.string()),
    column("x", VECTOR),
    column("u", VECTOR),
    column("value", pa.float64()),
    column("score", pa.float64()),
    column("started", pa.float64()),
    column("finished", pa.float64()),
    column("t_n", pa.int32()),
    column("pulls", pa.int32()),
    column("error", pa.string(), nullable=True),
    column("note", pa.string(), nullable=True),
    column("fidelity", pa.int32(), nullable=True),
    column("stopped", pa.string(), nullable=True),
    column("rungs", VECTOR, nullable=True),
    column("metrics", pa.string(), nullable=True),
    column("copied", pa.float64(), nullable=True),
)


@dataclass(slots=True)
class Row:
    """One observation of one agent: a row of `observations.parquet` without the run's key.

    - `x`, `u`: the point in native units, and in the unit cube.
    - `outcome`: the value that the agent observed, and its noise-free score.
    - `started`, `finished`: times of the study.
    - `pulls`: evaluations of the point in a row, of which the value is the mean.
    - `t_n`: the agent's observations up to and with these.
    - `origin`: one of `ORIGINS`; `note`: free text.
    - `fidelity`, `stopped`, `rungs`, `copied`: those of the record, None where evaluations do not stop early or have no copy.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = tuple(each.name for each in ROW_COLUMNS)

    agent: int
    """Number of the agent, from 0."""
    phase: str
    """`initial` (step 0), `search`, or `history` in `histories.parquet`."""
    step: int
    """Iteration; 0 for the initial points."""
    query: int
    """Number of the point in its step, from 0."""
    origin: str
    """Source of the point, see origins."""
    x: list[float]
    """Point in native units."""
    u: Sequence[float]
    """Point in the unit cube."""
    outcome: Outcome
    started: float = 0.0
    """Start of the evaluation [units of time, or seconds since the start]."""
    finished: float = 0.0
    """End of the evaluation."""
    t_n: int = 0
    """Successful observations of the agent in this task so far, repeated pulls included."""
    pulls: int = 1
    """Repeated evaluations of the point; `value` is their mean."""
    error: str | None = None
    """Reason of the failure; null for a successful evaluation."""
    note: str | None = None
    """Free text of the algorithm; nothing depends on it."""
    fidelity: int | None = None
    """Fidelity that the evaluation reached, where it may stop early."""
    stopped: str | None = None
    """`stopped` or `paused` before the largest fidelity."""
    rungs: list[float] | None = None
    """Values at its rungs since its start or its last pause."""
    copied: float | None = None
    """Time that its other copy took on a worker of the cluster."""

    @classmethod
    def of(cls, query: Query, record: EvaluationRecord, t_n: int, started: float, finished: float) -> Self:
        """Return the row of an evaluated query; as a `Batch`, the rows of many, whose entries are arrays."""
        # Only what has no default is passed: fields set one by one take half the time of keyword arguments.
        row = cls(query.agent, query.phase, query.step, query.point, query.origin, record.x, query.u, record.outcome)
        row.started, row.finished, row.t_n = started, finished, t_n
        row.pulls, row.error, row.note = record.pulls, record.error, query.note
        row.fidelity, row.stopped, row.rungs, row.copied = record.fidelity, record.stopped, record.rungs, record.copied
        return row

    @classmethod
    def of_columns(cls, values: Mapping[str, Any]) -> Self:
        """Return a row with these entries of columns."""
        return cls(**with_outcome(values, cls.COLUMNS))


class Batch(Row):
    """The rows of points that were evaluated in one call: entries are arrays `(q, d)` and `(q,)`, or one value for all.

    A phase of a thousand clients may have a million points. As single rows these would dominate the time and memory of a run.
    """

    __slots__ = ()

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return len(cast(Any, self.query))

    def row(self, place: int) -> Row:
        """Return one of the rows."""
        entries = {name: reader(name)(self) for name in self.COLUMNS}
        one = {name: entry[place].tolist() if isinstance(entry, np.ndarray) else entry for name, entry in entries.items()}
        return Row.of_columns(one)


_KEY = tuple(schema_of(RunKey))
OBSERVATIONS = pa.schema([*_KEY, *ROW_COLUMNS])
EVALUATIONS = pa.schema([*_KEY, *EVALUATION_COLUMNS])


def single_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows one by one, also those of batches."""
    for row in rows:
        if isinstance(row, Batch):
            yield from (row.row(place) for place in range(row.size))
        else:
            yield row


_LABEL = 200  # bytes of a label in the name of a file, which has 255 at most


def part_name(key: RunKey) -> str:
    """Return the name of the part files of a run; a label that is too long for a file name is shortened with its hash."""
    label = quote(key.algorithm, safe="")
    if len(label) > _LABEL:
        label = f"{label[: _LABEL - 17]}-{hashlib.sha256(key.algorithm.encode()).hexdigest()[:16]}"
    return f"{key.cell:04d}-{label}-{key.replicate:04d}"


def write_rows(rows: Sequence[Row], key: RunKey, path: Path) -> str:
    """Write rows and batches as one Parquet part, which appears complete or not at all; return its SHA-256."""
    return write_part(table_of_rows(rows), key, OBSERVATIONS, path)


def table_of_rows(rows: Sequence[Row]) -> pa.Table:
    """Return rows and batches as a table, without the run's key."""
    tables = list[pa.Table]()
    for kind, group in groupby(rows, key=type):
        alike: list[Any] = list(group)
        tables += map(_of_batch, alike) if kind is Batch else [_of_records(alike, OBSERVATIONS)]
    return pa.concat_tables(tables or [_of_records([], OBSERVATIONS)])


def write_evaluations(records: Sequence[EvaluationRecord], key: RunKey, path: Path) -> str:
    """Write the records of evaluations as one Parquet part; return its SHA-256."""
    return write_part(_of_records(records, EVALUATIONS), key, EVALUATIONS, path)


def write_part(table: pa.Table, key: RunKey, schema: pa.Schema, path: Path) -> str:
    """Write the table of one run, with the columns of its key before the others."""
    columns = table.combine_chunks().columns
    head = [pa.repeat(pa.scalar(value, field.type), len(table)) for value, field in zip(key, schema, strict=False)]
    return write_table(pa.Table.from_arrays([*head, *columns], schema=schema), path)


def _without_key(schema: pa.Schema) -> pa.Schema:
    return pa.schema(list(schema)[len(RunKey._fields) :])


def _of_records(records: Sequence[Any], schema: pa.Schema) -> pa.Table:
    fields = _without_key(schema)
    arrays = [pa.array(list(map(reader(field.name), records)), field.type) for field in fields]
    return pa.Table.from_arrays(arrays, schema=fields)


def _of_batch(batch: Batch) -> pa.Table:
    fields = _without_key(OBSERVATIONS)
    arrays = [_array(reader(field.name)(batch), field.type, batch.size) for field in fields]
    return pa.Table.from_arrays(arrays, schema=fields)


def _array(values: Any, kind: Any, count: int) -> pa.Array:
    """Return a column of a batch, whose entries are numbers, vectors `(count, d)`, or one value for all."""
    if not isinstance(values, np.ndarray):
        return pa.repeat(pa.scalar(values, kind), count)
    if values.ndim == 1:
        return pa.array(values, kind)
    ends = np.arange(count + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(ends, values.ravel(), type=kind)


_LEAST_WIDTH = 8  # bytes of a value in memory, about
_SHARE_OF_MEMORY = 0.5  # of the machine, that one table may take
_FORMAT, _BY = b"fedbo.format", b"fedbo.version"  # in the metadata of a table


def write_table(table: pa.Table, path: Path) -> str:
    """Write a Parquet file with its format, which appears complete or not at all; return its SHA-256."""
    noted = {_FORMAT: str(FORMAT).encode(), _BY: fedbo_version().encode()}
    whole = table.replace_schema_metadata({**(table.schema.metadata or {}), **noted})
    return atomic.write(path, lambda file: pq.write_table(whole, file, compression="zstd"))


class TooLargeError(FedboError, ValueError):
    """A table that does not fit into this machine's memory."""


def _check_size(rows: int, columns: int, path: Path) -> None:
    """Raise TooLargeError for a table that would not fit into memory: a file of a few megabytes may hold billions of rows."""
    needed, memory = rows * columns * _LEAST_WIDTH, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > _SHARE_OF_MEMORY * memory:
        words = f"has {rows:,} rows of {columns} columns, {needed / 2**30:.1f} GiB in memory, more than half of this machine's"
        raise TooLargeError(f"'{path}': {words}; read it on a larger machine, or check the file")


def read_table(
    path: Path, schema: pa.Schema | None = None, columns: Sequence[str] | None = None, further: bool = False
) -> pa.Table:
    """Read a Parquet file in the columns of a `schema`, or some or all of its own; with `further`, its others come last.

    FileNotFoundError when there is none, DamagedError when it cannot be read, FormatError when a version that writes another
    format wrote it.
    """
    try:
        with pq.ParquetFile(path) as file:  # unlike `read_table` it takes no columns from the names of folders
            noted = file.schema_arrow.metadata or {}
            check_format(path, int(noted.get(_FORMAT, FORMAT)), noted.get(_BY, b"").decode())
            _check_size(file.metadata.num_rows, len(columns or file.schema_arrow), path)
            wanted = _with_values(file.metadata, schema) if columns is None and schema is not None else columns
            table = file.read(columns=None if wanted is None else list(wanted))
        if schema is not None and further:
            schema = pa.schema([*schema, *(field for field in table.schema if field.name not in schema.names)])
        return (table if schema is None else _as_declared(table, schema)).replace_schema_metadata(None)
    except (FormatError, FileNotFoundError, TooLargeError):
        raise
    except (pa.ArrowException, LookupError, TypeError, ValueError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # the disk's, not Arrow's
            raise
        raise DamagedError(path, f"it cannot be read as a table: {error}".splitlines()[0]) from None


def _with_values(file: Any, schema: pa.Schema) -> list[str]:
    """Return the columns to read. Columns of nulls alone take memory, so they are added later, as missing ones are."""
    empty = {field.name for field in schema if field.nullable and not pa.types.is_nested(field.type)}
    for group in range(file.num_row_groups):
        for place in range(file.num_columns):
            chunk = file.row_group(group).column(place)
            known = chunk.statistics
            if known is None or not known.has_null_count or known.null_count < chunk.num_values:
                empty.discard(chunk.path_in_schema)
    return [name for name in file.schema.to_arrow_schema().names if name not in empty]


def _as_declared(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a schema; columns that were added since an earlier version are null."""
    missing = {field.name for field in schema if field.nullable} - set(table.column_names)
    nulls = {kind: pa.nulls(len(table), kind) for kind in {schema.field(name).type for name in missing}}  # shared
    held = [field for field in schema if field.name not in missing]
    there = table.select([field.name for field in held]).cast(pa.schema(held))
    return pa.Table.from_arrays(
        [nulls[each.type] if each.name in missing else there[each.name] for each in schema], schema=schema
    )
