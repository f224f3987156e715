"""Columns of numbers from a CSV or Parquet file: every error is one line that starts with "file".

Rows count from 1 below the header, without blank lines.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.settings.errors import SettingError

KINDS = (".csv", ".parquet")
# The columns of a job log in the standard workload format (Feitelson), which has no header.
_SWF = (
    *("job", "submit", "wait", "run", "cores", "cpu", "memory", "asked_cores", "asked_time", "asked_memory", "status"),
    *("user", "group", "executable", "queue", "partition", "before", "think"),
)
PREFIXES = ("sweep_", "param_", "metric_")
# The columns that every table of trials has.
OF_TRIALS: tuple[str, ...] = ("cell", "algorithm", "replicate", "agent", "step", "query", "origin", "value", "score")
OF_TRIALS += ("started", "finished", "status", "error")
RESERVED = frozenset({*OF_TRIALS, "pulls", "fidelity"})
_OF_RUNS = frozenset(
    {"x", "u", "agent", "value", "error"}
)  # columns of our own tables of evaluations, which have no other axes


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column of numbers in a file.

    - `whole`: only integers are accepted.
    - `optional`: the column may be missing.
    - `gaps`: empty cells are accepted and become NaN.
    - `ids`: whole numbers or strings are accepted.
    """

    name: str
    whole: bool = False
    optional: bool = False
    gaps: bool = False
    ids: bool = False


def heading_of(name: str, prefix: str, taken: Container[str] = RESERVED) -> str:
    """Return the column of a parameter, metric or swept key in a table, with a prefix where another could have this name."""
    return f"{prefix}{name}" if name in taken or name.startswith(PREFIXES) else name


def columns_of(names: Sequence[str], prefix: str, there: Sequence[str], taken: Container[str] = ()) -> dict[str, str]:
    """Return the columns of parameters, or of metrics, among those that are `there`; a missing one is among them too.

    It is the one with the prefix where the table has it. A column that is `taken`, or one of our tables' own, is none.
    """
    own = RESERVED if {*OF_TRIALS} <= {*there} else _OF_RUNS if is_raw(there) else ()
    found = {}
    for name in names:
        prefixed = f"{prefix}{name}"
        of_other = prefixed in names and f"{prefix}{prefixed}" not in there
        found[name] = prefixed if name in taken or name in own or (prefixed in there and not of_other) else name
    return found


def is_raw(there: Sequence[str]) -> bool:
    """Return whether these are the columns of a run's or a tabulation's own evaluations, which have points as lists."""
    return {*_OF_RUNS} <= {*there} and not {*OF_TRIALS} <= {*there}


def names_in(path: Path) -> list[str]:
    """Return the names of a file's columns; none where it cannot be read, which its reader reports."""
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(path).names if path.suffix == ".parquet" else pacsv.open_csv(path).schema.names)
    except (OSError, pa.ArrowException):
        return []


def read_columns(path: Path, columns: Sequence[NumberColumn]) -> dict[str, npt.NDArray[Any]]:
    """Read columns `(n,)`, as int64 if `whole`, else as float64, ids also as strings; missing optional ones are omitted.

    SettingError names the invalid column and row. Other columns of the file are ignored.
    """
    table = _table(path, columns)
    needed = [column.name for column in columns if not column.optional]
    if any(table.column_names.count(column.name) > 1 for column in columns) or not set(needed) <= set(table.column_names):
        has = ", ".join(table.column_names)
        raise SettingError("file", f"has columns {has}; it must have {_listed(needed)}, each once")
    if not len(table):
        raise SettingError("file", f"has no rows; give at least one with {_listed(needed)}")
    there = [column for column in columns if column.name in table.column_names]
    return {column.name: _numbers(table.column(column.name), column) for column in there}


def _numbers(found: Any, column: NumberColumn) -> npt.NDArray[Any]:
    if found.null_count and not column.gaps:
        row = found.is_null().to_pylist().index(True)
        raise SettingError(
            "file", f"has no {column.name} in row {row + 1}; give every row {'an id' if column.ids else 'a number'} there"
        )
    if column.ids and str(found.type) in ("string", "large_string"):
        return np.array(found.to_pylist(), dtype=np.str_)
    values = np.asarray(found.cast("double") if found.null_count else found)
    kinds, words = ("iu", "whole numbers" + " or strings" * column.ids) if column.whole or column.ids else ("iuf", "numbers")
    if values.dtype.kind not in kinds:
        raise SettingError("file", f"has a column {column.name} of type {found.type}; it must hold {words}")
    return values.astype(np.int64 if column.whole or column.ids else np.float64)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _table(path: Path, columns: Sequence[NumberColumn]) -> Any:
    import pyarrow as pa  # only here, because the lists of models must not wait for it
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    if not path.is_file():
        raise SettingError("file", f"does not exist: {path.absolute()}; set the path of a table in .csv, .parquet or .swf")
    if path.suffix not in (*KINDS, ".swf"):
        raise SettingError("file", f"ends in '{path.suffix}'; it must be a table in .csv, .parquet or .swf")
    try:
        if path.suffix == ".swf":
            rows = np.loadtxt(path, comments=";", ndmin=2)
            whole = [values.astype(np.int64) if (values % 1 == 0).all() else values for values in rows.T]
            return pa.table(dict(zip(_SWF, whole, strict=True)))
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:  # unlike `read_table` it takes no columns from the names of folders
                return file.read()
        types = {column.name: pa.int64() if column.whole else pa.float64() for column in columns if not column.ids}
        # With one thread pyarrow names the row in which a number is none.
        options = pacsv.ConvertOptions(column_types=types, strings_can_be_null=True)
        return pacsv.read_csv(path, read_options=pacsv.ReadOptions(use_threads=False), convert_options=options)
    except (OSError, ValueError) as error:  # also those of pyarrow, and of a log with other columns
        raise SettingError("file", f"cannot be read as {path.suffix[1:]} ({str(error).splitlines()[0]})") from None
