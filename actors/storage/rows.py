"""The observations of agents as rows: one schema, and the part files that agents write themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import FORMAT, Damaged, OtherFormat, check_format, installed
from fedbo.algorithms.base import ORIGINS

Array = np.ndarray[Any, np.dtype[Any]]


def column(name: str, kind: Any, nullable: bool = False) -> pa.Field:
    """Declare one column, without nulls unless they mean something."""
    return pa.field(name, kind, nullable=nullable)


_VECTOR = pa.list_(pa.field("item", pa.float64(), nullable=False))

OBSERVATIONS = pa.schema(
    [
        column("cell", pa.int32()),
        column("algorithm", pa.string()),
        column("replicate", pa.int32()),
        column("agent", pa.int32()),
        column("phase", pa.string()),
        column("step", pa.int32()),
        column("query", pa.int32()),
        column("origin", pa.string()),
        column("x", _VECTOR),
        column("u", _VECTOR),
        column("value", pa.float64()),
        column("score", pa.float64()),
        column("started", pa.float64()),
        column("finished", pa.float64()),
        column("t_n", pa.int32()),
        column("pulls", pa.int32()),
        column("error", pa.string(), nullable=True),
        column("note", pa.string(), nullable=True),
    ]
)


def checked(origin: str) -> str:
    """Give an origin back; ValueError when it is none of `ORIGINS`, by which results are counted."""
    if origin not in ORIGINS:
        raise ValueError(
            f"origin '{origin}' of a decision is unknown; take one of {', '.join(sorted(ORIGINS))}, and say more in note"
        )
    return origin


class Row(NamedTuple):
    """One observation of one agent, less the three columns that say which run it belongs to.

    `x` is in native units and `u` in the unit cube; `value` is what the agent saw, to be maximised, and `score` its
    noise-free counterpart; `started` and `finished` are times of the study. The point was evaluated `pulls` times in a row, and
    `value` is their mean; `t_n` counts the agent's observations with these. `origin` is one of `ORIGINS`, `note` free text.
    """

    agent: int
    phase: str
    step: int
    query: int
    origin: str
    x: list[float]
    u: list[float]
    value: float
    score: float
    started: float
    finished: float
    t_n: int
    pulls: int = 1
    error: str | None = None
    note: str | None = None


class Batch(NamedTuple):
    """The rows of a step whose points were evaluated at once, as columns: arrays `(q, d)` and `(q,)`, the others hold for all.

    A phase of a thousand clients may have a million points, and that many rows are most of the time and memory of a run.
    """

    agent: int
    phase: str
    step: int
    query: Array
    origin: str
    x: Array
    u: Array
    value: Array
    score: Array
    started: Array
    finished: Array
    t_n: Array
    pulls: Array
    error: str | None = None
    note: str | None = None

    def row(self, place: int) -> Row:
        """Give one of its rows."""
        values: Any = (each[place].tolist() if isinstance(each, np.ndarray) else each for each in self)
        return Row(*values)


Kept = Row | Batch


def each(kept: Iterable[Kept]) -> Iterator[Row]:
    """Give rows one by one."""
    for one in kept:
        if isinstance(one, Batch):
            yield from (one.row(place) for place in range(len(one.query)))
        else:
            yield one


class RunKey(NamedTuple):
    """The key of a run in its study: its cell of the sweep, the algorithm's label, and the replicate."""

    cell: int
    algorithm: str
    replicate: int


_LABEL = 200  # bytes of a label in the name of a file, which has 255 at most


def part_name(key: RunKey) -> str:
    """Name the part files of a run; a label may hold anything, and one that is too long for a file is told by its hash."""
    label = quote(key.algorithm, safe="")
    if len(label) > _LABEL:
        label = f"{label[: _LABEL - 17]}-{hashlib.sha256(key.algorithm.encode()).hexdigest()[:16]}"
    return f"{key.cell:04d}-{label}-{key.replicate:04d}"


def write_rows(kept: Sequence[Kept], key: RunKey, path: Path) -> str:
    """Write rows as one Parquet part, which appears whole or not at all; give its SHA-256."""
    tables = list[pa.Table]()
    for _, group in groupby(kept, key=type):
        alike: list[Any] = list(group)
        tables += map(_of_batch, alike) if isinstance(alike[0], Batch) else [_of_rows(alike)]
    columns = pa.concat_tables(tables or [_of_rows([])]).combine_chunks()
    head = [pa.repeat(pa.scalar(value, field.type), len(columns)) for value, field in zip(key, OBSERVATIONS, strict=False)]
    return write_table(pa.Table.from_arrays([*head, *columns.columns], schema=OBSERVATIONS), path)


_COLUMNS = pa.schema(list(OBSERVATIONS)[len(RunKey._fields) :])


def _of_rows(rows: Sequence[Row]) -> pa.Table:
    columns: list[Any] = [list(values) for values in zip(*rows, strict=True)] or [[] for _ in Row._fields]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_COLUMNS)


def _of_batch(batch: Batch) -> pa.Table:
    arrays = [_array(values, field.type, len(batch.query)) for values, field in zip(batch, _COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_COLUMNS)


def _array(values: Any, kind: Any, count: int) -> pa.Array:
    """Give a column of a batch, whose entries are numbers, vectors `(count, d)`, or one value for all."""
    if not isinstance(values, np.ndarray):
        return pa.repeat(pa.scalar(values, kind), count)
    if values.ndim == 1:
        return pa.array(values, kind)
    ends = np.arange(count + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(ends, values.ravel(), type=kind)


_FORMAT, _BY = b"fedbo.format", b"fedbo.version"  # in the metadata of a table


def write_table(table: pa.Table, path: Path) -> str:
    """Write a Parquet file, with its format, which appears whole or not at all; give its SHA-256."""
    noted = {_FORMAT: str(FORMAT).encode(), _BY: installed().encode()}
    whole = table.replace_schema_metadata({**(table.schema.metadata or {}), **noted})
    return atomic.write(path, lambda file: pq.write_table(whole, file, compression="zstd"))


def read_table(path: Path, schema: pa.Schema | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file that `write_table` wrote, by this or an earlier version.

    FileNotFoundError when there is none, Damaged when it cannot be read, OtherFormat when a later version wrote it.
    """
    try:
        with pq.ParquetFile(path) as file:  # unlike `read_table` it takes no columns from the names of folders
            noted = file.schema_arrow.metadata or {}
            check_format(path, int(noted.get(_FORMAT, b"1")), noted.get(_BY, b"").decode())
            table = file.read(columns=None if columns is None else list(columns))
        return (table if schema is None else table.select(schema.names).cast(schema)).replace_schema_metadata(None)
    except (OtherFormat, FileNotFoundError):
        raise
    except (pa.ArrowException, LookupError, TypeError, ValueError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # the disk's, not Arrow's
            raise
        raise Damaged(path, f"it cannot be read as a table: {error}".splitlines()[0]) from None
