"""Earlier evaluations, read from an Optuna study, a CSV or Parquet file, or a run, for agents to start from.

for point in evaluated("old.csv", space, value="accuracy"):
    agent.add(*point)
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbo.actors.storage.rows import read_table
from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis.records.text_table import spreadsheet_cell
from fedbo.objectives.goals import Goals
from fedbo.objectives.outcome import read_metrics
from fedbo.objectives.typed_spaces.declared_space import flattened, read_space
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings.arguments import Mode, short
from fedbo.settings.columns import columns_of, is_raw
from fedbo.settings.errors import ArgumentError
from fedbo.tuning.ask_log import LOG, read_log
from fedbo.tuning.metrics import check_directions, told_of, told_of_trial

Value = float | dict[str, float | None]
Columns = dict[str, str]
Named = tuple[str, Goals | None]


class Evaluated(NamedTuple):
    """A configuration and its value, or its metrics by name; an agent adds each name only once."""

    configuration: dict[str, Any]
    value: Value
    name: str


def evaluated(
    source: Any,
    space: Any,
    value: str = "value",
    mode: Mode | None = None,
    agent: int | None = None,
    goals: Goals | None = None,
) -> list[Evaluated]:
    """Return earlier evaluations from pairs of a configuration and its value, or from another `source`.

    A source is a path, a table (`result.trials()`, a data frame of pandas, a list of dictionaries), a `ResultGrid` of Ray Tune
    or an `optuna.Study`. A path ends in .csv or .parquet, with a column for each parameter and one for the `value`, or is the
    directory of a run or of an agent. A column `param_NAME` is that of the parameter NAME, as in tables of trials; so are
    `params_NAME` of Optuna's `trials_dataframe` and `config/NAME` of Ray Tune's `get_dataframe`. From a run it returns the
    observations of its best algorithm, of one `agent` or of all. With `goals` of several metrics a value is a dictionary of
    their numbers. Files have a column for each further one, and an Optuna study has their objectives in the same order.
    ArgumentError, in one line, for any other source, or a configuration that is not in the space.
    """
    if hasattr(source, "get_trials"):
        return evaluated_in_study(source, space, mode, goals)
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir():
            return _in_agent(path, space, goals) if (path / LOG).is_file() else _in_run(path, space, agent, goals)
        if path.suffix == ".csv" and path.is_file():
            return evaluated_in_csv(path, space, value, goals)
        if path.suffix == ".parquet" and path.is_file():
            try:
                return _in_table(read_table(path), str(path), space, (value, goals))
            except DamagedError as error:
                raise ArgumentError(f"start = '{path}': {error.why}; pass a table of evaluations") from None
        raise ArgumentError(
            f"start = '{path}': is not an existing .csv file, .parquet file or run directory; pass the path of one"
        )
    if hasattr(source, "to_arrow"):  # a table of trials
        return _in_table(source.to_arrow(), "start", space, (value, goals))
    if hasattr(source, "get_best_result"):  # of Ray Tune
        metric, good = source._experiment_analysis.default_metric, [one for one in source if one.error is None]
        named = ({f"param_{name}": each for name, each in flattened(one.config).items()} for one in good)
        source = [{**params, value: one.metrics.get(metric)} for params, one in zip(named, good, strict=True)]
    if hasattr(source, "iloc"):  # a data frame of pandas
        source = source.astype(object).where(source.notna(), None).to_dict("records")
    if isinstance(source, list | tuple) and source and all(isinstance(row, Mapping) for row in source):
        lines = [(number, f"start, row {number}", flattened(row)) for number, row in enumerate(source, 1)]
        return _in_rows(lines, list(dict.fromkeys(name for *_, row in lines for name in row)), "start", space, (value, goals))
    read, found = _read(space), list[Evaluated]()
    try:
        pairs = [(flattened(pair[0]), dict(pair[1]) if goals and _others(goals) else float(pair[1])) for pair in source]
    except (TypeError, ValueError, IndexError, KeyError, AttributeError):
        words = "pass pairs of a configuration and its value, an optuna.Study, a .csv or .parquet file, or a run directory"
        raise ArgumentError(f"start = {short(source)}: {words}") from None
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


def _columns(where: str, there: Sequence[str], space: Space, named: Named) -> tuple[Columns, Columns]:
    """Return the columns of parameters, and of further metrics, by their names; `named` are the value's column and the goals.

    A parameter may have no column, as an inactive one.
    """
    value, others = named[0], _others(named[1])
    if twice := next((name for name in there if there.count(name) > 1), None):
        raise ArgumentError(f"{where}: has the column '{twice}' twice; rename one")
    if is_raw(there):
        raise ArgumentError(f"{where}: is one of a run's own tables, in its units; pass the directory of the run")
    mine = columns_of(_names(space), "param_", there, (value, *others))
    for name in mine:  # as in tables of Optuna's trials, and of Ray Tune's results
        for column in (f"params_{name}", f"config/{name.replace('.', '/')}"):
            mine[name] = column if column in there and column not in mine else mine[name]
    metrics = columns_of(others, "metric_", there, (value, *mine.values()))
    if missing := next((name for name in (value, *metrics.values()) if name not in there), None):
        remedy = "pass the name of the value's column" if missing == value else "add it, with empty cells where it is not known"
        raise ArgumentError(f"{where}: has no column '{missing}'; available: {', '.join(there)}; {remedy}")
    return mine, metrics


def _in_table(table: Any, where: str, space: Any, named: Named) -> list[Evaluated]:
    rows = ((number, f"'{where}', row {number}", row) for number, row in enumerate(table.to_pylist(), 1))
    return _in_rows(rows, table.column_names, where, space, named)


def _in_rows(
    rows: Iterable[tuple[int, str, Mapping[str, Any]]], there: Sequence[str], where: str, space: Any, named: Named
) -> list[Evaluated]:
    """Return the points of rows with a value; each comes with its number and its place, and a cell that is empty is None."""
    (value, goals), read = named, _read(space)
    mine, metrics = _columns(f"'{where}'", there, read, named)
    found = []
    for number, line, row in rows:
        if row.get(value) is None:
            continue
        cells = {name: row[column] for name, column in mine.items() if row.get(column) is not None}
        for name, cell in cells.items():
            cells[name] = _cell(read, name, cell, line) if isinstance(cell, str) else cell
        others = {name: row.get(each) for name, each in metrics.items()}
        others |= {name: _float(cell, f"{line}: {name}") for name, cell in others.items() if isinstance(cell, str)}
        told = _told(_float(row[value], f"{line}: {value}"), goals, others)
        found.append(_checked(read, Evaluated(cells, told, f"{Path(where).name}/{number}"), line, cells=True))
    return found


def _in_agent(path: Path, space: Any, goals: Goals | None) -> list[Evaluated]:
    """Return the points of an agent's log that have a value, by their tokens."""
    (head, *entries), read, found = read_log(path / LOG)[0] or [{}], _read(space), list[Evaluated]()
    own, points = read_space(head["space"]), dict[str, list[float]]()
    for entry in entries:
        points |= {entry[kind]: entry["u"] for kind in ("ask", "add") if kind in entry}
        token = entry.get("tell", entry.get("add"))
        if token is not None and entry["value"] is not None:
            metrics = entry.get("metrics", {})
            told = _told(entry["value"], goals, {name: metrics.get(name) for name in _others(goals)})
            point = Evaluated(own.decode(np.array(points[token])), told, f"{path.name}/{token}")
            found.append(_checked(read, point, f"'{path}', {token}"))
    return found


def _in_run(path: Path, space: Any, agent: int | None, goals: Goals | None) -> list[Evaluated]:
    """Return the observations of agents of a run in native units, for the algorithm with the best incumbent."""
    from fedbo.analysis.finished_run import configurations, own_metric
    from fedbo.analysis.result import Result

    result, read = Result.open(path), _read(space)
    if not (bests := result.best()):
        raise ArgumentError(f"start = '{path}': is a run without any value; pass one that has evaluated something")
    best = max(bests, key=lambda one: own_metric(result, one["cell"]).sign * one["value"])
    metric, point_of = own_metric(result, best["cell"]), configurations(result, best["cell"]).at
    found = []
    for number, row in enumerate(result.observations.to_pylist()):
        same = all(row[key] == best[key] for key in ("cell", "algorithm", "replicate"))
        if row["error"] is None and same and agent in (None, row["agent"]):
            metrics = read_metrics(row["metrics"])[0]
            told = _told(float(metric.native(row["value"])), goals, {name: metrics.get(name) for name in _others(goals)})
            point = Evaluated(point_of(row["x"]), told, f"{path.name}/{number}")
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
    place = Path(path)
    with place.open(newline="", encoding="utf-8-sig") as file:
        first, *lines = list(csv.reader(file)) or [[]]
    columns = [name[1:] if name == spreadsheet_cell(name[1:]) else name for name in first]
    cells = ([cell if cell.strip() else None for cell in line] for line in lines)
    rows = (
        (number, f"'{place}', line {number}", dict(zip(columns, line, strict=False))) for number, line in enumerate(cells, 2)
    )
    return _in_rows(rows, columns, str(place), space, (value, goals))


def _read(space: Any) -> Space:
    return read_space(written_space(space))


def _names(space: Space) -> list[str]:
    return [parameter.name for parameter in space.parameters]


def _complete(space: Space, configuration: dict[str, Any]) -> None:
    """Add the choices that an empty cell stands for to a configuration: None or an empty text of active parameters."""
    for name, choices in zip(_names(space), space.choices, strict=True):
        empty = [choice for choice in choices or () if choice is None or (isinstance(choice, str) and not choice.strip())]
        if name not in configuration and len(empty) == 1 and name in space.expected(configuration):
            configuration[name] = empty[0]


def _cell(space: Space, name: str, cell: str, where: str) -> Any:
    """Return the value of a cell: a number, or the choice with this text."""
    if space.choices[_names(space).index(name)] is None:
        return _float(cell, f"{where}: {name}")
    return _choice(space, name, cell, where)


def _choice(space: Space, name: str, cell: str, where: str) -> Any:
    """Return the choice with a text, as our own tables write it; ArgumentError where none, or more than one, has it."""
    choices = space.choices[_names(space).index(name)] or ()
    found = [choice for choice in choices if cell in _texts(choice)]
    found = found or [choice for choice in choices if cell.strip() in _texts(choice)]
    if len(found) != 1:
        both = f"may be {' or '.join(map(repr, found))}; pass start=[(configuration, value), …] instead"
        words = both if found else f"is not one of {', '.join(map(str, choices))}"
        raise ArgumentError(f"{where}: {name} = {cell!r}: {words}")
    return found[0]


def _texts(choice: Any) -> set[str]:
    """Return the texts of a choice: one that looks like a formula has a quote, and a whole number beside others a point."""
    as_number = {repr(float(choice))} if type(choice) is int else set()
    return {str(choice), spreadsheet_cell(str(choice))} | as_number


def _float(cell: Any, where: str) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{where} = {short(cell)}: is not a number") from None


def _checked(space: Space, point: Evaluated, where: str, cells: bool = False) -> Evaluated:
    """Return a point, in which empty `cells` may stand for choices; ArgumentError when it is not in the space."""
    try:
        if cells:
            _complete(space, point.configuration)
        space.encode(point.configuration)
    except ValueError as error:
        raise ArgumentError(f"{where}: {error}") from None
    return point
