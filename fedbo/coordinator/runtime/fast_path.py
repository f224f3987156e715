"""The fast path of a run without interruptions: the state changes of an event, without intermediate effects.

Agents are always available, messages take one constant time and meet no fault, a step is one evaluation, and every message is
answered at once. Three events take this path: a step that ends, sends its message and is followed by the next; a message that
takes effect and is answered to its sender alone; and such an answer. They change the same state and the same queue as the parts
of the core would. All other events are left to the core: a failed evaluation, a message that is refused or overtakes
another, or an agent's last step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedbo.actors.hosts import Hosts
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound, LocallyPrivate, Waiting
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.core import Core
from fedbo.coordinator.environment.availability import leaves, never_before_steps
from fedbo.coordinator.events import After, Answer, AnswerReceived, Event, Finished, Message
from fedbo.coordinator.exchange import Immediate
from fedbo.coordinator.logged.agents import StepFinished, StepStarted
from fedbo.coordinator.logged.kinds import make
from fedbo.coordinator.logged.messages import AnswerDelivered, MessageArrived, MessageSent
from fedbo.coordinator.messages import LARGEST, checker, size, sizer
from fedbo.coordinator.runtime.event_queue import EventQueue


def has_fast_path(core: Core) -> bool:
    """Check whether a run qualifies for the fast path."""
    rules, durations = core.rules, core.scheduler.durations
    exchange, algorithm = rules.exchange, rules.algorithm
    return (
        not rules.environment.plan
        and core.scheduler.evaluations is None
        and rules.task.early_end is None
        and rules.task.cost == math.inf
        and core.network.is_plain
        and all(never_before_steps(models.availability) for models in rules.environment.groups())
        and not any(leaves(models.availability) for models in rules.environment.groups())
        and (type(exchange) is Immediate and exchange.staleness.is_constant and exchange.selection.who == "all")
        and (rules.aggregator is None and not isinstance(algorithm, LocallyPrivate | Waiting))
        and (rules.upload is not None and rules.download is not None)
        and (durations is not None and durations.plain and algorithm.queries == 1 and not rules.problem.pulls)
    )


class FastPath:
    """The fast path of a run that has one."""

    def __init__(self, core: Core, hosts: Hosts, queue: EventQueue) -> None:
        rules, durations, latency = core.rules, core.scheduler.durations, core.network.latency
        assert durations is not None and latency is not None and rules.upload is not None and rules.download is not None
        self._state, self._server, self._hosts, self._queue, self._log = core.state, core.server, hosts, queue, rules.log
        self._durations, self._latency, self._streams = durations, latency, rules.streams.of(COORDINATOR)
        algorithm = rules.algorithm
        self._sends, self._receive, self._broadcast = algorithm.sends, algorithm.receive, algorithm.broadcast
        self._wrong, self._bytes = checker(rules.upload, LARGEST), sizer(rules.upload)
        self._wrong_answer, self._answer_bytes = checker(rules.download), sizer(rules.download)
        self._ones = np.ones(rules.problem.n_agents)
        self._targets, self._iterations, self._checkpoint = rules.targets, rules.problem.iterations, rules.task.checkpoint
        self._own = {agent: budget.iterations for agent, budget in rules.task.budgets.items()}

    def take(self, event: Event | Message | Answer, report: StepReport | None, now: float) -> bool:
        """Process an event, with the report of a finished step; return False, with nothing changed, to leave it to the core."""
        if report is not None:
            return self._finished(report, now)
        if type(event) is Message:
            return self._received(event, now)
        return type(event) is Answer and self._delivered(event, now)

    def _finished(self, report: StepReport, now: float) -> bool:
        """Record the result of a step, send its message, and begin the next step."""
        number: Any = report.agent  # one object in all that it is written to, also where this is compiled
        ended: Any = report.step
        payload, t_n = report.payload, report.t_n
        state, log, queue = self._state, self._log, self._queue
        moment: Any = now
        agent = state.agents[number]
        step = agent.current
        last = self._own.get(number, self._iterations) if self._own else self._iterations
        is_plain = report.queries == 1 and not (report.retried or report.failed or report.spent)
        if not is_plain or not 0 < ended < last or (payload is None and self._sends(ended)):
            return False
        if step is None or ended != agent.step or number not in self._targets:
            return False
        state.progress.events += 1
        state.progress.note(now)
        agent.last_duration, agent.t_n, agent.pulled = now - step.begun, t_n, report.pulled
        if ended % self._checkpoint == 0:
            agent.saved_t_n = t_n
        log.append(make(StepFinished, (moment, number, ended)))
        message = None
        if payload is not None:
            message = Message(number, number, ended, agent.base, moment, payload=payload)
            agent.unacknowledged[ended] = message
            if bytes_ := size(payload):
                log.append(make(MessageSent, (moment, number, ended, bytes_, False)))
        inbox = tuple(agent.inbox)
        agent.inbox.clear()
        following: Any = ended + 1
        lease: Any = agent.lease + 1
        agent.step, agent.base, agent.lease = following, state.rounds.age, lease
        log.append(make(StepStarted, (moment, number, following, False)))
        # One record stands for all steps of an agent here: what is not set is as in a new one.
        begun, step.begun, step.inbox, step.speaks = step.begun, now, inbox, self._sends(following)
        step.order = order = StepRequest(number, following, lease, inbox, step.speaks)
        length = self._durations.of(number, agent.next_evaluation)
        agent.next_evaluation += 1
        step.segments, step.remaining, step.since = (0.0, length), length, now
        self._hosts.commit(number, (begun, moment))
        if message is not None:
            queue.send(now + self._latency, message)
        self._hosts.submit(order)
        queue.push(now + length, Finished(number, lease))
        return True

    def _received(self, message: Message, now: float) -> bool:
        """Accept a message, and answer its sender."""
        number: Any = message.sender
        step: Any = message.step
        base, payload = message.base, message.payload
        state = self._state
        agent, rounds = state.agents[number], state.rounds
        accepted = agent.steps_accepted
        if message.claimed_sender != number or agent.ended:
            return False
        if step not in agent.unacknowledged or (accepted and step <= accepted[-1]):
            return False
        if rounds.waiting or rounds.buffer or self._wrong(payload):
            return False
        state.progress.events += 1
        state.progress.note(now)
        accepted.append(step)
        state.server = self._receive(state.server, Inbound(number, step, message.sent, payload), now)
        agent.newest_base = base
        stale = (rounds.age - base) // len(self._targets)
        self._log.append(make(MessageArrived, (now, number, step, self._bytes(payload), stale)))
        del agent.unacknowledged[step]
        agent.unheard = False
        streams = self._streams.at(rounds.number)
        payloads, state.server = self._broadcast(state.server, [number], self._ones, streams)
        answer = payloads.get(number)
        if len(payloads) != 1 or answer is None or self._wrong_answer(answer):
            for effect in self._server.reply(state, [number], payloads, now):
                assert isinstance(effect, After) and isinstance(effect.event, AnswerReceived)
                self._queue.send(now + effect.delay, effect.event.answer)
            return True
        inbound = Inbound(COORDINATOR, rounds.number, now, answer)
        reply = Answer(number, inbound, rounds.number)
        rounds.close(now, by=1)
        self._queue.send(now + self._latency, reply)
        return True

    def _delivered(self, answer: Answer, now: float) -> bool:
        """Deliver an answer to an agent, for its next step."""
        number: Any = answer.agent
        place: Any = answer.number
        inbound = answer.inbound
        agent = self._state.agents[number]
        received = agent.received_answers
        if agent.ended or inbound is None or (received and place <= received[-1]) or self._state.rounds.waiting:
            return False
        self._state.progress.events += 1
        received.append(place)
        agent.inbox.append(inbound)
        self._log.append(make(AnswerDelivered, (now, number, place, self._answer_bytes(inbound.payload))))
        return True
