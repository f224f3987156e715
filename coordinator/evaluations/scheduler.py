"""The scheduler of evaluations one by one: when each begins and ends, and when a step is over with what has ended.

An agent has up to `parallel` evaluations under way; others that it has decided on wait, in their order. Each has a duration of
its own, drawn by its number. A step is over as soon as fewer are pending than may be (`Task.least_pending`); the agent is told
then what has ended, in that order, and learns from it. What the agent finds to have failed is begun again, if it may be.

Whatever interrupts or slows the agent holds for its evaluations too. What makes it begin its step again makes it begin all
evaluations again that are under way, but for those that it has forgotten in a crash.
"""

from __future__ import annotations

import math

from fedbo.actors.task import DecisionSize, EvaluationEnd, StepReport, Task
from fedbo.coordinator.environment.durations import Evaluations, StepDurations
from fedbo.coordinator.evaluations.pending import DECISION, AgentEvaluations, EvaluationRequest, PendingEvaluation
from fedbo.coordinator.events import After, Effect, EvaluationEnded, Finished, StepDue, make
from fedbo.coordinator.state import AgentRecord, CoreState


class EvaluationScheduler:
    """The scheduler of a run in virtual time whose evaluations may overlap."""

    def __init__(self, task: Task, durations: StepDurations) -> None:
        self._task, self._durations, self._places = task, durations, task.policy.parallel
        self._limit = math.inf if task.policy.time_limit is None else task.policy.time_limit

    def decide(self, agent: AgentRecord, choice: DecisionSize, now: float) -> list[Effect]:
        """Begin a step with its decision, which may take time; then its evaluations are waiting."""
        step, number = agent.current, agent.step
        assert step is not None
        found = agent.evaluations = agent.evaluations or AgentEvaluations()
        found.forget(number)
        costs, pulls = choice.costs or (1.0,) * choice.queries, choice.pulls or (1,) * choice.queries
        asked = [EvaluationRequest(number, point, costs[point], pulls[point]) for point in range(choice.queries)]
        decided = [self._with_length(agent, one, again=step.timed) for one in asked]
        thought = self._durations.thought(agent.number, agent.t_n)
        step.begun, step.timed, step.segments = now, True, (thought, *(one.length for one in decided))
        found.pending, found.pulled = len(found.left(0)) + len(decided), agent.pulled + sum(pulls)
        if not thought:
            return self._queue(agent, found, decided, now)
        found.decided, found.deciding = decided, PendingEvaluation(EvaluationRequest(number, DECISION), thought)
        found.deciding.remaining = thought
        return self._run(agent, found, found.deciding, now)

    def _with_length(self, agent: AgentRecord, request: EvaluationRequest, again: bool) -> PendingEvaluation:
        """Draw the length of an evaluation."""
        if again:
            number, agent.next_repetition = agent.next_repetition, agent.next_repetition + 1
        else:
            number, agent.next_evaluation = agent.next_evaluation, agent.next_evaluation + 1
        (length,) = self._durations.lengths(agent.number, Evaluations(number, 1, again))
        return PendingEvaluation(request, length * request.cost)

    def _queue(self, agent: AgentRecord, found: AgentEvaluations, more: list[PendingEvaluation], now: float) -> list[Effect]:
        """Let evaluations wait for a place, and begin those that have one."""
        found.waiting.update((one.key, one) for one in more)
        return self._begin(agent, found, now) + self._due(agent, found)

    def _begin(self, agent: AgentRecord, found: AgentEvaluations, now: float) -> list[Effect]:
        """Begin what has waited longest, as long as there are places."""
        effects: list[Effect] = []
        while found.waiting and len(found.running) < self._places and not agent.interruptions:
            key = next(iter(found.waiting))
            one = found.running[key] = found.waiting.pop(key)
            one.started, one.in_time = now, one.length <= self._limit
            one.remaining = min(one.length, self._limit) * one.request.pulls
            effects += self._run(agent, found, one, now)
        return effects

    def _run(self, agent: AgentRecord, found: AgentEvaluations, one: PendingEvaluation, now: float) -> list[Effect]:
        """Let an evaluation go on from now at the agent's pace."""
        found.leases += 1
        one.since, one.lease = now, found.leases
        if agent.interruptions:
            return []
        step, point = one.key
        return [make(After, (one.remaining / agent.pace, make(EvaluationEnded, (agent.number, step, point, one.lease))))]

    def ended(self, state: CoreState, event: EvaluationEnded, now: float) -> list[Effect]:
        """Take in that an evaluation, or a decision, has ended."""
        number, step, point, lease = event
        agent = state.agents[number]
        found = agent.evaluations
        if found is None:
            return []
        one = found.deciding if point == DECISION else found.running.get((step, point))
        if one is None or one.lease != lease:
            return []
        state.progress.note(now)
        if point == DECISION:
            decided, found.deciding, found.decided = found.decided, None, []
            return self._queue(agent, found, decided, now)
        del found.running[step, point]
        one.finished = now
        found.ended.append(one)
        return self._begin(agent, found, now) + self._due(agent, found)

    def _due(self, agent: AgentRecord, found: AgentEvaluations) -> list[Effect]:
        """Ask the agent, once all that ends now has, whether its step is over; only it knows which evaluations failed."""
        step = agent.current
        if step is None or not step.segments or agent.interruptions or found.deciding is not None or found.asked is not None:
            return []
        # At least one of those that it has not been told of may have succeeded.
        t_n = agent.t_n + (len(found.ended) > found.heard)
        pending = len(found.running) + len(found.waiting)
        if pending >= self._task.least_pending(agent.step, found.pending, t_n, found.pulled):
            return []
        found.asked = len(found.ended)
        return [make(After, (0.0, make(StepDue, (agent.number, agent.lease))))]

    def due(self, state: CoreState, event: StepDue, now: float) -> list[Effect]:
        """Tell an agent what has ended."""
        agent = state.agents[event.agent]
        step, found = agent.current, agent.evaluations
        if event.lease != agent.lease or step is None or step.order is None or found is None:
            return []
        found.asked = len(found.ended)
        ended = tuple([EvaluationEnd(*one.key, one.started, one.finished, one.in_time) for one in found.ended])
        agent.lease += 1
        step.order = step.order._replace(lease=agent.lease, ended=ended)
        return [step.order, make(After, (0.0, make(Finished, (agent.number, agent.lease, None))))]

    def taken(self, agent: AgentRecord, report: StepReport, now: float) -> tuple[bool, list[Effect]]:
        """Begin again what an agent found to have failed; say whether its step is over, and what follows."""
        found = agent.evaluations
        assert found is not None and found.asked is not None
        told, found.asked = found.asked, None
        known = {one.key: one.request for one in found.ended[:told]}
        since = {one.key for one in found.ended[told:]}
        failed = [key for key in report.again if key not in found.running and key not in found.waiting and key not in since]
        again = [self._with_length(agent, known[key], again=True) for key in failed]
        found.waiting.update((one.key, one) for one in again)
        effects = self._begin(agent, found, now)
        if len(found.left(told)) < self._task.least_pending(agent.step, found.pending, report.t_n, found.pulled):
            found.ended, found.heard = found.ended[told:], 0
            return True, effects
        found.heard = told
        return False, effects + self._due(agent, found)

    def save(self, agent: AgentRecord) -> None:
        """Note what is pending at an agent's checkpoint."""
        if agent.evaluations is not None:
            agent.evaluations.saved = tuple(agent.evaluations.left(0))

    def pause(self, agent: AgentRecord, now: float) -> None:
        """Let all that is under way stand still."""
        if (found := agent.evaluations) is not None:
            found.asked = None
            for one in found.begun():
                one.remaining, one.lease = max(0.0, one.remaining - (now - one.since) * agent.pace), 0

    def cancel(self, agent: AgentRecord) -> None:
        """Let all that is under way begin again; an agent that forgets in a crash knows what was pending at its checkpoint."""
        found = agent.evaluations
        if found is None:
            return
        again, waiting = [one.request for one in found.running.values()], found.waiting
        if agent.needs_restore:
            again, waiting, found.ended = list(found.saved), {}, []
        found.running, found.waiting = {}, {}
        found.forget(agent.step if agent.current is not None else DECISION)
        again = [one for one in again if agent.current is None or one.step != agent.step]
        found.waiting = {one.key: one for one in (self._with_length(agent, each, again=True) for each in again)}
        found.waiting |= {key: one for key, one in waiting.items() if agent.current is None or key[0] != agent.step}

    def resume(self, agent: AgentRecord, now: float) -> list[Effect]:
        """Let all go on that stood still."""
        found = agent.evaluations
        if found is None:
            return []
        effects = [effect for one in found.begun() for effect in self._run(agent, found, one, now)]
        return effects + self._begin(agent, found, now) + self._due(agent, found)

    def set_pace(self, agent: AgentRecord, before: float, now: float) -> list[Effect]:
        """Let all that is under way go on at another pace than `before`."""
        found = agent.evaluations
        if found is None or agent.interruptions:
            return []
        for one in found.begun():
            one.remaining = max(0.0, one.remaining - (now - one.since) * before)
        return [effect for one in found.begun() for effect in self._run(agent, found, one, now)]
