"""What happens between agents: a state machine without input or output, `(state, event, now) -> effects`.

The core knows neither clocks nor processes. A shell feeds it events in order of time and carries out its effects: in
virtual time a heap, in wall-clock time real processes. `Core` holds the rules, which never change during a run, and one
`CoreState`, which is all that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fedbo.actors.agent import Order
from fedbo.algorithms.base import Algorithm, Inbound, Problem
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.availability import Availability, absences
from fedbo.coordinator.events import (
    Arrived,
    Ask,
    Began,
    Decided,
    Delivered,
    Effect,
    Event,
    Finished,
    Line,
    Returned,
)
from fedbo.coordinator.exchange import Exchange, Rounds
from fedbo.coordinator.messages import fault, size, weight
from fedbo.coordinator.timing import Timing, durations


@dataclass(frozen=True, slots=True)
class World:
    """The models of an untidy world: how long things take, and who is there; without `evaluation`, time is real."""

    evaluation: Timing | None
    latency: Timing
    availability: Availability


@dataclass(slots=True)
class CoreState:
    """All that changes in a run between agents; lists are indexed by agent.

    `evaluated` counts the points begun. An agent in `waiting` stands still until it is answered, one in `away` is absent,
    one in `leaving` has done its work. `awaited` holds the messages under way as (agent, step), `seen` those that took
    effect, and `server` is the coordinator half of the algorithm.
    """

    step: list[int]
    evaluated: list[int]
    inbox: list[list[Inbound]]
    waiting: set[int]
    away: set[int]
    leaving: set[int]
    awaited: set[tuple[int, int]]
    seen: set[tuple[int, int]]
    rounds: Rounds
    server: Any


class Core:
    """The rules of one run, its state, and the journal of what happened since the shell last emptied it."""

    def __init__(self, algorithm: Algorithm, problem: Problem, exchange: Exchange, world: World, streams: Streams) -> None:
        n = problem.n_agents
        self.algorithm, self.problem, self.exchange = algorithm, problem, exchange
        self.streams = streams.of(COORDINATOR)
        self.upload, self.download = algorithm.upload(problem), algorithm.download(problem)
        self._up_bytes, self._down_bytes = weight(self.upload), weight(self.download)
        self.journal: list[Line] = []
        self.state = CoreState(
            [0] * n, [0] * n, [[] for _ in range(n)], set(), set(), set(), set(), set(), Rounds(set(), {}), None
        )
        self.state.server = algorithm.server_init(problem)
        self._targets = frozenset(problem.targets)
        self._evaluation = durations(world.evaluation, "evaluation time", streams) if world.evaluation else None
        self._up = durations(world.latency, "latency up", streams)
        self._down = durations(world.latency, "latency down", streams)
        self._absence = durations(absences(world.availability), "absence", streams)
        self._handlers: dict[type, Callable[[Any, float], list[Effect]]] = {
            Began: self._began,
            Decided: self._decided,
            Finished: self._finished,
            Arrived: self._arrived,
            Delivered: self._delivered,
            Returned: self._returned,
        }

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one event; give its effects, in the order in which they are to be carried out."""
        return self._handlers[type(event)](event, now)

    def close(self) -> None:
        """Note that nothing else will happen; ProtocolError when an agent still waits for an answer."""
        if self.state.waiting:
            agents = ", ".join(map(str, sorted(self.state.waiting)[:5]))
            more = " and others" if len(self.state.waiting) > 5 else ""
            raise ProtocolError(f"agents {agents}{more} wait for an answer that never comes")

    def _began(self, event: Began, now: float) -> list[Effect]:
        everybody = self.upload is not None and self.algorithm.sends(0)
        present = range(self.problem.n_agents) if everybody else sorted(self._targets)
        self.state.rounds.active.update(present)
        return [effect for agent in present for effect in self._start(agent, 0, now)]

    def _start(self, agent: int, step: int, now: float) -> list[Effect]:
        state = self.state
        state.step[agent] = step
        inbox, state.inbox[agent] = tuple(state.inbox[agent]), []
        self.journal.append((now, "started", agent, step, 0, ""))
        count: int | None = self.algorithm.queries
        if step == 0:
            count = self.problem.initial if agent in self._targets else 0
        if self._evaluation is None:
            return [Order(agent, step, now, inbox, None)]
        if count is None:
            return [Ask(Order(agent, step, now, inbox, None))]
        return [self._timed(agent, count, inbox, now)]

    def _timed(self, agent: int, count: int, inbox: tuple[Inbound, ...], now: float) -> Order:
        assert self._evaluation is not None
        first = self.state.evaluated[agent]
        self.state.evaluated[agent] = first + count
        if count == 1:
            return Order(agent, self.state.step[agent], now, inbox, (self._evaluation(agent, first),))
        each = tuple([self._evaluation(agent, number) for number in range(first, first + count)])
        return Order(agent, self.state.step[agent], now, inbox, each)

    def _decided(self, event: Decided, now: float) -> list[Effect]:
        return [self._timed(event.agent, event.queries, (), now)]  # the agent has read its messages when it decided

    def _finished(self, event: Finished, now: float) -> list[Effect]:
        agent, report, step = event.agent, event.report, self.state.step[event.agent]
        assert report is not None, "the shell did not add the report"
        self.journal.append((now, "finished", agent, step, 0, ""))
        effects: list[Effect] = []
        speaks = self.algorithm.sends(step)
        if report.payload is not None:
            self.journal.append((now, "sent", agent, step, size(report.payload), ""))
            self.state.awaited.add((agent, step))
            effects.append((self._up(agent, step), Arrived(agent, agent, step, now, report.payload)))
        if agent not in self._targets or step >= self.problem.iterations:
            return effects + self._end(agent, step, now)
        if (self.exchange.waits and speaks) or (step > 0 and report.queries == 0):
            self.state.waiting.add(agent)
        else:
            effects += self._next(agent, now)
        if speaks and report.payload is None:
            effects += self._report(agent, step, now)
        return effects

    def _end(self, agent: int, step: int, now: float) -> list[Effect]:
        self.journal.append((now, "done", agent, step, 0, ""))
        if (agent, step) in self.state.awaited:  # it takes part until its last message has arrived
            self.state.leaving.add(agent)
            return []
        return self._close(self.exchange.leave(self.state.rounds, agent), now)

    def _next(self, agent: int, now: float) -> list[Effect]:
        step = self.state.step[agent] + 1
        absence = self._absence(agent, step)
        if not absence:
            return self._start(agent, step, now)
        self.journal.append((now, "absent", agent, step, 0, ""))
        self.state.away.add(agent)
        if not self.exchange.waits:
            return [(absence, Returned(agent))]
        # Under a barrier an absence costs this iteration, whatever the algorithm sends, so that budgets stay comparable.
        self.state.step[agent] = step
        if step >= self.problem.iterations:
            return self._end(agent, step, now)
        if not self.algorithm.sends(step):
            return [(absence, Returned(agent))]
        self.state.waiting.add(agent)  # it sits the round out, and the others do not wait for it
        return self._report(agent, step, now)

    def _returned(self, event: Returned, now: float) -> list[Effect]:
        agent = event.agent
        self.state.away.discard(agent)
        step = self.state.step[agent] + (0 if self.exchange.waits else 1)
        self.journal.append((now, "returned", agent, step, 0, ""))
        return self._next(agent, now) if self.exchange.waits else self._start(agent, step, now)

    def _arrived(self, event: Arrived, now: float) -> list[Effect]:
        source, sender, step, sent, payload = event
        state, wrong = self.state, self._refusal(event)
        if wrong:
            self.journal.append((now, "rejected", source, step, 0, wrong))
        else:
            state.seen.add((sender, step))
            state.server = self.algorithm.receive(state.server, Inbound(sender, step, sent, payload), now)
            self.journal.append((now, "arrived", sender, step, self._up_bytes, ""))
        if (source, step) not in state.awaited:
            return []
        state.awaited.discard((source, step))
        if source in state.leaving:
            state.leaving.discard(source)
            return self._close(self.exchange.leave(state.rounds, source), now)
        return self._report(source, step, now)

    def _refusal(self, message: Arrived) -> str | None:
        if message.sender != message.source:
            return f"sent by agent {message.source} in the name of agent {message.sender}"
        if not 0 <= message.sender < self.problem.n_agents:
            return f"there is no agent {message.sender}"
        if self.upload is None:
            return "this algorithm declares no messages"
        if (message.sender, message.step) in self.state.seen:
            return "duplicate: this message has already taken effect"
        return fault(message.payload, self.upload)

    def _report(self, agent: int, step: int, now: float) -> list[Effect]:
        return self._close(self.exchange.report(self.state.rounds, agent, step), now)

    def _close(self, rounds: Iterable[tuple[int, list[int]]], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for number, recipients in rounds:
            effects += self._answer(number, recipients, now)
        return effects

    def _answer(self, number: int, recipients: list[int], now: float) -> list[Effect]:
        state = self.state
        payloads, state.server = self.algorithm.broadcast(state.server, recipients, self.streams.at(number))
        if self.exchange.waits:
            self.journal.append((now, "round", COORDINATOR, number, len(payloads) * self._down_bytes, ""))
        effects: list[Effect] = []
        for agent in recipients:
            payload = payloads.get(agent)
            if payload is not None:
                wrong = "no answers are declared" if self.download is None else fault(payload, self.download)
                if wrong:
                    raise ProtocolError(f"the answer to agent {agent} is not as declared: {wrong}")
                answer = Delivered(agent, Inbound(COORDINATOR, number, now, payload))
            elif self.exchange.waits:
                answer = Delivered(agent, None)
            else:
                continue
            effects.append((self._down(agent, number), answer))
        return effects

    def _delivered(self, event: Delivered, now: float) -> list[Effect]:
        agent, state = event.agent, self.state
        if event.inbound is not None:
            state.inbox[agent].append(event.inbound)
            self.journal.append((now, "delivered", agent, event.inbound.step, self._down_bytes, ""))
        if agent not in state.waiting:
            return []
        state.waiting.discard(agent)
        if agent in state.away:
            state.away.discard(agent)
            self.journal.append((now, "returned", agent, state.step[agent], 0, ""))
        return self._next(agent, now)


class ProtocolError(RuntimeError):
    """An algorithm broke its own declaration, or left an agent waiting."""
