"""Posteriors and evidence against decimal arithmetic with 60 digits, the linear model after 500 updates of rank one."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext

import numpy as np
import numpy.typing as npt
import pytest

from fedbo.algorithms.components.surrogate import KEPT
from fedbo.surrogates import linear
from fedbo.surrogates.features import draw_features, phi
from fedbo.surrogates.gp import Hyperparameters, condition, log_marginal_likelihood, predict
from fedbo.surrogates.linear import gram_factor, linear_model, update

Array = npt.NDArray[np.float64]
Rows = list[list[Decimal]]
DIGITS = Context(prec=60)


def exact(values: Array) -> Rows:
    return [[Decimal(float(value)) for value in row] for row in values]


def dot(one: Sequence[Decimal], other: Sequence[Decimal]) -> Decimal:
    return sum((a * b for a, b in zip(one, other, strict=True)), Decimal(0))


def cholesky(matrix: Rows) -> Rows:
    factor: Rows = []
    for row in matrix:
        own: list[Decimal] = []
        for j in range(len(factor)):
            own.append((row[j] - dot(own, factor[j][:j])) / factor[j][j])
        own.append((row[len(factor)] - dot(own, own)).sqrt())
        factor.append(own)
    return factor


def solved(factor: Rows, right: Sequence[Decimal]) -> list[Decimal]:
    """Solve by forward and back substitution."""
    half: list[Decimal] = []
    for row, value in zip(factor, right, strict=True):
        half.append((value - dot(row[:-1], half)) / row[-1])
    count = len(factor)
    found = [Decimal(0)] * count
    for i in reversed(range(count)):
        rest = sum((factor[j][i] * found[j] for j in range(i + 1, count)), Decimal(0))
        found[i] = (half[i] - rest) / factor[i][i]
    return found


@pytest.mark.parametrize("noise", [0.01, 1e-6])
def test_a_linear_model_is_exact_after_500_updates_of_rank_one(noise: float) -> None:
    """The condition number grows to 1e9; errors beyond it are lost digits of the updates."""
    rng = np.random.default_rng(1)
    features, x = draw_features(rng, 2, 24, 0.3), rng.random((500, 2))
    rows, y, other = phi(features, x), np.sin(7.0 * x[:, 0]) + x[:, 1], phi(features, rng.random((5, 2)))
    model = linear_model(24, noise)
    for row, value in zip(rows, y, strict=True):
        model = update(model, row, value)
    mean, variance = linear.predict(model, other)
    with localcontext(DIGITS):
        columns, target = exact(rows.T), [Decimal(float(value)) for value in y]
        gram = [[dot(one, two) for two in columns] for one in columns]
        for place, row in enumerate(gram):
            row[place] += Decimal(noise)
        factor, right = cholesky(gram), [dot(column, target) for column in columns]
        weights = solved(factor, right)
        for place, row in enumerate(exact(other)):
            assert mean[place] == pytest.approx(float(dot(row, weights)), rel=1e-9, abs=1e-9)
            expected = float(Decimal(noise) * dot(row, solved(factor, row)))
            assert variance[place] == pytest.approx(expected, rel=1e-6)


def test_a_factor_that_grew_row_by_row_is_exact() -> None:
    """The dual form of the same model, with fewer observations than features: each is a row of a Cholesky factor."""
    rng = np.random.default_rng(2)
    rows, noise, grown = phi(draw_features(rng, 3, 60, 0.3), rng.random((59, 3))), 0.01, None
    for n in range(1, 60):
        grown = gram_factor(rows[:n], noise, grown)
    with localcontext(DIGITS):
        own = exact(rows)
        gram = [[dot(one, two) for two in own] for one in own]
        for place, row in enumerate(gram):
            row[place] += Decimal(noise)
        packed = [float(value) for row in cholesky(gram) for value in row]
    np.testing.assert_allclose(grown, packed, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [40, pytest.param(KEPT, marks=pytest.mark.long)])
def test_the_posterior_and_the_evidence_of_a_gaussian_process_are_exact(n: int) -> None:
    """Of as many observations as a posterior may have, with a kernel that is nearly singular: noise of 1e-4."""
    rng = np.random.default_rng(3)
    x, other = rng.random((n, 2)), rng.random((5, 2))
    y = np.sin(6.0 * x[:, 0]) + x[:, 1] ** 2 + 0.01 * rng.standard_normal(n)
    hyper = Hyperparameters(0.4, 1.4, 1e-4, "se")
    mean, variance = predict(condition(hyper, x, y), other)
    evidence = log_marginal_likelihood(hyper, x, y)[0]
    with localcontext(DIGITS) as digits:
        points, target = exact(x), [Decimal(float(value)) for value in y]

        def kernel(one: Sequence[Decimal], two: Sequence[Decimal]) -> Decimal:
            gaps = [a - b for a, b in zip(one, two, strict=True)]
            return Decimal(1.4) * digits.exp(-dot(gaps, gaps) / (2 * Decimal(0.4) ** 2))

        matrix = [[kernel(one, two) for two in points[: i + 1]] for i, one in enumerate(points)]
        for place, row in enumerate(matrix):
            row[place] += Decimal(1e-4)
        factor = cholesky(matrix)
        weights = solved(factor, target)
        logs = sum((row[-1].ln() for row in factor), Decimal(0))
        exactly = -dot(target, weights) / 2 - logs - n * (2 * Decimal(float(np.pi))).ln() / 2
        assert evidence == pytest.approx(float(exactly), rel=1e-8)
        for place, one in enumerate(exact(other)):
            towards = [kernel(one, two) for two in points]
            assert mean[place] == pytest.approx(float(dot(towards, weights)), abs=1e-8)
            left = Decimal(1.4) - dot(towards, solved(factor, towards))
            assert variance[place] == pytest.approx(float(left), abs=1e-10)
