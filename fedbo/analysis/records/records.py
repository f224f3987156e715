"""Results as tables of other programs: pandas, Arrow, CSV, LaTeX and Markdown, all by the same conversion."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_type_hints, overload

import numpy as np
import pyarrow as pa

from fedbo.actors.storage import atomic
from fedbo.analysis.records.text_table import TextTable
from fedbo.settings.shown import shown

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")
_DIGITS = 4  # significant ones in LaTeX and Markdown, as in the tables that are printed; CSV has them all
_SHOWN = 20  # rows in a notebook


class Tabular:
    """A result that converts to a table: pandas, Arrow, CSV, LaTeX, Markdown.

    The three written forms are returned, and also written to a file if there is a `path`.
    """

    name = "table"

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas data frame; ImportError when pandas is not installed."""
        return frame_of(self.to_arrow())

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the table as CSV; numbers have all their digits, missing values are empty."""
        return _kept(self.in_words(repr).csv(), path)

    def to_latex(self, path: str | Path | None = None) -> str:
        """Return the table as LaTeX, for the packages booktabs and longtable; numbers have four significant digits."""
        return _kept(self.in_words().latex(), path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """Return the table as Markdown; numbers have four significant digits."""
        return _kept(self.in_words().markdown(), path)

    def in_words(self, number: Callable[[float], str] | None = None, most: int | None = None) -> TextTable:
        """Return at most so many rows as text, by default with four significant digits; `number` formats a number instead."""
        table = self.to_arrow().slice(0, most)
        shown = number or (lambda value: "–" if math.isnan(value) else f"{value:.{_DIGITS}g}")
        columns = [[_word(value, shown) for value in column.to_pylist()] for column in table.columns]
        return TextTable(self.name, self.name, table.column_names, list(zip(*columns, strict=True)))

    def _repr_html_(self) -> str:
        """Return the first rows as HTML for a notebook."""
        table, count = self.in_words(most=_SHOWN), len(self.to_arrow())
        lines = [("th", table.headings), *(("td", row) for row in table.rows)]
        rows = "".join(
            f"<tr>{''.join(f'<{tag}>{escape(shown(str(cell)))}</{tag}>' for cell in line)}</tr>" for tag, line in lines
        )
        below = f"<p>{len(table.rows)} of {count} rows; to_pandas() has all</p>" if count > len(table.rows) else ""
        return f"<table>{rows}</table>{below}"


class ResultTable(Tabular):
    """A table of results with its name: a sequence of its rows, each a dictionary by column."""

    def __init__(self, name: str, data: pa.Table) -> None:
        self.name, self._data = name, data

    def to_arrow(self) -> pa.Table:
        """Return the Arrow table itself."""
        return self._data

    def __len__(self) -> int:
        return len(self._data)

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, place: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, place: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        """Return a row, or a list of rows."""
        chosen = np.arange(len(self))[place]
        rows: list[dict[str, Any]] = self._data.take(np.atleast_1d(chosen)).to_pylist()
        return rows if isinstance(place, slice) else rows[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (row for batch in self._data.to_batches() for row in batch.to_pylist())

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self)} rows of {', '.join(self._data.column_names)}>"


class Records(list[T], Tabular, Generic[T]):
    """A list of results of one kind, each a dataclass, which converts to a table with a row for each.

    A field that is itself a dataclass, or a dictionary, has a column for each of its parts, like `final_mean`. A result with
    arrays, like a curve, has a row for each of their entries.
    """

    def __init__(self, name: str, kind: type[T], items: Iterable[T]) -> None:
        super().__init__(items)
        self.name, self._kind = name, kind

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table."""
        columns = _flattened(self._kind, self)
        arrays = [name for name, values in columns.items() if any(isinstance(value, np.ndarray) for value in values)]
        if arrays:
            counts = [len(value) for value in columns[arrays[0]]]
            columns = {
                name: np.concatenate(values).tolist() if name in arrays else np.repeat(np.array(values), counts).tolist()
                for name, values in columns.items()
            }
        return pa.table({name: column_array(values) for name, values in columns.items()})


def frame_of(table: pa.Table) -> pandas.DataFrame:
    """Return an Arrow table as a pandas data frame; ImportError when pandas is not installed."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise ImportError("to_pandas requires pandas; install it with: pip install pandas") from None
    return table.to_pandas()


def column_array(values: Sequence[Any]) -> pa.Array:
    """Return values as an Arrow array of one type; mixed types and structures become strings."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return pa.array(values, pa.float64() if float in kinds else None)
    return pa.array([None if value is None else _word(value, repr) for value in values], pa.string())


def _flattened(kind: Any, rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the columns of rows, each a dataclass of this kind or None."""
    hints, columns = get_type_hints(kind), dict[str, list[Any]]()
    for field in fields(kind):
        values = [None if row is None else getattr(row, field.name) for row in rows]
        inner = next((each for each in (hints[field.name], *get_args(hints[field.name])) if is_dataclass(each)), None)
        if inner is not None:
            columns |= {f"{field.name}_{name}": part for name, part in _flattened(inner, values).items()}
        elif any(isinstance(value, Mapping) for value in values):
            keys = dict.fromkeys(key for value in values for key in value or ())
            columns |= {f"{field.name}_{key}": [(value or {}).get(key) for value in values] for key in keys}
        else:
            columns[field.name] = values
    return columns


def _word(value: Any, number: Callable[[float], str]) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return str(number(value))
    return value if isinstance(value, str) else json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)


def _kept(text: str, path: str | Path | None) -> str:
    if path is not None:
        atomic.write_text(Path(path), text)
    return text
