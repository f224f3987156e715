"""Earlier evaluations, read from an Optuna study, a CSV or Parquet file, or a run, for agents to start from.

for point in evaluated("old.csv", space, value="accuracy"):
    agent.add(*point)
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

from fedbo.actors.storage.rows import read_table
from fedbo.analysis.records.text_table import spreadsheet_cell
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.nesting import flattened
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings.errors import ArgumentError
from fedbo.tuning.spaces import written_space


class Evaluated(NamedTuple):
    """A configuration and its value; an agent adds each name only once."""

    configuration: dict[str, Any]
    value: float
    name: str


def evaluated(
    source: Any, space: Any, value: str = "value", mode: str | None = None, agent: int | None = None
) -> list[Evaluated]:
    """Return earlier evaluations from pairs of a configuration and its value, or from another `source`.

    A source is a path or an `optuna.Study`. A path ends in .csv or .parquet, with a column for each parameter and one for the
    `value`, or is the directory of a run. From a run it returns the observations of its best algorithm, of one `agent` or of
    all. ArgumentError, in one line, for any other source, or a configuration that is not in the space.
    """
    if hasattr(source, "get_trials"):
        return evaluated_in_study(source, space, mode)
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir():
            return _in_run(path, space, agent)
        if path.suffix == ".csv" and path.is_file():
            return evaluated_in_csv(path, space, value)
        if path.suffix == ".parquet" and path.is_file():
            return _in_parquet(path, space, value)
        raise ArgumentError(
            f"start = '{path}': is not an existing .csv file, .parquet file or run directory; pass the path of one"
        )
    read, found = _read(space), list[Evaluated]()
    try:
        pairs = [(flattened(pair[0]), float(pair[1])) for pair in source]
    except (TypeError, ValueError, IndexError, KeyError, AttributeError):
        words = "pass pairs of a configuration and its value, an optuna.Study, a .csv or .parquet file, or a run directory"
        raise ArgumentError(f"start = {source!r:.60}: {words}") from None
    for number, (configuration, worth) in enumerate(pairs, 1):
        found.append(_checked(read, Evaluated(configuration, worth, f"start/{number}"), f"start, point {number}"))
    return found


def _in_parquet(path: Path, space: Any, value: str) -> list[Evaluated]:
    table, read = read_table(path), _read(space)
    if value not in table.column_names:
        there = ", ".join(table.column_names)
        raise ArgumentError(f"'{path}': has no column '{value}'; available: {there}; pass the name of the value's column")
    found = []
    for number, row in enumerate(table.to_pylist(), 1):
        configuration = {name: row[name] for name in _names(read) if row.get(name) is not None}
        if row[value] is not None:
            point = Evaluated(configuration, float(row[value]), f"{path.name}/{number}")
            found.append(_checked(read, point, f"'{path}', row {number}"))
    return found


def _in_run(path: Path, space: Any, agent: int | None) -> list[Evaluated]:
    """Return the observations of agents of a run in native units, for the algorithm with the best incumbent."""
    from fedbo.analysis.result import Result

    result, read = Result.open(path), _read(space)
    best = max(result.best(), key=lambda one: result.own_metric(one["cell"]).sign * one["value"])
    metric, configurations = result.own_metric(best["cell"]), result.configurations(best["cell"])
    found = []
    for number, row in enumerate(result.observations.to_pylist()):
        same = all(row[key] == best[key] for key in ("cell", "algorithm", "replicate"))
        if row["error"] is None and same and agent in (None, row["agent"]):
            point = Evaluated(configurations.at(row["x"]), float(metric.native(row["value"])), f"{path.name}/{number}")
            found.append(_checked(read, point, f"'{path}', observation {number}"))
    return found


def evaluated_in_study(study: Any, space: Any, mode: str | None = None) -> list[Evaluated]:
    """Return the completed trials of an `optuna.Study`; parameters outside the space are skipped.

    ArgumentError when the study has several objectives or another direction than `mode` ("max" or "min"), or a
    trial is not in the space.
    """
    read = _read(space)
    if len(study.directions) != 1:
        raise ArgumentError(
            f"study '{study.study_name}': has {len(study.directions)} objectives; use a study with one objective"
        )
    direction = "min" if study.direction.name == "MINIMIZE" else "max"
    if mode not in (None, direction):
        raise ArgumentError(f"study '{study.study_name}': has direction {direction!r}, not {mode!r}; set mode = {direction!r}")
    found = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name != "COMPLETE":
            continue
        configuration = {name: value for name, value in trial.params.items() if name in _names(read)}
        name = f"{study.study_name}/{trial.number}"
        found.append(_checked(read, Evaluated(configuration, float(trial.value), name), f"trial {trial.number}"))
    return found


def evaluated_in_csv(path: str | Path, space: Any, value: str = "value") -> list[Evaluated]:
    """Return the rows of a CSV file with a column for each parameter and one for the value; other columns are ignored.

    An empty cell is an inactive parameter; an empty value is a failed evaluation, whose row is skipped. ArgumentError names
    the invalid row and column.
    """
    read, place = _read(space), Path(path)
    with place.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        columns = list(rows.fieldnames or ())
        if value not in columns:
            raise ArgumentError(
                f"'{place}': has no column '{value}'; available: {', '.join(columns)}; pass the name of the value's column"
            )
        found = []
        for number, row in enumerate(rows, start=2):
            if not (row[value] or "").strip():
                continue
            where = f"'{place}', line {number}"
            cells = {name: cell.strip() for name, cell in row.items() if name in _names(read) and (cell or "").strip()}
            configuration = {name: _cell(read, name, cell, where) for name, cell in cells.items()}
            worth = _float(row[value], f"{where}: {value}")
            found.append(_checked(read, Evaluated(configuration, worth, f"{place.name}/{number}"), where))
    return found


def _read(space: Any) -> Space:
    return read_space(written_space(space))


def _names(space: Space) -> set[str]:
    return {parameter.name for parameter in space.parameters}


def _cell(space: Space, name: str, cell: str, where: str) -> Any:
    """Return the value of a cell: a number, or the choice with this text."""
    axis = [parameter.name for parameter in space.parameters].index(name)
    choices = space.choices[axis]
    if choices is None:
        return _float(cell, f"{where}: {name}")
    by_text: dict[str, Any] = {str(choice): choice for choice in choices}
    # As our own tables write them: a choice that looks like a formula has a quote, whole numbers beside others a point.
    by_text = {spreadsheet_cell(text): choice for text, choice in by_text.items()} | by_text
    by_text |= {repr(float(each)): each for each in choices if type(each) in (int, float) and str(float(each)) not in by_text}
    if cell not in by_text:
        raise ArgumentError(f"{where}: {name} = {cell!r}: is not one of {', '.join(map(str, choices))}")
    return by_text[cell]


def _float(cell: str, where: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise ArgumentError(f"{where} = {cell!r}: is not a number") from None


def _checked(space: Space, point: Evaluated, where: str) -> Evaluated:
    try:
        space.encode(point.configuration)
    except ValueError as error:
        raise ArgumentError(f"{where}: {error}") from None
    return point
