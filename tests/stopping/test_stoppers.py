"""Stoppers as pure functions: rungs and brackets, verdicts and promotions, and the same stops as Optuna's pruner."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.actors.storage.evaluations import Query
from fedbo.algorithms.streams import Streams
from fedbo.objectives.outcome import Outcome
from fedbo.stopping.stoppers import Halving, Hyperband, Median, RungState, Stopper, is_among_best
from fedbo.stopping.stopping import Stopping


def query(stopping: Stopping, number: int) -> Query:
    return Query(0, number, 0, np.zeros(1), step=number, span=stopping.first(Streams(1).of(0), number, 0))


def run(stopping: Stopping, curves: np.ndarray) -> list[int]:
    """Carry evaluations out one after the other; give how far each came. `curves (n, largest)` has their values."""
    rungs, reached = RungState(), []
    for number, curve in enumerate(curves):
        verdict, now = "go", query(stopping, number)
        while verdict == "go":
            assert now.fidelity is not None
            fidelity = now.fidelity
            rungs, verdict, now = stopping.judge(rungs, now, Outcome(float(curve[fidelity - 1])))
        reached.append(fidelity)
    return reached


def test_rungs_are_powers_of_the_reduction_and_brackets_begin_at_one_after_the_other() -> None:
    assert Halving().brackets(1, 52) == ((1, 3, 9, 27, 52),)
    assert Halving(reduction=2, smallest=5).brackets(1, 20) == ((5, 10, 20),)
    assert Hyperband().brackets(1, 27) == ((1, 3, 9, 27), (3, 9, 27), (9, 27), (27,))
    assert Median(grace=4, interval=5).brackets(1, 20) == ((4, 9, 14, 19, 20),)


def test_brackets_get_as_many_evaluations_as_those_of_hyperband() -> None:
    """Li et al. 2018, Alg. 1 with R = 81 and a reduction of 3; drawn shares are within four standard deviations."""
    assert Hyperband().shares(5) == (81.0, 34.0, 15.0, 8.0, 5.0)
    stopping = Stopping(Hyperband(), 1, 81)
    drawn = np.array([stopping.first(Streams(3).of(0), step, point).bracket for step in range(500) for point in range(2)])
    expected = np.array(Hyperband().shares(5)) / 143.0
    found = np.bincount(drawn, minlength=5) / len(drawn)
    assert (abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / len(drawn))).all()


def test_the_best_of_a_rung_go_on_and_the_first_always_does() -> None:
    assert is_among_best({(0, 0): 1.0}, (0, 0), 3)
    values = {(step, 0): float(step) for step in range(7)}
    assert [is_among_best(values, (step, 0), 3) for step in range(7)] == [False] * 5 + [True] * 2


def test_the_median_rule_stops_what_is_below_the_median_of_the_means() -> None:
    curves = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0], [1.9, 9.0, 9.0], [2.0, 2.5, 9.0]])
    assert run(Stopping(Median(), 1, 3), curves) == [3, 3, 3, 1, 3]


def test_paused_evaluations_are_promoted_from_the_highest_rung_and_each_once() -> None:
    stopping = Stopping(Halving(variant="promote"), 1, 9)
    rungs, order = RungState(), []
    for number, value in enumerate([1.0, 3.0, 2.0, 0.0, 5.0, 4.0]):
        rungs, verdict, _ = stopping.judge(rungs, query(stopping, number), Outcome(value))
        assert verdict == "pause"
        rungs, found = stopping.promoted(rungs)
        if found is not None and found.span is not None:
            order.append((number, found.step, found.span.since, found.span.fidelity))
    assert order == [
        (2, 1, 1, 3),
        (4, 4, 1, 3),
        (5, 5, 1, 3),
    ]  # of six values two go on: the sixth, for 1 is among them no more


@pytest.mark.parametrize("reduction", [2, 3, 4])
def test_the_same_evaluations_stop_at_the_same_rungs_as_by_optunas_pruner(reduction: int) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rng = np.random.default_rng(5)
    curves = np.round(rng.normal(size=(60, 1)) + np.cumsum(rng.normal(size=(60, 52)), axis=1) / 7, 1)  # with equal values
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=reduction, min_early_stopping_rate=0)
    study = optuna.create_study(direction="maximize", pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0))
    reached = []
    for curve in curves:
        trial = study.ask()
        for step in range(1, 53):
            trial.report(float(curve[step - 1]), step)
            if step < 52 and trial.should_prune():
                break
        reached.append(step)
        study.tell(trial, float(curve[step - 1]))
    stopper: Stopper = Halving(reduction=reduction)
    assert run(Stopping(stopper, 1, 52), curves) == reached
