"""Snapshots of a run: when they are made, what they hold, and how a run goes on from the last one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from fedbo.actors.hosts import Hosts, WallClockState
from fedbo.actors.storage.checkpoint import read_checkpoint, write_checkpoint
from fedbo.actors.storage.run_folder import PROVISIONAL, RunFolder
from fedbo.actors.storage.sealed import sha256_of
from fedbo.actors.storage.snapshot_store import SnapshotIndex, SnapshotStore
from fedbo.actors.task import StepReport
from fedbo.coordinator.core import Core
from fedbo.coordinator.runtime.engine import EventQueue, RecordedEvent
from fedbo.coordinator.runtime.event_log import EventLog, read_moments
from fedbo.coordinator.state import CoreState

_REST = 20.0  # snapshots by the clock take at most one part in so many of a run's time
_LINES = 1_000_000  # events after which there is a snapshot in any case
_LOOK = 0.05  # seconds between two looks at whether the hosts have written their parts


class Snapshot(NamedTuple):
    """The coordinator's part of a snapshot: all that is to happen, the core's state, the lengths of log and record.

    `live` is what it knows of live agents.
    """

    agenda: EventQueue
    state: CoreState
    lines: int
    moments: int
    live: WallClockState | None


def agents_heard(home: RunFolder, latest: SnapshotIndex) -> set[int]:
    """List the agents that have reported a step in real time by a snapshot or after it; CheckpointError, Damaged."""
    if not latest.number:
        return set()
    snapshot: Snapshot = read_checkpoint(home._replace(attempt=latest.attempt).core(latest.number))
    heard = set() if snapshot.live is None else set(snapshot.live.counted)
    since = (report for path in SnapshotStore(home).moments_since(latest) for _, report in read_moments(path))
    return heard | {report.agent for report in since if report is not None and report.failure is None}


class Snapshotter:
    """The snapshotter: makes a snapshot of a run after so many `seconds` or `events`; after a costly one it waits longer.

    The core is written at once. Hosts write their agents as they were then, while the run goes on; when all have, the
    snapshot is the run's last one, at one stroke. What a killed run wrote after that is not used; but in real time, where
    agents keep checkpoints of their own, what happened after that is written down as it happens, and nothing is forgotten.
    """

    def __init__(self, home: RunFolder, seconds: float, events: int | None) -> None:
        self.home, self._seconds, self._every = home.claim(), seconds, events
        self._store = SnapshotStore(self.home)
        self.latest = self._store.discard_later()
        self._begun, self._files = 0, dict[str, str]()
        self._then = self._looked = time.monotonic()
        self.spent = self._rest = 0.0
        self._result: object = None

    def note_result(self, result: object) -> None:
        """Keep what the run leaves besides its tables; it counts once the last snapshot says that the run has ended."""
        self._result = result

    def restore(self) -> Snapshot | None:
        """Read the coordinator's part of the last snapshot, if there is one."""
        if not self.latest.number:
            return None
        found: Snapshot = read_checkpoint(self.home._replace(attempt=self.latest.attempt).core(self.latest.number))
        return found

    def since(self) -> Iterator[tuple[RecordedEvent, StepReport | None]]:
        """Read what has happened in real time since the last snapshot."""
        for path in self._store.moments_since(self.latest):
            yield from read_moments(path)

    def keep(self, events: int, core: Core, agenda: EventQueue, journal: EventLog, hosts: Hosts) -> None:
        """Make a snapshot if one is due, and let the one that was begun be the last one when it is complete."""
        now = time.monotonic()
        if self._begun:
            if now - self._looked >= _LOOK:
                self._looked = now
                self._complete(hosts, wait=False)
        elif (self._every and events % self._every == 0) or now - self._then >= max(self._seconds, self._rest):
            self.begin(core, agenda, journal, hosts)
        elif events % _LINES == 0:  # their lines leave memory, so that it does not grow with the events
            self.begin(core, agenda, journal, hosts)

    def begin(self, core: Core, agenda: EventQueue, journal: EventLog, hosts: Hosts) -> None:
        """Begin a snapshot now."""
        begun = time.monotonic()
        number = self.latest.number + 1
        core.pour(journal)
        live = getattr(hosts, "live", None)
        with self.home.while_current():
            self._files, path = journal.write(number), self.home.core(number)
            snapshot = Snapshot(agenda, core.state, journal.count, journal.moments, live)
            self._files[path.name] = write_checkpoint(snapshot, path)
            if core.world.real:
                journal.note_from(number)
                self._files[self.home.moments(number).name] = ""  # it grows, but it must be there
        if self.home.key_file.exists():
            self._files[self.home.key_file.name] = sha256_of(self.home.key_file)
        hosts.snapshot(number)
        self._begun = number
        self._complete(hosts, wait=False)
        self._then = time.monotonic()
        self._rest = _REST * (self._then - begun)
        self.spent += self._then - begun

    def end(self, core: Core, agenda: EventQueue, journal: EventLog, hosts: Hosts, ended: bool) -> None:
        """Write all that is left: of a run that has ended its tables and its result, of another a snapshot too."""
        self._complete(hosts, wait=True)
        if not ended:
            self.begin(core, agenda, journal, hosts)
            self._complete(hosts, wait=True)
            if core.world.real:  # agents keep their rows themselves; these are for whoever looks at the run as it stands
                hosts.finish(self.latest.number, PROVISIONAL)
            return
        number = self.latest.number + 1
        core.pour(journal)
        with self.home.while_current():
            result = {} if self._result is None else {"ended": write_checkpoint(self._result, self.home.path / "ended")}
            self._commit(number, {**journal.write(number), **hosts.finish(number), **result}, ended=True)

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
