"""Logistic regression by mini-batches: the right gradient, the right optimum, and nothing left to chance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Array
from fedbo.objectives.classifiers.logistic import DescentSettings, Labels, descend, softmax, trainee, tuned
from fedbo.objectives.space import from_unit


def flowers() -> tuple[Array, Labels]:
    x, label = load_iris(return_X_y=True)
    return (x - x.mean(axis=0)) / x.std(axis=0), label.astype(np.int64)


def cost(flat: Array, x: Array, label: Labels, l2: float) -> float:
    """The lowered quantity, from its definition: the last row of the weights is the constant."""
    weights = flat.reshape(x.shape[1] + 1, -1)
    logits = x @ weights[:-1] + weights[-1]
    right = np.take_along_axis(logits, label[:, None], axis=1)[:, 0]
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - right) + 0.5 * l2 * np.sum(weights[:-1] ** 2))


def in_order(rows: int, epochs: int) -> Labels:
    return np.tile(np.arange(rows), (epochs, 1))


def test_one_step_goes_down_the_gradient_of_the_cost() -> None:
    x, label = flowers()
    batch, length, l2 = 40, 1e-4, 0.3
    for epochs in (1, 2):  # the first step starts at zero weights, where the penalty has no slope
        before = descend(x[:batch], label[:batch] % 3, in_order(batch, epochs), DescentSettings(batch, l2, length))
        after = descend(x[:batch], label[:batch] % 3, in_order(batch, epochs + 1), DescentSettings(batch, l2, length))
        slope = (before - after).ravel() / length

        def of(flat: Array) -> float:
            return cost(flat, x[:batch], label[:batch] % 3, l2)

        assert check_grad(of, lambda _, slope=slope: slope, before.ravel()) < 1e-6


def test_many_small_steps_end_at_the_optimum_of_scipy_and_at_that_of_scikit_learn() -> None:
    x, label = flowers()
    l2 = 0.05
    ours = descend(x, label, in_order(len(x), 4000), DescentSettings(len(x), l2, 0.3))
    theirs = minimize(cost, np.zeros(ours.size), (x, label, l2), tol=1e-9).fun
    assert cost(ours.ravel(), x, label, l2) == pytest.approx(theirs, abs=1e-8)
    model = LogisticRegression(C=1.0 / (l2 * len(x)), tol=1e-10, max_iter=10_000).fit(x, label)
    assert np.abs(ours[:-1].T - model.coef_).max() < 1e-4
    assert np.abs((ours[-1] - ours[-1].mean()) - (model.intercept_ - model.intercept_.mean())).max() < 1e-4


def test_two_classes_in_two_columns_are_a_single_column_with_half_the_penalty() -> None:
    x, label = flowers()
    x, label = x[50:], label[50:] - 1
    ours = descend(x, label, in_order(len(x), 4000), DescentSettings(len(x), 0.1, 0.3))
    model = LogisticRegression(C=1.0 / (0.05 * len(x)), tol=1e-10, max_iter=10_000).fit(x, label)
    assert np.abs(ours[:-1, 1] - ours[:-1, 0] - model.coef_[0]).max() < 1e-4


def test_batches_follow_the_order_and_the_last_may_be_short() -> None:
    x, label = flowers()
    order = np.random.Generator(np.random.Philox(1)).permutation(len(x))[None]
    by_hand = np.zeros((5, 3))
    for rows in (order[0, :60], order[0, 60:120], order[0, 120:]):
        chance = softmax(x[rows] @ by_hand[:-1] + by_hand[-1]) - np.eye(3)[label[rows]]
        by_hand[-1] -= 0.1 * chance.mean(axis=0)
        by_hand[:-1] -= 0.1 * (x[rows].T @ chance / len(rows) + 0.2 * by_hand[:-1])
    assert np.allclose(descend(x, label, order, DescentSettings(60, 0.2, 0.1)), by_hand, atol=1e-14)


def test_rows_are_standardised_by_the_training_part_and_constant_columns_become_zero() -> None:
    x, label = flowers()
    given = np.column_stack([5.0 + 3.0 * x, np.full(len(x), 0.1)])
    hidden = np.arange(0, len(x), 2)
    one = trainee(given, label, hidden, 3, log=False)
    rows, _ = one.train
    assert np.allclose(rows[:, :-1].mean(axis=0), 0.0) and np.allclose(rows[:, :-1].std(axis=0), 1.0)
    assert not rows[:, -1].any() and not one.validation[0][:, -1].any()
    assert np.array_equal(one.validation[1], label[hidden])
    shift, scale = given[1::2].mean(axis=0), given[1::2].std(axis=0)
    assert np.allclose(one.validation[0][:, :-1], ((given[hidden] - shift) / scale)[:, :-1])
    assert all(sorted(order) == list(range(75)) for order in one.order) and len({tuple(order) for order in one.order}) == 3


def test_a_batch_size_is_rounded_to_a_whole_number() -> None:
    x, label = flowers()
    one = trainee(x, label, np.arange(0, len(x), 2), 1, log=False)

    def error(batch_size: float) -> float:
        return one.evaluate(np.array([batch_size, 1e-6, 0.01]), Streams(0).rng("none"))

    assert error(29.6) == error(30.0) == error(30.4)
    rows, hidden = one.train, one.validation
    weights = descend(*rows, one.order, DescentSettings(30, 1e-6, 0.01))
    assert error(30.0) == -np.mean((hidden[0] @ weights[:-1] + weights[-1]).argmax(axis=1) != hidden[1])


def test_an_easy_problem_is_learnt_at_a_good_point() -> None:
    x, label = flowers()
    one = trainee(x, label, np.arange(0, len(x), 2), 100, log=False)
    assert one.evaluate(np.array([20.0, 1e-6, 0.1]), Streams(0).rng("none")) > -0.1


def test_the_geometric_axes_are_those_of_the_penalty_and_of_the_learning_rate() -> None:
    assert [p.log for p in tuned(log=True)] == [False, True, True]
    assert not any(p.log for p in tuned(log=False))
    assert np.allclose(from_unit(tuned(log=True), [0.5, 0.5, 0.5]), [40.0, 1e-3, np.sqrt(1e-3)])
    assert np.allclose(from_unit(tuned(log=False), [0.5, 0.5, 0.5]), [40.0, 0.5000005, 0.055])
