"""Branches of one run: each continues from a shared snapshot of the trunk, or from the start, with some draws made anew."""

from __future__ import annotations

import heapq
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import OBSERVATIONS, RunKey, read_table
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.analysis.grouping import column_of
from fedbo.analysis.indicators import indicators_in
from fedbo.analysis.schemas import schema_of_room
from fedbo.coordinator.errors import EndlessError, ForkError
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.events import BACKGROUND
from fedbo.coordinator.runtime.actor import Coordinator, Run
from fedbo.coordinator.runtime.snapshots import RunParts, Snapshotter
from fedbo.execution.directory import joined
from fedbo.execution.earlier import recall_evaluations
from fedbo.execution.jobs import learnings, runs
from fedbo.lab.fork.trunk import ForkPoint, grow_trunk, open_run
from fedbo.lab.why.ends import End, EndedRun
from fedbo.lab.why.redraw import Moment, Redraw, Source, redrawn
from fedbo.objectives.base import Metric
from fedbo.study.study import Study

JOURNAL = "branches.jsonl"
Tags = tuple[tuple[str, int | None, str], ...]


class Branch(NamedTuple):
    """A branch: the replicate whose run it continues, from which time on (0: from the start), and the tags of new draws.

    A tag belongs to a source and an agent, or to all agents with None, or to all other sources with "".
    """

    replicate: int
    time: float
    tags: Tags

    @property
    def as_mapping(self) -> dict[Source, str]:
        """Return the tags by source."""
        return {(source, agent): f"why {tag} " if tag else "" for source, agent, tag in self.tags}


@dataclass(frozen=True, slots=True)
class BranchEnd:
    """The end of a branch: the value of the quantity, whether it is bad, and whether the branch equals its run."""

    value: float
    bad: bool
    same: bool


@dataclass(frozen=True, slots=True)
class _Original:
    """The run that branches continue, with its tables and the sources that it drew from."""

    run: Run
    tables: EndedRun
    seen: frozenset[Source]


class Branches:
    """The branches of the runs of one algorithm in one cell, with the trunks that they share.

    Ends are kept in a journal, so that no branch is ever run twice.
    """

    def __init__(self, directory: Path, place: Path, study: Study, manifest: Mapping[str, Any], cell: int, label: str) -> None:
        self.directory, self.place, self.study, self.cell, self.label = directory, place, study, cell, label
        self._best_values = manifest.get("best_values") or {}
        self._metric = Metric(**(manifest["metric"][cell] if isinstance(manifest["metric"], list) else manifest["metric"]))
        self._indicators = indicators_in(manifest)
        if self._indicators:
            self._metric = self._indicators[cell].metric(self._metric)
        self._parts = place / "parts"
        atomic.make_folder(self._parts)
        Coordinator()  # which limits the threads of linear algebra, on which bits depend
        self._originals: dict[int, _Original] = {}
        self.ends: dict[Branch, BranchEnd] = dict(_read(place / JOURNAL))

    def original(self, replicate: int) -> _Original:
        """Run the original again, with its evaluations looked up, and note the sources of its draws."""
        if replicate not in self._originals:
            key = RunKey(self.cell, self.label, replicate)
            (run,) = (one for one in runs(self.study, self._parts) if one.key == key)
            run = replace(run, hosts=0, isolate=False, patience=None, seconds=math.inf, events=None)
            history = run.task.history
            for job in learnings(self.study, self._parts):
                if history is not None and job.folder == history.folder and not history.folder.is_dir():
                    Coordinator().learn(job)
            redraw = Redraw()
            with self._folder("original") as folder:
                here = replace(run, folder=folder, task=replace(run.task, streams=redrawn(run.task.streams, redraw)))
                recall_evaluations(read_table(self.directory / "observations.parquet", OBSERVATIONS), here)
                tables = self._tables(here, _carry_out(here, None))
            self._originals[replicate] = _Original(run, tables, frozenset(redraw.seen))
        return self._originals[replicate]

    def end(self, branch: Branch, end: End) -> BranchEnd:
        """Return the end of a branch, which is run unless the journal has it."""
        if branch not in self.ends:
            tables = self.tables(branch)
            value = end.value(tables)
            found = BranchEnd(value, end.is_bad(value), _is_same(tables, self.original(branch.replicate).tables))
            _note(self.place / JOURNAL, branch, found)
            self.ends[branch] = found
        return self.ends[branch]

    def tables(self, branch: Branch) -> EndedRun:
        """Run a branch and return its tables."""
        with self._folder("branch") as folder:
            return self._tables(*self.carried_out(branch, folder))

    def carried_out(self, branch: Branch, folder: Path) -> tuple[Run, bool]:
        """Run a branch among the parts in a folder; return it, and whether it was stuck."""
        run, moment = self.original(branch.replicate).run, None
        run = replace(run, folder=folder)
        if branch.time > 0:
            home = RunFolder.of(folder, run.key)
            _copy_snapshot(RunFolder.of(self._snapshot(branch.replicate, branch.time), run.key).path, home.path)
            snapshot = Snapshotter(home, math.inf, None).load_latest()
            assert snapshot is not None
            moment = Moment.of(snapshot.state, run, branch.time)
        streams = redrawn(run.task.streams, Redraw(branch.as_mapping, moment))
        run = replace(run, task=replace(run.task, streams=streams))
        return run, _carry_out(run, moment)

    def _snapshot(self, replicate: int, time: float) -> Path:
        """Return the folder of the trunk's snapshot just before a time, grown from the last one before it."""
        folder = self._parts / f"trunk-{replicate}" / repr(float(time))
        if folder.is_dir():
            return folder
        run = self.original(replicate).run
        earlier = [path for path in folder.parent.glob("[0-9]*") if float(path.name) < time]
        with self._folder("trunk") as draft:
            here = replace(run, folder=draft)
            if earlier:
                atomic.copy_folder(max(earlier, key=lambda path: float(path.name)), draft)
            else:
                recall_evaluations(read_table(self.directory / "observations.parquet", OBSERVATIONS), here)
            if grow_trunk(here, ForkPoint(time)) is None:
                raise ForkError(f"time {time:g}: the run has ended before that; set an earlier time")
            atomic.make_folder(folder.parent)
            atomic.rename(draft, folder)
        return folder

    def _tables(self, run: Run, was_stuck: bool) -> EndedRun:
        whole = joined(self.study, run.folder, [run.key])
        private = whole.get("privacy", schema_of_room("privacy").empty_table())
        return self.of_run(run.key, whole["observations"], whole["events"], private, was_stuck)

    def of_run(self, key: RunKey, observations: Any, events: Any, private: Any, was_stuck: bool = False) -> EndedRun:
        """Return the tables of a run with what its values mean."""
        return EndedRun(
            key=key,
            observations=observations,
            events=events,
            privacy=private,
            metric=self._metric,
            best_values=self._best_values,
            was_stuck=was_stuck,
            indicators=self._indicators,
        )

    def discard_trunks(self) -> None:
        """Remove the snapshots, which can be grown again, and keep the journal."""
        shutil.rmtree(self._parts, ignore_errors=True)

    @contextmanager
    def _folder(self, name: str) -> Iterator[Path]:
        """Yield a folder that is empty at first and removed in the end."""
        path = self._parts / f".{name}"
        shutil.rmtree(path, ignore_errors=True)  # which a kill may have left
        atomic.make_folder(path)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _carry_out(run: Run, moment: Moment | None) -> bool:
    """Run to the end, from the snapshot in the run's folder if there is one; return whether the run was stuck."""
    snapshots, parts = open_run(run)
    stuck = False
    try:
        if moment is not None:
            _reschedule(parts)
        run_virtual(parts.core, parts.hosts, RunHooks(parts.event_log.extend), parts.queue, run.until)
    except EndlessError:
        stuck = True
    finally:
        parts.hosts.close()
    snapshots.finish(parts, ended=not stuck)
    return stuck


def _reschedule(parts: RunParts) -> None:
    """Move the absences, faults and preemptions that are due next to the times that the streams now give."""
    queue = parts.queue
    queue.gather()
    moved = list[Any]()
    for time, number, event in queue.heap:
        drawn = parts.core.drawn_time(event)
        if drawn is None or math.isfinite(drawn):
            moved.append((time if drawn is None else drawn, number, event))
    heapq.heapify(moved)
    queue.heap, queue.waiting = moved, sum(type(event) not in BACKGROUND for _, _, event in moved)


def _copy_snapshot(source: Path, to: Path) -> None:
    """Copy a run's folder without its log of evaluations, whose values a branch with new noise must not find."""
    atomic.make_folder(to)
    for path in source.iterdir():
        if path.is_file() and not path.name.startswith("log-"):
            shutil.copyfile(path, to / path.name)


def _is_same(tables: EndedRun, others: EndedRun) -> bool:
    """Check whether two runs made the same observations at the same times."""
    one, other = tables.observations, others.observations
    names = ("agent", "value", "finished")
    return len(one) == len(other) and all(
        np.array_equal(column_of(one, name), column_of(other, name), equal_nan=name != "agent") for name in names
    )


def _note(journal: Path, branch: Branch, end: BranchEnd) -> None:
    file = atomic.open_log(journal)
    try:
        line = [branch.replicate, branch.time, branch.tags, end.value, end.bad, end.same]
        atomic.append(file, (json.dumps(line) + "\n").encode(), sync=False)
    finally:
        os.close(file)


def _read(journal: Path) -> Iterator[tuple[Branch, BranchEnd]]:
    """Read the ends in a journal; a line that a kill has cut off does not count."""
    if not journal.is_file():
        return
    for line in journal.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            replicate, time, tags, value, bad, same = json.loads(line)
            yield Branch(replicate, time, tuple((s, a, t) for s, a, t in tags)), BranchEnd(value, bad, same)


def event_times(tables: EndedRun) -> Sequence[float]:
    """Return the different times above 0 at which anything happened in a run, ascending."""
    times = np.concatenate([column_of(tables.events, "time"), column_of(tables.observations, "finished")])
    found: list[float] = np.unique(times[times > 0]).tolist()
    return found
