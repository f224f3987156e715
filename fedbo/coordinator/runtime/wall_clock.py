"""The event loop of real time: live processes report the ends of steps, and scheduled events happen at their times."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fedbo.actors.hosts import LiveHosts
from fedbo.coordinator.endless import require_end
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import (
    DIED,
    FINISHED,
    LEFT,
    PROGRESS_INTERVAL,
    RETURNED,
    RecordedEvent,
    RunHooks,
    apply_effects,
    report_progress,
)
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.events import ConnectionChanged, Event, Finished, ProcessControl, ProcessDied


def run_wall(core: Core, hosts: LiveHosts, hooks: RunHooks, queue: EventQueue, until: float) -> None:
    """Run in real time on live processes: a step ends with its process's report; latencies and absences pass in real time.

    Times are seconds since the run began; a resumed run continues at its last time. After `until` no event is taken.
    """
    # What was evaluated before an interruption may have ended after the last thing that was heard.
    # From here on every process goes on by its monotonic clock: one that is set back would stop the study.
    at = max(queue.time, hosts.reached())
    loop = _WallClockLoop(core, hosts, hooks, queue, time.monotonic() - at)
    hosts.begin(time.time() - at)
    for order in core.orders() if loop.clock() <= until else ():  # hosts may take seconds to begin
        hosts.submit(order)
    hosts.flush()
    beat = time.monotonic()
    while queue.waiting or hosts.busy() or core.will_recover():
        if loop.clock() > until or (core.is_over and queue.quiet) or hooks.enough():
            break
        loop.turn(until)
        if time.monotonic() - beat > PROGRESS_INTERVAL:
            beat = time.monotonic()
            report_progress(core, hooks)
            if hooks.stop():
                queue.stopped = True
                break
    report_progress(core, hooks)
    if loop.clock() <= until and not queue.stopped and not hooks.enough():
        require_end(core)


@dataclass(slots=True)
class _WallClockLoop:
    """The event loop of a run in real time."""

    core: Core
    hosts: LiveHosts
    hooks: RunHooks
    queue: EventQueue
    begun: float

    def clock(self) -> float:
        return time.monotonic() - self.begun

    def turn(self, until: float) -> None:
        """Process the event that is due, or wait for the next event or report."""
        first = self.queue.next_time()
        if first is not None and first <= self.clock():
            _, number, event = self.queue.pop()
            self._process(event, number)
            return
        due = min(PROGRESS_INTERVAL if first is None else first - self.clock(), until - self.clock(), PROGRESS_INTERVAL)
        news = self.hosts.ready(due)
        for agent in sorted(news.present | news.away):
            away = agent in news.away
            known = self.core.state.agents[agent]
            if known.is_disconnected != away and not known.ended:
                self._process(ConnectionChanged(agent, away), LEFT if away else RETURNED)
        for report in news.reports:
            self._process(Finished(report.agent, report.lease, report), FINISHED)
        for agent in news.dead:
            self._process(ProcessDied(agent), DIED)

    def _process(self, event: Event, number: int) -> None:
        now = self.clock()
        if isinstance(event, Finished):
            self.hooks.record(RecordedEvent(now, number, event.agent, event.lease), event.report)
        else:
            agent = event.agent if isinstance(event, ProcessDied | ConnectionChanged) else -1
            self.hooks.record(RecordedEvent(now, number, agent), None)
        self.queue.time = now
        self.queue.events += 1
        ends = False
        for effect in self.core.handle(event, now):
            if isinstance(effect, ProcessControl) and effect.agent < 0:
                ends = True
            elif isinstance(effect, ProcessControl):
                control_process(effect, self.hosts)
            else:
                apply_effects([effect], now, self.hosts, self.queue)
        self.hosts.flush()
        if self.hooks.keep is not None:
            self.hooks.keep(self.queue.events)
        if ends:
            report_progress(self.core, self.hooks)
            self.hooks.die()


def control_process(effect: ProcessControl, hosts: LiveHosts) -> None:
    """Kill, hold or slow down an agent's process."""
    if effect.what == "kill":
        hosts.kill(effect.agent)
    elif effect.what == "hold":
        hosts.hold(effect.agent, effect.value)
    else:
        hosts.slow(effect.agent, effect.value)
