"""Initial points from a file: columns agent, replicate, point, x1, x2, … in the unit cube."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

Points = Mapping[tuple[int, int], npt.NDArray[np.float64]]

_INDICES = ("agent", "replicate", "point")


def read_points(path: Path, dim: int, agents: Iterable[int], replicates: int) -> Points:
    """Read the points `(n, dim)` of each (agent, replicate), ordered by `point`; ValueError for an invalid file.

    Rows of other agents and replicates are skipped. All of the requested ones must have equally many points.
    """
    table = _columns(path, dim)
    indices = np.stack([np.asarray(table[name]) for name in _INDICES], axis=1)
    cube = np.stack([np.asarray(table[f"x{j}"], dtype=np.float64) for j in range(1, dim + 1)], axis=1)
    outside = ~((cube >= 0.0) & (cube <= 1.0)).all(axis=1)
    if outside.any():
        row = int(np.argmax(outside))
        raise ValueError(f"row {row + 1} is at {cube[row].tolist()}; points must be in the unit cube")
    found = {}
    for key in ((agent, replicate) for agent in agents for replicate in range(replicates)):
        rows = np.flatnonzero((indices[:, 0] == key[0]) & (indices[:, 1] == key[1]))
        found[key] = cube[rows[np.argsort(indices[rows, 2], kind="stable")]]
    _complete(found)
    return found


def _columns(path: Path, dim: int) -> Any:
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else pacsv.read_csv(path)
    except FileNotFoundError:
        raise ValueError("no such file; the path is relative to the folder of the study file") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"cannot be read as {path.suffix[1:] or 'CSV'} ({str(error).splitlines()[0]})") from None
    wanted = (*_INDICES, *(f"x{j}" for j in range(1, dim + 1)))
    if set(table.column_names) != set(wanted):
        raise ValueError(f"has columns {', '.join(table.column_names)}; it must have {', '.join(wanted)}")
    for name in wanted:
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or (name not in _INDICES and pa.types.is_floating(kind))):
            raise ValueError(f"column {name} contains {kind}; it must contain {'whole ' * (name in _INDICES)}numbers")
    return table


def _complete(found: Points) -> None:
    first = next(iter(found))
    for (agent, replicate), points in found.items():
        if not len(points):
            raise ValueError(
                f"has no points for agent {agent}, replicate {replicate}; every target needs some in each replicate"
            )
        if len(points) != len(found[first]):
            raise ValueError(
                f"has {len(points)} points for agent {agent}, replicate {replicate}, but {len(found[first])} for agent "
                f"{first[0]}, replicate {first[1]}; give all of them equally many"
            )
