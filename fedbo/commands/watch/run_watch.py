"""The state of a run that has not ended, read from its files: its agents' evaluations and their best values so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fedbo.actors.storage.evaluation_log import read_log
from fedbo.actors.storage.rows import RunKey, read_table
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.sealed import DamagedError
from fedbo.actors.storage.snapshot_store import SnapshotStore
from fedbo.analysis.indicators import indicator_of, with_metrics
from fedbo.analysis.manifest import MANIFEST, STUDY, read_manifest
from fedbo.analysis.result import Result
from fedbo.analysis.schemas import EVENTS, OBSERVATIONS, canonical
from fedbo.objectives.base import Metric
from fedbo.objectives.goals import AgentGoals, Goals, goals_in
from fedbo.objectives.outcome import Outcome, read_metrics
from fedbo.study.paths import DirectoryError
from fedbo.study.study import Study, recall_study
from fedbo.surrogates.fronts import hypervolume

_TRIES = 5  # reads of tables that a snapshot replaces meanwhile


class ResultSoFar(Result):
    """A run in progress: its tables as of the last snapshots."""

    def __init__(self, directory: Path, study: Study, manifest: dict[str, Any], tables: tuple[Any, Any]) -> None:
        super().__init__(directory, study, manifest)
        self._tables = tables

    @cached_property
    def observations(self) -> Any:
        """Return the evaluations so far."""
        return self._tables[0]

    @cached_property
    def events(self) -> Any:
        """Return the events so far."""
        return self._tables[1]


def result_so_far(directory: Path) -> Result:
    """Read a run that may be in progress; DirectoryError when it is none, DamagedError when a file is damaged."""
    manifest, study = read_manifest(directory), recall_study(directory / STUDY)
    if manifest["status"] == "complete":
        return Result.open(directory)
    cells, replicates = range(len(study.titles())), range(study.study.replicates)
    keys = [RunKey(cell, label, number) for cell in cells for label in study.labels for number in replicates]
    folders = [RunFolder.of(directory / "parts", key) for key in keys]
    for _ in range(_TRIES):
        try:
            tables = []
            for kind, schema in (("observations", OBSERVATIONS), ("events", EVENTS)):
                parts = (read_table(path, schema) for each in folders for path in SnapshotStore(each).tables(kind))
                tables.append(canonical(pa.concat_tables([schema.empty_table(), *parts]), study.labels))
            seen = with_metrics(tables[0], goals_in(manifest))
            return ResultSoFar(directory, study, manifest, (seen, tables[1]))
        except FileNotFoundError:  # a snapshot was written meanwhile, or the run has ended
            manifest = read_manifest(directory)
            if manifest["status"] == "complete":
                return Result.open(directory)
    raise DirectoryError(f"'{directory}': its files change too quickly; try again")


def state_of_files(directory: Path) -> tuple[int, ...]:
    """Return when the manifest and the snapshots were written, which changes with each of them."""
    found = [directory / MANIFEST, *sorted((directory / "parts").glob("*/latest.json"))]
    return tuple(path.stat().st_mtime_ns for path in found if path.exists())


@dataclass(frozen=True, slots=True)
class RunsState:
    """The runs of one algorithm in one cell.

    - `runs`, `ended`: number of runs, and of those that have ended; `evaluations`: evaluations so far.
    - `share`: share of the evaluations that the agents seen so far will make.
    - `best`: mean over these agents of the best native value in runs that have started, None before the first value.
    """

    cell: int
    algorithm: str
    runs: int
    ended: int
    evaluations: int
    share: float
    best: float | None
    metric: str


@dataclass(frozen=True, slots=True)
class StudyState:
    """The state of a running or finished study: its name, its status, its cells' titles, and its runs."""

    name: str
    status: str
    titles: Sequence[str]
    rows: Sequence[RunsState]


def study_state(directory: Path) -> StudyState:
    """Read the state of a run directory; DirectoryError when it is none, DamagedError when its manifest is damaged."""
    manifest = read_manifest(directory)
    study = recall_study(directory / STUDY)
    titles = study.titles()
    rows = [_runs_state(directory, manifest, study, (cell, label)) for cell in range(len(titles)) for label in study.labels]
    return StudyState(study.study.name, str(manifest["status"]), titles, rows)


def _runs_state(directory: Path, manifest: dict[str, Any], study: Study, which: tuple[int, str]) -> RunsState:
    (cell, label), replicates = which, range(study.study.replicates)
    entry = manifest["metric"]
    own = Metric(**(entry[cell] if isinstance(entry, list) else entry))
    goals = goals_in(manifest)[cell] if "goals" in manifest else None
    metric = indicator_of(None if goals is None else goals.common).metric(own)
    if manifest["status"] == "complete":
        return _ended(directory, which, metric, len(replicates))
    wanted = study.budget.pulls or study.agents.initial + (study.budget.iterations or 0)
    found = [_agents(RunFolder.of(directory / "parts", RunKey(cell, label, replicate)), goals) for replicate in replicates]
    seen = max((len(one.counts) for one in found), default=0)
    shares = [1.0 if one.ended else min(1.0, sum(one.counts.values()) / (seen * wanted or 1)) for one in found]
    bests = [np.mean(list(one.bests.values())) for one in found if one.bests]
    return RunsState(
        cell=cell,
        algorithm=label,
        runs=len(found),
        ended=sum(one.ended for one in found),
        evaluations=sum(sum(one.counts.values()) for one in found),
        share=float(np.mean(shares)),
        best=float(metric.native(float(np.mean(bests)))) if bests else None,
        metric=metric.name,
    )


def _ended(directory: Path, which: tuple[int, str], metric: Metric, replicates: int) -> RunsState:
    """Return the state of finished runs; their summary has no row where nobody evaluated anything."""
    row = next((row for row in Result.open(directory).summary() if (row.cell, row.algorithm) == which), None)
    best = math.nan if row is None else row.final.mean
    return RunsState(
        cell=which[0],
        algorithm=which[1],
        runs=replicates,
        ended=replicates,
        evaluations=0 if row is None else round(row.evaluations * row.replicates),
        share=1.0,
        best=None if math.isnan(best) else best,
        metric=metric.name,
    )


@dataclass(frozen=True, slots=True)
class _Agents:
    """The number of evaluations of each agent of one run, and the best that each has observed."""

    ended: bool
    counts: dict[int, int]
    bests: dict[int, float]


def _agents(folder: RunFolder, goals: AgentGoals | None) -> _Agents:
    """Read one run's tables of its last snapshot and the later log; files that vanish meanwhile are skipped."""
    counts, seen = dict[int, int](), dict[int, list[Outcome]]()
    store = SnapshotStore(folder)
    try:
        ended = store.latest().ended
        tables = [read_table(path, OBSERVATIONS) for path in store.tables("observations")]
        for row in pa.concat_tables(tables).to_pylist() if tables else ():
            if row["phase"] != "history":
                counts[row["agent"]] = counts.get(row["agent"], 0) + 1
                if row["error"] is None and np.isfinite(row["value"]):
                    outcome = Outcome(row["value"], metrics={} if goals is None else read_metrics(row["metrics"])[0])
                    seen.setdefault(row["agent"], []).append(outcome)
    except (DamagedError, FileNotFoundError):  # it is being written, or has just been gathered
        ended = False
    for path in sorted(folder.path.glob("log-*.jsonl")):
        try:
            records, _ = read_log(path, 0)
        except FileNotFoundError:
            continue
        for record in records:
            # The log repeats evaluations of the tables, so the counts are not added up.
            counts[record.agent] = max(counts.get(record.agent, 0), record.number + 1)
            if record.error is None and np.isfinite(record.outcome.value):
                seen.setdefault(record.agent, []).append(record.outcome)
    bests = {agent: _best(found, None if goals is None else goals.of(agent)) for agent, found in seen.items()}
    return _Agents(ended, counts, {agent: best for agent, best in bests.items() if best is not None})


def _best(seen: Sequence[Outcome], goals: Goals | None) -> float | None:
    """Return the largest value of outcomes, with limits of feasible ones, or with several objectives their hypervolume."""
    kept = [outcome for outcome in seen if goals is None or goals.feasible(outcome)]
    if goals is not None and goals.several:
        values = np.array([goals.values(one) for one in kept]).reshape(len(kept), len(goals.objectives))
        return hypervolume(values, np.array(goals.references))
    return max((outcome.value for outcome in kept), default=None)
