"""What keeps agents from working and messages from passing: absences in continuous time, and the faults that strike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.environment.availability import Ascending, Changes
from fedbo.coordinator.environment.faults import STRIKES, Crash, Hang, NetworkPartition, Restart, Slow, Strike, strikes
from fedbo.coordinator.events import AvailabilityChanged, Effect, FaultEnded, FaultStarted, ProcessControl, ProcessDied

if TYPE_CHECKING:
    from fedbo.coordinator.core import Core


class FaultInjector:
    """The fault injector: carries absences and faults out on the state of a core.

    While something is in an agent's way its step stands still. The coordinator is told of absences and crashes, so that no
    round waits for such an agent; of hangs, of slowness and of partitions nobody tells it.
    """

    def __init__(self, core: Core, streams: Streams) -> None:
        self._core, self._streams = core, streams
        self._changes = Changes(lambda agent: core.world.of(agent).availability, streams)
        self._strikes = {place: fault for place, fault in enumerate(core.world.plan) if isinstance(fault, STRIKES)}
        self._times: dict[tuple[int, int], Ascending] = {}
        self.at_events = sorted((f.event, place) for place, f in self._strikes.items() if f.event is not None)

    def begin(self, agents: Iterable[int], now: float) -> list[Effect]:
        """Take those agents out who are away from the start; let all else happen at its time."""
        effects: list[Effect] = []
        for agent in agents:
            first = self._changes(agent, 0)
            effects += self.changed(AvailabilityChanged(agent, 0), now) if first == now else self._next_change(agent, 0, now)
        for place, fault in self._strikes.items():
            for agent in _struck_alone(fault):
                effects += self._next_strike(place, agent, 0, now)
        return effects

    def at_event(self, events: int) -> list[Effect]:
        """Let the faults strike that are due after so many events."""
        return [(0.0, FaultStarted(place, COORDINATOR, 0)) for number, place in self.at_events if number == events]

    # Availability.

    def changed(self, event: AvailabilityChanged, now: float) -> list[Effect]:
        """An agent leaves or returns."""
        agent, number = event
        if agent in self._core.state.ended:
            return []
        effects = self._returns(agent, now) if number % 2 else self._leaves(agent, now)
        if number % 2 == 0 and self._changes(agent, number + 1) == math.inf:
            return effects + self._lose(agent, now)
        return effects + self._next_change(agent, number + 1, now)

    def _next_change(self, agent: int, number: int, now: float) -> list[Effect]:
        time = self._changes(agent, number)
        return [] if time == math.inf else [(time - now, AvailabilityChanged(agent, number))]

    def _leaves(self, agent: int, now: float) -> list[Effect]:
        core = self._core
        core.journal.append((now, "absent", agent, core.state.step[agent], 0, ""))
        return self._block(agent, now, known=True, void=core.world.of(agent).leaving == "lost")

    def _returns(self, agent: int, now: float) -> list[Effect]:
        core = self._core
        core.journal.append((now, "returned", agent, core.state.step[agent], 0, ""))
        return self._unblock(agent, now, restore="before")

    # Faults.

    def struck(self, event: FaultStarted, now: float) -> list[Effect]:
        """A fault strikes one agent, or all of its agents."""
        fault, agent, state = self._strikes[event.fault], event.agent, self._core.state
        if isinstance(fault, Restart):
            return self._coordinator(event.fault, fault, now) + self._next_strike(event.fault, agent, event.number + 1, now)
        struck = [agent] if agent >= 0 else [n for n in fault.agents if isinstance(n, int)]
        effects: list[Effect] = []
        for one in struck:
            if one in state.rounds.active and one not in state.ended:
                effects += self._strike(event.fault, fault, one, now)
        if agent >= 0 and agent in state.ended:
            return effects
        return effects + self._next_strike(event.fault, agent, event.number + 1, now)

    def _strike(self, place: int, fault: Strike, agent: int, now: float) -> list[Effect]:
        core, healed = self._core, FaultEnded(place, agent)
        step = core.state.step[agent]
        if isinstance(fault, Crash):
            return self._crash(fault, agent, healed, now)
        assert not isinstance(fault, Restart)
        effects: list[Effect] = [(fault.duration, healed)]
        if isinstance(fault, Hang):
            core.journal.append((now, "hung", agent, step, 0, ""))
            if core.world.real:
                effects.append(ProcessControl(agent, "hold", now + fault.duration))
            return effects + self._block(agent, now, known=False, void=False)
        if isinstance(fault, Slow):
            core.journal.append((now, "slowed", agent, step, 0, f"{fault.factor:g} times"))
            return effects + self._slow(agent, fault.factor, now)
        core.journal.append((now, "cut", agent, step, 0, ""))
        core.state.cut[agent] += 1
        return effects

    def _crash(self, fault: Crash, agent: int, healed: FaultEnded, now: float) -> list[Effect]:
        core, state = self._core, self._core.state
        step = state.step[agent]
        effects: list[Effect] = [ProcessControl(agent, "kill")] if core.world.real else []
        if fault.restart is None:
            core.journal.append((now, "crashed", agent, step, 0, "for good"))
            return effects + self._lose(agent, now)
        core.journal.append((now, "crashed", agent, step, 0, fault.state))
        if fault.state == "lost":
            state.forgetful.add(agent)
            state.t_n[agent] = state.saved_t_n[agent]
        return [*effects, (fault.restart, healed), *self._block(agent, now, known=True, void=True)]

    def _lose(self, agent: int, now: float) -> list[Effect]:
        """An agent is lost for good."""
        state = self._core.state
        state.lease[agent] += 1
        state.steps.pop(agent, None)
        state.waiting.pop(agent, None)
        for members in (state.away, state.ready, state.off):
            members.discard(agent)
        state.ended.add(agent)
        state.lost.add(agent)
        return self._core.desk.leave(agent, now)

    def _coordinator(self, place: int, fault: Restart, now: float) -> list[Effect]:
        core = self._core
        core.journal.append((now, "down", COORDINATOR, core.state.rounds.number, 0, ""))
        core.state.down += 1
        effects: list[Effect] = [(fault.duration, FaultEnded(place, COORDINATOR))]
        return [*effects, ProcessControl(COORDINATOR, "kill")] if core.world.real else effects

    def healed(self, event: FaultEnded, now: float) -> list[Effect]:
        """What a fault did is over."""
        core, agent, fault = self._core, event.agent, self._strikes[event.fault]
        state = core.state
        if isinstance(fault, Restart):
            core.journal.append((now, "up", COORDINATOR, state.rounds.number, 0, ""))
            state.down -= 1
            return core.desk.settle(now)
        if isinstance(fault, NetworkPartition):
            state.cut[agent] -= 1
        if agent in state.ended:
            return []
        word = {Crash: "restarted", Hang: "woke", Slow: "recovered", NetworkPartition: "joined"}[type(fault)]
        core.journal.append((now, word, agent, state.step[agent], 0, ""))
        if isinstance(fault, Slow):
            return self._slow(agent, 1 / fault.factor, now)
        # A live process that was killed knows from its checkpoint whether it had done its step.
        restore = "" if core.world.real else "before"
        return [] if isinstance(fault, NetworkPartition) else self._unblock(agent, now, restore)

    def died(self, event: ProcessDied, now: float) -> list[Effect]:
        """A process is gone although no plan said so: its agent begins again in a new one."""
        core, agent = self._core, event.agent
        step = core.state.step[agent]
        if agent in core.state.ended or core.state.blocked[agent]:
            return []
        core.journal.append((now, "crashed", agent, step, 0, "unplanned"))
        core.journal.append((now, "restarted", agent, step, 0, ""))
        if agent not in core.state.steps:
            return []
        core.journal.append((now, "started", agent, step, 0, "again"))
        return core.steps.issue(agent, now)

    def _next_strike(self, place: int, agent: int, number: int, now: float) -> list[Effect]:
        key = (place, agent)
        if key not in self._times:
            streams = self._streams.of(agent).at(0)
            self._times[key] = Ascending(lambda: strikes(self._strikes[place], streams.rng(f"fault {place} strikes")))
        time = self._times[key].at(number)
        return [] if time == math.inf else [(time - now, FaultStarted(place, agent, number))]

    # What stands in an agent's way.

    def _block(self, agent: int, now: float, known: bool, void: bool) -> list[Effect]:
        core, state = self._core, self._core.state
        state.blocked[agent] += 1
        step = state.steps.get(agent)
        if step is not None:
            step.void |= void
            if state.blocked[agent] == 1 and not core.world.real:
                state.lease[agent] += 1  # the end that was foreseen is void
                step.set_pace(now, state.pace[agent], 0.0)
            elif void:
                state.lease[agent] += 1
        if not known:
            return []
        state.off.add(agent)
        state.rounds.missing.discard(agent)
        return core.desk.settle(now)

    def _unblock(self, agent: int, now: float, restore: str) -> list[Effect]:
        core, state = self._core, self._core.state
        state.blocked[agent] -= 1
        if state.blocked[agent]:
            return []
        state.off.discard(agent)
        if agent in state.ready:
            state.ready.discard(agent)
            return core.steps.start(agent, now)
        step = state.steps.get(agent)
        if step is None:
            if agent in state.waiting and agent not in state.rounds.reported:  # its message or its answer is under way
                core.desk.expect(agent)
            return []
        core.desk.expect(agent)
        if step.void or (step.parts == () and not core.world.real):
            step.void, step.parts, step.report = False, (), None
            state.restarts[agent] = state.restarts.get(agent, 0) + 1
            core.journal.append((now, "started", agent, state.step[agent], 0, "again"))
            return core.steps.issue(agent, now, restore)
        if core.world.real:
            return []
        step.set_pace(now, 0.0, state.pace[agent])
        return [core.steps.timer(agent)]

    def _slow(self, agent: int, factor: float, now: float) -> list[Effect]:
        core, state = self._core, self._core.state
        before = state.pace[agent]
        state.pace[agent] = before / factor
        if core.world.real:
            return [ProcessControl(agent, "slow", 1 / state.pace[agent])]
        step = state.steps.get(agent)
        if step is None or state.blocked[agent] or not step.parts:
            return []
        state.lease[agent] += 1
        step.set_pace(now, before, state.pace[agent])
        return [core.steps.timer(agent)]


def _struck_alone(fault: Strike) -> list[int]:
    """List the agents that a fault strikes each at its own times, or COORDINATOR where it strikes all at once."""
    if isinstance(fault, Restart | NetworkPartition) or fault.rate is None:
        return [COORDINATOR]
    return [agent for agent in fault.agents if isinstance(agent, int)]
