"""Agents as processes: their steps, the messages that follow, and the absences between two steps."""

from __future__ import annotations

import math

from fedbo.actors.task import StepReport
from fedbo.algorithms.base import Payload
from fedbo.algorithms.messages import DUMMY
from fedbo.coordinator.environment.availability import absences, never_before_steps
from fedbo.coordinator.environment.lies import Lies, SentMessage
from fedbo.coordinator.errors import ProtocolError
from fedbo.coordinator.kernel.events import After, AgentAvailable, Commit, Effect, Finished, Message
from fedbo.coordinator.kernel.network import Network
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.server import Server
from fedbo.coordinator.kernel.state import AgentRecord, AgentStep, CoreState
from fedbo.coordinator.kernel.step_scheduler import StepScheduler
from fedbo.coordinator.logged.agents import AgentAbsent, AgentDone, AgentReturned, EvaluationFailed, StepFinished
from fedbo.coordinator.logged.kinds import make
from fedbo.coordinator.logged.messages import MessageFalsified, ReportDiscarded


class AgentProcesses:
    """The agent processes: process finished steps, send messages, and start the next step or wait."""

    def __init__(self, rules: Rules, network: Network, server: Server, scheduler: StepScheduler) -> None:
        self._rules, self._network, self._server, self._scheduler = rules, network, server, scheduler
        self._absence = absences(lambda agent: rules.environment.of(agent).availability, rules.task.streams)
        self._always_there = all(never_before_steps(models.availability) for models in rules.environment.groups())
        self._synchronous, self._real_time = rules.is_synchronous, rules.environment.is_real_time
        self._evaluations = scheduler.evaluations
        self._sends, self._log, self._targets = rules.algorithm.sends, rules.log, rules.targets
        self._iterations, self._budget_of = rules.problem.iterations, rules.task.budget_of
        self._checkpoint, self._idles, self._cost = rules.task.checkpoint, rules.idles, rules.task.cost
        self._lies = Lies(rules.environment.plan, rules.upload, rules.task.streams)
        self._receipt = rules.receipt

    @property
    def is_plain(self) -> bool:
        """Check whether agents go from step to step until their number is reached."""
        is_limited = self._rules.task.early_end is not None or self._cost < math.inf
        return self._always_there and not is_limited

    def request_step(self, state: CoreState, agent: AgentRecord, step: int, now: float) -> list[Effect]:
        """Begin a step as soon as nothing interrupts the agent."""
        state.progress.note(now)
        agent.step = step
        if agent.interruptions:
            agent.ready = True
            return []
        return self._scheduler.begin(state, agent, now)

    def finished(self, state: CoreState, event: Finished, now: float) -> list[Effect]:
        """Process the end of a step."""
        number, report = event.agent, event.report
        assert report is not None, "the shell did not add the report"
        agent = state.agents[number]
        step = agent.current
        if agent.lease != event.lease or step is None:
            self._log.append(ReportDiscarded(now, agent.number, report.step))
            return []
        is_over, effects = self._evaluations.taken(state, agent, report, now)
        if not is_over:
            return effects
        if report.retried and not self._real_time and step.report is None:
            return self._scheduler.retry(agent, report, now)
        declared = len(step.segments) - 1 - len(report.retried)
        if not self._real_time and report.queries != declared:
            words = f"requested {report.queries} points in step {report.step}, but declares {declared}"
            raise ProtocolError(f"agent {number} {words}")
        state.progress.note(now)
        self._end_step(state, agent, step, report, now)
        times = () if self._real_time else self._evaluations.times(agent, step, now)
        if report.spent or times and self._cost < math.inf:
            agent.spent = report.spent or agent.spent + times[-1] - times[0]
        return [Commit(number, times), *effects, *self._send(state, agent, report, step.speaks, now)]

    def _end_step(self, state: CoreState, agent: AgentRecord, step: AgentStep, report: StepReport, now: float) -> None:
        """Record the result of a step."""
        self._note_early_end(state, agent, report)
        agent.current = None
        if agent.faults is not None:
            agent.faults.needs_restore = False
        agent.last_duration = now - step.begun
        agent.t_n, agent.pulled = report.t_n, report.pulled
        number = report.step
        if number % self._checkpoint == 0:
            agent.saved_t_n = report.t_n
            self._evaluations.save(agent)
        if number > agent.step:  # it went on while the coordinator's snapshot grew old
            agent.step = number
        for words in report.failed:
            self._log.append(EvaluationFailed(now, agent.number, number, words))
        self._log.append(make(StepFinished, (now, agent.number, number)))

    def _note_early_end(self, state: CoreState, agent: AgentRecord, report: StepReport) -> None:
        """Record whether the study ends with this step, because it reached its target or its number of evaluations."""
        progress, end = state.progress, self._rules.task.early_end
        progress.is_enough |= report.reached
        if end is not None and end.evaluations is not None:
            progress.evaluations += report.t_n - agent.t_n
            progress.is_enough |= progress.evaluations >= end.evaluations

    def _send(self, state: CoreState, agent: AgentRecord, report: StepReport, asked: bool, now: float) -> list[Effect]:
        """Send the message of a finished step, then advance the agent or wait."""
        number, payload = agent.step, report.payload
        effects: list[Effect] = []
        sends = self._sends(number)
        if payload is None and sends and self._rules.sends_dummies:
            payload = DUMMY
        if payload is not None:
            told = self._told(state, agent, payload, now) if self._lies.are_told else payload
            message = Message(agent.number, agent.number, number, agent.base, now, payload=told)
            agent.unacknowledged[number] = message
            if self._receipt.notes_sent:
                self._receipt.sent(state, agent.number, payload, now)
            effects = self._network.send_up(state, message, now)
        if agent.number not in self._targets or self.is_last(state, agent, number):
            return effects + self._end(state, agent, now)
        is_empty = number > 0 and report.queries == 0
        if is_empty and not self._synchronous and agent.inbox:
            return effects + self.advance(state, agent, now)  # what it began to wait for has come meanwhile
        waits = (self._rules.rests and sends) or is_empty
        if waits:
            state.rounds.waiting[agent.number] = None
        else:
            effects += self.advance(state, agent, now)
        reports_later = not self._synchronous and bool(agent.unacknowledged)  # as that message arrives
        if sends and payload is None and (asked or waits) and not reports_later:
            effects += self._server.report(state, agent, False, now)
        return effects

    def _told(self, state: CoreState, agent: AgentRecord, payload: Payload, now: float) -> Payload:
        """Return the message that an agent sends, which a lie may have falsified."""
        if not payload:
            return payload  # a dummy says nothing
        number, step = agent.number, agent.step
        told, lies = self._lies.falsified(SentMessage(number, step, payload), state.copied, now)
        if lies:
            copied = state.copied if "copy" in lies else None
            line = MessageFalsified(now, number, step, lies)
            self._log.append(line if copied is None else line._replace(copied_agent=copied.sender, copied_step=copied.step))
        if self._lies.may_be_copied(number):
            state.copied = SentMessage(number, step, told)
        return told

    def is_last(self, state: CoreState, agent: AgentRecord, step: int) -> bool:
        """Check whether an agent's budget ends with this step.

        Where the budget counts evaluations, a step may also be spent waiting. The limit of twice as many steps ends futile
        waiting.
        """
        if agent.spent >= self._cost or (self._idles and state.rounds.number >= self._iterations):
            return True
        _, iterations, pulls = self._budget_of(agent.number)
        if pulls:
            return agent.pulled >= pulls or step >= 2 * pulls
        return step >= iterations

    def _end(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """End an agent's work; it takes part until its last message has arrived."""
        self._log.append(AgentDone(now, agent.number, agent.step))
        agent.ended = True
        effects = self._evaluations.give_up(state, agent, now)
        return effects if agent.unacknowledged else effects + self._server.leave(state, agent, now)

    def advance(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Advance an agent to its next step, or make it absent before that step."""
        if not agent.lease:  # the first step that it is asked for
            return self.request_step(state, agent, 0, now)
        step = agent.step + 1
        absence = 0.0 if self._always_there else self._absence(agent.number, step)
        if not absence:
            return self.request_step(state, agent, step, now)
        self._log.append(AgentAbsent(now, agent.number, step))
        agent.absent = True
        if not self._synchronous:
            return [After(absence, AgentAvailable(agent.number))]
        # Under a barrier an absence costs this iteration, whatever the algorithm sends, so that budgets stay comparable.
        agent.step = step
        if self.is_last(state, agent, step):
            return self._end(state, agent, now)
        if not self._sends(step):
            return [After(absence, AgentAvailable(agent.number))]
        state.rounds.waiting[agent.number] = None  # it sits the round out, and the others do not wait for it
        return self._server.report(state, agent, False, now)

    def available(self, state: CoreState, event: AgentAvailable, now: float) -> list[Effect]:
        """Resume an agent that was absent before a step."""
        agent = state.agents[event.agent]
        if not agent.absent:
            return []  # lost for good meanwhile
        agent.absent = False
        step = agent.step + (0 if self._synchronous else 1)
        self._log.append(AgentReturned(now, agent.number, step))
        return self.advance(state, agent, now) if self._synchronous else self.request_step(state, agent, step, now)
