"""What happens between agents: a state machine without input or output, `(state, event, now) -> effects`.

The core knows neither clocks nor processes. A shell feeds it events in order of time and carries out its effects: in
virtual time a heap, in wall-clock time real processes. `Core` holds the rules, which never change during a run, and one
`CoreState`, which is all that does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedbo.actors.agent import Order, Report, Task
from fedbo.algorithms.base import Array, Inbound
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.availability import absences
from fedbo.coordinator.events import (
    Arrived,
    Ask,
    Began,
    Changed,
    Commit,
    Decided,
    Delivered,
    Died,
    Due,
    Effect,
    Event,
    Finished,
    Healed,
    Line,
    Reached,
    Returned,
    Struck,
    Unheard,
)
from fedbo.coordinator.exchange import Exchange
from fedbo.coordinator.messages import fault, weight
from fedbo.coordinator.network import Network
from fedbo.coordinator.state import Step, fresh_state
from fedbo.coordinator.trouble import Trouble
from fedbo.coordinator.work import Lengths
from fedbo.coordinator.world import World


class Core:
    """The rules of one run, its state, and the journal of what happened since the shell last emptied it."""

    def __init__(self, task: Task, exchange: Exchange, world: World) -> None:
        self.algorithm, self.problem, self.exchange, self.world = task.algorithm, task.problem, exchange, world
        self.streams, self.checkpoint = task.streams.of(COORDINATOR), task.checkpoint
        self.upload, self.download = self.algorithm.upload(self.problem), self.algorithm.download(self.problem)
        self._up_bytes, self._down_bytes = weight(self.upload), weight(self.download)
        self.journal: list[Line] = []
        self.state = fresh_state(self.problem.n_agents, self.algorithm.server_init(self.problem))
        self._targets, self._ones = frozenset(self.problem.targets), np.ones(self.problem.n_agents)
        self._absence = absences(lambda agent: world.of(agent).availability, task.streams)
        self._network = Network(world, task.streams, self.upload, self._tell)
        self._trouble = Trouble(self, task.streams)
        self._lengths = None if world.real else Lengths(world, task.streams, task.policy)
        self._handlers: dict[type, Callable[[Any, float], list[Effect]]] = {
            Began: self._began,
            Decided: self._decided,
            Finished: self._finished,
            Reached: self._reached,
            Arrived: self._arrived,
            Delivered: self._delivered,
            Unheard: self._unheard,
            Returned: self._returned,
            Due: self._due,
            Changed: self._trouble.changed,
            Struck: self._trouble.struck,
            Healed: self._trouble.healed,
            Died: self._trouble.died,
        }

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one event; give its effects, in the order in which they are to be carried out."""
        self.state.events += 1
        effects = self._handlers[type(event)](event, now)
        if self._trouble.at_events:
            effects += self._trouble.at_event(self.state.events)
        return effects

    def current(self, event: Finished) -> bool:
        """Say whether the step that has finished is the one that its agent is at; else it has become another's turn."""
        return self.state.lease[event.agent] == event.lease and event.agent in self.state.steps

    def stalled(self) -> bool:
        """Say whether somebody is only kept from going on by what will pass by itself."""
        state = self.state
        held = any(state.blocked[agent] and agent not in state.ended for agent in state.rounds.active)
        return held or (self.exchange.limit is not None and not state.overdue and bool(state.rounds.reported))

    def orders(self) -> list[Order]:
        """List what agents are at, for a shell that has lost its hosts and begins again with others."""
        steps = self.state.steps
        given = [steps[agent].order for agent in sorted(steps) if self.world.real or steps[agent].parts]
        return [order for order in given if order is not None]

    def close(self) -> None:
        """Note that nothing else will happen; ProtocolError when an agent still waits for an answer."""
        if self.state.waiting:
            agents = ", ".join(map(str, sorted(self.state.waiting)[:5]))
            more = " and others" if len(self.state.waiting) > 5 else ""
            raise ProtocolError(f"agents {agents}{more} wait for an answer that never comes")

    def _tell(self, line: Line) -> None:
        self.journal.append(line)

    # An agent's step: begun, decided, finished.

    def _began(self, event: Began, now: float) -> list[Effect]:
        everybody = self.upload is not None and self.algorithm.sends(0)
        present = list(range(self.problem.n_agents)) if everybody else sorted(self._targets)
        self.state.rounds.active.update(present)
        effects = self._trouble.begin(present, now)
        effects += self._open(present, now)
        return effects + [effect for agent in present for effect in self._enter(agent, 0, now)]

    def _enter(self, agent: int, step: int, now: float) -> list[Effect]:
        """Begin a step, as soon as nothing keeps the agent from it."""
        self.state.step[agent] = step
        if self.state.blocked[agent]:
            self.state.ready.add(agent)
            return []
        return self.start(agent, now)

    def start(self, agent: int, now: float) -> list[Effect]:
        """Begin an agent's step now."""
        state = self.state
        number = state.step[agent]
        inbox, state.inbox[agent] = tuple(state.inbox[agent]), []
        state.base[agent] = state.rounds.number
        self.journal.append((now, "started", agent, number, 0, ""))
        state.steps[agent] = Step(inbox, self._speaks(agent, number), now)
        self.expect(agent)
        return self.issue(agent, now)

    def _speaks(self, agent: int, number: int) -> bool:
        if not self.algorithm.sends(number):
            return False
        if self.exchange.waits:
            return agent in self.state.asked
        selection = self.exchange.selection
        return selection.who == "all" or selection.of_step(self.streams.of(agent).at(number))

    def expect(self, agent: int) -> None:
        """Let the open round wait for an agent that was asked to send."""
        if self.exchange.waits and agent in self.state.asked and agent in self.state.rounds.active:
            self.state.rounds.missing.add(agent)

    def issue(self, agent: int, now: float, restore: str = "") -> list[Effect]:
        """Give an agent its step to do; `restore` says what it shall forget before."""
        state = self.state
        step, number = state.steps[agent], state.step[agent]
        state.lease[agent] += 1
        if agent in state.forgetful:
            state.forgetful.discard(agent)
            restore = "checkpoint"
        step.order = order = Order(agent, number, state.lease[agent], step.inbox, step.speaks, restore)
        if self._lengths is None:
            return [order]
        count: int | None = self.algorithm.queries
        if number == 0:
            count = self.problem.initial if agent in self._targets else 0
        if count is None or self._lengths.needs_costs(agent):
            return [Ask(order)]
        return self._timed(order, count, None, now)

    def _decided(self, event: Decided, now: float) -> list[Effect]:
        agent, state = event.agent, self.state
        if event.lease != state.lease[agent] or agent not in state.steps:
            return []
        order = state.steps[agent].order
        assert order is not None and self._lengths is not None
        costs = event.costs if self._lengths.needs_costs(agent) else None
        return self._timed(order._replace(restore="", costs=costs), event.queries, costs, now)

    def _timed(self, order: Order, count: int, costs: tuple[float, ...] | None, now: float) -> list[Effect]:
        """Fix how long a step takes, from its decision on."""
        assert self._lengths is not None
        agent, state = order.agent, self.state
        step, first = state.steps[agent], state.evaluated[agent]
        state.evaluated[agent] = first + count
        step.begun = step.since = now
        step.costs = costs
        step.parts = self._lengths.parts(agent, first, count, state.t_n[agent], costs)
        step.left = sum(step.parts)
        step.trail = None
        if self._lengths.limited:
            order = order._replace(tries=self._lengths.tries(agent, first, count))
        step.order = order
        if state.blocked[agent]:
            step.set_pace(now, 0.0, 0.0)
            return [order]
        if state.pace[agent] != 1.0:
            step.set_pace(now, state.pace[agent], state.pace[agent])
        return [order, self.timer(agent)]

    def timer(self, agent: int) -> tuple[float, Event]:
        """Give the end of an agent's step at its present pace."""
        step = self.state.steps[agent]
        return step.left / self.state.pace[agent], Finished(agent, self.state.lease[agent], step.report)

    def _finished(self, event: Finished, now: float) -> list[Effect]:
        agent, report, state = event.agent, event.report, self.state
        assert report is not None, "the shell did not add the report"
        if not self.current(event):
            self.journal.append((now, "discarded", agent, report.step, 0, "its lease had expired"))
            return []
        step = state.steps[agent]
        if report.retried and self._lengths is not None and step.report is None:
            return self._retrying(agent, report, now)
        declared = len(step.parts) - 1 - len(report.retried)
        if self._lengths is not None and report.queries != declared:
            words = f"asked for {report.queries} points in step {report.step}, declared are {declared}"
            raise ProtocolError(f"agent {agent} {words}")
        del state.steps[agent]
        state.lasted[agent] = now - step.begun
        state.t_n[agent] = report.t_n
        if report.step % self.checkpoint == 0:
            state.saved_t_n[agent] = report.t_n
        if report.step > state.step[agent]:  # it went on while the coordinator's snapshot grew old
            state.step[agent] = report.step
        self.journal.extend((now, "failed", agent, report.step, 0, words) for words in report.failed)
        self.journal.append((now, "finished", agent, report.step, 0, ""))
        times = () if self._lengths is None else step.times(now)
        return [Commit(agent, times), *self._speak(agent, report, step.speaks, now)]

    def _retrying(self, agent: int, report: Report, now: float) -> list[Effect]:
        """Let the evaluations that were tried again take their time, after all others."""
        assert self._lengths is not None
        state, step = self.state, self.state.steps[agent]
        first, extra = state.evaluated[agent], len(report.retried)
        state.evaluated[agent] = first + extra
        costs = None if step.costs is None else tuple(step.costs[point] for point in report.retried)
        more = self._lengths.parts(agent, first, extra, 0, costs)[1:]
        step.parts += more
        step.left, step.since, step.report = sum(more), now, report
        if step.trail is not None:
            step.trail.append((now, sum(step.parts) - step.left, state.pace[agent]))
        state.lease[agent] += 1
        return [self.timer(agent)]

    def _speak(self, agent: int, report: Report, asked: bool, now: float) -> list[Effect]:
        """Send what a finished step has to say, and go on or wait."""
        state, effects, number = self.state, [], self.state.step[agent]
        if report.payload is not None:
            state.awaited.add((agent, number))
            effects += self._network.up(Arrived(agent, agent, number, state.base[agent], now, report.payload), state, now)
        if agent not in self._targets or number >= self.problem.iterations:
            return effects + self._end(agent, now)
        sends = self.algorithm.sends(number)
        if (self.exchange.waits and sends) or (number > 0 and report.queries == 0):
            state.waiting[agent] = math.inf
        else:
            effects += self._next(agent, now)
        if sends and report.payload is None and (asked or agent in state.waiting):
            effects += self._report(agent, False, now)
        return effects

    def _end(self, agent: int, now: float) -> list[Effect]:
        state = self.state
        self.journal.append((now, "done", agent, state.step[agent], 0, ""))
        state.ended.add(agent)
        if (agent, state.step[agent]) in state.awaited:  # it takes part until its last message has arrived
            state.leaving.add(agent)
            return []
        return self.leave(agent, now)

    def leave(self, agent: int, now: float) -> list[Effect]:
        """Take an agent out of the exchange."""
        rounds = self.state.rounds
        for members in (rounds.active, rounds.missing, rounds.reported, self.state.leaving):
            members.discard(agent)
        return self.settle(now)

    def _next(self, agent: int, now: float) -> list[Effect]:
        state = self.state
        step = state.step[agent] + 1
        absence = self._absence(agent, step)
        if not absence:
            return self._enter(agent, step, now)
        self.journal.append((now, "absent", agent, step, 0, ""))
        state.away.add(agent)
        if not self.exchange.waits:
            return [(absence, Returned(agent))]
        # Under a barrier an absence costs this iteration, whatever the algorithm sends, so that budgets stay comparable.
        state.step[agent] = step
        if step >= self.problem.iterations:
            return self._end(agent, now)
        if not self.algorithm.sends(step):
            return [(absence, Returned(agent))]
        state.waiting[agent] = math.inf  # it sits the round out, and the others do not wait for it
        return self._report(agent, False, now)

    def _returned(self, event: Returned, now: float) -> list[Effect]:
        agent, state = event.agent, self.state
        if agent not in state.away:
            return []  # lost for good meanwhile
        state.away.discard(agent)
        step = state.step[agent] + (0 if self.exchange.waits else 1)
        self.journal.append((now, "returned", agent, step, 0, ""))
        return self._next(agent, now) if self.exchange.waits else self._enter(agent, step, now)

    # A message: reached, arrived, delivered, or not heard of.

    def _reached(self, event: Reached, now: float) -> list[Effect]:
        return self._network.reached(event.message, self.state, now)

    def _arrived(self, event: Arrived, now: float) -> list[Effect]:
        source, state = event.source, self.state
        if self._network.breaks and (lost := self._network.lost_at_the_door(event, self._up_bytes, state, now)):
            return lost
        counted = self._take(event, now)
        if (source, event.step) not in state.awaited:
            return []
        state.awaited.discard((source, event.step))
        return self._report(source, counted, now)

    def _take(self, message: Arrived, now: float) -> bool:
        """Let a message take effect, or say why it does not."""
        source, sender, step, base, sent, payload, _ = message
        state = self.state
        wrong = self._refusal(message)
        if wrong:
            self.journal.append((now, "rejected", source, step, 0, wrong))
            return False
        if self.exchange.waits and not self.exchange.carries and base < state.rounds.number:
            state.seen[sender].add(step)
            self.journal.append((now, "late", source, step, self._up_bytes, f"round {base} had closed"))
            return False
        stale = self._staleness(base)
        bound = self.exchange.staleness.bound
        state.seen[sender].add(step)
        if bound is not None and stale > bound:
            self.journal.append((now, "rejected", source, step, 0, f"stale: {stale} rounds old, the bound is {bound}"))
            return False
        state.server = self.algorithm.receive(state.server, Inbound(sender, step, sent, payload), now)
        state.newest[sender] = base
        self.journal.append((now, "arrived", sender, step, self._up_bytes, str(stale)))
        return True

    def _refusal(self, message: Arrived) -> str | None:
        if message.sender != message.source:
            return f"sent by agent {message.source} in the name of agent {message.sender}"
        if not 0 <= message.sender < self.problem.n_agents:
            return f"there is no agent {message.sender}"
        if self.upload is None:
            return "this algorithm declares no messages"
        if message.step in self.state.seen[message.sender]:
            return "duplicate: this message has already taken effect"
        return fault(message.payload, self.upload)

    def _staleness(self, base: int) -> int:
        """Count the rounds since round `base`; without rounds, as many answers as there are targets count as one."""
        passed = self.state.rounds.number - base
        return passed if self.exchange.waits else passed // len(self._targets)

    def _unheard(self, event: Unheard, now: float) -> list[Effect]:
        """Send again, or give up."""
        message, state = event.message, self.state
        again = message.attempt + 1
        if isinstance(message, Arrived):
            key = (message.source, message.step)
            if key not in state.awaited:
                return []
            if again < self.world.attempts:
                return self._network.up(message._replace(attempt=again), state, now)
            state.awaited.discard(key)
            self.journal.append((now, "rejected", *key, 0, f"given up after {again} transmissions"))
            return self._report(message.source, False, now)
        if message.agent in state.ended:
            return []
        if again < self.world.attempts:
            return self._network.down(message._replace(attempt=again), self._weigh(message), state, now)
        return self._released(message.agent, message.number, now)

    def _weigh(self, answer: Delivered) -> int:
        return 0 if answer.inbound is None else self._down_bytes

    def _delivered(self, event: Delivered, now: float) -> list[Effect]:
        agent, inbound, number, _ = event
        state = self.state
        if agent in state.ended:
            return []
        if self._network.breaks and (lost := self._network.lost_at_the_door(event, self._weigh(event), state, now)):
            return lost
        if number in state.heard[agent]:
            self.journal.append((now, "rejected", agent, number, 0, "duplicate: the agent has had this answer"))
            return []
        state.heard[agent].add(number)
        if inbound is not None:
            state.inbox[agent].append(inbound)
            self.journal.append((now, "delivered", agent, number, self._down_bytes, ""))
        return self._released(agent, number, now)

    def _released(self, agent: int, number: int, now: float) -> list[Effect]:
        """Let an agent go on that waited for this answer."""
        state = self.state
        if state.waiting.get(agent, math.inf) > number:
            return []
        del state.waiting[agent]
        if agent in state.away:
            state.away.discard(agent)
            self.journal.append((now, "returned", agent, state.step[agent], 0, ""))
        return self._next(agent, now)

    # A round: reports, and its close.

    def _report(self, agent: int, counted: bool, now: float) -> list[Effect]:
        """Note that an agent has sent what it had to send, or has nothing to send."""
        state = self.state
        if agent in state.leaving or agent in state.ended:
            state.rounds.messages += counted
            return self.leave(agent, now)
        if not self.exchange.waits:
            state.rounds.buffer.append(agent)
        elif agent in state.waiting:
            state.rounds.reported.add(agent)
            state.rounds.missing.discard(agent)
            state.rounds.messages += counted
        return self.settle(now)

    def settle(self, now: float) -> list[Effect]:
        """Close the open round, or answer the buffer, if that is due."""
        rounds = self.state.rounds
        due = self.exchange.due(rounds) or (self.state.overdue and bool(rounds.reported))
        # A buffer that can no longer be filled, because everybody waits, is answered as it is.
        stuck = bool(rounds.buffer) and not due and rounds.active <= self.state.waiting.keys()
        return self._answer(now) if due or stuck else []

    def _due(self, event: Due, now: float) -> list[Effect]:
        if event.number != self.state.rounds.number:
            return []
        self.state.overdue = True  # if nobody has reported yet, the round closes with the first who does
        return self.settle(now)

    def _answer(self, now: float) -> list[Effect]:
        state, rounds, waits = self.state, self.state.rounds, self.exchange.waits
        recipients = sorted((rounds.reported if waits else set(rounds.buffer)) & rounds.active)
        number = rounds.number
        payloads, state.server = self.algorithm.broadcast(state.server, recipients, self._worth(), self.streams.at(number))
        if waits:
            self.journal.append((now, "round", COORDINATOR, number, len(payloads) * self._down_bytes, ""))
        rounds.reported, rounds.buffer, rounds.messages = set(), [], 0
        rounds.number, rounds.opened = number + 1, now
        effects: list[Effect] = []
        for agent in recipients:
            answer = Delivered(agent, self._checked(agent, number, payloads.get(agent), now), number)
            if answer.inbound is None and not waits:
                continue
            if agent in state.waiting:
                state.waiting[agent] = number
            effects += self._network.down(answer, self._weigh(answer), state, now)
        return effects + (self._open(recipients, now) if waits else [])

    def _worth(self) -> Array:
        """Give what each agent's newest message counts for now `(N,)`."""
        staleness = self.exchange.staleness
        if staleness.even:
            return self._ones
        return np.array([0.0 if base < 0 else staleness.of(self._staleness(base)) for base in self.state.newest])

    def _checked(self, agent: int, number: int, payload: Any, now: float) -> Inbound | None:
        if payload is None:
            return None
        wrong = "no answers are declared" if self.download is None else fault(payload, self.download)
        if wrong:
            raise ProtocolError(f"the answer to agent {agent} is not as declared: {wrong}")
        return Inbound(COORDINATOR, number, now, payload)

    def _open(self, agents: Sequence[int], now: float) -> list[Effect]:
        """Open a round with those who begin it."""
        state, exchange = self.state, self.exchange
        if not exchange.waits or self.upload is None:
            return []
        number = state.rounds.number
        chosen = exchange.selection.of_round(agents, state.lasted, self.streams.at(number))
        state.asked.difference_update(agents)
        state.asked.update(chosen)
        state.rounds.missing.update(chosen - state.off)
        state.overdue = False
        return [] if exchange.limit is None else [(exchange.limit, Due(number))]


class ProtocolError(RuntimeError):
    """An algorithm broke its own declaration, or left an agent waiting."""
