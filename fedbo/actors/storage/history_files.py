"""The files in which agents keep what they learned in an earlier task."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedbo.actors.storage.rows import read_table
from fedbo.actors.storage.sealed import Damaged, check_file
from fedbo.algorithms.base import Array


def history_file(folder: Path, agent: int) -> Path:
    """Name the file in which an agent keeps what it learned in an earlier task."""
    return folder / f"agent-{agent:05d}.parquet"


def sum_file(path: Path) -> Path:
    """Name the file with the SHA-256 of what an agent learned in an earlier task."""
    return path.with_suffix(".sha256")


def read_history_table(path: Path) -> pa.Table:
    """Read what an agent learned in an earlier task, all of it; Damaged when it is not as it was written."""
    check_history(path)
    return read_table(path)


def check_history(path: Path) -> None:
    """Let the file of an earlier task pass that has the SHA-256 noted beside it; Damaged else."""
    noted = sum_file(path)
    try:
        check_file(path, noted.read_text(encoding="utf-8", errors="replace") or "none" if noted.exists() else "none")
    except Damaged as error:
        both = f"{shlex.quote(str(path))} {shlex.quote(str(noted))}"
        remedy = f"let the agent learn it anew: rm -f {both} && fedbo resume {shlex.quote(str(path.parents[3]))}"
        why = f"{error.why} in {noted.name}" if path.exists() else error.why
        raise Damaged(path, why, remedy) from None


def read_history(folder: Path, number: int, dim: int) -> tuple[Array, Array]:
    """Return what an agent learned in an earlier task: its points `(t_n, d)` and values `(t_n,)`."""
    table = read_history_table(history_file(folder, number)).select(["u", "value", "error"])
    table = table.filter(table["error"].is_null())
    x = np.array(table["u"].to_pylist(), dtype=np.float64).reshape(len(table), dim)
    return x, table["value"].to_numpy()
