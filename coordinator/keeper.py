"""Snapshots of a run: when they are made, what they hold, and how a run goes on from the last one."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from fedbo.actors.checkpoint import read_checkpoint, write_checkpoint
from fedbo.actors.home import PROVISIONAL, Home, Latest
from fedbo.actors.host import Hosts
from fedbo.coordinator.core import Core
from fedbo.coordinator.engine import Agenda
from fedbo.coordinator.journal import Journal
from fedbo.coordinator.state import CoreState


class Snapshot(NamedTuple):
    """The coordinator's part of a snapshot: all that is to happen, the core's state, the lengths of log and record."""

    agenda: Agenda
    state: CoreState
    lines: int
    moments: int


class Keeper:
    """Makes a snapshot of a run after so many `seconds` or `events`.

    The core is written at once. Hosts write their agents as they were then, while the run goes on; when all have, the
    snapshot is the run's last one, at one stroke. What a killed run wrote after that is not used.
    """

    def __init__(self, home: Home, seconds: float, events: int | None) -> None:
        self.home, self._seconds, self._every = home, seconds, events
        self.latest = home.latest()
        self._begun, self._tables = 0, list[str]()
        self._then = time.monotonic()
        self.spent = 0.0

    def restore(self) -> Snapshot | None:
        """Read the coordinator's part of the last snapshot, if there is one, and remove what was written after it."""
        self.home.folder.mkdir(parents=True, exist_ok=True)
        self.home.clear(self.latest)
        if not self.latest.number:
            return None
        found: Snapshot = read_checkpoint(self.home.core(self.latest.number))
        return found

    def keep(self, events: int, core: Core, agenda: Agenda, journal: Journal, hosts: Hosts) -> None:
        """Make a snapshot if one is due, and let the one that was begun be the last one when it is complete."""
        if self._begun:
            self._complete(hosts, wait=False)
        elif (self._every and events % self._every == 0) or time.monotonic() - self._then >= self._seconds:
            self.begin(core, agenda, journal, hosts)

    def begin(self, core: Core, agenda: Agenda, journal: Journal, hosts: Hosts) -> None:
        """Begin a snapshot now."""
        begun = time.monotonic()
        number = self.latest.number + 1
        journal.extend(core.journal)
        core.journal = []
        self._tables = journal.write(number)
        write_checkpoint(Snapshot(agenda, core.state, journal.count, journal.moments), self.home.core(number))
        hosts.snapshot(number)
        self._begun = number
        self._complete(hosts, wait=False)
        self._then = time.monotonic()
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
        journal.extend(core.journal)
        core.journal = []
        tables = [*self.latest.tables, *journal.write(number), *hosts.finish(number)]
        self.latest = Latest(number, tuple(tables), ended=True)
        self.home.commit(self.latest)

    def _complete(self, hosts: Hosts, wait: bool) -> None:
        tables: Any = hosts.written(wait) if self._begun else None
        if tables is None:
            return
        self.latest = Latest(self._begun, (*self.latest.tables, *self._tables, *tables))
        self.home.commit(self.latest)
        self._begun = 0
