"""The compiled acquisition against NumPy, numerical references, and many restarts of L-BFGS-B by SciPy."""

from __future__ import annotations

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import Bounds, minimize

from fedbo.surrogates.acquisition import (
    Criterion,
    _cube,
    _standard,
    criterion_values,
    log_expected_improvement,
    maximise_criterion,
    prediction,
    process,
    upper_confidence_bound,
)
from fedbo.surrogates.gp import Hyperparameters, Posterior, condition, predict

Array = npt.NDArray[np.float64]
FAMILIES = ("se", "matern32", "matern52")


def posterior_of(seed: int, dim: int, n: int, scale: float = 0.5) -> Posterior:
    """Values of a smooth function with a ripple, half of them near the best point, as a search leaves them."""
    rng = np.random.default_rng((seed, dim))
    x = rng.random((n, dim))
    x[n // 2 :] = np.clip(x[0] + 0.1 * rng.standard_normal((n - n // 2, dim)), 0.0, 1.0)
    y = -((x - 0.4) ** 2).sum(axis=1) + 0.1 * np.cos(9.0 * x).sum(axis=1)
    scales = tuple((scale * np.sqrt(dim) * rng.uniform(0.5, 2.0, dim)).tolist())
    hyper = Hyperparameters(scales, 1.3, 1e-5, FAMILIES[seed % 3], float(y.mean()), float(y.std()))
    return condition(hyper, x, y)


def numpy_at(posterior: Posterior, criterion: Criterion, x: Array) -> tuple[Array, Array]:
    at = prediction(posterior, x)
    if criterion.bounding:
        return upper_confidence_bound(at, criterion.level)
    return log_expected_improvement(at, criterion.level)


def test_the_compiled_acquisition_and_its_gradient_are_those_of_numpy() -> None:
    from fedbo.surrogates.compiled.improvement import negative_acquisition
    from fedbo.surrogates.compiled.search import _model

    for seed in range(120):
        dim = 1 + seed % 12
        made = posterior_of(seed, dim, 3 + seed % 50)
        hyper = Hyperparameters(made.hyper.length_scale, 1.3, 1e-3, made.hyper.family)
        posterior = condition(hyper, made.x, (made.y - made.hyper.offset) / made.hyper.scale)
        criterion = Criterion(2.0, bounding=True) if seed % 4 == 0 else Criterion(float(posterior.y.max()) + 0.1 * (seed % 3))
        x, gradient = np.random.default_rng(seed).random((1 + seed, dim)), np.empty(dim)
        model = _model(process(posterior), _standard(posterior, criterion), _cube(dim))
        value = -negative_acquisition(model, x[0], gradient)
        expected, slopes = numpy_at(posterior, criterion, x)
        assert value == pytest.approx(expected[0], rel=1e-8, abs=1e-8)
        np.testing.assert_allclose(criterion_values(posterior, criterion, x), expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(-gradient, slopes[0], rtol=1e-6, atol=1e-7 * max(1.0, float(np.abs(slopes[0]).max())))


@pytest.mark.parametrize("z", [8.0, 1.0, 0.0, -0.999, -1.001, -5.0, -20.0, -29.99, -30.01, -300.0, -1e5])
def test_the_logarithm_of_the_improvement_is_exact_in_the_tail_too(z: float) -> None:
    from fedbo.surrogates.compiled.improvement import log_improvement

    with mpmath.workdps(60):
        at = mpmath.mpf(z)
        density = mpmath.exp(-at * at / 2) / mpmath.sqrt(2 * mpmath.pi)
        below = mpmath.erfc(-at / mpmath.sqrt(2)) / 2
        if z < -1e3:  # by the series, whose next term is far below rounding
            q = 1 / at**2
            share = density * q * (1 - 3 * q + 15 * q**2)
            below = density * (1 - q + 3 * q**2 - 15 * q**3) / -at
        else:
            share = density + at * below
        expected = [float(mpmath.log(share)), float(below / share), float(density / share)]
    np.testing.assert_allclose(log_improvement(z), expected, rtol=1e-9, atol=1e-9)


def many_restarts(posterior: Posterior, criterion: Criterion, dim: int, count: int) -> float:
    """The best of L-BFGS-B by SciPy from the best of many points, uniform ones and others near the observed points."""
    rng = np.random.default_rng(99)
    near = posterior.x[rng.integers(0, len(posterior.x), 4000)] + 0.1 * rng.standard_normal((4000, dim))
    points = np.vstack([rng.random((4000, dim)), np.clip(near, 0.0, 1.0), posterior.x])
    order = np.argsort(-numpy_at(posterior, criterion, points)[0])[: count // 2]
    starts = np.vstack([points[order], points[rng.integers(0, len(points), count // 2)]])

    def function(x: Array) -> tuple[float, Array]:
        value, gradient = numpy_at(posterior, criterion, x[None, :])
        return -float(value[0]), -gradient[0]

    box = Bounds(np.zeros(dim), np.ones(dim))
    return max(-float(minimize(function, x, jac=True, method="L-BFGS-B", bounds=box).fun) for x in starts)


@pytest.mark.parametrize(
    ("dim", "seeds", "most"),
    [
        (2, 3, 0),
        pytest.param(6, 3, 0, marks=pytest.mark.long),
        *(pytest.param(dim, 8, 1, marks=pytest.mark.long) for dim in (2, 6, 10, 20)),
    ],
)
def test_maxima_are_those_of_many_restarts(dim: int, seeds: int, most: int) -> None:
    """In one of eight problems the search may be .05 behind, in the logarithm of the improvement; in none of the first."""
    behind = 0
    for seed in range(seeds):
        posterior = posterior_of(seed, dim, 20 + 5 * seed)
        criterion = Criterion(float(predict(posterior, posterior.x)[0].max()))
        place, found = maximise_criterion(posterior, criterion, np.random.default_rng(seed))
        assert ((place >= 0.0) & (place <= 1.0)).all()
        assert found == pytest.approx(float(numpy_at(posterior, criterion, place[None, :])[0][0]), abs=1e-6)
        behind += found < many_restarts(posterior, criterion, dim, 30) - 0.05
    assert behind <= most


def test_the_bound_is_maximised_in_the_units_of_the_values() -> None:
    posterior = posterior_of(2, 3, 20)
    criterion = Criterion(2.0, bounding=True)
    place, found = maximise_criterion(posterior, criterion, np.random.default_rng(0))
    assert found == pytest.approx(float(numpy_at(posterior, criterion, place[None, :])[0][0]), rel=1e-9)
    assert found >= many_restarts(posterior, criterion, 3, 20) - 1e-6


def test_the_same_generator_gives_the_same_point() -> None:
    posterior, criterion = posterior_of(1, 5, 25), Criterion(0.5)
    first, second = (maximise_criterion(posterior, criterion, np.random.default_rng(7))[0] for _ in range(2))
    assert (first == second).all()


def test_an_acquisition_that_is_not_finite_is_refused() -> None:
    posterior = posterior_of(1, 2, 5)
    with pytest.raises(ValueError, match="not finite"):
        maximise_criterion(posterior, Criterion(np.nan), np.random.default_rng(0))
