"""Earlier evaluations, read from an Optuna study, a CSV or Parquet file, or a run, for agents to start from.

for point in evaluated("old.csv", space, value="accuracy"):
    agent.add(*point)
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedbo.actors.storage.rows import read_table
from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis.records.text_table import spreadsheet_cell
from fedbo.objectives.goals import Goals
from fedbo.objectives.outcome import read_metrics
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.nesting import flattened
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings.errors import ArgumentError
from fedbo.tuning.metrics import told_of
from fedbo.tuning.optuna_metrics import check_directions, told_of_trial

Value = float | dict[str, float | None]


class Evaluated(NamedTuple):
    """A configuration and its value, or its metrics by name; an agent adds each name only once."""

    configuration: dict[str, Any]
    value: Value
    name: str


def evaluated(
    source: Any,
    space: Any,
    value: str = "value",
    mode: str | None = None,
    agent: int | None = None,
    goals: Goals | None = None,
) -> list[Evaluated]:
    """Return earlier evaluations from pairs of a configuration and its value, or from another `source`.

    A source is a path or an `optuna.Study`. A path ends in .csv or .parquet, with a column for each parameter and one for the
    `value`, or is the directory of a run. From a run it returns the observations of its best algorithm, of one `agent` or of
    all. With `goals` of several metrics a value is a dictionary of their numbers. Files have a column for each further one, and
    an Optuna study has their objectives in the same order. ArgumentError, in one line, for any other source, or a configuration
    that is not in the space.
    """
    if hasattr(source, "get_trials"):
        return evaluated_in_study(source, space, mode, goals)
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir():
            return _in_run(path, space, agent, goals)
        if path.suffix == ".csv" and path.is_file():
            return evaluated_in_csv(path, space, value, goals)
        if path.suffix == ".parquet" and path.is_file():
            return _in_parquet(path, space, value, goals)
        raise ArgumentError(
            f"start = '{path}': is not an existing .csv file, .parquet file or run directory; pass the path of one"
        )
    read, found = _read(space), list[Evaluated]()
    try:
        pairs = [(flattened(pair[0]), dict(pair[1]) if goals and _others(goals) else float(pair[1])) for pair in source]
    except (TypeError, ValueError, IndexError, KeyError, AttributeError):
        words = "pass pairs of a configuration and its value, an optuna.Study, a .csv or .parquet file, or a run directory"
        raise ArgumentError(f"start = {source!r:.60}: {words}") from None
    for number, (configuration, worth) in enumerate(pairs, 1):
        told_of(worth, goals)
        found.append(_checked(read, Evaluated(configuration, worth, f"start/{number}"), f"start, point {number}"))
    return found


def _others(goals: Goals | None) -> list[str]:
    """Return the names of the metrics besides the value."""
    return [] if goals is None else [name for name in goals.names if name != goals.own.name]


def _told(value: float, goals: Goals | None, others: Mapping[str, float | None]) -> Value:
    """Return the value, with further metrics as a dictionary."""
    return value if goals is None or not others else {goals.own.name: value, **others}


def _check_columns(path: Path, there: Sequence[str], value: str, goals: Goals | None) -> None:
    if missing := next((name for name in (value, *_others(goals)) if name not in there), None):
        remedy = "pass the name of the value's column" if missing == value else "add it, with empty cells where it is not known"
        raise ArgumentError(f"'{path}': has no column '{missing}'; available: {', '.join(there)}; {remedy}")


def _in_parquet(path: Path, space: Any, value: str, goals: Goals | None) -> list[Evaluated]:
    try:
        table, read = read_table(path), _read(space)
    except DamagedError as error:
        raise ArgumentError(f"start = '{path}': {error.why}; pass a table of evaluations") from None
    _check_columns(path, table.column_names, value, goals)
    found = []
    for number, row in enumerate(table.to_pylist(), 1):
        configuration = {name: row[name] for name in _names(read) if row.get(name) is not None}
        if row[value] is not None:
            told = _told(float(row[value]), goals, {name: row[name] for name in _others(goals)})
            found.append(_checked(read, Evaluated(configuration, told, f"{path.name}/{number}"), f"'{path}', row {number}"))
    return found


def _in_run(path: Path, space: Any, agent: int | None, goals: Goals | None) -> list[Evaluated]:
    """Return the observations of agents of a run in native units, for the algorithm with the best incumbent."""
    from fedbo.analysis.result import Result

    result, read = Result.open(path), _read(space)
    if not (bests := result.best()):
        raise ArgumentError(f"start = '{path}': is a run without any value; pass one that has evaluated something")
    best = max(bests, key=lambda one: result.own_metric(one["cell"]).sign * one["value"])
    metric, configurations = result.own_metric(best["cell"]), result.configurations(best["cell"])
    found = []
    for number, row in enumerate(result.observations.to_pylist()):
        same = all(row[key] == best[key] for key in ("cell", "algorithm", "replicate"))
        if row["error"] is None and same and agent in (None, row["agent"]):
            metrics = read_metrics(row["metrics"])[0]
            told = _told(float(metric.native(row["value"])), goals, {name: metrics.get(name) for name in _others(goals)})
            point = Evaluated(configurations.at(row["x"]), told, f"{path.name}/{number}")
            found.append(_checked(read, point, f"'{path}', observation {number}"))
    return found


def evaluated_in_study(study: Any, space: Any, mode: str | None = None, goals: Goals | None = None) -> list[Evaluated]:
    """Return the completed trials of an `optuna.Study`; parameters outside the space are skipped.

    ArgumentError when the study has other objectives than `goals`, or without them several, or another direction than `mode`
    ("max" or "min"), or a trial is not in the space.
    """
    read = _read(space)
    check_directions(study, mode, goals)
    found = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name != "COMPLETE":
            continue
        configuration = {name: value for name, value in trial.params.items() if name in _names(read)}
        name = f"{study.study_name}/{trial.number}"
        told = told_of_trial(trial, trial.values, goals if _others(goals) else None)
        assert told is not None
        found.append(_checked(read, Evaluated(configuration, told, name), f"trial {trial.number}"))
    return found


def evaluated_in_csv(path: str | Path, space: Any, value: str = "value", goals: Goals | None = None) -> list[Evaluated]:
    """Return the rows of a CSV file with a column for each parameter and one for the value; other columns are ignored.

    An empty cell is an inactive parameter; an empty value is a failed evaluation, whose row is skipped. ArgumentError names
    the invalid row and column.
    """
    read, place = _read(space), Path(path)
    with place.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        columns = list(rows.fieldnames or ())
        _check_columns(place, columns, value, goals)
        found = []
        for number, row in enumerate(rows, start=2):
            if not (row[value] or "").strip():
                continue
            where = f"'{place}', line {number}"
            cells = {name: cell.strip() for name, cell in row.items() if name in _names(read) and (cell or "").strip()}
            configuration = {name: _cell(read, name, cell, where) for name, cell in cells.items()}
            others = {name: _float(row[name], f"{where}: {name}") if row[name] else None for name in _others(goals)}
            told = _told(_float(row[value], f"{where}: {value}"), goals, others)
            found.append(_checked(read, Evaluated(configuration, told, f"{place.name}/{number}"), where))
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
