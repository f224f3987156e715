"""Measured durations: read from a table, and drawn from it or replayed in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_types import Gt, Lt

from fedbo.settings.columns import NumberColumn, read_columns
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check

Array = npt.NDArray[np.float64]
NAMED = ("pai-1", "pai-2", "pai-3", "pai-4")
_BY = "agent"


@dataclass(frozen=True, slots=True)
class Empirical:
    """Measured durations from a CSV, Parquet or SWF `file`, or from named `data`: drawn, or replayed in their order.

    The `column` has one measured duration a row. Where the table has the column `by`, agent k has the rows of the k-th smallest
    id there, and ids repeat cyclically when there are fewer of them than agents; where it has none, or with
    `pooled`, every agent has all rows. `order` is "drawn", with replacement, or "replayed", which begins again when it is over.
    With `mean` all of them are scaled so that their mean is this.
    """

    model: ClassVar[str] = "empirical"
    costs: ClassVar[bool] = False
    file: str | None = None
    """CSV, Parquet or SWF table with one measured duration per row."""
    data: Annotated[str, OneOf(NAMED)] | None = None
    """Published durations of mini-batches by name, instead of `file`."""
    column: str = "duration"
    """Column with the durations."""
    by: str = _BY
    """Column with numbers or strings that identify agents; "agent" is optional in the file."""
    pooled: bool = False
    """Whether every agent draws from all rows."""
    order: Annotated[str, OneOf(("drawn", "replayed"))] = "drawn"
    """Drawn with replacement, or replayed in the order of the file."""
    mean: Annotated[float, Gt(0), Lt(inf)] | None = None
    """Mean to which all rows are scaled. Default: as measured."""

    def __post_init__(self) -> None:
        check(self)
        if (self.file is None) == (self.data is None):
            raise SettingError("file", "is missing; set either file or data")
        if self.file is not None:
            self._measured()

    def speed(self, rng: np.random.Generator) -> float:
        """Return 1: the measurements already contain an agent's lasting speed."""
        return 1.0

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Draw `size` durations from all measurements, of any agent."""
        values = np.concatenate(self._measured())
        drawn: Array = values[rng.integers(len(values), size=size)]
        return drawn

    def of(self, agent: int) -> Callable[[np.random.Generator, int, int], Array]:
        """Return the function (rng, first, size) -> an agent's durations from number `first` on."""
        measured = self._measured()
        values = measured[agent % len(measured)]
        if self.order == "drawn":
            return lambda rng, first, size: values[rng.integers(len(values), size=size)]
        return lambda rng, first, size: values[np.arange(first, first + size) % len(values)]

    @property
    def ids(self) -> int:
        """Return the number of ids in the file, 1 where all agents have all rows."""
        return len(self._measured())

    def _measured(self) -> tuple[Array, ...]:
        """Return the durations of each number of the column `by`, ascending, or all durations in one array."""
        assert self.file is not None, "named data is found where a study is made"
        path = Path(self.file)
        modified = path.stat().st_mtime_ns if path.is_file() else 0
        return _read(path, self.column, None if self.pooled else self.by, self.mean, modified)


@lru_cache(maxsize=64)
def _read(path: Path, column: str, by: str | None, mean: float | None, modified: int) -> tuple[Array, ...]:
    owner = [] if by is None else [NumberColumn(by, ids=True, optional=by == _BY)]  # a column that is named must be there
    found = read_columns(path, [NumberColumn(column), *owner])
    values = found[column]
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise SettingError("file", f"has {column} = {values[row]:g} in row {row + 1}; durations must be at least 0 and finite")
    if mean is not None:
        if not values.any():
            raise SettingError("mean", "cannot be set for a file in which every duration is 0; remove it")
        values = values * (mean / values.mean())
    if by is None or by not in found:
        return (values,)
    return tuple(values[found[by] == number] for number in np.unique(found[by]))
