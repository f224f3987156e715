"""What an agent knows, as plain data: what a checkpoint of it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from fedbo.actors.rows import Kept, Row
from fedbo.actors.task import Report
from fedbo.algorithms.base import Array, Decision


class Flying(NamedTuple):
    """An evaluation that is under way: number `number` of its agent, of point `query` of step `step`, at `u` of the unit cube.

    `tries` says how often it has failed.
    """

    agent: int
    number: int
    step: int
    query: int
    origin: str
    u: tuple[float, ...]
    tries: int = 0
    note: str | None = None


class Memory(NamedTuple):
    """All that an agent knows: what a checkpoint of it holds.

    `algorithm` is its half of the method; `evaluated` counts the points it has evaluated, retries included, `pulled` how often
    it has evaluated, and `t_n` its observations; `best` and `worst` are those that it has seen. `rows` have not been written
    yet. `step` was its last one; `decision` belongs to the next one, and `undecided` is what `algorithm` was before it.
    `cut` says whether its last point is evaluated less often than the algorithm thinks, for which it is not told of it.
    `flight` are the evaluations that are under way, where they may overlap.
    """

    algorithm: Any
    evaluated: int = 0
    t_n: int = 0
    best: Row | None = None
    worst: float | None = None
    rows: tuple[Kept, ...] = ()
    step: int = -1
    decision: Decision | None = None
    undecided: Any = None
    pulled: int = 0
    cut: bool = False
    flight: tuple[Flying, ...] = ()


class Done(NamedTuple):
    """A step that an agent has done and that does not count yet: what it knew before, its report, and its rows."""

    before: Memory
    report: Report
    rows: tuple[Kept, ...]
    after: Memory


def history_file(folder: Path, agent: int) -> Path:
    """Name the file in which an agent keeps what it learned in an earlier task."""
    return folder / f"agent-{agent:05d}.parquet"


def read_history(folder: Path | None, number: int, dim: int) -> tuple[Array | None, Array | None]:
    """Give what an agent learned in an earlier task: its points `(t_n, d)` and values `(t_n,)`, or None twice."""
    if folder is None:
        return None, None
    table = pq.read_table(history_file(folder, number), columns=["u", "value", "error"])
    table = table.filter(table["error"].is_null())
    x = np.array(table["u"].to_pylist(), dtype=np.float64).reshape(len(table), dim)
    return x, table["value"].to_numpy()
