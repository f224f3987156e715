"""The network with one hidden layer against finite differences, and the ridge on its gradients against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.algorithms.bandits.neural import Sample, added, descend, empty, jacobian, norms, parameters, ridge, updated, value
from fedbo.surrogates.posterior import Diverged, NotPositiveDefinite


def _network(dim: int, width: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([dim, width])
    return rng.standard_normal(parameters(dim, width)), rng.uniform(-1, 1, (n, dim))


def _loss(weights: np.ndarray, x: np.ndarray, y: np.ndarray, decay: float) -> float:
    return float(np.mean((value(weights, x) - y) ** 2) + 0.5 * decay * weights @ weights)


@pytest.mark.parametrize(("dim", "width"), [(1, 20), (3, 5), (10, 20)])
def test_the_jacobian_is_that_of_finite_differences(dim: int, width: int) -> None:
    weights, x = _network(dim, width, 12)
    steps = 1e-6 * np.eye(len(weights))
    differences = np.array([(value(weights + step, x) - value(weights - step, x)) / 2e-6 for step in steps]).T
    np.testing.assert_allclose(jacobian(weights, x), differences, atol=1e-8)


def test_the_value_is_that_of_the_formula_unit_by_unit() -> None:
    weights, x = _network(2, 4, 5)
    inner, shift, outer, offset = weights[:8].reshape(4, 2), weights[8:12], weights[12:16], weights[16]
    plain = [sum(outer[j] * max(0.0, inner[j] @ point + shift[j]) for j in range(4)) + offset for point in x]
    np.testing.assert_allclose(value(weights, x), plain)


def test_a_step_of_descent_follows_the_gradient_of_the_loss_of_all_single_values() -> None:
    weights, points = _network(3, 6, 4)
    rng = np.random.default_rng(0)
    x, y = points[rng.integers(0, 4, 30)], rng.random(30)
    sample = empty(3)
    for point, target in zip(x, y, strict=True):
        sample = added(sample, point, float(target))
    assert len(sample.x) == 4 and sample.times.sum() == 30
    steps = 1e-6 * np.eye(len(weights))
    gradient = np.array([_loss(weights + h, x, y, 0.3) - _loss(weights - h, x, y, 0.3) for h in steps]) / 2e-6
    np.testing.assert_allclose(descend(weights, sample, 1, 0.01, 0.3), weights - 0.01 * gradient, atol=1e-9)
    assert _loss(descend(weights, sample, 200, 0.01, 0.0), x, y, 0.0) < 0.5 * _loss(weights, x, y, 0.0)


def test_descent_that_diverges_says_so() -> None:
    weights, x = _network(1, 50, 8)
    with pytest.raises(Diverged, match="diverge at a learning rate of 10; use a lower rate"):
        descend(weights, Sample(x, np.ones(8), np.ones(8)), 400, 10.0, 0.0)


def test_a_ridge_grown_by_rows_is_the_dense_one_after_ten_thousand() -> None:
    weights, x = _network(1, 8, 10_000)
    rows, lam = jacobian(weights, x), 0.1
    grown = ridge(np.zeros((len(weights),) * 2), lam)
    for row in rows:
        grown = updated(grown, row)
    dense = lam * np.eye(len(weights)) + rows.T @ rows
    made = ridge(rows.T @ rows, lam)
    for inverse in (grown.inverse, made.inverse):
        np.testing.assert_allclose(inverse @ dense, np.eye(len(weights)), atol=1e-7)
        np.testing.assert_array_equal(inverse, inverse.T)
    np.testing.assert_allclose(grown.diagonal, dense.diagonal())
    np.testing.assert_allclose(grown.volume, np.linalg.slogdet(dense / lam)[1], rtol=1e-9)
    np.testing.assert_allclose(grown.width, np.log(dense.diagonal() / lam).sum(), rtol=1e-9)
    some = np.einsum("np,pq,nq->n", rows[:9], np.linalg.inv(dense), rows[:9])
    np.testing.assert_allclose(norms(rows[:9], grown.inverse), np.sqrt(some), rtol=1e-6)


def test_a_ridge_of_what_is_no_sum_of_squares_is_refused() -> None:
    with pytest.raises(NotPositiveDefinite, match="no Cholesky factor"):
        ridge(-np.eye(3), 0.5)
