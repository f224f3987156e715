"""Configurations evaluated before, read from an Optuna study or a CSV file, for an agent to start from.

for point in evaluated_in_csv("old.csv", space, value="accuracy"):
    agent.add(*point)
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.tuning.spaces import written_space


class Evaluated(NamedTuple):
    """A configuration and its value; under its name an agent takes it in once."""

    configuration: dict[str, Any]
    value: float
    name: str


def evaluated_in_study(study: Any, space: Any, mode: str | None = None) -> list[Evaluated]:
    """List the completed trials of an `optuna.Study`; parameters that are not in the space are left out.

    ValueError when the study has several objectives, does not go in the direction of `mode` ("max" or "min") where that is
    given, or a trial is none of the space.
    """
    read = _read(space)
    if len(study.directions) != 1:
        raise ValueError(f"study '{study.study_name}': has {len(study.directions)} objectives; one with a single one would do")
    direction = "min" if study.direction.name == "MINIMIZE" else "max"
    if mode not in (None, direction):
        raise ValueError(
            f"study '{study.study_name}': its values are better the {_better(direction)}, not as mode = {mode!r} says"
        )
    found = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name != "COMPLETE":
            continue
        configuration = {name: value for name, value in trial.params.items() if name in _names(read)}
        name = f"{study.study_name}/{trial.number}"
        found.append(_checked(read, Evaluated(configuration, float(trial.value), name), f"trial {trial.number}"))
    return found


def evaluated_in_csv(path: str | Path, space: Any, value: str = "value") -> list[Evaluated]:
    """List the rows of a CSV file that has a column for each parameter and one for the value; other columns are left out.

    A cell that is empty is a parameter that was not active, or an evaluation that failed, whose row is left out. ValueError
    names the row and the column that are wrong.
    """
    read, place = _read(space), Path(path)
    with place.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        columns = list(rows.fieldnames or ())
        if value not in columns:
            raise ValueError(
                f"'{place}': has no column '{value}'; there are: {', '.join(columns)}; say which one has the value"
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


def _better(direction: str) -> str:
    return "larger" if direction == "max" else "smaller"


def _cell(space: Space, name: str, cell: str, where: str) -> Any:
    """Give the value that a cell stands for: a number, or the choice that is written so."""
    axis = [parameter.name for parameter in space.parameters].index(name)
    choices = space.choices[axis]
    if choices is None:
        return _float(cell, f"{where}: {name}")
    by_text: Mapping[str, Any] = {str(choice): choice for choice in choices}
    if cell not in by_text:
        raise ValueError(f"{where}: {name} = {cell!r}: is none of {', '.join(by_text)}")
    return by_text[cell]


def _float(cell: str, where: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise ValueError(f"{where} = {cell!r}: is no number") from None


def _checked(space: Space, point: Evaluated, where: str) -> Evaluated:
    try:
        space.encode(point.configuration)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return point
