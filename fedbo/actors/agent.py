"""One agent: its private objective, its state of the algorithm, and its rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from fedbo.actors.agent_state import AgentState, BestObservation, UncommittedStep
from fedbo.actors.evaluation.batches import cut_to_budget, pull_counts
from fedbo.actors.evaluation.evaluator import EvaluationError, Evaluator
from fedbo.actors.evaluation.failed_points import keeps_points, other_than, takes_worst, with_failures
from fedbo.actors.evaluation.learning import Learner, learned, problem_with_goals
from fedbo.actors.evaluation.step import StepEvaluator, StepResult
from fedbo.actors.storage.history_files import read_history, read_outcomes
from fedbo.actors.storage.rows import Batch, Row
from fedbo.actors.task import DecisionSize, EvaluationEnd, StepReport, StepRequest, Task, objective_of
from fedbo.algorithms.base import Array, Decision, Overlapping, Payload, Starting
from fedbo.algorithms.returned import asked, initial, outgoing, updated
from fedbo.objectives.base import cost_of
from fedbo.objectives.derived.federation import with_all_metrics
from fedbo.objectives.space import from_unit
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings.records import changed, copied
from fedbo.settings.rooms import optional

Sent = tuple[Payload | None, Any]


class HostedAgent:
    """One agent of a run, with its `state` if it has one; `overlapping` are its `AsyncEvaluations`, if the study has any."""

    overlapping: Any = None

    def __init__(
        self,
        task: Task,
        number: int,
        clock: Callable[[], float] | None = None,
        evaluator: Evaluator | None = None,
        state: AgentState | None = None,
    ) -> None:
        self.number, self.task = number, task
        self.streams = task.streams.of(number)
        world = task.streams.within("")  # an agent's objective is the same in all its tasks
        self.goals = task.goals_of(number)
        self.objective = objective_of(task.federation, number, world)
        evaluator = evaluator or Evaluator(task.policy, real=False)
        if self.goals is not None:
            self.objective, evaluator.goals = with_all_metrics(self.objective), task.goals_of
        self._evaluate = StepEvaluator(task, number, self.objective, evaluator, clock or time.monotonic)
        self._scheduled: Any = None
        history = task.history
        x, y = (None, None) if history is None else read_history(history.folder, number, task.problem.dim)
        self._budget = task.budget_of(number)
        self._message_streams = self.streams
        if getattr(task.algorithm, "hides", False):  # LocallyPrivate and CostAware, quickly
            self._message_streams = self.streams.within(self.streams.scope + task.noise_scope)
        self._cost_aware: Any = task.algorithm if getattr(task.algorithm, "needs_costs", False) else None
        warm = history is not None and number in history.warm and number in task.problem.targets
        history_x, history_y = (None, None) if warm else (x, y)
        self._problem = replace(task.problem, agent=number, history_x=history_x, history_y=history_y)
        if self.goals is not None:
            self._problem = problem_with_goals(self._problem, task, self.goals, warm)
        if state is None:
            own = task.algorithm.agent_init(self._problem, self.streams.at(0))
            if warm and x is not None and y is not None and len(x):
                own = self._warmed(own, x, y)
            state = AgentState(own)
        self.state = self.saved = state
        self.uncommitted: UncommittedStep | None = None

    def _warmed(self, own: Any, x: Array, y: Array) -> Any:
        """Return the algorithm's state after observations of an earlier study of the same task."""
        task = self.task
        if self.goals is None or task.history is None:
            return updated(task.algorithm, "tell", own, x, y)
        outcomes = dict(enumerate(read_outcomes(task.history.folder, self.number)))
        return learned(
            Learner(task.algorithm, task.policy), self.goals, own, x, (np.arange(len(y)), y), outcomes, float(y.min())
        )

    def close(self) -> None:
        """Where evaluations overlap, commit the last step, which was reported already, and cancel the running evaluations."""
        if self.overlapping is not None:
            self.commit(())
            self.overlapping.close()

    @property
    def best_value(self) -> float | None:
        """Return the largest noise-free value, if it is known; with limits or several objectives it is not the optimum."""
        asked = self.goals is not None and (self.goals.several or self.goals.constraints > 0)
        return None if asked else self.objective.best_value

    @property
    def committed(self) -> AgentState:
        """Return the committed state, without a step that the agent has finished but the coordinator has not committed."""
        return self.state if self.uncommitted is None else self.uncommitted.before

    def decide(self, request: StepRequest) -> DecisionSize:
        """Choose the points of a step and return their number, with the cost of each if the request is `priced`.

        Raises EvaluationError when the objective's cost function fails.
        """
        self._restore(request)
        self.state, decision = self.decided(request)
        pulls = None if decision.pulls is None else tuple(decision.pulls.tolist())
        if not request.priced or self.task.slopes:
            return DecisionSize(len(decision.x), self.task.costs_at(decision.x), pulls)
        return DecisionSize(len(decision.x), tuple(self._costs(decision.x).tolist()), pulls)

    def _costs(self, u: Array) -> Array:
        """Return the costs `(n,)` of evaluations at points of the unit cube `(n, d)`."""
        try:
            return np.array([cost_of(self.objective, x) for x in from_unit(self.task.federation.parameters, u)])
        except Exception as error:
            words = f"agent {self.number}: its cost could not be computed: {type(error).__name__}: {error}"
            raise EvaluationError(words) from error

    def settle(self, request: StepRequest) -> None:
        """Make the decision of a running step. Later messages do not change it."""
        self._restore(request)
        self.state, _ = self.decided(request)

    def work(self, request: StepRequest) -> StepReport | None:
        """Run a step: decide, evaluate, learn, and write the message.

        Returns None where evaluations overlap and waiting for them was interrupted. Raises
        EvaluationError when the run must stop.
        """
        report = self.begin(request)
        if report is not None:
            return report
        if self.overlapping is not None:
            before = self.state
            self.state, decision = self.decided(request)
            return self._work_overlapping(request, before, decision, self.overlapping)
        state, decision = self.decided(request)
        result = self._evaluate(request, decision, self.state.evaluated)
        self._learn(state, decision, result)
        state.spent = math.inf if decision.last else result.spent(state.spent)
        return self.end(request, state, result, self._outbox(state, request))

    def keep_made(self, request: StepRequest) -> None:
        """Keep the rows of the evaluations that an abandoned step had made; the agent is written no more."""
        if self.begin(request) is None:
            _, decision = self.decided(request)
            self.state.rows += self._evaluate(request, decision, self.state.evaluated).rows(self.state.t_n)

    def begin(self, request: StepRequest) -> StepReport | None:
        """Prepare a step. Return its report if the step is done already and the coordinator has not received the report."""
        self._restore(request)
        if request.ended is not None:
            return self._work_scheduled(request, request.ended)
        if self.uncommitted is not None and self.uncommitted.report.step >= request.step:
            report = changed(self.uncommitted.report, lease=request.lease)
            self.uncommitted = self.uncommitted._replace(report=report)
            return report
        self.commit(())
        return None

    def _outbox(self, state: AgentState, request: StepRequest) -> Sent | None:
        """Write the message of a step, if the step sends one."""
        if not (request.speaks and self.task.algorithm.sends(request.step)):
            return None
        streams = self._message_streams.at(request.step)
        return outgoing(self.task.algorithm, state.algorithm, streams, self.task.problem)

    def _work_overlapping(
        self, request: StepRequest, before: AgentState, decision: Decision, evaluations: Any
    ) -> StepReport | None:
        """Start the decided evaluations and learn from finished ones, of any step, until the agent may decide again."""
        state, result, halted = evaluations.step(self.number, self.state, decision, request)
        if halted:  # what has ended is kept all the same
            state.rows += result.rows(before.t_n)
            self.state = state
            return None
        return self.end(request, state, result, self._outbox(state, request), before)

    def _work_scheduled(self, request: StepRequest, ended: tuple[EvaluationEnd, ...]) -> StepReport:
        """Learn from the finished evaluations, and write the message if they end the step.

        The same step may be requested again when more evaluations have ended; then it is computed anew
        from the state before it.
        """
        if self.uncommitted is not None and self.uncommitted.report.step == request.step:
            self.state, self.uncommitted = self.uncommitted.before, None
        self.commit(())
        self.state, decision = self.decided(request)
        before = self.state
        if self._scheduled is None and (scheduled := optional("scheduled_evaluations")) is not None:
            self._scheduled = scheduled(self.task, self.number, self._evaluate.single)
        state, found = self._scheduled.step(before, decision, request, ended)
        if not found.is_over:
            report = StepReport(self.number, request.step, len(decision.x), None, request.lease)
            report.t_n, report.again, report.verdicts = before.t_n, found.again, found.verdicts
            report.spent = self._spent(state)
            return report
        if not self.task.overlaps:
            self._learn(state, decision, found.result)
        report = self.end(request, state, found.result, self._outbox(state, request), before)
        return changed(report, again=found.again, verdicts=found.verdicts)

    def end(
        self, request: StepRequest, state: AgentState, result: StepResult, sent: Sent | None, before: AgentState | None = None
    ) -> StepReport:
        """Store the step, with its message, as uncommitted, and return its report."""
        assert state.decision is not None
        q = len(state.decision.x)
        retried: tuple[int, ...] = ()
        if before is None:
            before = self.state
            retried = tuple([query.point for query in result.queries[q:]])
        payload, state.algorithm = (None, state.algorithm) if sent is None else sent
        # Fields set one by one take half the time of keyword arguments, here and in what else is made in every step.
        report = StepReport(self.number, request.step, q, payload, request.lease)
        report.t_n, report.pulled = state.t_n, state.pulled
        report.retried, report.failed = retried, result.failed
        end = self.task.early_end
        report.reached = end is not None and end.target is not None and result.reaches(end.target, self.goals)
        report.spent = self._spent(state)
        state.step, state.decision, state.before_decision = request.step, None, None
        self.state = state
        self.uncommitted = UncommittedStep(before, report, result)
        return report

    def _spent(self, state: AgentState) -> float:
        """Return the time of all evaluations, where the study limits it or no decision follows."""
        return state.spent if self.task.cost < math.inf or state.spent == math.inf else 0.0

    def commit(self, times: Sequence[float]) -> None:
        """Commit the last step, if one is uncommitted; `times` are the start of its evaluations and the end of each."""
        if self.uncommitted is None:
            return
        rows = self.uncommitted.result.rows(self.uncommitted.before.t_n, times)
        best = self.state.best
        for row in rows:
            if isinstance(row, Batch):
                row = row.row(int(np.argmax(row.outcome.value)))  # the first of equals
            if self.goals is not None and not self.goals.feasible(row.outcome):
                continue
            if row.error is None and (best is None or row.outcome.value > best.value):
                best = BestObservation(row.outcome.value, row.outcome.score, row.step)
        # In place: nothing else holds the state of a step that is not committed.
        self.state.best, self.state.rows = best, self.state.rows + rows
        self.uncommitted = None
        if self.state.step % self.task.checkpoint == 0:
            self.saved = self.state

    def take(self, lossy: bool) -> tuple[Row, ...]:
        """Return the rows that may be written permanently, and keep the others; `lossy` means that a crash may change rows."""
        count = len(self.saved.rows) if lossy else len(self.committed.rows)
        if not count:  # most agents where few are asked
            return ()
        written = self.state.rows[:count]
        self.state = changed(self.state, rows=self.state.rows[count:])
        self.saved = changed(self.saved, rows=self.saved.rows[count:])
        if self.uncommitted is not None:
            before = self.uncommitted.before
            self.uncommitted = self.uncommitted._replace(before=changed(before, rows=before.rows[count:]))
        return written

    def _restore(self, request: StepRequest) -> None:
        """Return to the state that the request names, if it names one."""
        if request.restore and self.uncommitted is not None:
            self.state, self.uncommitted = self.uncommitted.before, None
        if request.restore and self.state.decision is not None:
            self.state = changed(self.state, algorithm=self.state.before_decision, decision=None, before_decision=None)
        if request.restore != "checkpoint":
            return
        kept = len(self.saved.rows)
        forgotten = tuple(row if row.error else changed(row, error="forgotten in a crash") for row in self.state.rows[kept:])
        # Evaluations are counted on, so that no draw is used twice and no budget is exceeded.
        counts = {name: getattr(self.state, name) for name in ("evaluated", "pulled", "step", "spent")}
        self.state = changed(self.saved, rows=self.saved.rows + forgotten, **counts)
        self.saved = self.state

    def decided(self, request: StepRequest) -> tuple[AgentState, Decision]:
        """Return a copy of the agent's state, and the decision of a step. A decision that exists already is not made again."""
        state = copied(self.state)
        if state.decision is not None:
            return state, state.decision
        algorithm, own = self.task.algorithm, state.algorithm
        if request.step == 0:
            decision = Decision(initial_points(self.task, self.number), "initial")
        else:
            overlaps = self.overlapping is not None or (request.ended is not None and self.task.overlaps)
            if overlaps and isinstance(algorithm, Overlapping):
                waiting = np.array([query.u for query in state.pending]).reshape(-1, self._problem.dim)
                own = updated(algorithm, "pending", own, waiting)
            if self._cost_aware is not None:
                own = updated(self._cost_aware, "costing", own, self._costs)
            decision, own = asked(algorithm, own, request.inbox, self.streams.at(request.step), self._problem.dim)
        if self._problem.lattice is not None:
            decision = decision._replace(x=self._problem.lattice.project(decision.x))
        if state.failed is not None:
            decision = other_than(state.failed, decision, self._problem, self.streams.at(request.step))
        cut = False
        if self._budget.pulls:
            decision, cut = cut_to_budget(decision, self._budget.pulls - state.pulled)
        state.before_decision, state.algorithm = state.algorithm, own
        state.decision, state.cut = decision, cut
        return state, decision

    def _learn(self, state: AgentState, decision: Decision, result: StepResult) -> None:
        """Pass the observations to the algorithm, and the failed points if the policy is to avoid them."""
        algorithm, worst, failed = state.algorithm, state.worst, state.failed
        told, values = result.observed
        seen, made = len(told), len(decision.x)
        if decision.pulls is not None:
            pulls = pull_counts(decision)
            seen, made = int(pulls[told].sum()), int(pulls.sum())
        if len(values):
            least = float(values[0]) if len(values) == 1 else float(values.min())
            worst = least if worst is None else min(worst, least)
        avoids = len(told) < len(decision.x) and self.task.policy.failure == "avoid"
        if avoids and keeps_points(self.task.algorithm):
            lost = np.delete(decision.x, told, axis=0)
            algorithm, failed = with_failures(self.task.algorithm, algorithm, failed, lost)
        if avoids and worst is not None and takes_worst(self.task.algorithm):
            every = np.full(len(decision.x), worst)
            every[told] = values
            told, values = np.arange(len(every)), every
        # The algorithm would count more pulls of the last point than were made, so it does not learn of that point.
        if state.cut:
            whole = told < len(decision.x) - 1
            told, values = told[whole], values[whole]
        if self.goals is not None:
            observed, learner = (told, values), Learner(self.task.algorithm, self.task.policy)
            algorithm = learned(learner, self.goals, algorithm, decision.x, observed, result.outcomes, worst)
        elif len(told):
            x = decision.x if len(told) == len(decision.x) else decision.x[told]
            algorithm = updated(self.task.algorithm, "tell", algorithm, x, values)
        state.algorithm, state.worst, state.failed, state.decision = algorithm, worst, failed, decision
        state.evaluated += result.size
        state.t_n += seen
        state.pulled += made


def initial_points(task: Task, number: int) -> Array:
    """Return the points `(q, d)` that an agent evaluates before its first decision."""
    if number not in task.problem.targets:
        return np.empty((0, task.problem.dim))
    given = task.initial.get(number)
    if given is not None:
        return given
    streams = task.streams.of(number).at(0)
    points = streams.rng("initial points").random((task.budget_of(number).initial, task.problem.dim))
    algorithm, lattice = task.algorithm, task.problem.lattice
    if _chooses_its_start(type(algorithm)):
        points = initial(algorithm, replace(task.problem, agent=number), points)
    if isinstance(lattice, Space) and task.problem.pulls == 0:
        return lattice.spread(points, streams.rng("instead of a repeated point"))
    return points


@cache
def _chooses_its_start(kind: type) -> bool:
    """Return whether a method chooses initial points; cached, since this check costs as much as the points."""
    return issubclass(kind, Starting)
