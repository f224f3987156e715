"""The two shells round the core: a heap of events in virtual time, and processes that answer when they answer."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from fedbo.actors.host import Hosts
from fedbo.actors.task import Order, Report
from fedbo.coordinator.core import Core
from fedbo.coordinator.events import BACKGROUND, Act, Ask, Began, Commit, Decided, Died, Effect, Event, Finished, Line

Sink = Callable[[list[Line]], None]
_BEAT = 0.4  # seconds between two looks at a run


@dataclass(slots=True)
class Agenda:
    """What is still to happen, as a heap of (time, number of its scheduling, event), and how far the run has come."""

    heap: list[tuple[float, int, Event]] = field(default_factory=lambda: [(0.0, 0, Began())])
    scheduled: int = 0
    time: float = 0.0
    events: int = 0
    stopped: bool = False
    waiting: int = 1

    def push(self, time: float, event: Event) -> None:
        """Put an event on the heap; those at one time happen in the order in which they were scheduled."""
        self.scheduled += 1
        self.waiting += type(event) not in BACKGROUND
        heapq.heappush(self.heap, (time, self.scheduled, event))

    def pop(self) -> tuple[int, Event]:
        """Take the next event, with its number."""
        _, number, event = heapq.heappop(self.heap)
        self.waiting -= type(event) not in BACKGROUND
        return number, event


class Moment(NamedTuple):
    """One event of a run in real time: when it happened, and which one it was.

    `number` is that of its scheduling, or FINISHED or DIED for what an agent's process did; those have `agent` and `lease`.
    """

    time: float
    number: int
    agent: int = -1
    lease: int = -1


FINISHED, DIED = -1, -2


@dataclass(frozen=True, slots=True)
class Watch:
    """Who looks on: `sink` takes the records, `stop` says whether to end now, `tick` is called twice a second or so.

    `keep` is called after every event, with their number, and may keep a snapshot of the run as it stands then. `record` is
    told in real time what happened when, so that the run can be replayed.
    """

    sink: Sink
    stop: Callable[[], bool] = lambda: False
    tick: Callable[[], None] = lambda: None
    keep: Callable[[int], None] = lambda events: None
    record: Callable[[Moment], None] = lambda moment: None


def run_virtual(core: Core, hosts: Hosts, watch: Watch, agenda: Agenda, until: float = float("inf")) -> None:
    """Run in virtual time: the clock moves only when an event is taken from the heap, and never reads the real one.

    The real computation of a step runs while the heap moves on; it is waited for only when its completion is due. Events
    after `until` do not happen. A run that is stopped can go on later from its agenda and the state of its core.
    """
    for order in core.orders():
        hosts.submit(order)
    hosts.settle()
    heap, beat, clock, current, handle = agenda.heap, time.monotonic(), time.monotonic, core.current, core.handle
    while heap and heap[0][0] <= until and (agenda.waiting or core.stalled()) and not core.over:
        now, _, event = heap[0]
        if type(event) is Finished:
            if watch.stop():
                agenda.stopped = True
                break
            if not current(event):  # its agent was interrupted, and this end with it
                agenda.pop()
                continue
            if event.report is None:  # an error here leaves the event where it is
                event = Finished(event.agent, event.lease, hosts.result(event.agent, event.lease))
            if clock() - beat > _BEAT:
                beat = clock()
                _look(core, watch)
        agenda.pop()
        agenda.time = now
        for effect in handle(event, now):
            if type(effect) is tuple:  # a named one is something else
                agenda.push(now + effect[0], effect[1])  # type: ignore[misc, operator, arg-type]
            else:
                _carry_out(effect, now, hosts, agenda)
        agenda.events += 1
        if not heap or heap[0][0] > now:
            hosts.settle()
        watch.keep(agenda.events)
    _look(core, watch)
    if not agenda.stopped and (not heap or heap[0][0] <= until):
        core.close()


def _carry_out(effect: Effect, now: float, hosts: Hosts, agenda: Agenda) -> None:
    if isinstance(effect, Order):
        hosts.submit(effect)
    elif isinstance(effect, Commit):
        hosts.commit(effect.agent, effect.times)
    elif isinstance(effect, Ask):
        queries, costs = hosts.decide(effect.order)
        agenda.push(now, Decided(effect.order.agent, effect.order.lease, queries, costs))
    else:
        assert not isinstance(effect, Act), "nothing is done to a process in virtual time"
        agenda.push(now + effect[0], effect[1])


class LiveHosts(Hosts, Protocol):
    """Hosts whose processes live in real time."""

    def begin(self, epoch: float) -> None:
        """Set all clocks to 0 at `epoch`."""

    def ready(self, timeout: float) -> tuple[list[Report], list[int]]:
        """Give the reports that come within `timeout` seconds, and the agents whose process was found dead."""

    def busy(self) -> bool:
        """Say whether anybody works."""

    def kill(self, agent: int) -> None:
        """End an agent's process at once."""

    def hold(self, agent: int, until: float) -> None:
        """Let nothing come out of an agent until this time."""

    def slow(self, agent: int, factor: float) -> None:
        """Let an agent's evaluations take so many times as long."""


def run_wall(core: Core, hosts: LiveHosts, watch: Watch, agenda: Agenda, until: float, die: Callable[[], None]) -> None:
    """Run in real time on live processes: a step ends when its process says so; latencies and absences are waited for.

    Times are seconds since the run began; one that goes on begins where it stood. After `until` no event is taken. `die` ends
    this very process, for a plan in which the coordinator does.
    """
    epoch = time.time() - agenda.time
    hosts.begin(epoch)
    shell = _Wall(core, hosts, watch, agenda, epoch, die)
    for order in core.orders():
        hosts.submit(order)
    hosts.settle()
    beat = time.monotonic()
    while (agenda.waiting or hosts.busy() or core.stalled()) and shell.clock() <= until and not core.over:
        shell.turn(until)
        if time.monotonic() - beat > _BEAT:
            beat = time.monotonic()
            _look(core, watch)
            if watch.stop():
                agenda.stopped = True
                break
    _look(core, watch)
    if shell.clock() <= until and not agenda.stopped:
        core.close()


@dataclass(slots=True)
class _Wall:
    """A run in real time between two events."""

    core: Core
    hosts: LiveHosts
    watch: Watch
    agenda: Agenda
    epoch: float
    die: Callable[[], None]

    def clock(self) -> float:
        return time.time() - self.epoch

    def turn(self, until: float) -> None:
        """Let what is due happen, or wait for what comes first."""
        heap = self.agenda.heap
        if heap and heap[0][0] <= self.clock():
            number, event = self.agenda.pop()
            self._happen(event, number)
            return
        due = min(heap[0][0] - self.clock() if heap else _BEAT, until - self.clock(), _BEAT)
        reports, dead = self.hosts.ready(due)
        for report in reports:
            self._happen(Finished(report.agent, report.lease, report), FINISHED)
        for agent in dead:
            self._happen(Died(agent), DIED)

    def _happen(self, event: Event, number: int) -> None:
        now = self.clock()
        if isinstance(event, Finished):
            self.watch.record(Moment(now, number, event.agent, event.lease))
        else:
            self.watch.record(Moment(now, number, event.agent if isinstance(event, Died) else -1))
        self.agenda.time = now
        self.agenda.events += 1
        ends = False
        for effect in self.core.handle(event, now):
            if isinstance(effect, Act) and effect.agent < 0:
                ends = True
            elif isinstance(effect, Act):
                self._act(effect)
            else:
                _carry_out(effect, now, self.hosts, self.agenda)
        self.hosts.settle()
        self.watch.keep(self.agenda.events)
        if ends:
            _look(self.core, self.watch)
            self.die()

    def _act(self, effect: Act) -> None:
        if effect.what == "kill":
            self.hosts.kill(effect.agent)
        elif effect.what == "hold":
            self.hosts.hold(effect.agent, effect.value)
        else:
            self.hosts.slow(effect.agent, effect.value)


def run_recorded(core: Core, hosts: Hosts, watch: Watch, record: Iterable[Moment]) -> float:
    """Replay a run in real time: the same events at the same times, without waiting; give the last time.

    ReplayError when an event that was recorded could not happen.
    """
    scheduled: dict[int, Event] = {0: Began()}
    count, now = 0, 0.0
    for place, moment in enumerate(record):
        now, number, agent, lease = moment
        if number == FINISHED:
            report = hosts.result(agent, lease)
            event: Event | None = Finished(agent, lease, report)
        else:
            event = Died(agent) if number == DIED else scheduled.pop(number, None)
        if event is None:
            raise ReplayError(f"event {place} at {now:.6f}: nothing with the number {number} was to happen")
        for effect in core.handle(event, now):
            if type(effect) is tuple:
                count += 1
                scheduled[count] = effect[1]  # type: ignore[misc, assignment]
            elif isinstance(effect, Order):
                hosts.submit(effect)
            elif isinstance(effect, Commit):
                hosts.commit(effect.agent, effect.times)
    _look(core, watch)
    return now


class ReplayError(RuntimeError):
    """A run in real time could not be replayed."""


def _look(core: Core, watch: Watch) -> None:
    watch.sink(core.journal)
    core.journal = []
    watch.tick()
