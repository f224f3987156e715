"""Goals: what the metrics of an outcome are worth, by hand."""

from __future__ import annotations

import math
import pickle

import numpy as np

from fedbo.objectives.base import Metric
from fedbo.objectives.goals import AgentGoals, Goal, Goals, Limit, goals_in
from fedbo.objectives.outcome import Outcome

GOALS = Goals(
    (Goal("error", -1, 1.0), Goal("seconds", -1, 600.0), Goal("recall", 1, 0.2, 3.0)),
    (Limit("memory", at_most=8.0), Limit("seconds", at_least=1.0, at_most=500.0)),
    Metric("error", -1, 1.0),
)


def test_values_are_signed_and_margins_are_distances_to_the_bounds() -> None:
    """The first value is the outcome's own to the bit; others are native numbers times their sign."""
    seen = Outcome(0.75, 0.7, {"seconds": 60.0, "recall": 0.5, "memory": 9.0})
    assert GOALS.values(seen).tolist() == [0.75, -60.0, 0.5]
    assert GOALS.margins(seen).tolist() == [8.0 - 9.0, 500.0 - 60.0, 60.0 - 1.0]
    assert not GOALS.feasible(seen)
    assert GOALS.references == (0.0, -600.0, 0.2)  # an error of 1 is the value 0 with this offset
    assert GOALS.weights == (1.0, 1.0, 3.0)
    assert (GOALS.constraints, GOALS.several, GOALS.names) == (3, True, ("error", "seconds", "recall", "memory"))


def test_a_bound_that_is_met_exactly_is_kept() -> None:
    """At the limit is feasible, beyond it is not."""
    there = {"seconds": 1.0, "recall": 0.5, "memory": 8.0}
    assert GOALS.feasible(Outcome(0.1, metrics=there))
    assert not GOALS.feasible(Outcome(0.1, metrics={**there, "memory": np.nextafter(8.0, 9.0)}))


def test_a_missing_metric_is_not_a_number_and_not_feasible() -> None:
    """NaN and infinity count as not known; `missing` names only what was not returned at all."""
    for metrics in ({"seconds": 2.0, "recall": 0.5}, {"seconds": 2.0, "recall": 0.5, "memory": math.nan}):
        margins = GOALS.margins(Outcome(0.1, metrics=metrics))
        assert math.isnan(margins[0]) and not np.isnan(margins[1:]).any()
        assert not GOALS.feasible(Outcome(0.1, metrics=metrics))
    assert GOALS.missing(Outcome(0.1, metrics={"seconds": 2.0, "memory": math.inf})) == ["recall"]
    assert math.isnan(GOALS.values(Outcome(0.1, metrics={"seconds": math.inf, "recall": 0.5}))[1])
    assert not GOALS.feasible(Outcome(math.nan, metrics={"seconds": 2.0, "recall": 0.5, "memory": 1.0}))


def test_limits_on_the_own_metric_are_judged_by_the_score_and_learned_by_the_value() -> None:
    """Noise near a limit gives no advantage afterwards, and the agent learns only what it has observed."""
    goals = Goals((Goal("value", 1),), (Limit("value", at_least=1.0),))
    seen = Outcome(1.2, 0.9)
    assert goals.margins(seen)[0] > 0 and not goals.feasible(seen)


def test_goals_pickle_and_pass_through_a_manifest() -> None:
    """Agents with equal goals are one entry of the manifest."""
    other = Goals(GOALS.objectives, (Limit("memory", at_most=4.0), GOALS.limits[1]), GOALS.own)
    asked = AgentGoals(GOALS, {1: other, 3: other})
    assert pickle.loads(pickle.dumps(asked)) == asked
    assert len(asked.document()["own"]) == 1
    assert goals_in({"goals": [asked.document()]}) == [asked]
    assert asked.of(3) == other and asked.of(0) == GOALS
