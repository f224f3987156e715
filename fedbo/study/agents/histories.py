"""Histories from before a study: from a CSV or Parquet file, or from an earlier run.

A file has a column for each parameter, in native units, and a column `value` for the native quantity; `agent` and `replicate`
are optional. Rows without a value are failed evaluations and are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbo.actors.storage.rows import OBSERVATIONS, Row, RunKey, read_table
from fedbo.actors.storage.sealed import DamagedError, FormatError, check_file, unseal
from fedbo.objectives.base import LARGEST_VALUE, Federation
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.space import to_unit
from fedbo.settings.columns import OF_TRIALS, NumberColumn, columns_of, names_in, read_columns
from fedbo.settings.errors import SettingError, unknown
from fedbo.settings.records import changed
from fedbo.settings.shown import quoted
from fedbo.study.agents.tables import HistoryTable
from fedbo.study.environment.groups import members
from fedbo.study.study_tables import StudyTables

Loc = tuple[str | int, ...]
_MANIFEST, _OBSERVATIONS = "manifest.json", "observations.parquet"


class HistorySource(NamedTuple):
    """The source of some agents' histories: the table, its place in the study, and the agents."""

    table: HistoryTable
    loc: Loc
    agents: Sequence[int]


def has_history(study: StudyTables) -> bool:
    """Return whether any agent has observations from before the study."""
    return study.agents.history is not None or any(table.history is not None for table in study.group)


def history_sources(study: StudyTables) -> list[HistorySource]:
    """Return the sources of the agents' histories; the common one comes before those of groups."""
    if not has_history(study):
        return []
    groups = members(study) if any(table.history for table in study.group) else {}
    own = [
        HistorySource(table.history, ("group", number, "history"), groups[table.name])
        for number, table in enumerate(study.group)
        if table.history is not None
    ]
    common = study.agents.history
    if common is None:
        return own
    taken = {agent for source in own for agent in source.agents}
    everybody: Sequence[int] = range(study.federation().n_agents)
    rest = [agent for agent in everybody if agent not in taken] if taken else everybody
    return [HistorySource(common, ("agents", "history"), rest), *own]


def most_observed(study: StudyTables) -> int:
    """Return the largest number of observations that any agent has before the study."""
    return max((most_of(study, source) for source in history_sources(study)), default=0)


def warm_agents(study: StudyTables) -> frozenset[int]:
    """Return the agents that start with observations of this very task."""
    return frozenset(agent for source in history_sources(study) if source.table.warm_start for agent in source.agents)


def most_of(study: StudyTables, source: HistorySource) -> int:
    """Return the largest number of observations of any agent of a source, over all replicates."""
    if source.table.algorithm is not None:
        return source.table.observations or 0
    every = (observed(study, source, replicate) for replicate in range(study.study.replicates))
    return max((len(rows) for found in every for rows in found.values()), default=0)


def observed(study: StudyTables, source: HistorySource, replicate: int) -> dict[int, list[Row]]:
    """Return the rows by agent from a file or an earlier run; SettingError names the invalid file, column and row."""
    table, federation = source.table, study.federation()
    most, metrics = table.observations, tuple(each.name for each in study.metric if each.name != federation.metric.name)
    if table.run is not None:
        found = _of_run(Path(table.run), federation, table, replicate)
        for name in metrics:
            if found and not any(name in row.outcome.metrics for rows in found.values() for row in rows):
                words = f"has no metric '{name}' in its observations; use a run whose evaluations returned it"
                raise SettingError("run", words)
    else:
        assert table.file is not None
        found = _of_file(Path(table.file), federation, source, (replicate, metrics))
    return {agent: rows if most is None else rows[:most] for agent, rows in found.items()}


def key_of(source: HistorySource, cell: int, replicate: int) -> RunKey:
    """Return the key of a source's rows in the table of histories: named after the algorithm, the run's label, or "file"."""
    table = source.table
    title = table.algorithm.title if table.algorithm is not None else table.label or ("file" if table.file else "run")
    return RunKey(cell, title, replicate)


def _of_file(
    path: Path, federation: Federation, source: HistorySource, asked: tuple[int, tuple[str, ...]]
) -> dict[int, list[Row]]:
    """Return the observations in a file; `asked` are the replicate, and the names of the metrics besides the value."""
    replicate, metrics = asked
    if any(getattr(getattr(federation, "lattice", None), "choices", ())) and {*OF_TRIALS} <= {*names_in(path)}:
        raise SettingError("file", "is a table of trials, which has choices instead of their places; set run to its directory")
    columns = _columns(path, tuple(parameter.name for parameter in federation.parameters), metrics, _modified(path))
    agent, own, value, x = columns.get("agent"), columns.get("replicate"), columns["value"], columns["x"]
    _check_rows(federation, agent, x, value)
    kept = (np.abs(value) <= LARGEST_VALUE) & (True if own is None else own == replicate)
    lowest = np.array([parameter.low for parameter in federation.parameters])  # in rows without a value, which are skipped
    units = to_unit(federation.parameters, np.where(np.isfinite(value)[:, None], x, lowest))
    metric = federation.metric
    values = metric.sign * (value - metric.offset)
    found = {}
    for number in source.agents:
        mine = np.flatnonzero(kept if agent is None else kept & (agent == number))
        if len(mine):
            found[number] = [
                _row(
                    number,
                    place,
                    (x[row].tolist(), units[row].tolist()),
                    Outcome(float(values[row]), metrics={name: float(each[row]) for name, each in columns["metrics"].items()}),
                )
                for place, row in enumerate(mine)
            ]
    if not found:
        agents = ", ".join(map(str, source.agents[:5])) + " and others" * (len(source.agents) > 5)
        raise SettingError("file", f"has no value for agents {agents} in replicate {replicate}; add some")
    return found


def _row(agent: int, place: int, at: tuple[list[float], list[float]], outcome: Outcome) -> Row:
    """Return the row of one observation. Its noise-free value is unknown, so the observed value is used."""
    return Row(
        agent=agent,
        phase="history",
        step=0,
        query=place,
        origin="initial",
        x=at[0],
        u=at[1],
        outcome=outcome,
        started=0.0,
        finished=0.0,
        t_n=place + 1,
    )


@lru_cache(maxsize=8)
def _columns(path: Path, parameters: tuple[str, ...], metrics: tuple[str, ...], modified: int) -> dict[str, Any]:
    there = names_in(path)
    mine = columns_of(parameters, "param_", there, ("value", "agent", "replicate", *metrics))
    others = columns_of(metrics, "metric_", there, ("value", "agent", "replicate", *mine.values()))
    indices = [NumberColumn("agent", whole=True, optional=True), NumberColumn("replicate", whole=True, optional=True)]
    numbers = [NumberColumn(name, gaps=True) for name in ("value", *others.values())]
    found = read_columns(path, [*map(NumberColumn, mine.values()), *numbers, *indices])
    x = np.stack([found[name] for name in mine.values()], axis=1)
    known: dict[str, Any] = {name: found[name] for name in ("value", "agent", "replicate") if name in found}
    return known | {"metrics": {name: found[column] for name, column in others.items()}, "x": x}


def _modified(path: Path) -> int:
    return path.stat().st_mtime_ns if path.is_file() else 0


def _check_rows(federation: Federation, agent: Any, x: Any, value: Any) -> None:
    """Raise SettingError for unknown agents and points outside the box; rows without a value may hold anything."""
    there = ~np.isnan(value)
    if (large := there & (np.abs(value) > LARGEST_VALUE)).any():
        row = int(np.argmax(large))
        beyond = f", beyond {LARGEST_VALUE:g}" if np.isfinite(value[row]) else ""
        words = f"has value = {value[row]} in row {row + 1}{beyond}; leave it empty where an evaluation failed"
        raise SettingError("file", words)
    if agent is not None and ((agent < 0) | (agent >= federation.n_agents)).any():
        row = int(np.argmax((agent < 0) | (agent >= federation.n_agents)))
        raise SettingError(
            "file", f"has agent {agent[row]} in row {row + 1}; this objective has agents 0 to {federation.n_agents - 1}"
        )
    for column, parameter in zip(x.T, federation.parameters, strict=True):
        wrong = there & ~((column >= parameter.low) & (column <= parameter.high))
        needs = f"must be from {parameter.low:g} to {parameter.high:g}"
        if parameter.whole:
            wrong |= there & (column != np.floor(column))
            needs = f"must be a whole number from {parameter.low:g} to {parameter.high:g}"
        if wrong.any():
            row = int(np.argmax(wrong))
            raise SettingError("file", f"has {parameter.name} = {column[row]:g} in row {row + 1}; it {needs}")


def _of_run(path: Path, federation: Federation, table: HistoryTable, replicate: int) -> dict[int, list[Row]]:
    """Return the successful observations of the agents of an earlier run, in their order."""
    manifest = _manifest(path)
    cell, label = _cell(manifest, table), _label(manifest, table)
    _check_parameters(manifest, cell, federation)
    rows = _observations(
        path / _OBSERVATIONS, manifest["files"].get(_OBSERVATIONS, ""), (cell, label), _modified(path / _OBSERVATIONS)
    )
    replicates = sorted({found for found, _ in rows})
    if not rows:
        raise SettingError("run", f"has no observations of '{label}'; use another run")
    if len(replicates) > 1 and replicate not in replicates:
        raise SettingError(
            "run", f"has {len(replicates)} replicates, and this study needs replicate {replicate}; run more replicates"
        )
    mine = [row for found, row in rows if found == (replicate if len(replicates) > 1 else replicates[0])]
    found: dict[int, list[Row]] = {}
    for row in sorted(mine, key=lambda row: (row.agent, row.t_n)):
        if row.agent < federation.n_agents:
            before = found.setdefault(row.agent, [])
            t_n = row.pulls + (before[-1].t_n if before else 0)
            before.append(changed(row, phase="history", query=len(before), step=0, started=0.0, finished=0.0, t_n=t_n))
    return found


def _manifest(path: Path) -> dict[str, Any]:
    try:
        found = unseal(path / _MANIFEST, dict.fromkeys(("cells", "labels", "parameters"), list) | {"files": dict | None})
    except OSError:
        raise SettingError("run", "is not a run directory: it has no manifest.json; pass the directory of a run") from None
    except (DamagedError, FormatError) as error:
        raise SettingError("run", f"cannot be read ({error}); use another run") from None
    if found.get("status") != "complete":
        raise SettingError("run", f"has not ended; resume it: fedbo resume {quoted(path)}")
    return found


def _cell(manifest: dict[str, Any], table: HistoryTable) -> int:
    count = len(manifest["cells"])
    if table.cell is None and count > 1:
        raise SettingError("cell", f"is missing; the run has {count} cells: set cell to a number from 0 to {count - 1}")
    if (table.cell or 0) >= count:
        raise SettingError("cell", f"is not a cell of the run; it has cells 0 to {count - 1}")
    return table.cell or 0


def _label(manifest: dict[str, Any], table: HistoryTable) -> str:
    labels: list[str] = manifest["labels"]
    if table.label is None and len(labels) > 1:
        raise SettingError("label", f'is missing; the run has the algorithms {", ".join(labels)}: set label = "{labels[0]}"')
    if table.label is not None and table.label not in labels:
        raise SettingError("label", unknown("algorithm", table.label, labels))
    return table.label or labels[0]


def _check_parameters(manifest: dict[str, Any], cell: int, federation: Federation) -> None:
    theirs, ours = manifest["parameters"][cell], [asdict(parameter) for parameter in federation.parameters]
    if len(theirs) != len(ours):
        raise SettingError(
            "run", f"has {len(theirs)} parameters, and this objective has {len(ours)}; use a run of the same objective"
        )
    for one, other in zip(theirs, ours, strict=True):
        if one != other:
            raise SettingError("run", f"has the parameter {_written(one)}, and this objective {_written(other)}")


def _written(parameter: dict[str, Any]) -> str:
    scale = " (log)" * bool(parameter.get("log")) + " (whole)" * bool(parameter.get("whole"))
    return f"{parameter['name']} from {parameter['low']:g} to {parameter['high']:g}{scale}"


@lru_cache(maxsize=4)
def _observations(file: Path, expected: str, of: tuple[int, str], modified: int) -> list[tuple[int, Row]]:
    try:
        check_file(file, expected)
        table = read_table(file, OBSERVATIONS)
    except (DamagedError, FormatError) as error:
        raise SettingError("run", f"cannot be read ({error}); use another run") from None
    records = [one for one in table.to_pylist() if (one["cell"], one["algorithm"]) == of and one["error"] is None]
    return [(one["replicate"], Row.of_columns(one)) for one in records]
