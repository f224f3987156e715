"""The monitor of a study: callbacks for its evaluations and events, and in real time its early end at a target.

It reads the files of the runs, so it works the same wherever they run, and it changes nothing in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fedbo.actors.storage.evaluation_log import read_log
from fedbo.actors.storage.evaluations import EvaluationRecord
from fedbo.actors.storage.rows import EVALUATIONS, OBSERVATIONS, Row, RunKey, read_table
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.snapshot_store import SnapshotStore
from fedbo.actors.task import Task
from fedbo.coordinator.logged.table import EVENTS
from fedbo.coordinator.runtime.actor import Run
from fedbo.execution.notices import NO_RUN, Callback, CallbackCalls, Evaluation, LoggedEvent
from fedbo.objectives.base import Federation
from fedbo.objectives.goals import Goals
from fedbo.objectives.outcome import is_note
from fedbo.objectives.typed_spaces.typed import lattice_of
from fedbo.settings.logs import say
from fedbo.study.study import Study


class RunMonitor:
    """Polls the runs' growing logs and tables; those of other machines must be in a folder that is visible here.

    Evaluations in real time are read from the agents' logs. Everything else is in tables, which grow with every snapshot.
    """

    def __init__(self, study: Study, work: Sequence[Run], callbacks: Sequence[Callback]) -> None:
        self._calls, self._budget = CallbackCalls(callbacks), study.budget
        wanted = bool(self._calls) or self._budget.target is not None or self._budget.evaluations is not None
        self._real = study.timing.clock == "wall"
        folders = [(RunFolder.of(run.folder, run.key), run.task) for run in work]
        self._logged = folders if wanted and self._real else []
        self._tables = [TableParts(*each, not self._real) for each in folders] if self._calls else []
        self._places: dict[Path, int] = {}
        self._seen: set[tuple[Path, int, int, bool]] = set()
        self._counts: dict[Path, int] = {}
        self._enough = False

    def finish(self) -> None:
        """Call the callbacks with the remaining news, which are in tables where a run has ended."""
        self.poll()
        for folder, task in self._logged:
            for path in SnapshotStore(folder).tables("evaluations"):
                for values in read_table(path, EVALUATIONS).to_pylist():
                    self._take(folder, task, EvaluationRecord.of_columns(values))
        self._calls.end()

    def poll(self) -> bool:
        """Call the callbacks with the news; return whether a study in real time may end.

        A callback may end it by returning True.
        """
        for folder, task in self._logged:
            for path in sorted(folder.path.glob("log-*.jsonl")):
                try:
                    records, self._places[path] = read_log(path, self._places.get(path, 0))
                except FileNotFoundError:  # the run has ended meanwhile
                    continue
                for record in records:
                    self._take(folder, task, record)
            for path in sorted(folder.path.glob("deleted-*.log")):
                with suppress(FileNotFoundError):
                    lines = path.read_text(encoding="utf-8").splitlines()
                    for line in lines[self._places.get(path, 0) :]:
                        say(f"warning: {line}")
                    self._places[path] = len(lines)
        for tables in self._tables:
            for found in tables.new():
                if isinstance(found, Evaluation):
                    self._calls.evaluation(found)
                else:
                    self._calls.event(found)
        return self._enough

    def _take(self, folder: RunFolder, task: Task, record: EvaluationRecord) -> None:
        key = (folder.path, record.agent, record.number, record.error is None)
        if key in self._seen:
            return
        self._seen.add(key)
        found = _evaluation(task.federation, record, task.goals_of(record.agent), folder.key)
        if found.value is not None:
            self._counts[folder.path] = self._counts.get(folder.path, 0) + 1
            self._enough |= self._budget.evaluations is not None and self._counts[folder.path] >= self._budget.evaluations
            sign, target = task.federation.metric.sign, self._budget.target
            self._enough |= target is not None and found.feasible is not False and sign * found.value >= sign * target
        self._enough |= self._calls.evaluation(found)


class TableParts:
    """The parts of a run's tables, read as snapshots add them: its events, and with `rows` also its evaluations."""

    def __init__(self, folder: RunFolder, task: Task, rows: bool) -> None:
        self._folder, self._task, self._rows = folder, task, rows
        self._state: tuple[int, int] | None = None
        self._read: set[str] = set()
        self._numbers = Counter[int]()

    def new(self) -> list[Evaluation | LoggedEvent]:
        """Return what the last snapshots have added, sorted by time; at equal times events come first."""
        try:
            state = (self._folder.path / "latest.json").stat()
        except FileNotFoundError:
            return []
        if (state.st_mtime_ns, state.st_ino) == self._state:
            return []
        self._state = state.st_mtime_ns, state.st_ino
        names = sorted(set(SnapshotStore(self._folder).latest().tables) - self._read)
        self._read.update(names)
        events = [LoggedEvent(**each) for each in self._lines(names, "events", EVENTS)]
        rows = [Row.of_columns(each) for each in self._lines(names, "observations", OBSERVATIONS)] if self._rows else []
        told: list[tuple[float, int, int, Row | LoggedEvent]]
        told = [(each.time, 0, place, each) for place, each in enumerate(sorted(events, key=lambda each: each.sequence))]
        told += [(each.finished, 1, place, each) for place, each in enumerate(rows)]
        return [each if isinstance(each, LoggedEvent) else self._told(each) for _, _, _, each in sorted(told)]

    def _lines(self, names: Sequence[str], kind: str, schema: pa.Schema) -> Iterator[dict[str, Any]]:
        for name in names:
            if name.startswith(f"{kind}-"):
                yield from read_table(self._folder.path / name, schema).to_pylist()

    def _told(self, row: Row) -> Evaluation:
        number = self._numbers[row.agent]
        self._numbers[row.agent] += 1
        found = EvaluationRecord(
            row.agent, number, row.x, outcome=row.outcome, started=row.started, finished=row.finished, error=row.error
        )
        found.stopped = row.stopped
        return _evaluation(self._task.federation, found, self._task.goals_of(row.agent), self._folder.key)


def _evaluation(
    federation: Federation, record: EvaluationRecord, goals: Goals | None = None, run: RunKey = NO_RUN
) -> Evaluation:
    space = lattice_of(federation)
    if space is None:
        configuration = {parameter.name: each for parameter, each in zip(federation.parameters, record.x, strict=True)}
    else:
        configuration = space.configuration(np.array(record.x))
    native = None if record.error is not None else float(federation.metric.native(record.outcome.value))
    told = record.outcome.metrics
    notes = {name: each for name, each in told.items() if is_note(name, each)}
    return Evaluation(
        agent=record.agent,
        number=record.number,
        configuration=configuration,
        value=native,
        error=record.error,
        started=record.started,
        finished=record.finished,
        metrics={name: each for name, each in told.items() if name not in notes},
        notes=notes,
        reports=tuple(record.outcome.reports),
        run=run,
        stopped=record.stopped,
        feasible=None if goals is None else record.error is None and goals.feasible(record.outcome),
    )
