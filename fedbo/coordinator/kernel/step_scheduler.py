"""The start of agents' steps: the requests to agents, their durations in virtual time, and how evaluations fill these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedbo.actors.task import DecisionSize, StepReport, StepRequest
from fedbo.coordinator.environment.durations import Evaluations, StepDurations
from fedbo.coordinator.kernel.events import After, Ask, DecisionMade, Effect, Event, Finished
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.server import Server
from fedbo.coordinator.kernel.state import AgentRecord, AgentStep, CoreState
from fedbo.coordinator.logged.agents import StepStarted
from fedbo.coordinator.logged.kinds import make
from fedbo.settings.records import changed
from fedbo.settings.sums import plain_sum

Handler = Callable[[CoreState, Any, float], list[Effect]]


class StepEvaluations:
    """Nothing beside the steps themselves: a step ends when its last evaluation does, and pauses with its agent.

    A subclass schedules evaluations `one_by_one`, so that they may overlap, wait for workers, or end early. Its `handlers` are
    those of its own events.
    """

    one_by_one = False
    is_plain = True

    def __init__(self, rules: Rules, durations: StepDurations | None) -> None:
        self.handlers: Mapping[type, Handler] = {}

    def start(self, state: CoreState) -> None:
        """Enter what is shared by all agents into the state before the first event."""

    def first_effects(self) -> list[Effect]:
        """Return the effects of the start of the study."""
        return []

    def time_of(self, event: Event) -> float | None:
        """Return when an event that is drawn is due; None for all other events."""
        return None

    def waiting(self, state: CoreState) -> list[int]:
        """List the agents of which evaluations wait for a worker."""
        return []

    def decide(self, state: CoreState, agent: AgentRecord, choice: DecisionSize, now: float) -> list[Effect]:
        """Schedule the evaluations of a step, one by one."""
        raise NotImplementedError

    def taken(self, state: CoreState, agent: AgentRecord, report: StepReport, now: float) -> tuple[bool, list[Effect]]:
        """Process the report of evaluations that were scheduled one by one; return whether the step is over, and effects."""
        return True, []

    def times(self, agent: AgentRecord, step: AgentStep, now: float) -> tuple[float, ...]:
        """Return the start of a step's first evaluation and the end of each; empty where the agent was given them."""
        return step.times(now)

    def save(self, agent: AgentRecord) -> None:
        """Note that the agent's last step is in its checkpoint."""

    def interrupt(self, state: CoreState, agent: AgentRecord, now: float, void: bool) -> list[Effect]:
        """Pause an agent's evaluations with its first interruption; those that are `void` begin again."""
        return []

    def resume(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Resume the paused evaluations of an agent."""
        return []

    def set_pace(self, agent: AgentRecord, before: float, now: float) -> list[Effect]:
        """Continue the evaluations of an agent at its new pace, where `before` is the old one."""
        return []

    def give_up(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Drop the evaluations of an agent that has ended."""
        return []


class StepScheduler:
    """The step scheduler: begins steps and, where time is virtual, schedules their ends."""

    def __init__(
        self, rules: Rules, server: Server, evaluations: Callable[[Rules, StepDurations | None], StepEvaluations]
    ) -> None:
        self._rules, self._server = rules, server
        task, problem = rules.task, rules.problem
        self._sends, self._log = rules.algorithm.sends, rules.log
        self._all_are_asked = not rules.is_synchronous and rules.receipt.asks_all
        self._queries, self._pulls, self._budget_of = rules.algorithm.queries, problem.pulls, task.budget_of
        self.durations = None if rules.environment.is_real_time else StepDurations(rules.environment, task.streams, task.policy)
        self.evaluations = evaluations(rules, self.durations)
        self._one_by_one = self.evaluations.one_by_one

    @property
    def is_plain(self) -> bool:
        """Check whether a step is one evaluation, and takes as long as that alone."""
        is_one = self._queries == 1 and not self._pulls
        return is_one and self.durations is not None and self.durations.plain

    def begin(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Begin an agent's step now."""
        inbox, agent.inbox = tuple(agent.inbox), []
        agent.base = state.rounds.number
        self._log.append(make(StepStarted, (now, agent.number, agent.step, False)))
        agent.current = AgentStep(inbox, self._shall_send(state, agent), now)
        if self._rules.is_synchronous:
            self._server.expect(state, agent)
        return self.dispatch(state, agent, now)

    def _shall_send(self, state: CoreState, agent: AgentRecord) -> bool:
        """Check whether an agent is asked for a message after its step."""
        if not self._sends(agent.step):
            return False
        if self._rules.is_synchronous:
            return agent.asked
        return self._all_are_asked or self._rules.receipt.asks(state, agent.number, agent.step)

    def dispatch(self, state: CoreState, agent: AgentRecord, now: float, restore: str = "") -> list[Effect]:
        """Request a step from an agent; `restore` names the state to restore first."""
        durations, step, number = self.durations, agent.current, agent.number
        assert step is not None
        agent.lease += 1
        if agent.needs_restore:  # until a step is over: an order that is replaced may never have been read
            restore = "checkpoint"
        elif durations is not None and durations.plain and not self._one_by_one:
            restore = ""  # a step that was done would be the same again
        priced = durations is not None and durations.costly and durations.needs_costs(number)
        ended = () if self._one_by_one else None
        step.order = order = StepRequest(number, agent.step, agent.lease, step.inbox, step.speaks)
        order.restore, order.priced, order.ended = restore, priced, ended
        if durations is None:
            return [order]
        count: int | None = self._queries
        if agent.step == 0:
            count = self._budget_of(number).initial if number in self._rules.targets else 0
        if count is None or priced:
            return [Ask(order)]
        if self._pulls:
            count = min(count, self._budget_of(number).pulls - agent.pulled)
        if count == 1 and durations.plain and not step.timed and ended is None:
            length = durations.of(number, agent.next_evaluation)
            agent.next_evaluation += 1
            step.segments, step.remaining = (0.0, length), length
            return self._fix(agent, step, now)
        return self._schedule(state, agent, order, DecisionSize(count), now)

    def decided(self, state: CoreState, event: DecisionMade, now: float) -> list[Effect]:
        """Process the number of points that an agent chose, and how often each is evaluated."""
        agent = state.agents[event.agent]
        if event.lease != agent.lease or agent.current is None:
            return []
        order = agent.current.order
        assert order is not None and self.durations is not None
        choice = event.choice if self.durations.needs_costs(agent.number) else event.choice._replace(costs=None)
        return self._schedule(state, agent, changed(order, restore="", costs=choice.costs), choice, now)

    def _schedule(
        self, state: CoreState, agent: AgentRecord, order: StepRequest, choice: DecisionSize, now: float
    ) -> list[Effect]:
        """Fix the duration of a step, from its decision on."""
        step, durations = agent.current, self.durations
        assert step is not None and durations is not None
        if self._one_by_one:
            step.order = order
            return [order, *self.evaluations.decide(state, agent, choice, now)]
        evaluations = _number(agent, choice.queries, again=step.timed, pulls=choice.pulls)
        step.costs, step.pulls = choice.costs, choice.pulls
        step.segments = durations.segments(agent.number, evaluations, agent.t_n, choice.costs)
        step.remaining = plain_sum(step.segments)
        if durations.limited:
            order = changed(order, tries=durations.evaluation_durations(agent.number, evaluations, agent.next_repetition))
        step.order = order
        return self._fix(agent, step, now)

    def _fix(self, agent: AgentRecord, step: AgentStep, now: float) -> list[Effect]:
        """Schedule the end of a step after its segments, from now on."""
        order = step.order
        assert order is not None
        step.begun = step.since = now
        step.timed, step.pace_history = True, None
        # An interrupted agent has no end yet: its step waits at pace 0, and its resumption schedules the end.
        if agent.interruptions:
            step.set_pace(now, 0.0, 0.0)
            return [order]
        if agent.pace != 1.0:
            step.set_pace(now, agent.pace, agent.pace)
        return [order, self.completion(agent)]

    def completion(self, agent: AgentRecord) -> After:
        """Return the end of an agent's step at its present pace."""
        step = agent.current
        assert step is not None
        return After(step.remaining / agent.pace, Finished(agent.number, agent.lease, step.report))

    def retry(self, agent: AgentRecord, report: StepReport, now: float) -> list[Effect]:
        """Add the time of retried evaluations, after all others."""
        step, durations = agent.current, self.durations
        assert step is not None and durations is not None
        costs = None if step.costs is None else tuple(step.costs[point] for point in report.retried)
        pulls = None if step.pulls is None else tuple(step.pulls[point] for point in report.retried)
        evaluations = _number(agent, len(report.retried), again=True, pulls=pulls)
        more = durations.segments(agent.number, evaluations, 0, costs)[1:]
        step.segments += more
        step.remaining, step.since, step.report = plain_sum(more), now, report
        if step.pace_history is not None:
            step.pace_history.append((now, plain_sum(step.segments) - step.remaining, agent.pace))
        agent.lease += 1
        return [self.completion(agent)]


def _number(agent: AgentRecord, count: int, again: bool, pulls: tuple[int, ...] | None) -> Evaluations:
    """Number some evaluations of an agent."""
    if again:
        first, agent.next_repetition = agent.next_repetition, agent.next_repetition + count
    else:
        first, agent.next_evaluation = agent.next_evaluation, agent.next_evaluation + count
    return Evaluations(first, count, again, pulls)
