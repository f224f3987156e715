"""A table of evaluations on disk, written by `fedbo tabulate`: reading and checking its files.

The folder holds `table.json`, a description of the table, and `points.parquet` with every evaluation. Only a complete table
with its original points is accepted.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedbo.objectives.base import Fidelity
from fedbo.settings.errors import FedboError
from fedbo.settings.shown import quoted

FACTS, POINTS_FILE = "table.json", "points.parquet"
DESIGN, REFINE = "design", "refine"
_OF_CONTENT = ("federation", "settings", "seed", "replicate", "parameters", "metric", "n_agents", "agents", "points_sha256")
_OF_SOME = ("costly", "fidelity")  # only what reports costs, or has a fidelity axis
_LEVELS = 32  # fidelities at most


def _column(name: str, kind: Any, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


_VECTOR = pa.list_(pa.field("item", pa.float64(), nullable=False))

# One evaluation: number `index` of its origin; `value` is to be maximised, and NaN where there is an `error`.
POINTS = pa.schema(
    [
        _column("agent", pa.int32()),
        _column("origin", pa.string()),
        _column("index", pa.int32()),
        _column("x", _VECTOR),
        _column("u", _VECTOR),
        _column("value", pa.float64()),
        _column("error", pa.string(), nullable=True),
    ]
)
# Where the objective reports costs, and where it has a fidelity axis: the values at all its levels but the last.
COST, CURVE = _column("cost", pa.float64(), nullable=True), pa.field("curve", _VECTOR)


def levels(axis: Fidelity) -> tuple[int, ...]:
    """List the fidelities of a table: all, or 32 of more, evenly on a logarithmic scale and with both ends."""
    every = np.arange(axis.smallest, axis.largest + 1) if axis.largest - axis.smallest < _LEVELS else None
    chosen = np.geomspace(axis.smallest, axis.largest, _LEVELS).round() if every is None else every
    return tuple(int(one) for one in np.unique(chosen))


class TableError(FedboError, ValueError):
    """A folder that holds no table, or one that cannot be used as asked."""


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the contents of `table.json`; TableError when it is missing or cannot be read."""
    path = folder / FACTS
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise TableError(f"'{folder}': contains no table: it has no {FACTS}; create one with: fedbo tabulate NAME") from None
    except ValueError as error:
        raise TableError(f"'{path}': is damaged ({error}); create the table again in another folder") from None
    if not isinstance(found, dict) or not {*_OF_CONTENT, "status"} <= set(found):
        raise TableError(f"'{path}': is not the description of a table; pass the folder that fedbo tabulate created")
    return found


def complete_facts(folder: Path) -> dict[str, Any]:
    """Return the contents of `table.json` of a complete table; else TableError."""
    facts = read_facts(folder)
    if facts["status"] != "complete":
        remedy = f"continue with: fedbo tabulate {facts['federation']} --out {quoted(folder)}, with the same options"
        raise TableError(f"'{folder}': is not complete ({facts['status']}); {remedy}")
    return facts


def read_points(folder: Path, sha256: str) -> pa.Table:
    """Read the evaluations, in the order of agents, origins and numbers; TableError when they are not those written."""
    path = folder / POINTS_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TableError(f"'{folder}': lacks {POINTS_FILE}; create the table again in another folder") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise TableError(f"'{path}': is damaged; create the table again in another folder")
    return read_rows(data)


def read_rows(data: bytes) -> pa.Table:
    """Read evaluations from the bytes of a file: the columns `POINTS`, and costs and curves where it has them."""
    held = pq.read_schema(pa.BufferReader(data)).names
    schema = pa.schema([*POINTS, *(one for one in (COST, CURVE) if one.name in held)])
    return pq.read_table(pa.BufferReader(data), schema=schema)


@lru_cache(maxsize=8)
def points_of(folder: Path, sha256: str) -> dict[int, pa.Table]:
    """Return the successful evaluations, agent by agent; read once for each process and content."""
    table = read_points(folder, sha256)
    table = table.filter(table["error"].is_null())
    agents = table["agent"].to_numpy()
    return {int(agent): table.filter(pa.array(agents == agent)) for agent in sorted(set(agents.tolist()))}


def fingerprint(folder: Path) -> str:
    """Return a SHA-256 of a complete table's content, independent of its place and of its run times; TableError."""
    facts = complete_facts(folder)
    content = {key: facts[key] for key in (*_OF_CONTENT, *_OF_SOME) if key in facts}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
