"""The outcome of an evaluation: what objectives may return, and its way to the columns of a table."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.actors.storage.rows import EVALUATIONS, RunKey, read_table, write_evaluations
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Metric, observe
from fedbo.objectives.goals import Goal, Goals, Limit
from fedbo.objectives.outcome import Outcome, outcome_by_name, outcome_of, read_metrics, value_of, written_metrics
from fedbo.settings.arguments import short


@dataclass(frozen=True)
class Returning:
    """An objective that returns the same thing everywhere."""

    returned: Any
    noise_free: float | None = None
    best_value: float | None = None

    def evaluate(self, x: Any, rng: np.random.Generator) -> Any:
        return self.returned

    def score(self, x: Any) -> float | None:
        return self.noise_free


def evaluated(objective: Returning) -> EvaluationRecord:
    evaluator = Evaluator(Policy(), real=False)
    return evaluator(objective, Query(0, 0, 0, np.array([0.5])), Streams(0), lambda: 0.0)


@pytest.mark.parametrize("returned", [2, 2.0, np.float64(2.0), np.array(2.0), Outcome(2), Outcome(np.float64(2.0))])
@pytest.mark.parametrize("score", [None, 1, np.float64(1.0)])
def test_a_number_and_an_outcome_of_it_are_the_same(returned: Any, score: Any) -> None:
    found = evaluated(Returning(returned, score)).outcome
    assert found == Outcome(2.0, 2.0 if score is None else 1.0)
    assert type(found.value) is type(found.score) is float and value_of(returned) == 2.0
    assert observe(Returning(returned), np.array([0.5]), 3, np.random.default_rng(0)).tolist() == [2.0] * 3


def test_an_objective_may_know_the_score_of_its_outcome() -> None:
    assert evaluated(Returning(Outcome(2.0, 1.5))).outcome.score == 1.5
    assert evaluated(Returning(Outcome(2.0, 1.5), 1.0)).outcome.score == 1.0, "that of the objective is the one of all points"


def test_metrics_reach_the_table(tmp_path: Path) -> None:
    objective = Returning(Outcome(2.0, metrics={"loss": np.float32(0.5)}, reports=((1.0, 3.0),)))
    record, beyond = evaluated(objective), evaluated(Returning(Outcome(math.inf, metrics={"loss": 0.5})))
    write_evaluations([record, beyond], RunKey(0, "random", 0), tmp_path / "evaluations.parquet")
    first, second = read_table(tmp_path / "evaluations.parquet", EVALUATIONS).to_pylist()
    assert first["metrics"] == '{"loss": 0.5, "reports": [[1.0, 3.0]]}' and first["value"] == 2.0
    assert second["metrics"] == '{"loss": 0.5}' and math.isnan(second["value"]) and "not a finite number" in second["error"]
    assert EvaluationRecord.of_columns(first) == record


def test_a_metric_that_is_not_a_number_fails_the_evaluation() -> None:
    found = evaluated(Returning(Outcome(2.0, metrics={"loss": None})))
    assert "TypeError: metric 'loss' of the outcome is None; return a number" in str(found.error)


NOTES = {"why": "diverged é", "layers": [64, {"width": 2.5}], "warm": True}


def test_notes_beside_metrics_are_kept_as_they_are() -> None:
    for outcome in (evaluated(Returning(Outcome(2.0, metrics=NOTES))).outcome, outcome_by_name({"v": 2.0, **NOTES}, "v", 1)):
        assert {name: outcome.metrics[name] for name in NOTES} == NOTES
        assert {name: read_metrics(written_metrics(outcome))[0][name] for name in NOTES} == NOTES


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ([(1, 2)], "which JSON cannot keep; return text, or lists and dictionaries of text and finite numbers"),
        ([math.nan], "which JSON cannot keep"),
        ({1: "one"}, "which JSON cannot keep"),
        ([np.int64(3)], "which JSON cannot keep"),
        ("\ud800", "which JSON cannot keep"),
        ("x" * 65_536, "a note 'note' of 65,538 bytes; keep at most 65,536"),
        ((1, 2), "return a number there, or leave 'note' out"),
        (b"bytes", "return a number there, or leave 'note' out"),
    ],
)
def test_what_cannot_be_kept_as_it_is_fails_the_evaluation(note: Any, words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        outcome_by_name({"v": 2.0, "note": note}, "v", 1)


def test_a_note_is_no_metric_of_the_study_and_no_report() -> None:
    goals = Goals((Goal("v", 1),), limits=(Limit("seconds", at_most=3.0),), own=Metric("v", 1))
    assert goals.missing(Outcome(1.0, metrics={"seconds": "three"})) == goals.missing(Outcome(1.0)) == ["seconds"]
    with pytest.raises(TypeError, match="rename the metric"):
        outcome_by_name({"v": 2.0, "reports": [[1, 2]]}, "v", 1)
    assert "Returning.evaluate returned 'low'; return a number" in str(evaluated(Returning("low")).error)


@pytest.mark.parametrize(
    "returned", ["1.5", b"1", True, np.bool_(False), None, [1.0, 2.0], 10**400, Outcome("2"), Outcome(None)]
)
def test_a_value_that_is_not_a_number_is_an_error_with_the_objective(returned: Any) -> None:
    class Spoiled:
        def evaluate(self, x: Any, rng: Any) -> Any:
            return returned

    words = rf"Spoiled.evaluate returned .*{re.escape(short(getattr(returned, 'value', returned)))}; return a number"
    with pytest.raises(TypeError, match=words):
        outcome_of(returned, None, Spoiled())
    with pytest.raises(TypeError, match=words):
        observe(Spoiled(), np.zeros(1), 2, np.random.default_rng(0))  # type: ignore[arg-type]


def test_the_name_of_a_metric_may_be_no_text_and_is_kept_escaped() -> None:
    assert outcome_of(Outcome(2.0, metrics={"loss \udc80": 0.5, 3: 1})).metrics == {"loss \\udc80": 0.5, "3": 1}


@pytest.mark.parametrize("metrics", [{}, {"loss": 0.1, "reports": 3.0}])
@pytest.mark.parametrize("reports", [(), ((1.0, 0.5), (2.0, math.inf))])
def test_metrics_are_read_as_they_were_written(metrics: dict[str, float], reports: Any) -> None:
    metrics = {} if reports else metrics  # an objective that reports has no metric of that name
    assert read_metrics(written_metrics(Outcome(1.0, metrics=metrics, reports=reports))) == (metrics, reports)
