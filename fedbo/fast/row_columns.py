"""Plain observations as columns from the evaluation to the table: what is usual of a row is not stored in every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedbo.actors.storage.rows import ROW_COLUMNS, Row
from fedbo.algorithms.base import ORIGINS_IN_ORDER
from fedbo.algorithms.components.feature_columns import enlarged
from fedbo.objectives.outcome import Outcome

Places = npt.NDArray[np.int64]
_ORIGINS = np.array(ORIGINS_IN_ORDER)


@dataclass(slots=True)
class RowColumns:
    """Rows of evaluations that succeeded at once; all arrays are `(n,)`, but for `x` and `u` `(n, d)`.

    `origin` is the number of the origin in their order, and `query` that of the point in its step.
    """

    agent: npt.NDArray[np.int32]
    step: npt.NDArray[np.int32]
    query: npt.NDArray[np.int32]
    origin: npt.NDArray[np.int8]
    x: npt.NDArray[np.float64]
    u: npt.NDArray[np.float64]
    value: npt.NDArray[np.float64]
    score: npt.NDArray[np.float64]
    t_n: npt.NDArray[np.int32]
    started: npt.NDArray[np.float64]
    finished: npt.NDArray[np.float64]

    @classmethod
    def empty(cls, dim: int) -> RowColumns:
        """Return columns without rows."""
        points, numbers, times = np.empty((0, dim)), np.empty(0, np.int32), np.empty(0)
        return cls(numbers, numbers, numbers, np.empty(0, np.int8), points, points, times, times, numbers, times, times)

    @classmethod
    def of(cls, rows: Sequence[Row], dim: int) -> RowColumns:
        """Return rows as columns, without times and `t_n`."""
        found = cls.empty(dim)
        for name in ("agent", "step", "query", "x", "u") if rows else ():
            setattr(found, name, np.array([getattr(row, name) for row in rows]))
        found.origin = np.array([ORIGINS_IN_ORDER.index(row.origin) for row in rows], np.int8)
        found.value, found.score = (np.array([getattr(row.outcome, name) for row in rows]) for name in ("value", "score"))
        return found

    def __len__(self) -> int:
        return len(self.agent)

    def take(self, places: npt.NDArray[Any]) -> RowColumns:
        """Return the rows at some places, given by number or by a mask."""
        return RowColumns(**{name: getattr(self, name)[places] for name in _NAMES})

    def table(self, phase: str) -> pa.Table:
        """Return the rows as a table, in the columns of `observations.parquet` without the run's key."""
        names: Any = np.where((self.step == 0) & (phase == "search"), "initial", phase)
        given = {"phase": names, "origin": _ORIGINS[self.origin], "pulls": np.ones(len(self), np.int32)}
        arrays = []
        for field in ROW_COLUMNS:
            values = given.get(field.name, getattr(self, field.name, None))
            if values is None:
                arrays.append(pa.nulls(len(self), field.type))
            elif values.ndim == 2:
                ends = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
                arrays.append(pa.ListArray.from_arrays(ends, values.ravel(), type=field.type))
            else:
                arrays.append(pa.array(values, field.type))
        return pa.Table.from_arrays(arrays, schema=pa.schema(ROW_COLUMNS))

    def rows(self, phase: str) -> list[Row]:
        """Return the rows one by one."""
        columns = {name: getattr(self, name).tolist() for name in _NAMES}
        found = []
        for place in range(len(self)):
            one = {name: values[place] for name, values in columns.items()}
            outcome = Outcome(one.pop("value"), one.pop("score"))
            one["origin"] = ORIGINS_IN_ORDER[one["origin"]]
            found.append(Row(phase="initial" if one["step"] == 0 and phase == "search" else phase, outcome=outcome, **one))
        return found


_NAMES = tuple(field.name for field in fields(RowColumns))


class RowLog:
    """Rows in the order in which they were made. Those that are not kept yet may still be forgotten."""

    def __init__(self, dim: int) -> None:
        self.all, self._kept, self._used = RowColumns.empty(dim), np.zeros(0, bool), 0

    def append(self, rows: RowColumns) -> int:
        """Append rows; return the place of the first."""
        first, end = self._used, self._used + len(rows)
        if end > len(self.all):
            count = max(end, 2 * len(self.all), 256)
            self._kept = enlarged(self._kept, (count,))
            for name in _NAMES:
                column = getattr(self.all, name)
                setattr(self.all, name, enlarged(column, (count, *column.shape[1:])))
        for name in _NAMES:
            getattr(self.all, name)[first:end] = getattr(rows, name)
        self._kept[first:end], self._used = False, end
        return first

    def time(self, places: Places, started: npt.NDArray[np.float64], finished: npt.NDArray[np.float64]) -> None:
        """Set the times of rows."""
        self.all.started[places], self.all.finished[places] = started, finished

    def keep(self, places: Places) -> None:
        """Keep rows for good."""
        self._kept[places] = True

    def kept(self) -> RowColumns:
        """Return the rows that are kept."""
        return self.all.take(np.flatnonzero(self._kept[: self._used]))

    def take_kept(self, left: Places) -> RowColumns | None:
        """Remove and return the rows that are kept, by agent; forget all others but those `left`, which become the first."""
        found = self.kept()
        self.all, self._kept, self._used = self.all.take(left), np.zeros(len(left), bool), len(left)
        return found.take(np.argsort(found.agent, kind="stable")) if len(found) else None
