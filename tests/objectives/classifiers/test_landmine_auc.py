"""The landmine fields as a bandit: the same AUCs, fitted once, and the best of their mean."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.algorithms.streams import Streams
from fedbo.objectives.classifiers.landmine import FIELDS, FieldReward, Landmine, LandmineAUC, _auc
from fedbo.objectives.datasets.data import inventory
from fedbo.objectives.derived.mean import MeanFunction, optimum

NO_DATA = not any(row.name == "landmine" and row.state == "found" for row in inventory())
pytestmark = pytest.mark.skipif(NO_DATA, reason="LandmineData.mat is not here: see `fedbo data list`")


def mine(agent: int, federation: LandmineAUC | None = None) -> FieldReward:
    return (federation or LandmineAUC()).objective(agent, Streams(0).rng("world"), Streams(0).rng("own"))


def test_a_reward_is_the_auc_of_the_field_and_lies_between_zero_and_one() -> None:
    x = np.array([3.0, 0.4])
    for agent in (0, 17):
        plain = Landmine().objective(agent, Streams(0).rng("world"), Streams(0).rng("own"))
        assert mine(agent).score(x) == plain.evaluate(x, Streams(0).rng("noise"))
        assert 0.0 <= mine(agent).score(x) <= 1.0


def test_a_machine_is_fitted_once_however_often_its_point_is_evaluated() -> None:
    one, x = mine(5, LandmineAUC(half_width=0.1)), np.array([2.5, 0.123])
    before = _auc.cache_info().misses
    seen = one.evaluate_many(x, 100, Streams(1).rng("noise"))
    assert _auc.cache_info().misses <= before + 1
    one.evaluate(x, Streams(2).rng("noise"))
    assert _auc.cache_info().misses <= before + 1
    assert len(np.unique(seen)) == 100 and np.abs(seen - one.score(x)).max() <= 0.1


@pytest.mark.long
def test_the_best_mean_known_is_had_and_not_exceeded_nearby() -> None:
    federation = LandmineAUC()
    mean = MeanFunction([mine(agent) for agent in range(FIELDS)], federation.parameters)
    best = optimum(mean, federation)
    assert mean(np.array([best.x]))[0] == pytest.approx(best.value, abs=1e-12)
    around = np.array([[4.0, 0.012], [3.0, 0.01], [7.5, 0.0119], [0.5, 0.01]])
    assert mean(around).max() < best.value


def test_no_noise_of_a_negative_width_is_taken() -> None:
    with pytest.raises(ValueError, match="half_width must be at least 0 and finite, not -0.1"):
        LandmineAUC(half_width=-0.1)
