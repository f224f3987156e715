"""Random schedules of faults for both state machines: a coordinator and its sites in virtual time, without input and output.

The study is a toy whose decisions depend on every report: in each round all agents report, and the next orders hold a digest of
all reports of the round. So a report that is lost or counted twice shows in the table.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fedbo.sites import wire
from fedbo.sites.coordinator_machine import CoordinatorMachine, RequestRefused
from fedbo.sites.documents import Roster, RosterEntry
from fedbo.sites.keys import PrivateKey
from fedbo.sites.outbox import JournalRecords
from fedbo.sites.sequences import COPY, OTHER_FOLDER
from fedbo.sites.site_machine import SiteMachine

STUDY, MOST = b"s" * 32, 600  # three reports in a request
QUIET = 900.0  # seconds of virtual time after which no further fault happens
END = 9000.0
TIMEOUT = 35.0  # seconds after which a site takes an attempt for failed, by its own clock
_NOISE = 8  # random bytes of a report, which differ whenever an order is carried out again, and are no part of the table
BY_NAME = (COPY, OTHER_FOLDER)
Row = tuple[int, int, bytes]


class Killed(Exception):
    """The process ends here, before or after a write."""


class MemoryRecords(JournalRecords):
    """A disk that outlives its process. A write may be the last thing that the process does."""

    def __init__(self, records: Sequence[bytes] = ()) -> None:
        self.records = list(records)
        self.kill: Callable[[], int] = lambda: 0  # 1: before the write, 2: after it

    @property
    def is_long(self) -> bool:
        return len(self.records) > 8

    def read(self) -> list[bytes]:
        return list(self.records)

    def append(self, record: bytes) -> None:
        self._write(lambda: self.records.append(record))

    def replace(self, records: Sequence[bytes]) -> None:
        self._write(lambda: self.records.__setitem__(slice(None), records))

    def _write(self, write: Callable[[], object]) -> None:
        when = self.kill()
        if when == 1:
            raise Killed
        write()
        if when == 2:
            raise Killed


@cache
def private_keys(agents: int) -> tuple[PrivateKey, ...]:
    """Return a coordinator's key and those of agents; they are the same in every schedule, since their bits decide nothing."""
    return tuple(PrivateKey.drawn() for _ in range(agents + 1))


@cache
def roster(agents: int) -> Roster:
    """Return the roster of all agents."""
    coordinator, *keys = private_keys(agents)
    entries = tuple(RosterEntry(agent=agent, name="site", key=key.public.hex) for agent, key in enumerate(keys))
    return Roster.signed(coordinator, study=STUDY.hex(), coordinator=coordinator.public.hex, number=0, entries=entries)


def answer_to(agent: int, order: bytes) -> bytes:
    """Return what a site reports on an order."""
    return hashlib.sha256(b"%d:" % agent + order).digest() * 3


def without_network(agents: int, rounds: int) -> list[Row]:
    """Return the table of the toy study: agent, step and report, as a loop without any network computes it."""
    rows, text = list[Row](), b"begin"
    for step in range(rounds):
        reports = [answer_to(agent, b"%d %s" % (step, text)) for agent in range(agents)]
        rows += [(agent, step, report) for agent, report in enumerate(reports)]
        text = hashlib.sha256(b"".join(reports)).hexdigest().encode()
    return rows


@dataclass
class Faults:
    """How often each fault happens, of which a schedule draws its own."""

    loss: float
    doubling: float
    damage: float
    replay: float
    kill: float
    replaced: float
    late: float
    delay: float

    @classmethod
    def drawn(cls, draws: random.Random) -> Faults:
        """Draw a schedule's faults; about half of them do not happen in it."""
        most = {"loss": 0.5, "doubling": 0.4, "damage": 0.2, "replay": 0.3, "kill": 0.12, "replaced": 0.3, "late": 1.0}
        shares = {name: draws.choice((0.0, share * draws.random())) for name, share in most.items()}
        return cls(**shares, delay=draws.choice((0.05, 5.0)))


@dataclass
class Process:
    """A process of a site: its machine, its disk, and its clock, which differs in beginning and speed."""

    agent: int
    disk: MemoryRecords
    machine: SiteMachine
    offset: float
    rate: float
    alive: bool = True
    contacts: int = 0
    working: int = 0
    stale: bool = False

    def now(self, at: float) -> float:
        return self.offset + self.rate * at


@dataclass
class Coordinator:
    """The coordinator's process. `record` is the run's record on disk: rows, and the orders that were replaced."""

    record: list[Any] = field(default_factory=list)
    disk: MemoryRecords = field(default_factory=MemoryRecords)
    machine: CoordinatorMachine | None = None
    offset: float = 0.0
    leases: dict[int, int] = field(default_factory=dict)
    open: dict[int, tuple[int, int]] = field(default_factory=dict)  # lease and step by agent


class Schedule:
    """One schedule of faults, drawn by a seed, and what came of it."""

    def __init__(self, seed: int) -> None:
        self.draws = draws = random.Random(seed)
        self.agents, self.rounds = draws.randint(1, 4), draws.randint(1, 5)
        self.faults = Faults.drawn(draws)
        self.time, self._numbers, self._queue = 0.0, itertools.count(), list[Any]()
        self.keys = private_keys(self.agents)
        self.coordinator = Coordinator()
        self.sites: dict[int, list[Process]] = {agent: [] for agent in range(self.agents)}
        self.disks = [MemoryRecords() for _ in range(self.agents)]  # the newest of each site
        self.carried: dict[tuple[int, int], int] = {}
        self.refusals: list[tuple[int | None, str]] = []
        self.history: list[bytes] = []
        self.channels: dict[int, tuple[Process | None, bytes]] = {}
        self.stopped: list[tuple[Process, str]] = []
        self.cuts = [
            (draws.randrange(self.agents), draws.choice(("up", "down", "both")), start, start + draws.expovariate(1 / 40))
            for start in [draws.uniform(0, QUIET) for _ in range(draws.randint(0, 4))]
        ]
        self.known = {agent: (b"", 0, 0, 0, 0) for agent in range(self.agents)}
        self.intruders = 0

    # The clockwork.

    def at(self, delay: float, call: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._queue, (self.time + delay, next(self._numbers), call, arguments))

    def run(self) -> None:
        """Run the schedule until every site knows that the study has ended, or time is over."""
        self._start_coordinator()
        for agent in range(self.agents):
            self._start_site(agent, self.disks[agent])
        for _ in range(self.draws.randint(0, 3)):
            self.at(self.draws.uniform(0, QUIET / 3), self._intrude, self.draws.randrange(self.agents))
        while self._queue and self.time < END and not self.is_over():
            self.time, _, call, arguments = heapq.heappop(self._queue)
            call(*arguments)

    def is_over(self) -> bool:
        machine = self.coordinator.machine
        known = [process.agent for processes in self.sites.values() for process in processes if process.machine.knows_end]
        return machine is not None and all(machine.box(agent).told or agent in known for agent in range(self.agents))

    @property
    def table(self) -> list[Row]:
        return sorted(entry for entry in self.coordinator.record if len(entry) == 3)

    def _is_noisy(self) -> bool:
        return self.time < QUIET

    def _happens(self, share: float) -> bool:
        return self._is_noisy() and self.draws.random() < share

    def _kill(self) -> int:
        return self.draws.choice((1, 2)) if self._happens(self.faults.kill) else 0

    # The coordinator.

    def _start_coordinator(self) -> None:
        here = self.coordinator
        here.disk.kill = lambda: 0
        here.machine = CoordinatorMachine(
            here.disk,
            self.keys[0],
            STUDY,
            lambda: roster(self.agents),
            decode=lambda agent, lease, data: (agent, lease, data),
            most=MOST,
        )
        here.offset = self.draws.uniform(0, 1e6)
        here.disk.kill = self._kill
        try:
            self._resume()
            self._answer()
        except Killed:
            self._kill_coordinator()

    def _kill_coordinator(self) -> None:
        self.coordinator.machine = None
        self.channels.clear()
        self.at(self.draws.expovariate(1 / 20), self._start_coordinator)

    def _write(self, entry: Any) -> None:
        """Write to the run's record; the process may be killed before or after that."""
        when = self._kill()
        if when != 1:
            self.coordinator.record.append(entry)
        if when:
            raise Killed

    def _resume(self) -> None:
        """Give all orders that the record leaves open."""
        here = self.coordinator
        here.leases, here.open = dict.fromkeys(range(self.agents), 0), {}
        done = {(agent, step): report for agent, step, report in self.table}
        extra = [entry for entry in here.record if len(entry) == 2]
        for agent in range(self.agents):
            step = sum((agent, each) in done for each in range(self.rounds))
            replaced = sum(1 for entry in extra if entry[0] == agent)
            here.leases[agent] = step + replaced
            if step < self.rounds and all((other, each) in done for other in range(self.agents) for each in range(step)):
                self._order(agent, step)
            if step == self.rounds:
                self._machine.end(agent, step - 1)

    @property
    def _machine(self) -> CoordinatorMachine:
        machine = self.coordinator.machine
        assert machine is not None
        return machine

    def _order(self, agent: int, step: int) -> None:
        here = self.coordinator
        here.leases[agent] += 1
        lease = here.leases[agent]
        text = b"begin"
        if step:
            reports = [report for _, each, report in self.table if each == step - 1]
            text = hashlib.sha256(b"".join(reports)).hexdigest().encode()
        here.open[agent] = (lease, step)
        self._machine.order(agent, lease, b"%d %s" % (step, text))

    def _act(self) -> None:
        """Count the reports that have arrived, and give the orders that follow."""
        here = self.coordinator
        for agent, lease, report in self._machine.arrived():
            if agent in here.open and here.open[agent][0] == lease:
                step = here.open[agent][1]
                self._write((agent, step, report[:-_NOISE]))
                del here.open[agent]
                self._machine.taken(agent, lease)
                self._follow(step)
            else:
                self._machine.taken(agent, lease)
        for agent in list(here.open):
            if self._happens(self.faults.replaced * 0.2):  # its agent was away, say, and gets the step again
                self._write((agent, here.open[agent][0]))
                self._order(agent, here.open[agent][1])

    def _follow(self, step: int) -> None:
        if sum(each == step for _, each, _ in self.table) < self.agents:
            return
        for agent in range(self.agents):
            if step + 1 < self.rounds:
                self._order(agent, step + 1)
            else:
                self._machine.end(agent, step)

    def _answer(self) -> None:
        """Send the answers that are due, and look again when the next one is."""
        now = self.coordinator.offset + self.time
        for channel, answer in self._machine.answers(now):
            process, request = self.channels.pop(channel, (None, b""))
            if process is not None:
                self._travel("down", process.agent, answer, self._deliver, process, request)
        following = self._machine.next_time()
        if following is not None:
            self.at(max(0.0, following - now) + 1e-6, self._tick, self.coordinator.machine)

    def _tick(self, machine: CoordinatorMachine) -> None:
        if machine is self.coordinator.machine:
            self._answer()

    def _receive(self, data: bytes, process: Process | None, request: bytes) -> None:
        """Take a request at the coordinator, as its server does."""
        if self.coordinator.machine is None:
            if process is not None:
                self._fail(process, request)
            return
        channel = next(self._numbers)
        head, body = data[: wire.REQUEST_HEAD], data[wire.REQUEST_HEAD :]
        try:
            admitted = self._machine.admit(head, wire.SYNC)
            self.channels[channel] = (process, request)
            self._machine.receive(admitted, body if admitted.needs_body else b"", channel, self.coordinator.offset + self.time)
            if process is not None and admitted.needs_body:
                process.contacts += 1
                self.known[process.agent] = known_by(wire.unpack_sync(body))
            if self._happens(self.faults.late):
                self.at(self.draws.expovariate(1 / 5), self._act_later, self.coordinator.machine)
            else:
                self._act()
            self._answer()
        except RequestRefused as error:
            self.channels.pop(channel, None)
            self.refusals.append((error.agent, error.why))
            if error.answer is not None and process is not None:
                self._travel("down", process.agent, error.answer, self._deliver, process, request)
        except Killed:
            self._kill_coordinator()

    def _act_later(self, machine: CoordinatorMachine) -> None:
        """Count reports a while after they have arrived: answers that leave before do not acknowledge them."""
        if machine is not self.coordinator.machine:
            return
        try:
            self._act()
            self._answer()
        except Killed:
            self._kill_coordinator()

    # The network.

    def _travel(self, way: str, agent: int, data: bytes, arrive: Callable[..., None], *arguments: Any) -> None:
        """Carry bytes: they may be lost, doubled, delayed, overtaken or damaged."""
        is_cut = any(
            who == agent and which in (way, "both") and start <= self.time < end for who, which, start, end in self.cuts
        )
        if is_cut or self._happens(self.faults.loss):
            return
        for _ in range(2 if self._happens(self.faults.doubling) else 1):
            delay = self.draws.expovariate(1 / self.faults.delay) if self._is_noisy() else 0.01
            self.at(delay, arrive, self._damaged(data), *arguments)

    def _damaged(self, data: bytes) -> bytes:
        if not self._happens(self.faults.damage):
            return data
        place = self.draws.randrange(len(data))
        if self.draws.random() < 0.3:
            return data[:place]
        return data[:place] + bytes([data[place] ^ (1 << self.draws.randrange(8))]) + data[place + 1 :]

    def _send(self, process: Process, request: bytes) -> None:
        self.history.append(request)
        self._travel("up", process.agent, request, self._receive, process, request)
        if self._happens(self.faults.replay):
            self.at(self.draws.uniform(0, 200), self._receive, self.draws.choice(self.history), None, b"")
        self.at(TIMEOUT / process.rate, self._fail, process, request)

    def _fail(self, process: Process, request: bytes) -> None:
        if process.alive:
            process.machine.failed(request, "no answer", process.now(self.time))
            self._wake(process)

    # The sites.

    def _start_site(self, agent: int, disk: MemoryRecords) -> None:
        if any(process.alive and process.disk is disk for process in self.sites[agent]):
            return  # two processes cannot have one journal open
        rate, offset = self.draws.choice((0.5, 1.0, 1.0, 2.0)), self.draws.uniform(0, 1e6)
        disk.kill = lambda: 0
        machine = SiteMachine(
            disk,
            self.keys[1 + agent],
            self.keys[0].public,
            STUDY,
            agent,
            check=lambda lease, order: None,
            most=MOST,
            now=offset + rate * self.time,
            draw=self.draws.randbytes,
            jitter=self.draws.random,
        )
        disk.kill = self._kill
        process = Process(agent, disk, machine, offset, rate)
        process.stale = self._is_stale(process)
        self.sites[agent].append(process)
        self._wake(process)

    def _is_stale(self, process: Process) -> bool:
        """Return whether the coordinator was told more than this folder knows."""
        folder, *told = self.known[process.agent]
        kept = process.machine._kept
        own = (kept.answered, 0 if kept.order is None else kept.order[0], kept.confirmed, kept.reported)
        is_other = folder not in (b"", kept.folder)
        return is_other or any(more > less for more, less in zip(told, own, strict=True))

    def _end_site(self, process: Process) -> None:
        process.alive = False
        self.at(self.draws.expovariate(1 / 20), self._start_site, process.agent, process.disk)

    def _wake(self, process: Process) -> None:
        """Let a site send what is due, work on its order, and wake again."""
        if not process.alive:
            return
        machine = process.machine
        if machine.refused is not None:
            self._stop(process, machine.refused)
            return
        now = process.now(self.time)
        try:
            request = machine.request(now)
        except Killed:
            self._end_site(process)
            return
        if request is not None:
            self._send(process, request)
        order = machine.order
        if order is not None and process.working != order[0]:
            process.working = order[0]
            self.at(self.draws.expovariate(1 / 3), self._finish, process, *order)
        due = machine.next_time()
        if due is not None and due > now:
            self.at((due - now) / process.rate + 1e-6, self._wake, process)

    def _finish(self, process: Process, lease: int, order: bytes) -> None:
        """Report on an order that was carried out."""
        if not process.alive or lease <= process.machine._kept.reported:
            return
        place = (process.agent, lease)
        self.carried[place] = self.carried.get(place, 0) + 1
        try:
            process.machine.report(lease, answer_to(process.agent, order) + self.draws.randbytes(_NOISE))
        except Killed:
            self._end_site(process)
            return
        self._wake(process)

    def _deliver(self, answer: bytes, process: Process, request: bytes) -> None:
        if not process.alive:
            return
        try:
            process.machine.receive(request, answer, process.now(self.time))
        except Killed:
            self._end_site(process)
            return
        self._wake(process)

    def _stop(self, process: Process, why: str) -> None:
        """A site that is refused ends. Its owner uses the newest folder, if no other process does so."""
        process.alive = False
        self.stopped.append((process, why))
        if not any(other.alive for other in self.sites[process.agent]):
            self.at(5.0, self._start_site, process.agent, self.newest(process.agent))

    def newest(self, agent: int) -> MemoryRecords:
        """Return the disk of the process that the coordinator has taken a request of last."""
        taken = [process for process in self.sites[agent] if process.contacts]
        return taken[-1].disk if taken else self.disks[agent]

    # What should not happen, and does.

    def _intrude(self, agent: int) -> None:
        """Give a site an older copy of its folder, or let a second site use its key."""
        what = self.draws.choice(("old disk", "copy", "new folder"))
        alive = [process for process in self.sites[agent] if process.alive]
        self.intruders += 1
        if what == "new folder":
            self._start_site(agent, MemoryRecords())
        elif alive:
            copied = MemoryRecords(alive[-1].disk.records)
            delay = self.draws.expovariate(1 / 60)
            if what == "copy":
                self.at(delay, self._start_site, agent, copied)
            else:
                self.at(delay, self._give_back, agent, copied)

    def _give_back(self, agent: int, copied: MemoryRecords) -> None:
        for process in self.sites[agent]:
            process.alive = False
        self._start_site(agent, copied)


def known_by(sync: wire.Sync) -> tuple[bytes, int, int, int, int]:
    """Return what a site that sends this knows."""
    return sync.folder, sync.answered, sync.seen, sync.confirmed, sync.reported


def faults_of(schedule: Schedule) -> list[str]:
    """Return what is wrong after a schedule has run; empty if nothing is."""
    every = [process for processes in schedule.sites.values() for process in processes]
    wrong = []
    if not schedule.is_over():
        wrong.append(f"not over after {schedule.time:.0f} s; stopped: {[why for _, why in schedule.stopped]}")
    if schedule.table != sorted(without_network(schedule.agents, schedule.rounds)):
        wrong.append("the table is not that of the run without a network")
    if {agent for agent, _, _ in schedule.table} - {agent for agent, _ in schedule.carried}:
        wrong.append("a report counts that no site has made")
    if any(process.stale and process.contacts for process in every):
        wrong.append("a request of an older copy, or of another folder, was taken")
    if schedule.intruders == 0 and schedule.stopped:
        wrong.append("a site was refused for good, though nobody else has used its key")
    if any(why not in BY_NAME for _, why in schedule.stopped):
        wrong.append("a site was refused for good for another reason")
    return wrong
