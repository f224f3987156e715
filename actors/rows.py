"""The observations of agents as rows: one schema, and the part files that agents write themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq


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
    ]
)


class Row(NamedTuple):
    """One observation of one agent, less the three columns that say which run it belongs to.

    `x` is in native units and `u` in the unit cube; `value` is what the agent saw, to be maximised, and `score` its
    noise-free counterpart; `started` and `finished` are times of the study. The point was evaluated `pulls` times in a row, and
    `value` is their mean; `t_n` counts the agent's observations with these.
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


class Key(NamedTuple):
    """Which run of a study: its cell of the sweep, the algorithm's label, and the replicate."""

    cell: int
    algorithm: str
    replicate: int


def part_name(key: Key) -> str:
    """Name the part files of a run; a label may hold anything."""
    return f"{key.cell:04d}-{quote(key.algorithm, safe='')}-{key.replicate:04d}"


def write_rows(rows: Sequence[Row], key: Key, path: Path) -> None:
    """Write rows as one Parquet part, which appears whole or not at all."""
    columns: list[Any] = [list(values) for values in zip(*rows, strict=True)] or [[] for _ in Row._fields]
    head = [[value] * len(rows) for value in key]
    arrays = [pa.array(values, field.type) for values, field in zip([*head, *columns], OBSERVATIONS, strict=True)]
    write_table(pa.Table.from_arrays(arrays, schema=OBSERVATIONS), path)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a Parquet file under another name and rename it when it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        pq.write_table(table, draft, compression="zstd")
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
