"""The files of agents with their observations of an earlier task."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedbo.actors.storage.rows import OBSERVATIONS, read_table
from fedbo.actors.storage.sealed import DamagedError, check_file
from fedbo.algorithms.base import Array
from fedbo.objectives.outcome import Outcome, read_metrics


def history_file(folder: Path, agent: int) -> Path:
    """Return the path of an agent's observations of an earlier task."""
    return folder / f"agent-{agent:05d}.parquet"


def sum_file(path: Path) -> Path:
    """Return the path of the SHA-256 of a history file."""
    return path.with_suffix(".sha256")


def read_history_table(path: Path) -> pa.Table:
    """Read all observations of an earlier task; DamagedError when the file has changed."""
    check_history(path)
    return read_table(path, OBSERVATIONS)


def check_history(path: Path) -> None:
    """Check a history file against the SHA-256 beside it; raise DamagedError when they differ or one is missing."""
    noted = sum_file(path)
    try:
        check_file(path, noted.read_text(encoding="utf-8", errors="replace") or "none" if noted.exists() else "none")
    except DamagedError as error:
        both = f"{shlex.quote(str(path))} {shlex.quote(str(noted))}"
        remedy = (
            f"delete it so that the agent learns it again: rm -f {both} && fedbo resume {shlex.quote(str(path.parents[3]))}"
        )
        why = f"{error.why} in {noted.name}" if path.exists() else error.why
        raise DamagedError(path, why, remedy) from None


def read_history(folder: Path, number: int, dim: int) -> tuple[Array, Array]:
    """Return an agent's observations of an earlier task: points `(t_n, d)` and values `(t_n,)`."""
    table = read_history_table(history_file(folder, number)).select(["u", "value", "error"])
    table = table.filter(table["error"].is_null())
    x = np.array(table["u"].to_pylist(), dtype=np.float64).reshape(len(table), dim)
    return x, table["value"].to_numpy()


def read_outcomes(folder: Path, number: int) -> list[Outcome]:
    """Return the outcomes of an agent's observations of an earlier task, in the order of `read_history`."""
    table = read_history_table(history_file(folder, number)).select(["value", "score", "metrics", "error"])
    rows = table.filter(table["error"].is_null()).to_pylist()
    return [Outcome(row["value"], row["score"], read_metrics(row["metrics"])[0]) for row in rows]
