"""Evaluation of an objective at one point under the study's failure policy, with a log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import isfinite
from typing import Any

import fedbo.actors.evaluation.children  # noqa: F401  # which binds what objectives fork to this process
from fedbo.actors.evaluation.contained import Contained
from fedbo.actors.evaluation.evaluate import evaluate, failure_text
from fedbo.actors.evaluation.isolated import Isolated
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.evaluations import NAN, EvaluationRecord, Query
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import LARGEST_VALUE, Objective, is_usable
from fedbo.objectives.goals import Goals
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.typed_spaces.reports import EvaluationMoved, answered_by, moved_by, reports_of
from fedbo.settings.own_code import ends_process
from fedbo.settings.trust import ChangedCodeError

_UNJUDGED = nullcontext()  # one for all: what gives a context takes as long as an evaluation of a free objective


class EvaluationError(RuntimeError):
    """An objective failed, and the study's policy is to stop the run."""


class NotMadeError(Exception):
    """An evaluation is not in the log, and is not made any more."""


class Evaluator:
    """Evaluates queries under a policy, and logs every evaluation so that none is lost.

    - `delay`: called after each evaluation in real time with the agent and its duration in seconds.
    - `stopping`: the `ReportedStopping` that judges what evaluations report, if set.
    - `goals`: returns the objectives and limits of an agent, whose metrics every evaluation must return, if the study has any.
    - `ahead`: records by agent and number of evaluations that were made before their agent asked for them.
    - `counted`: called with the number of evaluations before they begin; it may raise.
    - `over`: whether no more evaluation begins; one that is not in the log raises NotMadeError then.
    - `leaves`: returns whether the node of this process leaves, so that evaluations move once they have kept a checkpoint.
    - `printed`: called with the text that an evaluation printed, where objectives may run user code.
    """

    def __init__(
        self,
        policy: Policy,
        real: bool,
        log: EvaluationLog | None = None,
        delay: Callable[[int, float], None] | None = None,
        recorded: bool = False,
    ) -> None:
        self.stopping: Any = None
        self.goals: Callable[[int], Goals | None] | None = None
        self.printed: Callable[[Query, str], None] | None = None
        self.counted: Callable[[int], None] | None = None
        self.ahead: dict[tuple[int, int], EvaluationRecord] = {}
        self.over = False
        self.leaves: Callable[[], bool] | None = None
        self._policy, self._real, self._log, self._delay, self._recorded = policy, real, log, delay, recorded
        self._again = policy.failure == "stop" and not recorded  # what stopped the run may have been mended
        limited = real and (policy.time_limit is not None or policy.memory_limit is not None)
        self._isolated = Isolated(policy.time_limit, policy.memory_limit) if limited else None

    def isolate(self, wanted: bool, patience: float | None) -> None:
        """Run evaluations in a separate process if `wanted` and they have none yet; kill one after `patience` seconds."""
        if wanted and self._isolated is None:
            self._isolated = Isolated(patience, None, "hosting.patience")

    @property
    def at_once(self) -> bool:
        """Return whether the points of a decision may be evaluated together: only in virtual time and in this process."""
        return not (self._real or self._recorded or self._isolated is not None)

    def __call__(self, objective: Objective, query: Query, streams: Streams, clock: Callable[[], float]) -> EvaluationRecord:
        """Run one evaluation, or look it up in the log of an earlier process."""
        limit = self._policy.time_limit
        if query.length is not None and limit is not None and query.length > limit:
            # It is not logged: if a crash makes it begin again, it may take another time.
            return query.failed(f"took longer than time_limit = {limit:g}")
        if query.known is not None:  # it would be made again to the same bits, and sooner than read in a log
            return query.evaluated(query.known)
        ahead = self.ahead.pop((query.agent, query.number), None)
        if ahead is not None:
            return ahead
        found = self._log.find(query) if self._log is not None else None
        if found is not None and (found.error is None or not self._again):
            return found
        if self.over:
            raise NotMadeError
        if self.counted is not None:
            self.counted(query.times)
        started = clock() if self._real else 0.0
        record = self.evaluate(objective, query, streams)
        if self._delay is not None:
            self._delay(query.agent, clock() - started)
        if self._real:
            record.started, record.finished = started, clock()
        if self._log is not None:
            self._log.append([record])
        if self.stopping is not None and (record.error is None or query.tries >= self._policy.retries):
            self.stopping.ended(None, query, record, False)
        return record

    def close(self) -> None:
        """End the separate process of evaluations, if there is one."""
        if self._isolated is not None:
            self._isolated.close()

    def evaluate(self, objective: Objective, query: Query, streams: Streams) -> EvaluationRecord:
        """Run one evaluation and return its record, without times."""
        if self.printed is None:
            return self._judged(objective, query, streams)
        with Contained() as kept:
            record = self._judged(objective, query, streams)
        if text := kept.text:
            self.printed(query, text)
        return record

    def _judged(self, objective: Objective, query: Query, streams: Streams) -> EvaluationRecord:
        judge = None if self.stopping is None else self.stopping.judge(query, streams)
        asked = judge if judge is None or self.leaves is None else moved_by(judge, self.leaves)
        try:
            with _UNJUDGED if asked is None else answered_by(asked):
                # In real time its reports say how far it has come.
                known = query.x, streams, query.pulls, None if self._real else query.fidelity
                if self._isolated is not None:
                    outcome = self._isolated.evaluate(query.agent, objective, *known)
                else:
                    outcome = evaluate(objective, *known)
        except BaseException as error:  # a training script that is called as a function may end by sys.exit
            if ends_process(error) or isinstance(error, ChangedCodeError | EvaluationMoved):
                raise
            return query.failed(failure_text(error), Outcome(NAN, reports=reports_of(error)))
        value = outcome.value
        if not is_usable(value):
            what = f"a number larger than {LARGEST_VALUE:g} in magnitude" if isfinite(value) else "not a finite number"
            return query.failed(f"the objective returned {value}, {what}", outcome)
        record = query.evaluated(outcome)
        if judge is not None:
            record = judge.judged(record)
        goals = None if self.goals is None else self.goals(query.agent)
        return record if goals is None else with_metrics(goals, query, record)


def with_metrics(goals: Goals, query: Query, record: EvaluationRecord) -> EvaluationRecord:
    """Return the record of an evaluation, as a failed one where it returned no number for a metric of the study at all."""
    if record.error is not None or record.stopped is not None or not (missing := goals.missing(record.outcome)):
        return record
    there = ", ".join(record.outcome.metrics) or "none"
    why = f"the objective returned no metric '{missing[0]}' that is a number, for [[metric]]; its other entries: {there}"
    return query.failed(why, Outcome(record.outcome.value, metrics=record.outcome.metrics, reports=record.outcome.reports))
