"""The scheduler of individual evaluations: when each begins and ends, and when a step is over with those that have ended.

An agent runs up to `parallel` evaluations at once; the others that it has decided on wait, in their order. Each has a duration
of its own, drawn by its number. A step is over as soon as fewer are pending than allowed (`Task.least_pending`). The agent then
learns from the ended evaluations, in the order of their ends. Failed evaluations begin again, if retries remain.

Without a cluster, interruptions and slowness of the agent hold for its evaluations too. On a cluster an evaluation that has a
place of its agent waits for a worker, and runs there independently of the agent, unless the agent must begin its step again.
Then all running evaluations begin again, except those that the agent has forgotten in a crash.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedbo.actors.task import BudgetUse, DecisionSize, EvaluationEnd, RungVerdict, StepReport
from fedbo.coordinator.environment.durations import StepDurations
from fedbo.coordinator.kernel.events import (
    After,
    Effect,
    EvaluationEnded,
    Event,
    Finished,
    JobDue,
    PlacementDue,
    StepDue,
    WorkerPreempted,
    WorkerReturned,
    WorkersChanged,
)
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.state import AgentRecord, AgentStep, CoreState
from fedbo.coordinator.kernel.step_scheduler import Handler, StepEvaluations
from fedbo.coordinator.logged.agents import EvaluationPromoted, RungReached, Verdict
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.settings.records import changed
from fedbo.workers.copies import found_by, settle
from fedbo.workers.pending import DECISION, AgentEvaluations, EvaluationRequest, PendingEvaluation
from fedbo.workers.placement import WorkerPool
from fedbo.workers.running import RunningEvaluations, WorkerEvents


class RungVerdicts:
    """The verdicts of agents on their evaluations at rungs; each is a line of the event log."""

    def __init__(self, running: RunningEvaluations, log: list[EventLine]) -> None:
        self._running, self._log = running, log

    def carry_out(self, state: CoreState, agent: AgentRecord, report: StepReport, told: int, now: float) -> list[Effect]:
        """Carry out an agent's verdicts on the first `told` ends that have not been carried out yet, end by end."""
        found = agent.evaluations
        effects, said = list[Effect](), dict[int, list[RungVerdict]]()
        for verdict in report.verdicts:
            said.setdefault(verdict.end, []).append(verdict)
        for place in range(found.heard, told):
            one, verdicts = found.ended[place], said.get(place, [])
            what = next((verdict for verdict in verdicts if verdict.what != "promote"), None)
            effects += self._passed(state, agent, one, what, now)
            for verdict in verdicts:
                if verdict.what == "promote":
                    self._promote(agent, verdict, now)
        return effects

    def _passed(
        self, state: CoreState, agent: AgentRecord, one: PendingEvaluation, verdict: RungVerdict | None, now: float
    ) -> list[Effect]:
        """Continue an evaluation from its rung, or free its place."""
        found, (step, point) = agent.evaluations, one.key
        ended: Verdict = "end" if one.in_time and not one.held else "failed"
        what = ended if verdict is None or verdict.what == "promote" else verdict.what
        fidelity = one.request.fidelity if one.in_time else one.request.since  # its time limit cuts it off between two rungs
        self._log.append(RungReached(now, agent.number, step, query=point, fidelity=fidelity, verdict=what))
        if not one.held:
            return []
        if verdict is not None and verdict.what == "go":
            return self._running.go_on(state, agent, one, verdict.fidelity, now)
        if verdict is not None and verdict.what == "pause":
            found.paused[one.key] = one
        held = found.running.pop(one.key, None)
        return [] if held is None else self._running.release(state, [(agent.number, held)], now)

    def _promote(self, agent: AgentRecord, verdict: RungVerdict, now: float) -> None:
        """Queue a paused evaluation for a place to continue."""
        found = agent.evaluations
        one = found.paused.pop((verdict.step, verdict.point))
        request = one.request._replace(since=one.request.fidelity, fidelity=verdict.fidelity)
        found.waiting[one.key] = self._running.segment(request, one.length, resumed=True)
        self._log.append(EvaluationPromoted(now, agent.number, verdict.step, verdict.point, verdict.fidelity))


def evaluations_of(rules: Rules, durations: StepDurations | None) -> StepEvaluations:
    """Return the scheduler of single evaluations, if they may overlap, queue for workers or stop early in virtual time."""
    task = rules.task
    is_plain = rules.environment.cluster is None and task.policy.most_pending == 1 and task.stopping is None
    return StepEvaluations(rules, durations) if durations is None or is_plain else EvaluationScheduler(rules, durations)


class EvaluationScheduler(StepEvaluations):
    """The scheduler of a run in virtual time whose evaluations may overlap, or queue for the workers of a cluster."""

    one_by_one, is_plain = True, False

    def __init__(self, rules: Rules, durations: StepDurations) -> None:
        task, model = rules.task, rules.environment.cluster
        self._task, self._durations, self._stopping = task, durations, task.stopping
        policy = task.policy
        is_simple = policy.retries == 0 and policy.time_limit is None and task.cost == math.inf
        self._copies = model is not None and model.after < math.inf
        self._needs_ends = task.overlaps or task.stopping is not None or not is_simple or self._copies
        self._pool = None if model is None else WorkerPool(model)
        self.running = RunningEvaluations(task, durations, self._pool, rules.log)
        self._rungs = RungVerdicts(self.running, rules.log)
        handlers: dict[type, Handler] = {EvaluationEnded: self.ended, StepDue: self.due}
        self._workers = None
        if self._pool is not None:
            self._workers = workers = WorkerEvents(self.running, rules.environment.plan, task.streams, rules.log)
            handlers |= {WorkersChanged: workers.changed, WorkerPreempted: workers.preempted}
            handlers |= {WorkerReturned: workers.returned, PlacementDue: self.running.place, JobDue: self.running.load.due}
        self.handlers: Mapping[type, Handler] = handlers

    def start(self, state: CoreState) -> None:
        """Enter the workers of the cluster into the state."""
        if self._pool is not None:
            state.cluster = self._pool.fresh()
            self.running.load.enter(state.cluster, 0, 0.0)
            state.cluster.is_due = state.cluster.is_waited_for

    def first_effects(self) -> list[Effect]:
        """Schedule the first events of workers."""
        return [] if self._workers is None else self._workers.start()

    def time_of(self, event: Event) -> float | None:
        """Return when a worker is taken away; None for all other events."""
        return self._workers.time_of(event) if self._workers is not None and isinstance(event, WorkerPreempted) else None

    def waiting(self, state: CoreState) -> list[int]:
        """List the agents of which evaluations wait for a worker."""
        return [] if state.cluster is None else [number for number in state.cluster.queues if number >= 0]

    def decide(self, state: CoreState, agent: AgentRecord, choice: DecisionSize, now: float) -> list[Effect]:
        """Begin a step with its decision, which may take time; then queue its evaluations."""
        step, number = agent.current, agent.step
        assert step is not None
        found = agent.evaluations = agent.evaluations or AgentEvaluations()
        if step.timed:
            found.forget(number)
        found.heard, found.asked, found.paused_before = 0, None, dict(found.paused)
        if choice.queries == 1 and not self._needs_ends and step.order is not None:
            step.order.ended = None  # whenever its evaluation ends, the step is the same
        costs, pulls = choice.costs or (1.0,) * choice.queries, choice.pulls or (1,) * choice.queries
        asked = [EvaluationRequest(number, point, costs[point], pulls[point]) for point in range(choice.queries)]
        decided = [self.running.with_length(agent, self._first(agent, one), again=step.timed) for one in asked]
        thought = self._durations.thought(agent.number, agent.t_n)
        step.begun, step.timed, step.segments = now, True, (thought, *(one.length for one in decided))
        found.pending, found.pulled = found.count(0) + len(decided), agent.pulled + sum(pulls)
        found.spent = agent.spent
        if not thought:
            effects = self._queue(state, agent, decided, now)
            if step.order is not None and step.order.ended is not None:
                step.order.ended = self._foreseen(agent, found)
            return effects
        found.decided, found.deciding = decided, PendingEvaluation(EvaluationRequest(number, DECISION), thought)
        found.deciding.remaining = thought
        return self.running.run(agent, found.deciding, now)

    def _foreseen(self, agent: AgentRecord, found: AgentEvaluations) -> tuple[EvaluationEnd, ...]:
        """Return the ends with which a step that has just begun will be over, if nothing interrupts its agent.

        Its request is complete then when it is made. Where nobody knows yet, these are the ends so far.
        """
        pending, ends = len(found.running) + len(found.waiting), [_end(one) for one in found.ended]
        used = BudgetUse(found.pulled, found.spent)
        left = pending + 1 - self._task.least_pending(agent.number, agent.step, found.pending, agent.t_n + 1, used)
        left = max(left, 1) if not agent.t_n and not ends else left
        is_known = 0 < left <= len(found.running) and (left == 1 or not found.waiting)
        if is_known and self._pool is None and self._stopping is None:
            coming = [(one.since + one.remaining / agent.pace, one.lease, one) for one in found.running.values()]
            coming.sort(key=lambda each: each[:2])
            ends += [_end(one)._replace(finished=time) for time, _, one in coming if time <= coming[left - 1][0]]
        return tuple(ends)

    def _first(self, agent: AgentRecord, request: EvaluationRequest) -> EvaluationRequest:
        """Restrict a request to its first segment, where evaluations may stop early."""
        if self._stopping is None:
            return request
        span = self._stopping.first(self._task.streams.of(agent.number), request.step, request.point)
        return request._replace(since=0, fidelity=span.fidelity)

    def _queue(self, state: CoreState, agent: AgentRecord, more: list[PendingEvaluation], now: float) -> list[Effect]:
        """Queue evaluations for a place, and begin those that have one."""
        agent.evaluations.waiting.update((one.key, one) for one in more)
        return self.running.begin(state, agent, now) + self._due(agent)

    def ended(self, state: CoreState, event: EvaluationEnded, now: float) -> list[Effect]:
        """Process the end of an evaluation or a decision."""
        number, point = event.agent, event.point
        agent = state.agents[number]
        found = agent.evaluations
        if found is None:
            return []
        one = found.deciding if point == DECISION else found_by(found, (event.step, point))
        if one is None or one.lease != event.lease:
            return []
        if not state.progress.restarts:  # else it may be lost with its step, as it was before
            state.progress.note(now)
        if point == DECISION:
            decided, found.deciding, found.decided = found.decided, None, []
            return self._queue(state, agent, decided, now)
        one.finished, over = now, [one]
        if self._copies:
            one, over = settle(state.cluster, found, one)
        found.ended.append(one)
        if self._stopping is not None and one.in_time and one.request.fidelity < self._stopping.largest:
            self.running.hold(one, now)
            return self._due(agent)
        del found.running[one.key]
        effects = self.running.release(state, [(number, each) for each in over], now)
        return effects + self.running.begin(state, agent, now) + self._due(agent)

    def _due(self, agent: AgentRecord) -> list[Effect]:
        """Ask the agent whether its step is over, once per instant; only the agent knows which evaluations failed."""
        step, found = agent.current, agent.evaluations
        if step is None or not step.segments or agent.interruptions or found.deciding is not None or found.asked is not None:
            return []
        # At least one of those that it has not been told of may have succeeded.
        t_n = agent.t_n + (len(found.ended) > found.heard)
        pending = len(found.running) + len(found.waiting)
        unheard = found.ended[found.heard :]
        at_rung, spent = any([one.held for one in unheard]), found.spent
        for one in unheard:  # summed as the agent does, to the last bit
            spent += 0.0 if one.held else one.finished - one.begun + one.copied
        used = BudgetUse(found.pulled, spent)
        if pending >= self._task.least_pending(agent.number, agent.step, found.pending, t_n, used) and not at_rung:
            return []
        found.asked = len(found.ended)
        return [After(0.0, StepDue(agent.number, agent.lease))]

    def due(self, state: CoreState, event: StepDue, now: float) -> list[Effect]:
        """Request a report from an agent on its ended evaluations."""
        agent = state.agents[event.agent]
        step, found = agent.current, agent.evaluations
        if event.lease != agent.lease or step is None or step.order is None or found is None:
            return []
        found.asked = len(found.ended)
        if step.order.ended is None and not self._needs_ends:
            found.times = found.ended[0].begun, found.ended[0].finished
            return [After(0.0, Finished(agent.number, agent.lease))]
        ended = tuple([_end(one) for one in found.ended])
        if ended == step.order.ended:
            return [After(0.0, Finished(agent.number, agent.lease))]
        agent.lease += 1
        step.order = changed(step.order, lease=agent.lease, ended=ended)
        return [step.order, After(0.0, Finished(agent.number, agent.lease))]

    def taken(self, state: CoreState, agent: AgentRecord, report: StepReport, now: float) -> tuple[bool, list[Effect]]:
        """Begin the evaluations again that an agent reports as failed; return whether its step is over, and the effects."""
        found = agent.evaluations
        told, found.asked, found.spent = found.asked, None, report.spent
        effects = [] if self._stopping is None else self._rungs.carry_out(state, agent, report, told, now)
        if report.again:
            known, since = ({one.key: one.request for one in some} for some in (found.ended[:told], found.ended[told:]))
            failed = [key for key in report.again if key not in found.running and key not in found.waiting and key not in since]
            again = [self.running.with_length(agent, self._first(agent, known[key]), again=True) for key in failed]
            found.waiting.update((one.key, one) for one in again)
        effects += self.running.begin(state, agent, now)
        used = BudgetUse(found.pulled, found.spent)
        if found.count(told) < self._task.least_pending(agent.number, agent.step, found.pending, report.t_n, used):
            found.ended, found.heard = found.ended[told:], 0
            return True, effects
        found.heard = told
        return False, effects + self._due(agent)

    def times(self, agent: AgentRecord, step: AgentStep, now: float) -> tuple[float, ...]:
        """Return the start and the end of a step's only evaluation, of which its agent was not told."""
        return agent.evaluations.times if step.order is not None and step.order.ended is None else ()

    def save(self, agent: AgentRecord) -> None:
        """Save an agent's pending evaluations with its checkpoint."""
        if agent.evaluations is not None:
            agent.evaluations.saved = tuple(agent.evaluations.left())
            agent.evaluations.paused_saved = dict(agent.evaluations.paused)

    def interrupt(self, state: CoreState, agent: AgentRecord, now: float, void: bool) -> list[Effect]:
        """Pause an agent's evaluations with its first interruption; restart them all if they are `void`.

        An agent that forgets in a crash returns to those pending at its checkpoint.
        """
        if agent.interruptions == 1:
            self.running.pause(agent, now)
        return self._cancel(state, agent, now) if void else []

    def _cancel(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        found = agent.evaluations
        if found is None:
            return []
        stopped, found.copies = [*found.running.values(), *found.copies.values()], {}
        if self._stopping is not None and agent.current is not None:
            found.unlearn()
        waiting = list(found.waiting.values())
        again = [one.request for one in found.running.values() if not one.held]
        if agent.needs_restore:
            again, waiting, found.ended = list(found.saved), [], []
            found.paused = dict(found.paused_saved)
        found.running, found.waiting = {}, {}
        left_out = agent.step if agent.current is not None else DECISION
        found.forget(left_out)
        redrawn = [self.running.with_length(agent, one, again=True) for one in again if one.step != left_out]
        waiting = [one for one in waiting if one.request.step != left_out]
        found.waiting = {one.key: one for one in (*redrawn, *waiting)}
        return self.running.release(state, [(agent.number, one) for one in stopped], now)

    def resume(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Resume the paused decision and evaluations of an agent."""
        if agent.evaluations is None:
            return []
        effects = [effect for one in self.running.with_agent(agent) for effect in self.running.run(agent, one, now)]
        return effects + self.running.begin(state, agent, now) + self._due(agent)

    def set_pace(self, agent: AgentRecord, before: float, now: float) -> list[Effect]:
        """Continue the evaluations of an agent at its new pace, where `before` is the old one."""
        return self.running.set_pace(agent, before, now)

    def give_up(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Drop the pending evaluations of an agent that has ended."""
        found, agent.evaluations = agent.evaluations, None
        stopped = [] if found is None else [*found.running.values(), *found.copies.values()]
        return self.running.release(state, [(agent.number, one) for one in stopped], now) if stopped else []


def _end(one: PendingEvaluation) -> EvaluationEnd:
    """Return the end of an evaluation in the form that its agent receives."""
    step, point = one.key
    return EvaluationEnd(
        step=step, point=point, started=one.begun, finished=one.finished, in_time=one.in_time, copied=one.copied
    )
