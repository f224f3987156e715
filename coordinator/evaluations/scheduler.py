"""The scheduler of evaluations one by one: when each begins and ends, and when a step is over with what has ended.

An agent has up to `parallel` evaluations under way; others that it has decided on wait, in their order. Each has a duration of
its own, drawn by its number. A step is over as soon as fewer are pending than may be (`Task.least_pending`); the agent is told
then what has ended, in that order, and learns from it. What the agent finds to have failed is begun again, if it may be.

Without a cluster, whatever interrupts or slows the agent holds for its evaluations too. On a cluster an evaluation that has a
place of its agent waits for a worker, and goes on there whatever becomes of the agent, unless that must begin its step again:
then all evaluations under way begin again, but for those that the agent has forgotten in a crash.
"""

from __future__ import annotations

import math

from fedbo.actors.task import DecisionSize, EvaluationEnd, StepReport, Task
from fedbo.coordinator.cluster.placement import Placement, WorkerPool
from fedbo.coordinator.cluster.state import Job
from fedbo.coordinator.environment.durations import Evaluations, StepDurations
from fedbo.coordinator.evaluations.pending import DECISION, AgentEvaluations, EvaluationRequest, PendingEvaluation
from fedbo.coordinator.events import After, Effect, EvaluationEnded, EventLine, Finished, StepDue, make
from fedbo.coordinator.state import AgentRecord, CoreState


class EvaluationScheduler:
    """The scheduler of a run in virtual time whose evaluations may overlap, or queue for the workers of a cluster."""

    def __init__(self, task: Task, durations: StepDurations, pool: WorkerPool | None, log: list[EventLine]) -> None:
        self._task, self._durations, self._places = task, durations, task.policy.parallel
        self.pool, self._log = pool, log
        self._limit = math.inf if task.policy.time_limit is None else task.policy.time_limit

    def decide(self, state: CoreState, agent: AgentRecord, choice: DecisionSize, now: float) -> list[Effect]:
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
            return self._queue(state, agent, decided, now)
        found.decided, found.deciding = decided, PendingEvaluation(EvaluationRequest(number, DECISION), thought)
        found.deciding.remaining = thought
        return self._run(agent, found.deciding, now)

    def _with_length(self, agent: AgentRecord, request: EvaluationRequest, again: bool) -> PendingEvaluation:
        """Draw the length of an evaluation."""
        if again:
            number, agent.next_repetition = agent.next_repetition, agent.next_repetition + 1
        else:
            number, agent.next_evaluation = agent.next_evaluation, agent.next_evaluation + 1
        (length,) = self._durations.lengths(agent.number, Evaluations(number, 1, again))
        length *= request.cost
        return PendingEvaluation(request, length, work=length * request.pulls)

    def _queue(self, state: CoreState, agent: AgentRecord, more: list[PendingEvaluation], now: float) -> list[Effect]:
        """Let evaluations wait for a place, and begin those that have one."""
        assert agent.evaluations is not None
        agent.evaluations.waiting.update((one.key, one) for one in more)
        return self._begin(state, agent, now) + self._due(agent)

    def _begin(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Begin what has waited longest, or let it wait for a worker, as long as there are places."""
        effects: list[Effect] = []
        found = agent.evaluations
        assert found is not None
        while found.waiting and len(found.running) < self._places and not agent.interruptions:
            key = next(iter(found.waiting))
            one = found.running[key] = found.waiting.pop(key)
            if self.pool is None:
                effects += self._start(agent, one, now)
            else:
                one.queued, one.number = now, state.cluster.arrived
                effects += self._placed(state, self.pool.submit(state.cluster, agent.number, key), now)
        return effects

    def _placed(self, state: CoreState, placements: list[Placement], now: float) -> list[Effect]:
        """Begin what has found a worker."""
        effects: list[Effect] = []
        for number, key, worker, _ in placements:
            agent = state.agents[number]
            assert agent.evaluations is not None
            one = agent.evaluations.running[key]
            one.worker = worker
            self._log.append((now, "placed", number, key[0], 0, f"{key[1]} {worker} {one.queued!r}"))
            effects += self._start(agent, one, now)
        return effects

    def _start(self, agent: AgentRecord, one: PendingEvaluation, now: float) -> list[Effect]:
        """Let an evaluation begin, here or on its worker."""
        speed, startup = 1.0, 0.0
        if one.worker >= 0:
            assert self.pool is not None
            worker = self.pool.class_of(one.worker)
            speed, startup = worker.speed, worker.startup
        pulls = one.request.pulls
        one.started, one.in_time = now, one.length / speed <= self._limit
        one.remaining = startup + min(one.work / speed, self._limit * pulls)
        return self._run(agent, one, now)

    def _run(self, agent: AgentRecord, one: PendingEvaluation, now: float) -> list[Effect]:
        """Let an evaluation go on from now, at the agent's pace unless it has a worker."""
        assert agent.evaluations is not None
        agent.evaluations.leases += 1
        one.since, one.lease = now, agent.evaluations.leases
        if agent.interruptions and one.worker < 0:
            return []
        step, point = one.key
        length = one.remaining if one.worker >= 0 else one.remaining / agent.pace
        return [make(After, (length, make(EvaluationEnded, (agent.number, step, point, one.lease))))]

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
            return self._queue(state, agent, decided, now)
        del found.running[step, point]
        one.finished = now
        found.ended.append(one)
        effects = self._released(state, [(number, one)], now)
        return effects + self._begin(state, agent, now) + self._due(agent)

    def _released(self, state: CoreState, ended: list[tuple[int, PendingEvaluation]], now: float) -> list[Effect]:
        """Give the workers of evaluations back, and take what waits for one out of the queue."""
        if self.pool is None:
            return []
        for number, one in ended:
            if one.worker < 0:
                self.pool.withdraw(state.cluster, number, one.key)
        placements: list[Placement] = []
        for number, one in ended:
            if one.worker >= 0:
                self._log.append((now, "released", number, one.key[0], 0, f"{one.key[1]} {one.worker}"))
                placements += self.pool.release(state.cluster, one.worker, (number, *one.key))
                one.worker = -1
        return self._placed(state, placements, now)

    def _due(self, agent: AgentRecord) -> list[Effect]:
        """Ask the agent, once all that ends now has, whether its step is over; only it knows which evaluations failed."""
        step, found = agent.current, agent.evaluations
        assert found is not None
        if step is None or not step.segments or agent.interruptions or found.deciding is not None or found.asked is not None:
            return []
        # At least one of those that it has not been told of may have succeeded.
        t_n = agent.t_n + (len(found.ended) > found.heard)
        pending = len(found.running) + len(found.waiting)
        if pending >= self._task.least_pending(agent.number, agent.step, found.pending, t_n, found.pulled):
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

    def taken(self, state: CoreState, agent: AgentRecord, report: StepReport, now: float) -> tuple[bool, list[Effect]]:
        """Begin again what an agent found to have failed; say whether its step is over, and what follows."""
        found = agent.evaluations
        assert found is not None and found.asked is not None
        told, found.asked = found.asked, None
        known = {one.key: one.request for one in found.ended[:told]}
        since = {one.key for one in found.ended[told:]}
        failed = [key for key in report.again if key not in found.running and key not in found.waiting and key not in since]
        again = [self._with_length(agent, known[key], again=True) for key in failed]
        found.waiting.update((one.key, one) for one in again)
        effects = self._begin(state, agent, now)
        if len(found.left(told)) < self._task.least_pending(agent.number, agent.step, found.pending, report.t_n, found.pulled):
            found.ended, found.heard = found.ended[told:], 0
            return True, effects
        found.heard = told
        return False, effects + self._due(agent)

    def save(self, agent: AgentRecord) -> None:
        """Note what is pending at an agent's checkpoint."""
        if agent.evaluations is not None:
            agent.evaluations.saved = tuple(agent.evaluations.left(0))

    def _with_agent(self, agent: AgentRecord) -> list[PendingEvaluation]:
        """List what is under way and stands still with an agent: the decision, and without a cluster the evaluations."""
        found = agent.evaluations
        if found is None:
            return []
        return [*([] if found.deciding is None else [found.deciding]), *(found.running.values() if self.pool is None else ())]

    def pause(self, agent: AgentRecord, now: float) -> None:
        """Let all that is under way stand still with its agent."""
        if agent.evaluations is not None:
            agent.evaluations.asked = None
        for one in self._with_agent(agent):
            one.remaining, one.lease = max(0.0, one.remaining - (now - one.since) * agent.pace), 0

    def cancel(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Let all that is under way begin again; an agent that forgets in a crash knows what was pending at its checkpoint."""
        found = agent.evaluations
        if found is None:
            return []
        stopped, waiting = list(found.running.values()), list(found.waiting.values())
        again = [one.request for one in stopped]
        if agent.needs_restore:
            again, waiting, found.ended = list(found.saved), [], []
        found.running, found.waiting = {}, {}
        left_out = agent.step if agent.current is not None else DECISION
        found.forget(left_out)
        redrawn = [self._with_length(agent, one, again=True) for one in again if one.step != left_out]
        waiting = [one for one in waiting if one.request.step != left_out]
        found.waiting = {one.key: one for one in (*redrawn, *waiting)}
        return self._released(state, [(agent.number, one) for one in stopped], now)

    def resume(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Let all go on that stood still."""
        if agent.evaluations is None:
            return []
        effects = [effect for one in self._with_agent(agent) for effect in self._run(agent, one, now)]
        return effects + self._begin(state, agent, now) + self._due(agent)

    def set_pace(self, agent: AgentRecord, before: float, now: float) -> list[Effect]:
        """Let all that is under way go on at another pace of its agent than `before`."""
        if agent.interruptions:
            return []
        slowed = self._with_agent(agent)
        for one in slowed:
            one.remaining = max(0.0, one.remaining - (now - one.since) * before)
        return [effect for one in slowed for effect in self._run(agent, one, now)]

    def give_up(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Give up what is pending: its agent has ended."""
        found, agent.evaluations = agent.evaluations, None
        return [] if found is None else self._released(state, [(agent.number, one) for one in found.running.values()], now)

    def preempted(self, state: CoreState, jobs: list[Job], checkpoint: float | None, now: float) -> list[Effect]:
        """Let evaluations that have lost their worker wait again, at their old places in the queue.

        Their work is lost, and its length drawn again; or it is kept, and to go on with it takes `checkpoint` more.
        """
        assert self.pool is not None
        effects: list[Effect] = []
        for number, step, point in jobs:
            agent = state.agents[number]
            assert agent.evaluations is not None
            one, worker = agent.evaluations.running[step, point], agent.evaluations.running[step, point].worker
            self._log.append((now, "preempted", number, step, 0, f"{point} {worker}"))
            if checkpoint is None:
                one.length = self._with_length(agent, one.request, again=True).length
                one.work = one.length * one.request.pulls
            else:
                model = self.pool.class_of(worker)
                one.work = max(0.0, one.work - max(0.0, now - one.started - model.startup) * model.speed) + checkpoint
            one.worker, one.lease = -1, 0
            effects += self._placed(state, self.pool.submit(state.cluster, number, one.key, one.number), now)
        return effects

    def joined(self, state: CoreState, worker: int, now: float) -> list[Effect]:
        """Let a worker serve that was away."""
        assert self.pool is not None
        return self._placed(state, self.pool.join(state.cluster, worker), now)
