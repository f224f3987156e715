"""Running evaluations, on the places of their agents or the workers of a cluster, and the events of these workers."""

from __future__ import annotations

import math
from typing import Any

from fedbo.actors.task import Task
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.environment.durations import Evaluations, StepDurations
from fedbo.coordinator.environment.fault_times import FaultTimes
from fedbo.coordinator.environment.faults import Plan, Preemption
from fedbo.coordinator.kernel.events import (
    After,
    Effect,
    EvaluationEnded,
    PlacementDue,
    WorkerPreempted,
    WorkerReturned,
    WorkersChanged,
)
from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.coordinator.logged.agents import (
    ClassJoined,
    ClassLeft,
    EvaluationPlaced,
    EvaluationPreempted,
    EvaluationReleased,
    WorkerRestored,
    WorkerTaken,
)
from fedbo.coordinator.logged.kinds import EventLine
from fedbo.workers.copies import COPY, found_by, limit_of, longest, original_of, twin_of, watch
from fedbo.workers.load import BackgroundLoad, serve_later
from fedbo.workers.pending import EvaluationRequest, Key, PendingEvaluation
from fedbo.workers.placement import Job, WorkerPool
from fedbo.workers.scaling import STARTED, follow


class RunningEvaluations:
    """Running evaluations: their start, their duration, and their interruption."""

    def __init__(self, task: Task, durations: StepDurations, pool: WorkerPool | None, log: list[EventLine]) -> None:
        policy, stopping = task.policy, task.stopping
        self._durations, self._places, self.pool, self._log = durations, policy.parallel, pool, log
        self._limit = math.inf if policy.time_limit is None else policy.time_limit
        self._largest = 1 if stopping is None else stopping.largest
        self._checkpoint = 0.0 if stopping is None else stopping.stopper.checkpoint
        if pool is not None:
            self.load = BackgroundLoad(pool, log)

    def with_length(self, agent: AgentRecord, request: EvaluationRequest, again: bool) -> PendingEvaluation:
        """Draw the length of an evaluation."""
        if again:
            number, agent.next_repetition = agent.next_repetition, agent.next_repetition + 1
        else:
            number, agent.next_evaluation = agent.next_evaluation, agent.next_evaluation + 1
        (length,) = self._durations.lengths(agent.number, Evaluations(number, 1, again))
        length *= request.cost
        return self.segment(request, length, again)

    def segment(self, request: EvaluationRequest, length: float, resumed: bool) -> PendingEvaluation:
        """Return an evaluation of this length, or a segment of it; to resume a paused one costs the time of a checkpoint."""
        if not request.fidelity:
            return PendingEvaluation(request, length, work=length * request.pulls)
        work = length * request.pulls * (request.fidelity - request.since) / self._largest
        return PendingEvaluation(request, length, work=work + (self._checkpoint if resumed and request.since else 0.0))

    def begin(self, state: CoreState, agent: AgentRecord, now: float) -> list[Effect]:
        """Begin the evaluations that have waited longest, or queue them for a worker, as long as there are places."""
        effects: list[Effect] = []
        found = agent.evaluations
        while found.waiting and len(found.running) < self._places and not agent.interruptions:
            key = next(iter(found.waiting))
            one = found.running[key] = found.waiting.pop(key)
            if self.pool is None:
                effects += self._start(agent, one, now)
            else:
                one.queued, one.number = now, state.cluster.arrived
                self.pool.submit(state.cluster, agent.number, key)
                effects += serve_later(state)
        return effects

    def place(self, state: CoreState, event: PlacementDue, now: float) -> list[Effect]:
        """Place the waiting evaluations that fit on workers, and begin them."""
        assert self.pool is not None
        effects: list[Effect] = []
        state.cluster.is_due = False
        self._copy(state, now)
        for number, key, worker, _ in self.pool.serve(state.cluster):
            if number < 0:
                effects += self.load.begin(state, number, worker, now)
                continue
            agent = state.agents[number]
            one = found_by(agent.evaluations, key)
            assert one is not None
            one.worker = worker
            self._log.append(EvaluationPlaced(now, number, **_named(key), worker=worker, queued_at=one.queued))
            effects += self._start(agent, one, now)
            if self.pool.model.after < math.inf:
                watch(state.cluster, number, one)
        return effects + self._check_later(state, now) + follow(self.pool, state.cluster, now, self._log)

    def _copy(self, state: CoreState, now: float) -> None:
        """Queue a copy of each evaluation that has run too long."""
        assert self.pool is not None
        limit = limit_of(self.pool.model, state.cluster)
        while (slowest := longest(state)) is not None and slowest[0] + limit <= now:
            _, agent, one = slowest
            copy = self.with_length(agent, one.request._replace(point=twin_of(one.key)[1]), again=True)
            copy.queued, copy.number = now, state.cluster.arrived
            agent.evaluations.copies[copy.key] = copy
            self.pool.submit(state.cluster, agent.number, copy.key)

    def _check_later(self, state: CoreState, now: float) -> list[Effect]:
        """Schedule when the evaluation that has run longest will have run too long, unless more durations say otherwise."""
        assert self.pool is not None
        slowest, limit = longest(state), limit_of(self.pool.model, state.cluster)
        if slowest is None or limit == math.inf or slowest[0] + limit == state.cluster.checked:
            return []
        state.cluster.checked = slowest[0] + limit
        return [After(state.cluster.checked - now, PlacementDue(), state.cluster.checked)]

    def _start(self, agent: AgentRecord, one: PendingEvaluation, now: float, warm: bool = False) -> list[Effect]:
        """Begin an evaluation, on its agent's place or on its worker, which is `warm` if it has just run the segment before."""
        speed, startup = 1.0, 0.0
        if one.worker >= 0:
            assert self.pool is not None
            worker = self.pool.class_of(one.worker)
            speed, startup = worker.speed, worker.startup
        request = one.request
        before, by_now = 0.0, 1.0
        if request.fidelity:
            before, by_now = request.since / self._largest, request.fidelity / self._largest
        one.started, one.in_time = now - (startup if warm else 0.0), one.length * by_now / speed <= self._limit
        # Earlier segments of a pull count against its time limit, at the speed of this worker.
        limit = max(0.0, self._limit - one.length * before / speed)
        takes = min(one.work / speed, limit * request.pulls)
        takes += 0.0 if self.pool is None else self.pool.model.saving(takes * speed) / speed
        one.remaining = (0.0 if warm else startup) + takes
        return self.run(agent, one, now)

    def hold(self, one: PendingEvaluation, now: float) -> None:
        """Keep an evaluation at its rung, with its place and its worker, until its agent decides."""
        one.held, one.lease, one.remaining, one.since = True, 0, 0.0, now

    def go_on(self, state: CoreState, agent: AgentRecord, one: PendingEvaluation, fidelity: int, now: float) -> list[Effect]:
        """Continue a held evaluation to the next rung, on its place; one that lost its place waits."""
        found = agent.evaluations
        after = self.segment(one.request._replace(since=one.request.fidelity, fidelity=fidelity), one.length, False)
        held = found.running.get(one.key)
        if held is None:
            found.waiting = {after.key: after, **found.waiting}
            return []
        after.leg = one.begun
        after.queued, after.number, after.worker = held.queued, held.number, held.worker
        found.running[one.key] = after
        if self.pool is not None and after.worker < 0:
            after.queued = now
            self.pool.submit(state.cluster, agent.number, after.key, after.number)
            return serve_later(state)
        return self._start(agent, after, now, warm=True)

    def run(self, agent: AgentRecord, one: PendingEvaluation, now: float) -> list[Effect]:
        """Run an evaluation from now on, at the agent's pace unless it has a worker."""
        agent.evaluations.leases += 1
        one.since, one.lease = now, agent.evaluations.leases
        if agent.interruptions and one.worker < 0:
            return []
        step, point = one.key
        length = one.remaining if one.worker >= 0 else one.remaining / agent.pace
        return [After(length, EvaluationEnded(agent.number, step=step, point=point, lease=one.lease))]

    def release(self, state: CoreState, ended: list[tuple[int, PendingEvaluation]], now: float) -> list[Effect]:
        """Release the workers of evaluations, and withdraw those that wait for a worker from the queue."""
        if self.pool is None:
            return []
        for number, one in ended:
            if one.worker < 0:
                self.pool.withdraw(state.cluster, number, one.key)
        for number, one in ended:
            if one.worker >= 0:
                self._log.append(EvaluationReleased(now, number, **_named(one.key), worker=one.worker))
                self.pool.release(state.cluster, one.worker, (number, *one.key))
                one.worker = -1
        return serve_later(state)

    def preempted(self, state: CoreState, jobs: list[Job], fault: Preemption | None, now: float) -> list[Effect]:
        """Queue evaluations that have lost their worker again, at their old places in the queue.

        What was not saved of their work is lost. Where nothing could be saved, its length is drawn again. A copy is dropped;
        its original may have another one.
        """
        assert self.pool is not None
        for number, step, point in jobs:
            if number < 0:
                self.load.preempted(state, number, fault, now)
                continue
            agent = state.agents[number]
            one = found_by(agent.evaluations, (step, point))
            assert one is not None
            copy = agent.evaluations.copies.pop(one.key, None)
            is_over = copy is not None or one.held
            kept, lost = (0.0, now - one.started if copy else 0.0) if is_over else self.pool.kept(one, fault, now)
            self._log.append(EvaluationPreempted(now, number, **_named(one.key), worker=one.worker, lost=lost))
            if copy is not None:
                watch(state.cluster, number, agent.evaluations.running[original_of(copy.key)])
            if is_over:
                one.worker = -1
                continue
            if kept is None:
                again = self.with_length(agent, one.request, again=True)
                one.length, one.work = again.length, again.work
            else:
                one.work = max(0.0, one.work - kept) + (fault.checkpoint or 0.0 if fault is not None else 0.0)
            one.worker, one.lease, one.queued = -1, 0, now
            self.pool.submit(state.cluster, number, one.key, one.number)
        return serve_later(state)

    def joined(self, state: CoreState, worker: int) -> list[Effect]:
        """Return a worker that was away to service."""
        assert self.pool is not None
        self.pool.join(state.cluster, worker)
        return serve_later(state)

    def with_agent(self, agent: AgentRecord) -> list[PendingEvaluation]:
        """List what pauses with an agent: the decision in progress, and without a cluster the evaluations."""
        found = agent.evaluations
        if found is None:
            return []
        running = [] if self.pool is not None else [one for one in found.running.values() if not one.held]
        return [*([] if found.deciding is None else [found.deciding]), *running]

    def pause(self, agent: AgentRecord, now: float) -> None:
        """Pause an agent's decision and evaluations."""
        if agent.evaluations is not None:
            agent.evaluations.asked = None
        for one in self.with_agent(agent):
            one.remaining, one.lease = max(0.0, one.remaining - (now - one.since) * agent.pace), 0

    def set_pace(self, agent: AgentRecord, before: float, now: float) -> list[Effect]:
        """Continue an agent's decision and evaluations at its new pace, where `before` is the old one."""
        if agent.interruptions:
            return []
        slowed = self.with_agent(agent)
        for one in slowed:
            one.remaining = max(0.0, one.remaining - (now - one.since) * before)
        return [effect for one in slowed for effect in self.run(agent, one, now)]


def _named(key: Key) -> dict[str, Any]:
    """Return step and point of an evaluation, and whether it is a copy, as the log has them."""
    step, point = original_of(key)
    return {"step": step, "query": point, "copy": None if key[1] > COPY else True}


class WorkerEvents:
    """The events of workers: those of their classes, and the preemptions of the fault plan."""

    def __init__(self, evaluations: RunningEvaluations, plan: Plan, streams: Streams, log: list[EventLine]) -> None:
        assert evaluations.pool is not None
        self._evaluations, self._pool, self._log = evaluations, evaluations.pool, log
        self._faults = {place: fault for place, fault in enumerate(plan) if isinstance(fault, Preemption)}
        self._times = FaultTimes(self._faults, "preemption", streams.of(COORDINATOR).at, streams)

    def start(self) -> list[Effect]:
        """Schedule when classes join and leave, the first preemption of each worker, and the first job of the log."""
        effects = self._evaluations.load.first_effects()
        for number, one in enumerate(self._pool.model.classes):
            effects += [After(one.joins, WorkersChanged(number, True))] if one.joins > 0 else []
            effects += [After(one.leaves, WorkersChanged(number, False))] if one.leaves < math.inf else []
        for place, fault in self._faults.items():
            for worker in self._pool.workers_of(fault.workers):
                effects += self._schedule(place, worker, 0, 0.0)
        return effects

    def _schedule(self, place: int, worker: int, number: int, now: float) -> list[Effect]:
        event = WorkerPreempted(place, worker, number)
        time = self.time_of(event)
        return [] if time == math.inf else [After(time - now, event, time)]

    def time_of(self, event: WorkerPreempted) -> float:
        """Return when a worker is taken away for the event's time; infinity if never."""
        fault = self._faults[event.fault]
        owner = self._pool.workers_of(fault.workers)[0] if fault.together else event.worker
        return self._times.at(event.fault, owner, event.number) + (fault.notice if event.warned else 0.0)

    def changed(self, state: CoreState, event: WorkersChanged, now: float) -> list[Effect]:
        """Process a class of workers that joins, or leaves for good."""
        name = self._pool.model.classes[event.group].name
        workers = self._pool.workers_of(name)
        self._log.append(ClassJoined(now, name) if event.joins else ClassLeft(now, name))
        effects: list[Effect] = []
        for worker in workers:
            if event.joins:
                effects += self._evaluations.joined(state, worker)
            else:
                self._pool.close(state.cluster, worker)
                effects += self._stop(state, worker, None, now)
        return effects

    def preempted(self, state: CoreState, event: WorkerPreempted, now: float) -> list[Effect]:
        """Remove a worker, for a while or for good, and schedule its next preemption."""
        place, worker, fault = event.fault, event.worker, self._faults[event.fault]
        following = list[Effect]()
        if not event.warned:
            self._pool.close(state.cluster, worker)
            following = self._schedule(place, worker, event.number + 1, now)
            if fault.notice:
                return [*following, After(fault.notice, event._replace(warned=True))]
        self._log.append(WorkerTaken(now, worker, self._pool.class_of(worker).name))
        effects = self._stop(state, worker, fault, now)
        lasting = self._times.lasting(place, worker, event.number)
        effects += [] if lasting == math.inf else [After(lasting, WorkerReturned(place, worker))]
        return effects + following

    def returned(self, state: CoreState, event: WorkerReturned, now: float) -> list[Effect]:
        """Return a preempted worker to service, or one that was started."""
        name, started = self._pool.class_of(event.worker).name, event.fault == STARTED
        state.cluster.starting -= started
        self._log.append(ClassJoined(now, name, worker=event.worker) if started else WorkerRestored(now, event.worker, name))
        return self._evaluations.joined(state, event.worker)

    def _stop(self, state: CoreState, worker: int, fault: Preemption | None, now: float) -> list[Effect]:
        return self._evaluations.preempted(state, self._pool.stop(state.cluster, worker), fault, now)
