"""The files, evaluations and reports of a run's earlier process: checked before a resume, and repeated by an extension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fedbo.actors.storage.checkpoint import CheckpointError, read_checkpoint
from fedbo.actors.storage.evaluation_log import EvaluationLog, read_log
from fedbo.actors.storage.evaluations import EvaluationRecord
from fedbo.actors.storage.history_files import check_history
from fedbo.actors.storage.rows import EVALUATIONS, RunKey, read_table
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.sealed import DamagedError
from fedbo.actors.storage.snapshot_store import SnapshotIndex, SnapshotStore
from fedbo.actors.task import StepReport, Task
from fedbo.coordinator.errors import ReplayError
from fedbo.coordinator.kernel.engine import EXTENDED, RecordedEvent
from fedbo.coordinator.runtime.actor import Run
from fedbo.coordinator.runtime.event_log import MOMENTS
from fedbo.coordinator.runtime.reports import REPORTS, read_reports
from fedbo.coordinator.runtime.snapshots import agents_heard
from fedbo.execution.jobs import runs
from fedbo.objectives.outcome import Outcome, read_metrics
from fedbo.study.study import Study, load_study


def recall_evaluations(observations: pa.Table, run: Run) -> None:
    """Write the evaluations of a table of observations to the log of a run that has not started, which then finds them there.

    Evaluations that are not found are made again.
    """
    home = RunFolder.of(run.folder, run.key)
    if (home.path / "latest.json").exists() or not _are_numbered(run.task, run.environment.cluster is not None):
        return
    found = _records(observations, run)
    home = home.claim()
    SnapshotStore(home).discard_later()  # which says that what is there is no damage
    log = EvaluationLog(home, range(run.task.problem.n_agents), None)
    log.append(found)
    log.close()


def _are_numbered(task: Task, queue: bool) -> bool:
    """Return whether an agent's rows are its evaluations in order, with values as the objective returned them."""
    policy = task.policy
    return not (task.noise or task.problem.pulls or policy.retries or policy.most_pending > 1 or queue)


def _records(observations: pa.Table, run: Run) -> list[EvaluationRecord]:
    mine = pc.and_(pc.equal(observations["cell"], run.key.cell), pc.equal(observations["algorithm"], run.key.algorithm))
    mine = pc.and_(mine, pc.equal(observations["replicate"], run.key.replicate))
    counts, found = dict[int, int](), list[EvaluationRecord]()
    for row in observations.filter(mine).select(["agent", "x", "value", "score", "error", "pulls", "metrics"]).to_pylist():
        agent = row["agent"]
        number = counts[agent] = counts.get(agent, -1) + 1
        if row["error"] is None:
            metrics, reports = read_metrics(row["metrics"])
            outcome = Outcome(row["value"], row["score"], metrics, reports)
            found.append(EvaluationRecord(agent, number, row["x"], outcome, pulls=row["pulls"]))
    return found


class RealTimeRecord:
    """The record of a study in real time, from its directory or that of a copy, with every budget that the study has had."""

    def __init__(self, directory: Path, study: Study, manifest: Mapping[str, Any]) -> None:
        self._directory = directory
        budgets = [entry["budget"] for entry in manifest.get("extended", ()) if "budget" in entry]
        document = study.document()
        every = [*budgets, document["budget"]]
        self._studies = [
            study if budget == document["budget"] else load_study({**document, "budget": budget}, trust=True, derived=True)
            for budget, _ in groupby(every)
        ]

    def reports_of(self, run: Run) -> list[StepReport]:
        """Return the reports that the sites of a run sent; ReplayError without a record of them."""
        upload = run.task.algorithm.upload(run.task.problem)
        return read_reports(self._table("reports", run.key, REPORTS), run.key, upload)

    def of(self, run: Run) -> tuple[list[Run], list[RecordedEvent], list[EvaluationRecord]]:
        """Return a run with each budget that it has had, its events, and its evaluations; ReplayError without a record."""
        happened = self._recorded("record", run.key, MOMENTS)
        record = [RecordedEvent(**{name: row[name] for name in RecordedEvent._fields}) for row in happened]
        evaluations = [EvaluationRecord.of_columns(row) for row in self._recorded("evaluations", run.key, EVALUATIONS)]
        count = 1 + sum(recorded.number == EXTENDED for recorded in record)
        segments = [_same(run, study) for study in self._studies[-count:]]
        return segments, record, evaluations

    def _recorded(self, kind: str, key: RunKey, schema: pa.Schema) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._table(kind, key, schema).to_pylist()
        return rows

    def _table(self, kind: str, key: RunKey, schema: pa.Schema) -> pa.Table:
        path = self._directory / f"{kind}.parquet"
        if not path.is_file():
            raise ReplayError(f"'{self._directory}': ran in real time and has no {path.name}, so it cannot be replayed")
        table = read_table(path, schema)
        for column, value in zip(key._fields, key, strict=True):
            table = table.filter(pc.equal(table[column], value))
        return table


def _same(run: Run, study: Study) -> Run:
    """Return the run of a study with the key of another run, in that run's folder and in this process."""
    (found,) = (one for one in runs(study, run.folder) if one.key == run.key)
    return replace(found, hosts=0)


def fall_back(study: Study, directory: Path) -> list[str]:
    """Return every run of a study to its last undamaged snapshot, and return a note for each run that lost a later one.

    Damaged files are moved to `damaged/`. In virtual time no result depends on the snapshot from which a run
    resumes; in real time the later events are logged. Raises DamagedError, with the remedy and before any change, where
    a damaged file has no substitute.
    """
    parts = directory / "parts"
    for path in sorted((parts / "histories").glob("*/*.parquet")):
        if path.with_suffix(".sha256").exists():  # else it is learned again
            check_history(path)
    found = [
        (folder, *SnapshotStore(folder).last_whole()) for folder in (RunFolder.of(parts, run.key) for run in runs(study, parts))
    ]
    for folder, latest, _ in found:
        if study.timing.clock == "wall" and study.hosting.kind != "sites" and not latest.ended:
            _check_agents(folder, latest)
    notes = []
    for folder, latest, damage in found:
        if damage is not None:
            aside = directory / "damaged" / folder.path.name
            SnapshotStore(folder).fall_back(latest, damage, aside)
            where = f"the previous snapshot, {latest.number}" if latest.number else "the start"
            kept = f"; the damaged files are kept in '{aside}'" if (aside / damage.path.name).exists() else ""
            notes.append(f"'{damage.path}': is damaged ({damage.why}); its run continues from {where}{kept}")
    return notes


def _check_agents(folder: RunFolder, latest: SnapshotIndex) -> None:
    """Check the agents' own checkpoints and logs of a run in real time; raise DamagedError where one is not intact."""
    place = folder.path
    try:
        for place in sorted(folder.path.glob("log-*.jsonl")):
            read_log(place, 0, real=True)
        heard = agents_heard(folder, latest)
        for agent in sorted(heard):
            kept = folder.checkpoints(agent)
            place = kept[-1] if kept else folder.checkpoint(agent, 0)
            if not kept:
                raise DamagedError(place, f"agent {agent} has reported, but has no checkpoint")
            read_checkpoint(place)
    except CheckpointError as error:
        raise DamagedError(place, str(error).removeprefix(f"{place}: ").partition(";")[0], folder.remedy) from None
    except DamagedError as error:
        raise DamagedError(error.path, error.why, folder.remedy) from None
