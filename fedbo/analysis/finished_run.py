"""A run on disk: its study, its manifest, its tables, and the traces of its incumbents; functions of it that analyses share.

`configurations` are those of its points, in native units and by the names of its parameters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedbo.actors.storage.rows import read_table
from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis.grouping import by_run
from fedbo.analysis.indicators import indicators_in
from fedbo.analysis.manifest import back, check_tables
from fedbo.analysis.schemas import EVENTS, OBSERVATIONS, PRINTED, REPORTS, schema_of_room
from fedbo.analysis.traces import IncumbentTrace, traces
from fedbo.objectives.base import Metric
from fedbo.objectives.typed_spaces.declared_space import as_declared, read_space
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings import arguments
from fedbo.settings.errors import FedboError
from fedbo.settings.trust import UntrustedError
from fedbo.study.files import code_in
from fedbo.study.study import Cell, Study


class ResultError(FedboError, ValueError):
    """A directory without results, or results without the requested data."""


class StoredTable:
    """A table of a run, read as an Arrow table when it is first asked for, and empty if the run has no file of it.

    Without a `schema` it is that of a room.
    """

    def __init__(self, file: str, schema: Any = None) -> None:
        self._file, self._schema = file, schema

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, run: FinishedRun | None, owner: type) -> Any:
        """Return the table of a run, and keep it there; DamagedError if its checksum differs."""
        return self if run is None else run.__dict__.setdefault(self._name, self._read(run))

    def _read(self, run: FinishedRun) -> Any:
        path = run.directory / f"{self._file}.parquet"
        check_tables(run.directory, run.manifest, [path.name])
        schema = schema_of_room(self._file) if self._schema is None else self._schema
        if not path.is_file():
            return schema.empty_table()
        try:
            table = read_table(path, schema, further=True)
        except DamagedError as error:
            raise DamagedError(path, error.why, back(path)) from None
        strange = sorted({*pc.unique(table["algorithm"]).to_pylist()} - {*run.study.labels}, key=str)
        if strange and self._file != "histories":  # those are by the algorithm of the earlier task
            why = f"it names the algorithm {strange[0]!r}, which the study has not"
            raise DamagedError(path, why, back(path))
        return table


class FinishedRun:
    """The directory of a run: `study`, `manifest`, and its tables, with the columns of `fedbo.analysis.schemas`.

    - `observations`: all evaluations, also with a column for each metric; `histories`: those of an earlier task.
    - `events`: all events between agents and coordinator.
    - `printed`: the output of your own code's evaluations.
    - `reports`: the reports of agents at sites.
    - `privacy`, `spent`: the privacy ledger, and what each agent has spent.

    `directory` is its folder; of a run on storage, which has an `address`, it is that of a copy.
    """

    def __init__(self, directory: Path, study: Study, manifest: Mapping[str, Any]) -> None:
        self.directory, self.study, self.manifest = directory, study, manifest
        self.address: str | None = None

    observations = StoredTable("observations", OBSERVATIONS)
    histories = StoredTable("histories", OBSERVATIONS)
    events = StoredTable("events", EVENTS)
    printed = StoredTable("printed", PRINTED)
    reports = StoredTable("reports", REPORTS)
    privacy = StoredTable("privacy")
    spent = StoredTable("privacy_agents")

    @cached_property
    def traces(self) -> list[IncumbentTrace]:
        """Return the incumbents of every target, in the order of the observations.

        If the study was cut short, only those of the runs that had ended; if none had, all of them.
        """
        found = traces(self.observations, self.events, self.privacy, indicators_in(self.manifest))
        complete = _complete(self.manifest)
        return [t for t in found if complete is None or (t.cell, t.algorithm, t.replicate) in complete]

    def metric(self, cell: int = 0) -> Metric:
        """Return what curves and summaries of a cell show: the native quantity, or with several objectives the hypervolume."""
        own, indicators = own_metric(self, cell), indicators_in(self.manifest)
        return indicators[cell].metric(own) if indicators else own


def own_metric(run: FinishedRun, cell: int = 0) -> Metric:
    """Return the native quantity of the values in a cell, which is its first objective."""
    metrics = run.manifest["metric"]
    most = len(metrics) - 1 if isinstance(metrics, list) else arguments.MOST
    return Metric(**_of_cell(metrics, arguments.whole("cell", cell, 0, most), dict))


def parameters(run: FinishedRun, cell: int = 0) -> list[Mapping[str, Any]]:
    """Return the parameters of a cell as the manifest has them: each with its name, `low`, `high` and `log`."""
    found: list[Mapping[str, Any]] = _of_cell(run.manifest["parameters"], cell, list)
    return found


def configurations(run: FinishedRun, cell: int = 0) -> Configurations:
    """Return the configurations of a cell's points, by the names of their parameters."""
    return Configurations(parameters(run, cell), run.study.objective.settings.get("space"))


def trusted_cells(run: FinishedRun) -> list[Cell]:
    """Return the cells of a run's study, ready to run; ResultError if that would run functions that are not trusted."""
    try:
        return run.study.cells()
    except UntrustedError as error:
        raise ResultError(f"'{run.directory}': {code_in(run.study.document(), error)}") from None


def counted_tables(run: FinishedRun) -> tuple[Any, Any]:
    """Return the observations and the events of the runs that `FinishedRun.traces` contains."""
    complete = _complete(run.manifest)
    if complete is None:
        return run.observations, run.events
    kept = [[part for key, part in by_run(table) if key in complete] for table in (run.observations, run.events)]
    observations, events = (pa.concat_tables(parts) for parts in kept)
    return observations, events


def fault_names(study: Study) -> list[str]:
    """Return the names of planned faults: their labels, or their kinds, with their place if several are of one kind."""
    kinds = [fault.kind for fault in study.fault]
    return [
        fault.label or (fault.kind if kinds.count(fault.kind) == 1 else f"{fault.kind} ({place})")
        for place, fault in enumerate(study.fault)
    ]


def check_label(run: FinishedRun, algorithm: str) -> str:
    """Return a label unchanged; ResultError when no algorithm has it."""
    if algorithm not in run.study.labels:
        raise ResultError(f"no algorithm '{algorithm}'; available: {', '.join(run.study.labels)}")
    return algorithm


def exported_runs(run: FinishedRun, table: pa.Table, which: tuple[str | None, int | None], path: Path) -> list[Any]:
    """Return the rows of a table by run, of one algorithm or all (None) and one replicate or all, for a new file.

    ResultError when there is no such run; FileExistsError when the file exists.
    """
    algorithm, replicate = which
    if algorithm is not None:
        check_label(run, algorithm)
    runs = [
        (key, own) for key, own in by_run(table) if algorithm in (None, key.algorithm) and replicate in (None, key.replicate)
    ]
    if not runs:
        raise ResultError(f"no replicate {replicate}; choose a number from 0 to {run.study.study.replicates - 1}")
    if os.path.lexists(path):  # a link that leads nowhere would be followed
        raise FileExistsError(f"'{path}' already exists; choose another file")
    return runs


def scored_traces(run: FinishedRun, regret: bool) -> list[IncumbentTrace]:
    """Return the traces, or those of the negated regret; ResultError if the regret is not known."""
    return regrets(run.traces, run.manifest.get("best_values") or {}) if regret else run.traces


def regrets(found: list[IncumbentTrace], best_values: Mapping[str, Any]) -> list[IncumbentTrace]:
    """Turn traces into those of negated simple regret; ResultError if an agent's best value is not known.

    The simple regret is the distance from the agent's best value to the best point queried so far (Dai et al. 2020, section
    2), which the agent itself may not know to be its best.
    """
    turned = list[IncumbentTrace]()
    for trace in found:
        known = best_values.get(str(trace.cell), {}).get(str(trace.replicate), {}).get(str(trace.agent))
        if known is None:
            raise ResultError(f"the regret of agent {trace.agent} is unknown, because its optimum is unknown")
        best = np.fmax.accumulate(trace.score) if trace.begun else trace.best
        turned.append(replace(trace, best=best - float(known)))
    return turned


def _complete(manifest: Mapping[str, Any]) -> set[tuple[Any, ...]] | None:
    """Return the runs that count if a study was cut short; None if all do."""
    complete = {tuple(key) for key in manifest.get("complete_runs", ())}
    return None if manifest["status"] == "complete" or not complete else complete


def _of_cell(entry: Any, cell: int, single: type) -> Any:
    """Return a cell's part of a manifest entry; an entry that is no list of such parts holds for all cells."""
    several = isinstance(entry, list) and (not entry or isinstance(entry[0], single))
    return entry[cell] if several else entry


Array = npt.NDArray[np.float64]
Columns = dict[str, list[Any]]


class Configurations:
    """The configurations of one cell; `names` are those of all parameters, constants of a typed space included."""

    def __init__(self, parameters: list[Mapping[str, Any]], written: str | None) -> None:
        self._parameters, self._written = parameters, written
        self.space = None if written is None else read_space(written)
        fixed = () if self.space is None else self.space.fixed
        self.names = [str(each["name"]) for each in parameters] + [each.name for each in fixed]

    def declared(self, x: list[float]) -> dict[str, Any]:
        """Return the configuration at a point in the declared shape of its space: nested if the space is."""
        return as_declared(self._written, self.at(x))

    def at(self, x: list[float]) -> dict[str, Any]:
        """Return the configuration at a point, by names joined with dots; in a typed space, only its active parameters.

        It is empty for an empty point, which a site has kept to itself.
        """
        if not len(x):
            return {}
        if self.space is not None:
            return self.space.configuration(np.array(x))
        return dict(zip(self.names, x, strict=True))

    def columns(self, x: Array) -> Columns:
        """Return a column for each parameter of points `(n, d)`; None where a parameter is inactive, or sites kept points."""
        if not x.shape[1]:
            return {name: [None] * len(x) for name in self.names}
        if self.space is not None:
            return _typed_columns(self.space, x)
        kinds: list[Callable[[float], Any]] = [int if each.get("whole") else float for each in self._parameters]
        return {name: list(map(kind, values)) for name, kind, values in zip(self.names, kinds, x.T.tolist(), strict=True)}


def _typed_columns(space: Space, x: Array) -> Columns:
    active, found = space.active(x), Columns()
    for axis, (parameter, choices) in enumerate(zip(space.parameters, space.choices, strict=True)):
        values = x[:, axis].tolist()
        if choices is not None:
            values = [choices[int(value)] for value in values]
        elif parameter.whole:
            values = [int(value) for value in values]
        found[parameter.name] = _where(active[:, axis], values)
    for each in space.fixed:
        found[each.name] = _where(each.when.holds(x, active), [each.value] * len(x))
    return found


def _where(active: npt.NDArray[np.bool_], values: list[Any]) -> list[Any]:
    return [value if counts else None for value, counts in zip(values, active.tolist(), strict=True)]
