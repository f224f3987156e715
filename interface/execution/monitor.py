"""The monitor of a study in real time: callbacks for every evaluation, and its early end when a target is reached."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedbo.actors.storage.evaluation_log import read_log
from fedbo.actors.storage.evaluations import EvaluationRecord
from fedbo.actors.storage.rows import read_table
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.snapshot_store import SnapshotStore
from fedbo.coordinator.runtime.actor import Run
from fedbo.objectives.base import Federation
from fedbo.objectives.typed_spaces.typed import lattice_of
from fedbo.study.study import Study


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: its agent, its number, the configuration, the native value or the error, and other metrics.

    `started` and `finished` are seconds since the study began; `reports` are pairs of a step and the value reported for it.
    """

    agent: int
    number: int
    configuration: dict[str, Any]
    value: float | None
    error: str | None
    started: float
    finished: float
    metrics: dict[str, float] = field(default_factory=dict)
    reports: tuple[tuple[float, float], ...] = ()


Callback = Callable[[Evaluation], object]


class EvaluationMonitor:
    """Polls the agents' logs as they grow; those of other machines must be in a folder that is seen from here."""

    def __init__(self, study: Study, work: Sequence[Run], callbacks: Sequence[Callback]) -> None:
        self._callbacks, self._budget = tuple(callbacks), study.budget
        wanted = self._callbacks or self._budget.target is not None or self._budget.evaluations is not None
        real = study.timing.clock == "wall"
        self._folders = [(RunFolder.of(run.folder, run.key), run.task.federation) for run in work] if wanted and real else []
        self._places: dict[Path, int] = {}
        self._seen: set[tuple[Path, int, int, bool]] = set()
        self._counts: dict[Path, int] = {}
        self._enough = False

    def finish(self) -> None:
        """Call the callbacks with the last evaluations, which are in tables where a run has ended."""
        self.poll()
        for folder, federation in self._folders:
            for path in SnapshotStore(folder).tables("evaluations"):
                columns = read_table(path).select(EvaluationRecord._fields).to_pydict()
                for values in zip(*columns.values(), strict=True):
                    self._take(folder.path, federation, EvaluationRecord(*values))

    def poll(self) -> bool:
        """Call the callbacks with new evaluations, and say whether the study may end, as a callback may that gives True."""
        for folder, federation in self._folders:
            for path in sorted(folder.path.glob("log-*.jsonl")):
                try:
                    records, self._places[path] = read_log(path, self._places.get(path, 0))
                except FileNotFoundError:  # the run has ended meanwhile
                    continue
                for record in records:
                    self._take(folder.path, federation, record)
        return self._enough

    def _take(self, folder: Path, federation: Federation, record: EvaluationRecord) -> None:
        key = (folder, record.agent, record.number, record.error is None)
        if key in self._seen:
            return
        self._seen.add(key)
        found = _evaluation(federation, record)
        if found.value is not None:
            self._counts[folder] = self._counts.get(folder, 0) + 1
            self._enough |= self._budget.evaluations is not None and self._counts[folder] >= self._budget.evaluations
            sign, target = federation.metric.sign, self._budget.target
            self._enough |= target is not None and sign * found.value >= sign * target
        for callback in self._callbacks:
            self._enough |= callback(found) is True


def _evaluation(federation: Federation, record: EvaluationRecord) -> Evaluation:
    space = lattice_of(federation)
    if space is None:
        configuration = {parameter.name: each for parameter, each in zip(federation.parameters, record.x, strict=True)}
    else:
        configuration = space.configuration(np.array(record.x))
    native = None if record.error is not None else float(federation.metric.native(record.value))
    others = json.loads(record.metrics) if record.metrics else {}
    said = others.pop("reports", ())
    reports = tuple((step, each) for step, each in said) if isinstance(said, list) else ()
    if said and not reports:
        others["reports"] = said
    times = record.started, record.finished
    return Evaluation(record.agent, record.number, configuration, native, record.error, *times, others, reports)
