"""One agent: its private objective, the state of its half of the algorithm, and the rows that it keeps for itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedbo.actors.evaluation.batches import LEAST, Made, StepObservations, highest, made_at_once, timed
from fedbo.actors.evaluation.evaluator import EvaluationError, EvaluationLog, Evaluator, Known, Outcome, Pulls
from fedbo.actors.evaluation.overlap import Bench, Overlap
from fedbo.actors.evaluation.pulls import counted, within
from fedbo.actors.memory import Flying, Memory, UncommittedStep, read_history
from fedbo.actors.storage.rows import Kept, Row, checked
from fedbo.actors.task import DecisionSize, StepReport, StepRequest, Task
from fedbo.algorithms.base import Array, Decision, Overlapping, Starting
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Federation, Objective, cost_of
from fedbo.objectives.derived.centralised import Centralised
from fedbo.objectives.space import from_unit


class HostedAgent:
    """One agent of a run."""

    def __init__(
        self,
        task: Task,
        number: int,
        clock: Callable[[], float] | None = None,
        evaluator: Evaluator | None = None,
    ) -> None:
        self.number, self.task = number, task
        self._clock = clock or time.monotonic
        self._streams = task.streams.of(number)
        world = replace(task.streams, scope="")  # an agent's objective is the same in all its tasks
        objective = objective_of(task.federation, number, world)
        self._evaluator = evaluator or Evaluator(task.policy, real=False)
        self._objective = objective
        x, y = read_history(task.histories, number, task.problem.dim)
        self._problem = replace(task.problem, agent=number, history_x=x, history_y=y)
        self.memory = Memory(task.algorithm.agent_init(self._problem, self._streams.at(0)))
        self.saved = self.memory
        self.done: UncommittedStep | None = None
        self._overlap: Overlap | None = None

    def overlapping(self, bench: Callable[[Objective], Bench], log: EvaluationLog | None, again: bool) -> None:
        """Let evaluations overlap, on a bench; `again` says whether those that failed before are made again."""
        self._overlap = Overlap(self.task, self._streams, bench(self._objective), log, self._clock, again)

    def wind_up(self) -> None:
        """Where evaluations overlap, let all that was done count, for it was reported, and give up what is under way."""
        if self._overlap is not None:
            self.commit(())
            self._overlap.close()

    @property
    def best_value(self) -> float | None:
        """Give the largest noise-free value over the box, where it is known."""
        return self._objective.best_value

    @property
    def settled(self) -> Memory:
        """Give what the agent knows by what counts: without a step that it has done but that does not count yet."""
        return self.memory if self.done is None else self.done.before

    def decide(self, order: StepRequest) -> DecisionSize:
        """Choose the points of a step; give their number, and what each costs if the order asks for it; EvaluationError."""
        self._restore(order)
        decision = self._decide(order)
        pulls = None if decision.pulls is None else tuple(decision.pulls.tolist())
        if not order.priced:
            return DecisionSize(len(decision.x), None, pulls)
        try:
            natives = from_unit(self.task.federation.parameters, decision.x)
            return DecisionSize(len(decision.x), tuple(cost_of(self._objective, x) for x in natives), pulls)
        except Exception as error:
            words = f"agent {self.number}: its cost could not be told: {type(error).__name__}: {error}"
            raise EvaluationError(words) from error

    def work(self, order: StepRequest) -> StepReport | None:
        """Carry a step out: decide, evaluate, learn, and write the message; EvaluationError when the run shall stop.

        None where evaluations overlap and waiting for them was given up.
        """
        self._restore(order)
        if self.done is not None and self.done.report.step >= order.step:  # the coordinator has not heard of it
            self.done = self.done._replace(report=self.done.report._replace(lease=order.lease))
            return self.done.report
        self.commit(())
        before = self.memory
        decision = self._decide(order)
        if self._overlap is not None:
            return self._work_overlapping(order, before, decision)
        seen = self._evaluate(order, decision)
        memory = self._learned(decision, seen, self.memory.algorithm)
        report = StepReport(self.number, order.step, len(decision.x), None, order.lease, memory.t_n, seen.retried, seen.failed)
        return self._end(order, before, memory, report, seen.rows)

    def _work_overlapping(self, order: StepRequest, before: Memory, decision: Decision) -> StepReport | None:
        """Begin what was decided, and learn from what ends until there is a free place; other steps' points may be among it."""
        assert self._overlap is not None
        taken = self._overlap.step(self.memory, decision, order, self.number)
        rows, t_n = [], self.memory.t_n
        for flying, outcome in taken.ended:
            t_n += outcome.error is None
            found = self._row(flying.step, flying, list(flying.u), outcome)
            rows.append(found._replace(query=flying.query, t_n=t_n))
        if taken.halted:  # what has ended is kept all the same
            self.memory = taken.memory._replace(rows=taken.memory.rows + tuple(rows))
            return None
        failed = tuple(outcome.error.splitlines()[0] for _, outcome in taken.ended if outcome.error)
        report = StepReport(self.number, order.step, len(decision.x), None, order.lease, taken.memory.t_n, failed=failed)
        return self._end(order, before, taken.memory, report, tuple(rows))

    def _end(
        self, order: StepRequest, before: Memory, memory: Memory, report: StepReport, rows: tuple[Kept, ...]
    ) -> StepReport:
        """Write the message, and remember the step as one that does not count yet."""
        payload = None
        if self.task.algorithm.sends(order.step) and order.speaks:
            payload, state = self.task.algorithm.outbox(memory.algorithm, self._streams.at(order.step))
            memory = memory._replace(algorithm=state)
        report = report._replace(payload=payload, pulled=memory.pulled)
        self.memory = memory._replace(step=order.step, decision=None, undecided=None)
        self.done = UncommittedStep(before, report, rows, self.memory)
        return report

    def commit(self, times: Sequence[float]) -> None:
        """Let the step that was done last count, if there is one; `times` are when its evaluations began and ended."""
        if self.done is None:
            return
        rows = timed(self.done.rows, times) if times else self.done.rows
        best = self.memory.best
        for row in map(highest, rows):
            if row.error is None and (best is None or row.value > best.value):
                best = row
        self.memory = self.memory._replace(rows=self.memory.rows + rows, best=best)
        self.done = None
        if self.memory.step % self.task.checkpoint == 0:
            self.saved = self.memory

    def take(self, lossy: bool) -> tuple[Kept, ...]:
        """Give the rows that may be written for good, and keep the others; `lossy` says whether a crash may touch some."""
        count = len(self.saved.rows) if lossy else len(self.settled.rows)
        written = self.memory.rows[:count]
        self.memory = self.memory._replace(rows=self.memory.rows[count:])
        self.saved = self.saved._replace(rows=self.saved.rows[count:])
        if self.done is not None:
            before = self.done.before
            self.done = self.done._replace(before=before._replace(rows=before.rows[count:]), after=self.memory)
        return written

    def _restore(self, order: StepRequest) -> None:
        """Forget what the order says."""
        if order.restore and self.done is not None:
            self.memory, self.done = self.done.before, None
        if order.restore and self.memory.decision is not None:
            self.memory = self.memory._replace(algorithm=self.memory.undecided, decision=None, undecided=None)
        if order.restore != "checkpoint":
            return
        kept = len(self.saved.rows)
        forgotten = tuple(row if row.error else row._replace(error="forgotten in a crash") for row in self.memory.rows[kept:])
        # Evaluations are counted on, so that no draw is used twice and no budget is exceeded.
        counts = {name: getattr(self.memory, name) for name in ("evaluated", "pulled", "step")}
        self.memory = self.saved._replace(rows=self.saved.rows + forgotten, **counts)
        self.saved = self.memory

    def _decide(self, order: StepRequest) -> Decision:
        memory = self.memory
        if memory.decision is not None:
            return memory.decision
        state = memory.algorithm
        if order.step == 0:
            decision = Decision(self._initial_points(), "initial")
        else:
            if self._overlap is not None and isinstance(self.task.algorithm, Overlapping):
                under_way = np.array([flying.u for flying in memory.flight]).reshape(-1, self._problem.dim)
                state = self.task.algorithm.pending(state, under_way)
            decision, state = self.task.algorithm.ask(state, order.inbox, self._streams.at(order.step))
        if self._problem.lattice is not None:
            decision = decision._replace(x=self._problem.lattice.project(decision.x))
        if decision.pulls is not None and self.task.algorithm.queries is not None:
            raise ValueError("an algorithm whose decisions have pulls declares queries = None, so that each is waited for")
        cut = False
        if self._problem.pulls:
            decision, cut = within(decision, self._problem.pulls - memory.pulled)
        self.memory = memory._replace(algorithm=state, decision=decision, undecided=memory.algorithm, cut=cut)
        return decision

    def _initial_points(self) -> Array:
        if self.number not in self.task.problem.targets:
            return np.empty((0, self._problem.dim))
        given = self.task.initial.get(self.number)
        if given is not None:
            return given
        uniform = self._streams.at(0).rng("initial points").random((self._problem.initial, self._problem.dim))
        algorithm = self.task.algorithm
        return algorithm.initial_points(self._problem, uniform) if isinstance(algorithm, Starting) else uniform

    def _evaluate(self, order: StepRequest, decision: Decision) -> StepObservations:
        """Evaluate every point of a decision, at once where that can be."""
        natives = from_unit(self.task.federation.parameters, decision.x)
        made: Made | None = None
        if self._evaluator.at_once and decision.pulls is not None:
            streams = self._streams.at(self.memory.evaluated)
            made = made_at_once(self._objective, decision, natives, self.task.noise, streams)
        if made is None or order.tries is not None or len(natives) < LEAST:  # with `tries` some may take too long
            return self._seen_in(order.step, decision, self._one_by_one(order, decision, natives, made))
        batch = made.batch((self.number, self._phase(order.step), order.step), decision, natives, self.memory.t_n)
        return StepObservations(np.arange(len(natives)), made.means, (batch,), len(natives))

    def _one_by_one(self, order: StepRequest, decision: Decision, natives: Array, made: Made | None) -> list[Outcome]:
        """Evaluate every point, and then again those that failed, as often as the policy says; in that order."""
        policy, outcomes = self.task.policy, list[Outcome]()
        points, count = list(range(len(natives))), self.memory.evaluated
        every = self._pulls(decision)
        for _ in range(1 + policy.retries):
            for point in points:
                number = count + len(outcomes)
                length = None if order.tries is None else order.tries[len(outcomes)]
                if length is not None and order.costs is not None:
                    length *= order.costs[point]
                pulls, known_mean = None if every is None else every[point], None if made is None else made.of(point)
                known = Known(self.number, number, point, natives[point], length, pulls, known_mean)
                outcomes.append(self._evaluator(self._objective, known, self._streams.at(number), self._clock))
            succeeded = {outcome.point for outcome in outcomes if outcome.error is None}
            points, made = [point for point in points if point not in succeeded], None
        if points and policy.failure == "stop":
            raise EvaluationError(next(outcome.error.splitlines()[0] for outcome in reversed(outcomes) if outcome.error))
        return outcomes

    def _pulls(self, decision: Decision) -> list[Pulls] | None:
        """Say how each point is evaluated; None where it is once, as it is."""
        if decision.pulls is None and decision.clip is None:
            return None
        return [Pulls(times, decision.clip, self.task.noise) for times in counted(decision).tolist()]

    def _learned(self, decision: Decision, seen: StepObservations, state: Any) -> Memory:
        """Tell the algorithm what was seen, point by point, and what the policy gives for a point that failed."""
        memory, worst, told, values = self.memory, self.memory.worst, seen.points, seen.values
        pulls = counted(decision)
        t_n, pulled = memory.t_n + int(pulls[told].sum()), memory.pulled + int(pulls.sum())
        if len(values):
            worst = float(values.min()) if worst is None else min(worst, float(values.min()))
        if self.task.policy.failure == "worst" and worst is not None and len(told) < len(decision.x):
            every = np.full(len(decision.x), worst)
            every[told] = values
            told, values = np.arange(len(every)), every
        if memory.cut:
            heard = told < len(decision.x) - 1
            told, values = told[heard], values[heard]
        if len(told):
            state = self.task.algorithm.tell(state, decision.x[told], values)
        evaluated = memory.evaluated + seen.evaluated
        return memory._replace(algorithm=state, evaluated=evaluated, t_n=t_n, worst=worst, pulled=pulled)

    def _value(self, decision: Decision, outcome: Outcome) -> float:
        """Give what the agent sees of a value: with noise, where the study adds some; in a mean of pulls it is already."""
        if not self.task.noise or decision.pulls is not None or decision.clip is not None:
            return outcome.value
        noise = self._streams.at(outcome.number + 1).rng("added noise").standard_normal()
        return outcome.value + float(np.sqrt(self.task.noise) * noise)

    def _phase(self, step: int) -> str:
        return "initial" if step == 0 and self.task.phase == "search" else self.task.phase

    def _seen_in(self, step: int, decision: Decision, outcomes: Sequence[Outcome]) -> StepObservations:
        """Give what was seen in evaluations that were made one by one."""
        told: dict[int, float] = {}
        rows, t_n, units = [], self.memory.t_n, decision.x.tolist()
        for outcome in outcomes:
            value = self._value(decision, outcome) if outcome.error is None else float("nan")
            if outcome.error is None:
                told[outcome.point] = value
                t_n += outcome.pulls
            row = self._row(step, decision, list(units[outcome.point]), outcome)
            rows.append(row._replace(value=value, t_n=t_n))
        points = np.array(sorted(told), dtype=np.int64)
        retried = tuple(outcome.point for outcome in outcomes[len(decision.x) :])
        failed = tuple(outcome.error.splitlines()[0] for outcome in outcomes if outcome.error)
        return StepObservations(
            points, np.array([told[point] for point in sorted(told)]), tuple(rows), len(outcomes), retried, failed
        )

    def _row(self, step: int, made: Decision | Flying, u: list[float], outcome: Outcome) -> Row:
        return Row(
            agent=self.number,
            phase=self._phase(step),
            step=step,
            query=outcome.point,
            origin=checked(made.origin),
            x=outcome.x.tolist(),
            u=u,
            value=outcome.value,
            score=outcome.score,
            started=outcome.started,
            finished=outcome.finished,
            t_n=self.memory.t_n,
            pulls=outcome.pulls,
            error=outcome.error,
            note=made.note,
        )


def objective_of(federation: Federation, number: int, world: Streams) -> Objective:
    """Build an agent's objective, with the draws that it has in every run of a replicate; `world` is the study's own stream."""
    if isinstance(federation, Centralised):
        agents = range(federation.federation.n_agents)
        return federation.mean([objective_of(federation.federation, agent, world) for agent in agents])
    return federation.objective(number, world.shared("objective"), world.of(number).rng("objective"))
