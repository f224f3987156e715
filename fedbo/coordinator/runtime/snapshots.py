"""Snapshots of a run: when they are made, their contents, and how the last one is read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from fedbo.actors.hosts import Hosts, WallClockState
from fedbo.actors.storage.checkpoint import read_checkpoint, write_checkpoint
from fedbo.actors.storage.run_folder import PROVISIONAL, RunFolder
from fedbo.actors.storage.sealed import sha256_of
from fedbo.actors.storage.snapshot_store import SnapshotIndex, SnapshotStore
from fedbo.actors.task import StepReport
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import RecordedEvent
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.state import AgentRecords, CoreState
from fedbo.coordinator.runtime.event_log import EventLog, read_moments

_REST = 20.0  # snapshots by the clock take at most one part in so many of a run's time
_LINES = 1_000_000  # events after which there is a snapshot: their lines leave memory, so that it does not grow with the events
_MOST_LINES = 8  # so many times as many may wait for it where snapshots take more than that part of the time: these are columns
_MANY = 10_000  # agents above which not every snapshot is whole: below it, no file that is damaged spoils two of them
_WHOLE = 10  # snapshots of so many agents of which the first is whole, and each other one has those alone that changed
PARTS = (".core", ".agents")
_CHECK = 0.05  # seconds between two checks whether the hosts have written their parts


class Snapshot(NamedTuple):
    """The coordinator's part of a snapshot: all future events, the core's state, the lengths of log and record.

    `live` is its information on live agents.
    """

    queue: EventQueue
    state: CoreState
    lines: int
    moments: int
    live: WallClockState | None


class RunParts(NamedTuple):
    """The parts of a run that a snapshot is made of."""

    core: Core
    queue: EventQueue
    event_log: EventLog
    hosts: Hosts


def agents_heard(home: RunFolder, latest: SnapshotIndex) -> set[int]:
    """List the agents whose steps in real time were reported by a snapshot or after it; CheckpointError, DamagedError."""
    if not latest.number:
        return set()
    snapshot: Snapshot = read_checkpoint(home._replace(attempt=latest.attempt).core(latest.number))
    heard = set() if snapshot.live is None else set(snapshot.live.counted)
    since = (report for path in SnapshotStore(home).moments_since(latest) for _, report in read_moments(path))
    return heard | {report.agent for report in since if report is not None and report.failure is None}


class Snapshotter:
    """The snapshotter: makes a snapshot of a run after so many `seconds` or `events`; after a costly one it waits longer.

    A full snapshot has all agents; if there are few, every one does. Otherwise each of the next nine has only the agents that
    changed since the one before, and refers to the files of the others. The core is written at once. Hosts write their agents
    in that state while the run continues. Once all agents are written, the snapshot atomically becomes the run's last one.
    Later output of a killed run is not used. In real time, where agents keep checkpoints of their own, later events are
    recorded as they happen, and nothing is lost.
    """

    def __init__(self, home: RunFolder, seconds: float, events: int | None) -> None:
        self.home, self._seconds, self._every = home.claim(), seconds, events
        self._store = SnapshotStore(self.home)
        self.latest = self._store.discard_later()
        self._begun, self._files, self._parts = 0, dict[str, str](), 0
        self._tried = self._events = 0
        self._last = self._checked = time.monotonic()
        self.spent = self._rest = 0.0
        self._result: object = None

    def note_result(self, result: object) -> None:
        """Keep the result of the run apart from its tables; it counts once the last snapshot marks the run as ended."""
        self._result = result

    def load_latest(self) -> Snapshot | None:
        """Read the coordinator's part of the last snapshot, if there is one."""
        if not self.latest.number:
            return None
        found: list[Snapshot] = [read_checkpoint(path) for path in self.latest.parts(self.home.path, ".core")]
        agents = AgentRecords()
        for each in found:
            agents.update(each.state.agents)
        found[-1].state.agents = agents
        self._events = found[-1].queue.events
        return found[-1]

    def events_since(self) -> Iterator[tuple[RecordedEvent, StepReport | None]]:
        """Read the events of real time since the last snapshot."""
        for path in self._store.moments_since(self.latest):
            yield from read_moments(path)

    def tick(self, events: int, run: RunParts) -> None:
        """Begin a snapshot if one is due, or complete the one that was begun."""
        now = time.monotonic()
        if self._begun:
            if now - self._checked >= _CHECK:
                self._checked = now
                self._complete(run.hosts, wait=False)
            return
        waited, lines = now - self._last, events - self._events
        due = (self._every and events % self._every == 0) or waited >= max(self._seconds, self._rest)
        if due or (lines >= _LINES and (waited >= self._rest or lines >= _MOST_LINES * _LINES)):
            self._events = events
            self.start(run)

    def start(self, run: RunParts) -> None:
        """Begin a snapshot now."""
        core, queue, event_log, hosts = run.core, run.queue, run.event_log, run.hosts
        begun, number = time.monotonic(), self.latest.number + 1
        stored = queue.stored()
        agents = core.state.agents
        whole = self._parts % _WHOLE == 0 or self._tried != self.latest.number or core.environment.is_real_time
        whole = whole or len(agents) + len(agents.settled) <= _MANY
        self._tried = number
        core.flush(event_log)
        live = getattr(hosts, "live", None)
        with self.home.while_current():
            self._files, path = event_log.write(number), self.home.core(number)
            if whole:
                core.state.agents.unsettle()
            state: Any = replace(core.state, agents=dict(core.state.agents))  # type: ignore[arg-type]
            snapshot = Snapshot(stored, state, event_log.count, event_log.moments, live)
            self._files[path.name] = write_checkpoint(snapshot, path)
            core.state.agents.settle()
            if core.environment.is_real_time:
                event_log.note_from(number)
                self._files[self.home.moments(number).name] = ""  # it grows, but it must be there
        if self.home.key_file.exists():
            self._files[self.home.key_file.name] = sha256_of(self.home.key_file)
        if not whole:
            self._files = {name: digest for name, digest in self.latest.files.items() if name.endswith(PARTS)} | self._files
        hosts.snapshot(number, whole)
        self._begun, self._parts = number, self._parts + 1
        self._complete(hosts, wait=False)
        self._last = time.monotonic()
        self._rest = _REST * (self._last - begun)
        self.spent += self._last - begun

    def finish(self, run: RunParts, ended: bool) -> None:
        """Write the rest: the tables and the result of a run that has ended, or a snapshot of an interrupted one too."""
        core, event_log, hosts = run.core, run.event_log, run.hosts
        self._complete(hosts, wait=True)
        if not ended:
            self.start(run)
            self._complete(hosts, wait=True)
            if core.environment.is_real_time:  # agents keep their rows themselves; these show the run as it stands
                hosts.finish(self.latest.number, PROVISIONAL)
            return
        number = self.latest.number + 1
        core.flush(event_log)
        with self.home.while_current():
            result = {} if self._result is None else {"ended": write_checkpoint(self._result, self.home.path / "ended")}
            self._commit(number, {**event_log.write(number), **hosts.finish(number), **result}, ended=True)

    def _complete(self, hosts: Hosts, wait: bool) -> None:
        written = hosts.written(wait) if self._begun else None
        if written is None:
            return
        self._commit(self._begun, {**self._files, **written})
        self._begun = 0

    def _commit(self, number: int, written: dict[str, str], ended: bool = False) -> None:
        tables = {name: digest for name, digest in written.items() if name.endswith(".parquet")}
        files = {name: digest for name, digest in written.items() if name not in tables}
        latest = SnapshotIndex(number, self.home.attempt, {**self.latest.tables, **tables}, ended, files)
        self._store.commit(latest, self.latest)
        self.latest = latest
