"""Groups of rows and of traces: by run, by cell and algorithm, by replicate, or by agent."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedbo.actors.storage.rows import RunKey

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class OfRun(Protocol):
    """Anything that belongs to one run, such as a trace."""

    @property
    def cell(self) -> int: ...

    @property
    def algorithm(self) -> str: ...

    @property
    def replicate(self) -> int: ...


R = TypeVar("R", bound=OfRun)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by a key; the groups, and the items of each, keep their order."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def by_cell_and_algorithm(items: Iterable[R]) -> dict[tuple[int, str], list[R]]:
    """Group items of runs by cell and algorithm."""
    return grouped(items, lambda item: (item.cell, item.algorithm))


def by_replicate(items: Iterable[R]) -> dict[int, list[R]]:
    """Group items of runs by replicate."""
    return grouped(items, lambda item: item.replicate)


def by_run(table: Any) -> Iterator[tuple[RunKey, Any]]:
    """Yield each run of a table in canonical order, with its part of the table."""
    if not len(table):
        return
    codes = np.asarray(pc.dictionary_encode(table["algorithm"]).combine_chunks().indices)  # faster to compare than strings
    changed = starts(*(column_of(table, name) for name in ("cell", "replicate")), codes)
    edges = [*np.flatnonzero(changed).tolist(), len(table)]
    for begin, end in zip(edges, edges[1:], strict=False):
        key = RunKey(*(table[name][begin].as_py() for name in ("cell", "algorithm", "replicate")))
        yield key, table.slice(begin, end - begin)


def one_run(table: Any, cell: int, label: str, replicate: int) -> Any:
    """Return one run's part of a table."""
    return next((part for key, part in by_run(table) if key == (cell, label, replicate)), table.slice(0, 0))


def runs_by_algorithm(table: Any) -> dict[tuple[int, str], list[tuple[RunKey, Any]]]:
    """Group the runs of a table in canonical order by cell and algorithm."""
    return grouped(by_run(table), lambda run: (run[0].cell, run[0].algorithm))


def starts(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return for each row whether it begins a group: whether it differs from the row before in any of the columns `(n,)`."""
    first = np.ones(len(columns[0]), dtype=bool)
    first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return first


def column_of(table: Any, name: str) -> npt.NDArray[Any]:
    """Return a column as an array; strings become objects."""
    column = table[name]
    if pa.types.is_string(column.type):
        return np.asarray(column.to_pylist(), dtype=object)
    return np.asarray(column)


def of_kinds(events: Any, *kinds: str) -> Any:
    """Return the events of some kinds, in their order."""
    return events.filter(pc.is_in(events["kind"], value_set=pa.array(kinds, pa.string())))


def sent_up(events: Any) -> Any:
    """Return the transmissions to the coordinator, including repeated and lost messages and the shares of unmasking."""
    return of_kinds(events, "sent", "unmasked", "aborted")


def sent_down(events: Any) -> Any:
    """Return the transmissions to agents, including repeated and lost answers.

    The log has no line when an answer is sent. It has one for each that arrives, is lost, or finds that its agent has ended.
    """
    return of_kinds(events, "delivered", "missed", "lost").filter(pc.is_valid(pc.field("answer")))


def bytes_of(events: Any) -> int:
    """Return the bytes of all these events."""
    return int(pc.sum(events["bytes"]).as_py() or 0)


def of_algorithm(table: Any, cell: int, label: str) -> Any:
    """Return the rows of one algorithm in one cell, in their order."""
    return table.filter(pc.and_(pc.equal(table["cell"], cell), pc.equal(table["algorithm"], label)))
