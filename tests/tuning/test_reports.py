"""Intermediate reports: kept with an evaluation that succeeds, raises, dies or is late, and seen by callbacks."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tuned_functions

from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.algorithms.streams import Streams
from fedbo.execution.monitor import _evaluation
from fedbo.objectives.typed_function import TypedFunction
from fedbo.objectives.typed_spaces.spaces import written_space

SPACE = written_space(tuned_functions.SPACE)


def outcome(policy: Policy, function: Any, n: int) -> EvaluationRecord:
    federation = TypedFunction(function, SPACE)
    rng = np.random.default_rng(1)
    evaluator = Evaluator(policy, real=True)
    x = federation.lattice.encode({"rate": 0.01, "n": n, "kind": "a"})
    native = np.array([each.high if each.name == "rate" else n if each.name == "n" else 0.0 for each in federation.parameters])
    assert len(x) == len(native)
    found = evaluator(federation.objective(0, rng, rng), Query(0, 0, 0, native), Streams(1), time.monotonic)
    evaluator.close()
    return found


@pytest.mark.parametrize("policy", [Policy(), Policy(time_limit=20.0)], ids=["in this process", "in one of its own"])
@pytest.mark.parametrize(("n", "error"), [pytest.param(5, None, marks=pytest.mark.long), (4, "not this n")])
def test_reports_stand_with_the_evaluation(policy: Policy, n: int, error: str | None) -> None:
    found = outcome(policy, tuned_functions.reporting, n)
    assert [*found.outcome.reports] == [(1.0, n), (2.0, n / 2), (3.0, n / 3)] and not found.outcome.metrics
    assert (found.error is None) if error is None else error in str(found.error)


def test_what_was_reported_before_the_limit_struck_is_kept_and_seen() -> None:
    found = outcome(Policy(time_limit=0.5), tuned_functions.reporting, 3)
    assert "TimeoutError: took longer than time_limit = 0.5" in str(found.error)
    federation = TypedFunction(tuned_functions.reporting, SPACE)
    seen = _evaluation(federation, found)
    assert seen.reports == ((1.0, 3.0), (2.0, 1.5), (3.0, 1.0)) and seen.value is None and seen.metrics == {}


def test_a_metric_cannot_take_the_name_of_the_reports() -> None:
    def both(config: dict[str, Any], report: Any) -> dict[str, float]:
        report(1.0)
        return {"value": 1.0, "reports": 2.0}

    assert "metric 'reports'; rename the metric" in str(outcome(Policy(), both, 5).error)
