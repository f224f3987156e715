"""The trials of a run as one tidy table: every evaluation with its configuration, its value, its times and its status."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fedbo.analysis.finished_run import Columns, FinishedRun, configurations, own_metric
from fedbo.analysis.grouping import column_of
from fedbo.analysis.records.records import ResultTable, column_array
from fedbo.settings.columns import RESERVED, heading_of

COMPLETE, EARLY, PAUSED, FAILED, FORGOTTEN = ("complete", "stopped early", "paused", "failed", "forgotten")

_WHO = ("algorithm", "replicate", "agent", "step", "query", "origin")
_TIMES = ("started", "finished")
_POINT = ("cell", "algorithm", "replicate", "agent", "step", "query")


def trials(result: FinishedRun) -> ResultTable:
    """Return every evaluation of a run, in the order of the observations.

    Values, scores and other metrics are in native units, as the user's function returned them. A parameter, metric or swept key
    whose name is that of another column, or begins with such a prefix, gets one: `param_`, `metric_` or `sweep_`.
    """
    rows = result.observations
    table = {name: rows[name].to_pylist() for name in rows.column_names if name not in ("x", "u", "rungs", "note")}
    swept, parameters, values = _native(result, rows, table["cell"])
    fates = {"status": _statuses(table), "error": _reasons(table["error"], table["value"])}
    parts = (
        ("", {"cell": table["cell"]}),
        ("sweep_", swept),
        ("", {name: table[name] for name in _WHO}),
        ("param_", parameters),
        ("", values),
        ("metric_", _metrics(result, table)),
        ("", {name: table[name] for name in ("pulls", "fidelity") if any(each is not None for each in table.get(name, ()))}),
        ("", {**{name: table[name] for name in _TIMES}, **fates}),
    )
    columns = Columns()
    for prefix, part in parts:
        for name, column in part.items():
            columns[heading_of(name, prefix, {*RESERVED, *columns}) if prefix else name] = column
    return ResultTable("trials", pa.table({name: column_array(column) for name, column in columns.items()}))


def _native(result: FinishedRun, rows: Any, cells: Sequence[int]) -> tuple[Columns, Columns, Columns]:
    """Return the swept values, the parameters, and value and score, in native units, which may differ from cell to cell."""
    swept, parameters, values = Columns(), Columns(), Columns(value=[None] * len(cells), score=[None] * len(cells))
    numbers = {name: column_of(rows, name).astype(np.float64) for name in ("value", "score")}
    for cell in sorted(set(cells)):
        places = np.flatnonzero(np.array(cells) == cell)
        points = rows["x"].take(pa.array(places)).to_pylist()
        native = {name: own_metric(result, cell).native(found[places]).tolist() for name, found in numbers.items()}
        known = {name: [None if math.isnan(each) else each for each in found] for name, found in native.items()}
        _fill(values, known, places, len(cells))
        _fill(parameters, configurations(result, cell).columns(np.array(points, dtype=np.float64)), places, len(cells))
        chosen = (result.manifest.get("cells") or [{}])[cell] if result.study.sweep else {}
        _fill(swept, {key: [value] * len(places) for key, value in chosen.items()}, places, len(cells))
    return swept, parameters, values


def _fill(into: Columns, found: Columns, places: Iterable[Any], count: int) -> None:
    for name, values in found.items():
        column = into.setdefault(name, [None] * count)
        for place, value in zip(places, values, strict=True):
            column[place] = value


def _statuses(table: Mapping[str, list[Any]]) -> list[str]:
    """Return the status of each evaluation; one that paused and continued is another row of the same point."""
    count = len(table["error"])
    stopped, errors = table.get("stopped", [None] * count), table["error"]
    points = list(zip(*(table[name] for name in _POINT), strict=True)) if any(stopped) else []
    last = {point: place for place, point in sorted(enumerate(points), key=lambda each: table["finished"][each[0]])}
    found = []
    for place, (error, early, value) in enumerate(zip(errors, stopped, table["value"], strict=True)):
        if error is not None or not math.isfinite(value):
            found.append(FORGOTTEN if (error or "").startswith("forgotten") else FAILED)
        elif early is None:
            found.append(COMPLETE)
        else:
            found.append(PAUSED if last[points[place]] != place else EARLY)
    return found


def _reasons(errors: Sequence[str | None], values: Sequence[float]) -> list[str | None]:
    """Return the reason of each failed evaluation, in one line; None for the others."""
    return [
        error.splitlines()[0] if error else None if math.isfinite(value) else f"the value is {value}"
        for error, value in zip(errors, values, strict=True)
    ]


def _metrics(result: FinishedRun, table: Mapping[str, list[Any]]) -> Columns:
    """Return a column for each note, and each metric other than the tuned one, which is the value."""
    found, tuned = Columns(), [own_metric(result, cell).name for cell in range(len(result.study.titles()))]
    for place, (cell, text) in enumerate(zip(table["cell"], table.get("metrics", [None] * len(table["cell"])), strict=True)):
        for name, value in (json.loads(text) if text else {}).items():
            if name != tuned[cell] and not (name == "reports" and isinstance(value, list)):
                found.setdefault(name, [None] * len(table["cell"]))[place] = value
    return found
