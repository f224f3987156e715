"""The shell round the core in real time: processes that answer when they answer, and die when they die."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fedbo.actors.hosts import Hosts
from fedbo.actors.task import StepReport
from fedbo.coordinator.core import Core
from fedbo.coordinator.events import Event, Finished, ProcessControl, ProcessDied
from fedbo.coordinator.runtime.engine import BEAT, DIED, FINISHED, EventQueue, RecordedEvent, RunHooks, carry_out, look


class LiveHosts(Hosts, Protocol):
    """Hosts whose processes live in real time."""

    def begin(self, epoch: float) -> None:
        """Set all clocks to 0 at `epoch`."""

    def reached(self) -> float:
        """Give the time at which the last of all evaluations that were noted down had ended."""

    def ready(self, timeout: float) -> tuple[list[StepReport], list[int]]:
        """Give the reports that come within `timeout` seconds, and the agents whose process was found dead."""

    def heard(self, report: StepReport) -> None:
        """Note that the coordinator has heard of this step."""

    def busy(self) -> bool:
        """Say whether anybody works."""

    def kill(self, agent: int) -> None:
        """End an agent's process at once."""

    def hold(self, agent: int, until: float) -> None:
        """Let nothing come out of an agent until this time."""

    def slow(self, agent: int, factor: float) -> None:
        """Let an agent's evaluations take so many times as long."""


def run_wall(core: Core, hosts: LiveHosts, watch: RunHooks, agenda: EventQueue, until: float, die: Callable[[], None]) -> None:
    """Run in real time on live processes: a step ends when its process says so; latencies and absences are waited for.

    Times are seconds since the run began; one that goes on begins where it stood. After `until` no event is taken. `die` ends
    this very process, for a plan in which the coordinator does.
    """
    # What was evaluated before an interruption may have ended after the last thing that was heard.
    epoch = time.time() - max(agenda.time, hosts.reached())
    hosts.begin(epoch)
    shell = _Wall(core, hosts, watch, agenda, epoch, die)
    for order in core.orders():
        hosts.submit(order)
    hosts.flush()
    beat = time.monotonic()
    while agenda.waiting or hosts.busy() or core.stalled():
        if shell.clock() > until or (core.over and agenda.quiet) or watch.enough():
            break
        shell.turn(until)
        if time.monotonic() - beat > BEAT:
            beat = time.monotonic()
            look(core, watch)
            if watch.stop():
                agenda.stopped = True
                break
    look(core, watch)
    if shell.clock() <= until and not agenda.stopped and not watch.enough():
        core.close()


@dataclass(slots=True)
class _Wall:
    """A run in real time between two events."""

    core: Core
    hosts: LiveHosts
    watch: RunHooks
    agenda: EventQueue
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
        due = min(heap[0][0] - self.clock() if heap else BEAT, until - self.clock(), BEAT)
        reports, dead = self.hosts.ready(due)
        for report in reports:
            self._happen(Finished(report.agent, report.lease, report), FINISHED)
        for agent in dead:
            self._happen(ProcessDied(agent), DIED)

    def _happen(self, event: Event, number: int) -> None:
        now = self.clock()
        if isinstance(event, Finished):
            self.watch.record(RecordedEvent(now, number, event.agent, event.lease), event.report)
        else:
            self.watch.record(RecordedEvent(now, number, event.agent if isinstance(event, ProcessDied) else -1), None)
        self.agenda.time = now
        self.agenda.events += 1
        ends = False
        for effect in self.core.handle(event, now):
            if isinstance(effect, ProcessControl) and effect.agent < 0:
                ends = True
            elif isinstance(effect, ProcessControl):
                act(effect, self.hosts)
            else:
                carry_out(effect, now, self.hosts, self.agenda)
        self.hosts.flush()
        self.watch.keep(self.agenda.events)
        if ends:
            look(self.core, self.watch)
            self.die()


def act(effect: ProcessControl, hosts: LiveHosts) -> None:
    """Do something to an agent's process."""
    if effect.what == "kill":
        hosts.kill(effect.agent)
    elif effect.what == "hold":
        hosts.hold(effect.agent, effect.value)
    else:
        hosts.slow(effect.agent, effect.value)
