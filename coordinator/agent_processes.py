"""The steps of agents between coordinator and agent: begun, decided, finished, followed by the next one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedbo.actors.task import DecisionSize, StepReport, StepRequest, Task
from fedbo.coordinator.environment.availability import absences
from fedbo.coordinator.environment.durations import Evaluations, Lengths
from fedbo.coordinator.events import (
    AgentAvailable,
    Ask,
    Commit,
    DecisionMade,
    Effect,
    Event,
    Finished,
    MessageReceived,
    StudyStarted,
)
from fedbo.coordinator.state import AgentStep, ProtocolError

if TYPE_CHECKING:
    from fedbo.coordinator.core import Core


class AgentProcesses:
    """The agent processes: gives agents their steps, says how long these take, and takes in what came of them."""

    def __init__(self, core: Core, task: Task) -> None:
        self._core = core
        self._absence = absences(lambda agent: core.world.of(agent).availability, task.streams)
        self._lengths = None if core.world.real else Lengths(core.world, task.streams, task.policy)

    def began(self, event: StudyStarted, now: float) -> list[Effect]:
        """Let the study begin."""
        everybody = self._core.upload is not None and self._core.algorithm.sends(0)
        present = list(range(self._core.problem.n_agents)) if everybody else sorted(self._core.targets)
        self._core.state.rounds.active.update(present)
        effects = self._core.trouble.begin(present, now)
        effects += self._core.desk.open(present, now)
        return effects + [effect for agent in present for effect in self._enter(agent, 0, now)]

    def _enter(self, agent: int, step: int, now: float) -> list[Effect]:
        """Begin a step, as soon as nothing keeps the agent from it."""
        self._core.state.advance(now)
        self._core.state.step[agent] = step
        if self._core.state.blocked[agent]:
            self._core.state.ready.add(agent)
            return []
        return self.start(agent, now)

    def start(self, agent: int, now: float) -> list[Effect]:
        """Begin an agent's step now."""
        state = self._core.state
        number = state.step[agent]
        inbox, state.inbox[agent] = tuple(state.inbox[agent]), []
        state.base[agent] = state.rounds.age
        self._core.journal.append((now, "started", agent, number, 0, ""))
        state.steps[agent] = AgentStep(inbox, self._speaks(agent, number), now)
        self._core.desk.expect(agent)
        return self.issue(agent, now)

    def _speaks(self, agent: int, number: int) -> bool:
        if not self._core.algorithm.sends(number):
            return False
        if self._core.exchange.waits:
            return agent in self._core.state.asked
        if self._core.door is not None:
            return not self._core.state.door.closed
        selection = self._core.exchange.selection
        return selection.who == "all" or selection.of_step(self._core.streams.of(agent).at(number))

    def issue(self, agent: int, now: float, restore: str = "") -> list[Effect]:
        """Give an agent its step to do; `restore` says what it shall forget before."""
        state = self._core.state
        step, number = state.steps[agent], state.step[agent]
        state.lease[agent] += 1
        if agent in state.forgetful:  # until a step is over: an order that is replaced may never have been read
            restore = "checkpoint"
        priced = self._lengths is not None and self._lengths.needs_costs(agent)
        step.order = order = StepRequest(agent, number, state.lease[agent], step.inbox, step.speaks, restore, priced=priced)
        if self._lengths is None:
            return [order]
        count: int | None = self._core.algorithm.queries
        if number == 0:
            count = self._core.problem.initial if agent in self._core.targets else 0
        if count is None or priced:
            return [Ask(order)]
        if self._core.problem.pulls:
            count = min(count, self._core.problem.pulls - state.pulled[agent])
        return self._timed(order, DecisionSize(count), now)

    def decided(self, event: DecisionMade, now: float) -> list[Effect]:
        """Take in how many points an agent chose, and how often each is evaluated."""
        agent, state = event.agent, self._core.state
        if event.lease != state.lease[agent] or agent not in state.steps:
            return []
        order = state.steps[agent].order
        assert order is not None and self._lengths is not None
        choice = event.choice if self._lengths.needs_costs(agent) else event.choice._replace(costs=None)
        return self._timed(order._replace(restore="", costs=choice.costs), choice, now)

    def _timed(self, order: StepRequest, choice: DecisionSize, now: float) -> list[Effect]:
        """Fix how long a step takes, from its decision on."""
        assert self._lengths is not None
        agent, state = order.agent, self._core.state
        step = state.steps[agent]
        evaluations = self._count(agent, choice.queries, again=step.timed)._replace(pulls=choice.pulls)
        step.begun = step.since = now
        step.timed, step.costs, step.pulls, step.trail = True, choice.costs, choice.pulls, None
        step.parts = self._lengths.parts(agent, evaluations, state.t_n[agent], choice.costs)
        step.left = sum(step.parts)
        if self._lengths.limited:
            order = order._replace(tries=self._lengths.tries(agent, evaluations, state.again[agent]))
        step.order = order
        if state.blocked[agent]:
            step.set_pace(now, 0.0, 0.0)
            return [order]
        if state.pace[agent] != 1.0:
            step.set_pace(now, state.pace[agent], state.pace[agent])
        return [order, self.timer(agent)]

    def _count(self, agent: int, count: int, again: bool) -> Evaluations:
        """Take the numbers of some evaluations."""
        numbers = self._core.state.again if again else self._core.state.evaluated
        first, numbers[agent] = numbers[agent], numbers[agent] + count
        return Evaluations(first, count, again)

    def timer(self, agent: int) -> tuple[float, Event]:
        """Give the end of an agent's step at its present pace."""
        step = self._core.state.steps[agent]
        return step.left / self._core.state.pace[agent], Finished(agent, self._core.state.lease[agent], step.report)

    def finished(self, event: Finished, now: float) -> list[Effect]:
        """Take in that a step is over."""
        agent, report, state = event.agent, event.report, self._core.state
        assert report is not None, "the shell did not add the report"
        if not self._core.current(event):
            self._core.journal.append((now, "discarded", agent, report.step, 0, "its lease had expired"))
            return []
        step = state.steps[agent]
        if report.retried and self._lengths is not None and step.report is None:
            return self._retrying(agent, report, now)
        declared = len(step.parts) - 1 - len(report.retried)
        if self._lengths is not None and report.queries != declared:
            words = f"asked for {report.queries} points in step {report.step}, declared are {declared}"
            raise ProtocolError(f"agent {agent} {words}")
        del state.steps[agent]
        state.advance(now)
        state.forgetful.discard(agent)
        state.lasted[agent] = now - step.begun
        state.t_n[agent], state.pulled[agent] = report.t_n, report.pulled
        if report.step % self._core.checkpoint == 0:
            state.saved_t_n[agent] = report.t_n
        if report.step > state.step[agent]:  # it went on while the coordinator's snapshot grew old
            state.step[agent] = report.step
        self._core.journal.extend((now, "failed", agent, report.step, 0, words) for words in report.failed)
        self._core.journal.append((now, "finished", agent, report.step, 0, ""))
        times = () if self._lengths is None else step.times(now)
        return [Commit(agent, times), *self._speak(agent, report, step.speaks, now)]

    def _retrying(self, agent: int, report: StepReport, now: float) -> list[Effect]:
        """Let the evaluations that were tried again take their time, after all others."""
        assert self._lengths is not None
        state, step = self._core.state, self._core.state.steps[agent]
        costs = None if step.costs is None else tuple(step.costs[point] for point in report.retried)
        pulls = None if step.pulls is None else tuple(step.pulls[point] for point in report.retried)
        evaluations = self._count(agent, len(report.retried), again=True)._replace(pulls=pulls)
        more = self._lengths.parts(agent, evaluations, 0, costs)[1:]
        step.parts += more
        step.left, step.since, step.report = sum(more), now, report
        if step.trail is not None:
            step.trail.append((now, sum(step.parts) - step.left, state.pace[agent]))
        state.lease[agent] += 1
        return [self.timer(agent)]

    def _speak(self, agent: int, report: StepReport, asked: bool, now: float) -> list[Effect]:
        """Send what a finished step has to say, and go on or wait."""
        state, effects, number = self._core.state, [], self._core.state.step[agent]
        if report.payload is None and self._core.desk.covers and self._core.algorithm.sends(number):
            report = report._replace(payload={})
        if report.payload is not None:
            message = MessageReceived(agent, agent, number, state.base[agent], now, report.payload)
            state.awaited[agent, number] = message
            self._core.disclose(agent, report.payload, now)
            effects += self._core.network.up(message, state, now)
        if agent not in self._core.targets or self._is_last(agent, number):
            return effects + self._end(agent, now)
        sends = self._core.algorithm.sends(number)
        if number > 0 and report.queries == 0 and not self._core.exchange.waits and state.inbox[agent]:
            return effects + self.next(agent, now)  # what it began to wait for has come meanwhile
        if (self._core.exchange.waits and sends) or (number > 0 and report.queries == 0):
            state.waiting[agent] = math.inf
        else:
            effects += self.next(agent, now)
        if sends and report.payload is None and (asked or agent in state.waiting) and not self._is_heard_later(agent):
            effects += self._core.desk.report(agent, False, now)
        return effects

    def _is_heard_later(self, agent: int) -> bool:
        """Say whether a message of an agent is under way without rounds: what becomes of it says all that the agent could."""
        return not self._core.exchange.waits and any(sender == agent for sender, _ in self._core.state.awaited)

    def _is_last(self, agent: int, step: int) -> bool:
        """Say whether an agent's budget ends with this step.

        Where it counts evaluations, a step may also be spent waiting; twice as many steps are the end of waiting in vain.
        """
        problem = self._core.problem
        if problem.pulls:
            return self._core.state.pulled[agent] >= problem.pulls or step >= 2 * problem.pulls
        return step >= problem.iterations

    def _end(self, agent: int, now: float) -> list[Effect]:
        state = self._core.state
        self._core.journal.append((now, "done", agent, state.step[agent], 0, ""))
        state.ended.add(agent)
        if (agent, state.step[agent]) in state.awaited:  # it takes part until its last message has arrived
            state.leaving.add(agent)
            return []
        return self._core.desk.leave(agent, now)

    def next(self, agent: int, now: float) -> list[Effect]:
        """Let an agent go on to its next step, or be absent before it."""
        state = self._core.state
        step = state.step[agent] + 1
        absence = self._absence(agent, step)
        if not absence:
            return self._enter(agent, step, now)
        self._core.journal.append((now, "absent", agent, step, 0, ""))
        state.away.add(agent)
        if not self._core.exchange.waits:
            return [(absence, AgentAvailable(agent))]
        # Under a barrier an absence costs this iteration, whatever the algorithm sends, so that budgets stay comparable.
        state.step[agent] = step
        if self._is_last(agent, step):
            return self._end(agent, now)
        if not self._core.algorithm.sends(step):
            return [(absence, AgentAvailable(agent))]
        state.waiting[agent] = math.inf  # it sits the round out, and the others do not wait for it
        return self._core.desk.report(agent, False, now)

    def returned(self, event: AgentAvailable, now: float) -> list[Effect]:
        """Let an agent go on that was absent before a step."""
        agent, state = event.agent, self._core.state
        if agent not in state.away:
            return []  # lost for good meanwhile
        state.away.discard(agent)
        step = state.step[agent] + (0 if self._core.exchange.waits else 1)
        self._core.journal.append((now, "returned", agent, step, 0, ""))
        return self.next(agent, now) if self._core.exchange.waits else self._enter(agent, step, now)
