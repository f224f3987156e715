"""Columns of numbers from a CSV or Parquet file: every error is one line that starts with "file".

Rows count from 1 below the header, without blank lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.settings.errors import SettingError

KINDS = (".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column of numbers in a file.

    - `whole`: only integers are accepted.
    - `optional`: the column may be missing.
    - `gaps`: empty cells are accepted and become NaN.
    """

    name: str
    whole: bool = False
    optional: bool = False
    gaps: bool = False


def read_columns(path: Path, columns: Sequence[NumberColumn]) -> dict[str, npt.NDArray[Any]]:
    """Read columns `(n,)`, as int64 if they are `whole`, else as float64; missing optional ones are omitted.

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
        raise SettingError("file", f"has no {column.name} in row {row + 1}; give every row a number there")
    values = np.asarray(found.cast("double") if found.null_count else found)
    kinds, words = ("iu", "whole numbers") if column.whole else ("iuf", "numbers")
    if values.dtype.kind not in kinds:
        raise SettingError("file", f"has a column {column.name} of type {found.type}; it must hold {words}")
    return values.astype(np.int64 if column.whole else np.float64)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _table(path: Path, columns: Sequence[NumberColumn]) -> Any:
    import pyarrow as pa  # only here, because the lists of models must not wait for it
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    if not path.is_file():
        raise SettingError("file", f"does not exist: {path.absolute()}; set the path of a table in .csv or .parquet")
    if path.suffix not in KINDS:
        raise SettingError("file", f"ends in '{path.suffix}'; it must be a table in .csv or .parquet")
    try:
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:  # unlike `read_table` it takes no columns from the names of folders
                return file.read()
        types = {column.name: pa.int64() if column.whole else pa.float64() for column in columns}
        # With one thread pyarrow names the row in which a number is none.
        options = pacsv.ConvertOptions(column_types=types)
        return pacsv.read_csv(path, read_options=pacsv.ReadOptions(use_threads=False), convert_options=options)
    except (OSError, pa.ArrowException) as error:
        raise SettingError("file", f"cannot be read as {path.suffix[1:]} ({str(error).splitlines()[0]})") from None
