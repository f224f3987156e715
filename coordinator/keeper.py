"""Snapshots of a run: when they are made, what they hold, and how a run goes on from the last one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from fedbo.actors.checkpoint import read_checkpoint, write_checkpoint
from fedbo.actors.home import PROVISIONAL, Home, Latest
from fedbo.actors.host import Hosts, Live
from fedbo.actors.task import Report
from fedbo.coordinator.core import Core
from fedbo.coordinator.engine import Agenda, Moment
from fedbo.coordinator.journal import Journal, read_moments
from fedbo.coordinator.state import CoreState

_REST = 20.0  # snapshots by the clock take at most one part in so many of a run's time
_LINES = 1_000_000  # events after which there is a snapshot in any case
_LOOK = 0.05  # seconds between two looks at whether the hosts have written their parts


class Snapshot(NamedTuple):
    """The coordinator's part of a snapshot: all that is to happen, the core's state, the lengths of log and record.

    `live` is what it knows of live agents.
    """

    agenda: Agenda
    state: CoreState
    lines: int
    moments: int
    live: Live | None


class Keeper:
    """Makes a snapshot of a run after so many `seconds` or `events`; after a costly one it waits longer.

    The core is written at once. Hosts write their agents as they were then, while the run goes on; when all have, the
    snapshot is the run's last one, at one stroke. What a killed run wrote after that is not used; but in real time, where
    agents keep checkpoints of their own, what happened after that is written down as it happens, and nothing is forgotten.
    """

    def __init__(self, home: Home, seconds: float, events: int | None) -> None:
        self.home, self._seconds, self._every = home.claim(), seconds, events
        self.latest = self.home.clear()
        self._begun, self._tables = 0, list[str]()
        self._then = self._looked = time.monotonic()
        self.spent = self._rest = 0.0

    def restore(self) -> Snapshot | None:
        """Read the coordinator's part of the last snapshot, if there is one."""
        if not self.latest.number:
            return None
        found: Snapshot = read_checkpoint(self._before.core(self.latest.number))
        return found

    def since(self) -> Iterator[tuple[Moment, Report | None]]:
        """Read what has happened in real time since the last snapshot."""
        return read_moments(self._before.moments(self.latest.number))

    @property
    def _before(self) -> Home:
        return self.home._replace(attempt=self.latest.attempt)

    def keep(self, events: int, core: Core, agenda: Agenda, journal: Journal, hosts: Hosts) -> None:
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

    def begin(self, core: Core, agenda: Agenda, journal: Journal, hosts: Hosts) -> None:
        """Begin a snapshot now."""
        begun = time.monotonic()
        number = self.latest.number + 1
        core.pour(journal)
        self._tables = journal.write(number)
        live = getattr(hosts, "live", None)
        write_checkpoint(Snapshot(agenda, core.state, journal.count, journal.moments, live), self.home.core(number))
        if core.world.real:
            journal.note_from(number)
        hosts.snapshot(number)
        self._begun = number
        self._complete(hosts, wait=False)
        self._then = time.monotonic()
        self._rest = _REST * (self._then - begun)
        self.spent += self._then - begun

    def end(self, core: Core, agenda: Agenda, journal: Journal, hosts: Hosts, ended: bool) -> None:
        """Write all that is left: of a run that has ended its tables, of another a snapshot too."""
        self._complete(hosts, wait=True)
        if not ended:
            self.begin(core, agenda, journal, hosts)
            self._complete(hosts, wait=True)
            if core.world.real:  # agents keep their rows themselves; these are for whoever looks at the run as it stands
                hosts.finish(self.latest.number, PROVISIONAL)
            return
        number = self.latest.number + 1
        core.pour(journal)
        tables = [*self.latest.tables, *journal.write(number), *hosts.finish(number)]
        self._commit(number, tables, ended=True)

    def _complete(self, hosts: Hosts, wait: bool) -> None:
        tables: Any = hosts.written(wait) if self._begun else None
        if tables is None:
            return
        self._commit(self._begun, [*self.latest.tables, *self._tables, *tables])
        self._begun = 0

    def _commit(self, number: int, tables: list[str], ended: bool = False) -> None:
        latest = Latest(number, self.home.attempt, tuple(tables), ended)
        self.home.commit(latest)
        self.latest = latest
