"""The tables of a study, run by run: rows in canonical order lie together by cell, algorithm and replicate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedbo.actors.storage.rows import RunKey


def by_run(table: Any) -> Iterator[tuple[RunKey, Any]]:
    """Give each run of a table in canonical order, with its part of it."""
    if not len(table):
        return
    columns = [column_of(table, name) for name in ("cell", "replicate")] + [_codes(table["algorithm"])]
    changed = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    edges = [0, *(np.flatnonzero(changed) + 1).tolist(), len(table)]
    for begin, end in zip(edges, edges[1:], strict=False):
        key = RunKey(*(table[name][begin].as_py() for name in ("cell", "algorithm", "replicate")))
        yield key, table.slice(begin, end - begin)


def column_of(table: Any, name: str) -> npt.NDArray[Any]:
    """Give a column as an array; words come as objects."""
    column = table[name]
    if pa.types.is_string(column.type):
        return np.asarray(column.to_pylist(), dtype=object)
    return np.asarray(column)


def of_kinds(events: Any, *kinds: str) -> Any:
    """Give the events of some kinds, in their order."""
    return events.filter(pc.is_in(events["kind"], value_set=pa.array(kinds, pa.string())))


def _codes(column: Any) -> npt.NDArray[Any]:
    return np.asarray(pc.dictionary_encode(column).combine_chunks().indices)
