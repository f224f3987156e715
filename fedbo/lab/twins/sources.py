"""Sources of measurements: the directory of a run, or a log in CSV or Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedbo.actors.storage.rows import write_table
from fedbo.analysis.grouping import by_run
from fedbo.analysis.result import Result
from fedbo.analysis.summary import main_algorithm
from fedbo.lab.twins.families import completed
from fedbo.lab.twins.measurements import MeasurementError, Measurements, measure_run, most_at_once
from fedbo.settings.columns import NumberColumn, names_in, read_columns
from fedbo.settings.errors import SettingError

DURATIONS = "durations.parquet"
LEAST = 5


def measure(source: Path, label: str | None = None, cell: int = 0) -> Measurements:
    """Measure a run, of one algorithm in one cell, or a log; the text of MeasurementError is one line."""
    if source.is_dir():
        found = measured_in(Result.open(source), label, cell)
    elif label is not None:
        raise MeasurementError(f"'{source}': is a log, which has no algorithms; remove the algorithm {label}")
    else:
        try:
            found = _log(source)
        except SettingError as error:
            raise MeasurementError(f"'{source}': {error.remedy}") from None
        except MeasurementError as error:
            raise MeasurementError(f"'{source}': {error}") from None
    return require_durations(found, source)


def require_durations(found: Measurements, source: Path) -> Measurements:
    """Return measurements; MeasurementError where they have too few durations for a fit."""
    if (count := len(found.durations)) < LEAST:
        words = f"at least {LEAST} are required, and 30 to distinguish models"
        raise MeasurementError(f"'{source}': has {count} durations of evaluations; {words}")
    return found


def measured_in(result: Result, label: str | None, cell: int) -> Measurements:
    """Measure all replicates of one algorithm in one cell."""
    labels = result.study.labels
    if label is not None and label not in labels:
        raise MeasurementError(f"'{result.directory}': has no algorithm '{label}'; available: {', '.join(labels)}")
    label = label or main_label(result, labels)
    events = {key: part for key, part in by_run(result.events) if key[:2] == (cell, label)}
    if not events:
        raise MeasurementError(f"'{result.directory}': has no run of '{label}' in cell {cell}")
    observations = dict(by_run(result.observations))
    found = Measurements()
    for key, part in events.items():
        measure_run(found, observations.get(key, result.observations.slice(0, 0)), part, result.study)
    return found


def main_label(result: Result, among: Sequence[str]) -> str:
    """Return the label of the first federated algorithm among some, as figures choose it."""
    if len(among) == 1:
        return among[0]
    return main_algorithm([row for row in result.summary() if row.algorithm in among], result.study.labels)


def keep_durations(measured: Measurements, folder: Path, seed: int) -> Path:
    """Write durations for the timing model "empirical", those cut short with an end that is drawn; return the path."""
    times, _ = measured.columns()
    values, agents = completed(times, seed), times.agents
    path = folder / DURATIONS
    write_table(pa.table({"agent": agents, "duration": values}), path)
    return path


def _log(path: Path) -> Measurements:
    """Read a log of evaluations: `duration`, or `started` and `finished`; `agent`, `ended`, and `u1`, `u2`, … if there."""
    names = names_in(path) or ["duration"]  # of an unreadable one, whose reader raises the error
    timed = "duration" not in names
    wanted = [NumberColumn(name) for name in (("started", "finished") if timed else ("duration",))]
    axes = [name for place, name in enumerate(f"u{number}" for number in range(1, len(names) + 1)) if name in names]
    columns = [NumberColumn(name, gaps=False) for name in axes]
    ended = NumberColumn("ended", whole=True, optional=True)
    found = read_columns(path, [*wanted, NumberColumn("agent", ids=True, optional=True), ended, *columns])
    values = found["finished"] - found["started"] if timed else found["duration"]
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise MeasurementError(f"has a duration of {values[row]:g} in row {row + 1}; durations must be at least 0 and finite")
    points = np.stack([found[name] for name in axes], axis=1) if axes else np.empty((len(values), 0))
    outside = ~((points >= 0) & (points <= 1)).all(axis=1)
    if outside.any():
        row = int(np.argmax(outside))
        raise MeasurementError(
            f"has the point {points[row].tolist()} in row {row + 1}; coordinates ({axes[0]}, …) must be from 0 to 1"
        )
    agents = found.get("agent", np.zeros(len(values), dtype=np.int64))
    agents = np.unique(agents, return_inverse=True)[1] if agents.dtype.kind == "U" else agents  # strings by their rank
    over = _flags(found.get("ended", np.ones(len(values), dtype=np.int64)))
    measured = Measurements(durations=values[over].tolist(), agents=agents[over].tolist(), points=points[over].tolist())
    measured.cut["evaluations"], measured.cut_agents = values[~over].tolist(), agents[~over].tolist()
    measured.places = {agent: place for place, agent in enumerate(np.unique(agents).tolist())}
    if not over.all():
        why = "a log does not say until when an agent was down, so that no [[fault]] and no [availability] is fitted"
        measured.notes.append(f"{why}: write them, in the log's unit of time")
    if ignored := [name for name in names if name not in found]:
        measured.notes.append(f"columns that are not read: {', '.join(map(repr, ignored))}")
    if timed:
        measured.together = most_at_once(found["started"], found["finished"])
    return measured


def _flags(ended: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return whether each evaluation of a log ended."""
    wrong = ~np.isin(ended, (0, 1))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise MeasurementError(f"has ended = {ended[row]} in row {row + 1}; ended must be 1, or 0 where it was cut short")
    return ended.astype(bool)
