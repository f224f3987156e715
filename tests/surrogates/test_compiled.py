"""Compiled routines against NumPy, their cache on disk, and that one agent's bits do not depend on others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reference_derivatives import derivatives

from fedbo.surrogates import linear
from fedbo.surrogates.draws import (
    Draw,
    KernelPart,
    compiled_surface,
    message_function,
    pathwise_draw,
    posterior_draw,
    value,
)
from fedbo.surrogates.features import draw_features, phi
from fedbo.surrogates.gp import Hyperparameters, condition
from fedbo.surrogates.kernels import FAMILIES
from fedbo.surrogates.maximise import maximise, maximise_each

Array = npt.NDArray[np.float64]
ROOT = Path(__file__).parents[2]


def each(function: object, x: Array) -> Array:
    return np.array([function(value) for value in x])  # type: ignore[operator]


def test_sines_and_cosines_are_those_of_the_library_to_the_last_place_or_two() -> None:
    from fedbo.surrogates.compiled.elementary import cosine, sine_cosine

    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-10, 10, 3000), rng.uniform(-1e5, 1e5, 3000), np.arange(-40, 41) * np.pi / 4, [0.0, -0.0]])
    found = each(sine_cosine, x)
    np.testing.assert_allclose(found[:, 0], np.sin(x), rtol=0, atol=3e-16)
    np.testing.assert_allclose(found[:, 1], np.cos(x), rtol=0, atol=3e-16)
    assert np.isnan(sine_cosine(np.nan)).all() and np.isnan(sine_cosine(np.inf)).all()
    np.testing.assert_allclose(each(cosine, x), np.cos(x), rtol=0, atol=3e-16)
    assert np.isnan(cosine(np.nan)) and np.isnan(cosine(np.inf))


def test_exponentials_are_those_of_the_library_to_the_last_place_or_two() -> None:
    from fedbo.surrogates.compiled.elementary import exponential

    x = -np.concatenate([np.random.default_rng(0).exponential(5.0, 3000), np.linspace(0, 707, 3000), [0.0, 1e-300]])
    np.testing.assert_allclose(each(exponential, x), np.exp(x), rtol=4e-16)
    assert exponential(-1e4) == 0.0 and exponential(-np.inf) == 0.0


@pytest.mark.parametrize("m", [7, 100])
def test_draws_of_weights_are_those_of_dense_algebra_with_the_same_numbers(m: int) -> None:
    for n in range(1, 60, 3):
        rng = np.random.default_rng((m, n))
        features = draw_features(rng, 1 + n % 3, m, 0.3)
        rows, y = phi(features, rng.random((n, 1 + n % 3))), rng.standard_normal(n)
        found = linear.draw_weights(rows, y, 0.01, np.random.default_rng(n), 1.3)
        same = np.random.default_rng(n)
        omega = 1.3 * same.standard_normal(m)
        if n < m:
            noise = 0.13 * same.standard_normal(n)
            omega = omega + rows.T @ np.linalg.solve(rows @ rows.T + 0.01 * np.eye(n), y - rows @ omega - noise)
            np.testing.assert_allclose(found, omega, atol=1e-10)
        else:
            model = linear.update(linear.linear_model(m, 0.01), rows, y)
            np.testing.assert_array_equal(found, linear.draw(model, np.random.default_rng(n), 1, 1.3)[0])


def test_a_factor_made_row_by_row_is_to_the_bit_that_of_all_rows() -> None:
    rows = phi(draw_features(np.random.default_rng(0), 2, 40, 0.2), np.random.default_rng(1).random((45, 2)))
    factor = linear.gram_factor(rows[:0], 0.01)
    for n in range(1, 46):
        factor = linear.gram_factor(rows[:n], 0.01, factor)
        if n < 40:
            np.testing.assert_array_equal(factor, linear.gram_factor(rows[:n], 0.01))
            upper = np.zeros((n, n))
            upper.T[np.tril_indices(n)] = factor
            np.testing.assert_allclose(upper.T @ upper, rows[:n] @ rows[:n].T + 0.01 * np.eye(n), atol=1e-12)
    assert len(factor) == 39 * 40 // 2, "as many rows as features need none"
    np.testing.assert_array_equal(linear.gram_factor(rows[:5], 0.01, factor), factor[:15])
    drawn = [linear.draw_weights(rows[:20], np.arange(20.0), 0.01, np.random.default_rng(2), factor=f) for f in (factor, None)]
    np.testing.assert_array_equal(*drawn)


def test_a_draw_whose_matrix_needs_jitter_takes_the_square_root() -> None:
    rows, y = np.ones((5, 20)), np.arange(5.0)
    found = linear.draw_weights(rows, y, 1e-18, np.random.default_rng(0))
    model = linear.update(linear.linear_model(20, 1e-18), rows, y)
    np.testing.assert_array_equal(found, linear.draw(model, np.random.default_rng(0))[0])


@pytest.mark.parametrize(("normalise", "m"), [(True, 100), (True, 13), (False, 40)])
def test_compiled_feature_rows_are_those_of_numpy(normalise: bool, m: int) -> None:
    for dim in (1, 2, 5):
        features = draw_features(np.random.default_rng(dim), dim, m, 0.1, variance=1.7, normalise=normalise)
        x = np.random.default_rng(1).random((30, dim))
        np.testing.assert_allclose(linear.feature_rows(features, x), phi(features, x), rtol=0, atol=1e-13)


@pytest.mark.parametrize("clip", [0.0, 0.3, 0.5, 0.99])
def test_values_are_scaled_as_by_numpy(clip: float) -> None:
    for n in (0, 1, 2, 3, 10, 57):
        y = 1e3 * np.random.default_rng(n).standard_normal(n)
        raised = np.maximum(y, np.sort(y)[int(clip * (n - 1))]) if n else y
        np.testing.assert_array_equal(linear.scaled_values(y, clip, False), raised)
        spread = raised.std() if n and raised.std() else 1.0
        expected = (raised - (raised.mean() if n else 0.0)) / spread
        np.testing.assert_allclose(linear.scaled_values(y, clip, True), expected, atol=1e-12)
    np.testing.assert_array_equal(linear.scaled_values(np.full(4, 2.5), clip, True), np.zeros(4))


def test_a_draw_of_each_of_several_agents_is_that_of_numpy_and_to_the_bit_that_of_each_alone() -> None:
    features, rng = draw_features(np.random.default_rng(0), 2, 40, 0.2), np.random.default_rng(1)
    sizes = [25, 0, 3, 41, 39, 1, 60, 12]
    models = linear.Models(features, 0.01, 0.5)
    x, y = [rng.random((n, 2)) for n in sizes], [rng.standard_normal(n) for n in sizes]
    known = [None, None, 0, 20, 38, None, 10, 12]  # rows whose factor is known, some of them all or more than there are
    factors = [
        None if n is None else linear.gram_factor(linear.feature_rows(features, p)[:n], 0.01)
        for p, n in zip(x, known, strict=True)
    ]
    beta, m = rng.uniform(0.5, 2.0, len(sizes)), 40
    numbers = [rng.standard_normal(int(linear.normals_for(np.array(n), m))) for n in sizes]
    places = np.cumsum([0, *(n * (n + 1) // 2 for n in sizes)])
    columns, together = np.minimum([n or 0 for n in known], sizes), np.empty(places[-1])
    for place, factor in enumerate(factors):
        held = columns[place] * (columns[place] + 1) // 2
        together[places[place] : places[place] + held] = [] if factor is None else factor[:held]
    begins = np.cumsum([0, *sizes[:-1]])
    observed = linear.CommonObservations(
        np.concatenate(x), np.concatenate(y), begins, np.array(sizes), together, places[:-1], columns.copy()
    )
    omega, spread = linear.draw_each(models, observed, beta, np.concatenate(numbers))
    for place, n in enumerate(sizes):
        one = linear.Observations(x[place], y[place], factors[place])
        alone = linear.draw_one(models, one, float(beta[place]), numbers[place])
        np.testing.assert_array_equal(omega[place], alone[0])
        assert spread[place] == alone[1]
        rows, values = phi(features, x[place]), linear.scaled_values(y[place], 0.5, True)
        if 0 < n < m:
            held = n * (n + 1) // 2
            assert observed.known[place] == n and alone[2] is not None
            np.testing.assert_array_equal(together[places[place] : places[place] + held], alone[2][:held])
            np.testing.assert_allclose(alone[2][:held], linear.gram_factor(rows, 0.01), atol=1e-12)
        again: Any = _Given(numbers[place])
        np.testing.assert_allclose(omega[place], linear.draw_weights(rows, values, 0.01, again, beta[place]), atol=1e-10)


def test_a_draw_from_a_factor_that_grew_has_the_bits_of_one_made_at_once_and_is_that_of_the_square_root() -> None:
    features, rng = draw_features(np.random.default_rng(0), 2, 30, 0.2), np.random.default_rng(1)
    x, y, models = rng.random((80, 2)), rng.standard_normal(80), linear.Models(features, 1e-6, 0.0, False)
    grown, factor = dict[int, Array](), None
    for n in [*range(25, 35), 40, 79, 80]:
        numbers = rng.standard_normal(int(linear.normals_for(np.array(n), 30)))
        omega, _, factor = linear.draw_one(models, linear.Observations(x[:n], y[:n], factor), 1.3, numbers)
        assert factor is not None
        grown[n] = factor
        for other in (None, grown[25], grown[max(grown)], grown[30] if n > 29 else None):
            again, _, same = linear.draw_one(models, linear.Observations(x[:n], y[:n], other), 1.3, numbers)
            np.testing.assert_array_equal(again, omega)
            np.testing.assert_array_equal(same, factor)
        given: Any = _Given(numbers)
        root = linear.draw_weights(linear.feature_rows(features, x[:n]), y[:n], 1e-6, given, 1.3)
        np.testing.assert_allclose(omega, root, rtol=0, atol=1e-9 * abs(omega).max())
    fewer, _, _ = linear.draw_one(models, linear.Observations(x[:40], y[:40], grown[80]), 1.0, np.zeros(30))
    np.testing.assert_array_equal(
        fewer, linear.draw_one(models, linear.Observations(x[:40], y[:40], None), 1.0, np.zeros(30))[0]
    )


@pytest.mark.parametrize("n", [10, 50])
def test_a_draw_from_a_number_that_is_not_finite_is_an_error(n: int) -> None:
    features, x = draw_features(np.random.default_rng(0), 2, 30, 0.2), np.random.default_rng(1).random((n, 2))
    numbers = np.zeros(int(linear.normals_for(np.array(n), 30)))
    x[3] = np.nan
    with pytest.raises(ValueError, match="must be finite"):
        linear.draw_one(linear.Models(features, 0.01), linear.Observations(x, np.arange(float(n)), None), 1.0, numbers)


def test_an_agent_whose_factor_rounding_leaves_out_gets_its_draw_from_the_square_root() -> None:
    features = draw_features(np.random.default_rng(0), 2, 20, 0.2)
    x, y = np.full((5, 2), 0.3), np.arange(5.0)
    numbers = np.random.default_rng(0).standard_normal(25)
    models = linear.Models(features, 1e-18, 0.0, False)
    more = np.random.default_rng(1).random((3, 2))
    begins, counts = np.array([0, 5]), np.array([5, 3])
    observed = linear.CommonObservations(
        np.concatenate([x, more]), np.append(y, y[:3]), begins, counts, np.empty(21), np.array([0, 15]), np.zeros(2, int)
    )
    omega, _ = linear.draw_each(models, observed, np.ones(2), np.concatenate([numbers, numbers[:23]]))
    model = linear.update(linear.linear_model(20, 1e-18), linear.feature_rows(features, x), y)
    expected = linear.mean(model) + 1e-9 * np.linalg.solve(model.factor[:-1, :-1], numbers[:20])
    np.testing.assert_allclose(omega[0], expected, rtol=1e-6)
    again, _, _ = linear.draw_one(models, linear.Observations(more, y[:3], None), 1.0, numbers[:23])
    np.testing.assert_array_equal(omega[1], again)


class _Given:
    """A generator that gives these numbers."""

    def __init__(self, numbers: Array) -> None:
        self._numbers = numbers

    def standard_normal(self, count: int) -> Array:
        return self._numbers[:count]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_maxima_of_several_functions_are_to_the_bit_those_of_each_alone(dim: int) -> None:
    features = draw_features(np.random.default_rng(dim), dim, 50, 0.3)
    omega = np.random.default_rng(2).standard_normal((9, 50))
    alone = [maximise(message_function(features, weights), None, dim)[0] for weights in omega]
    np.testing.assert_array_equal(maximise_each(features, omega), alone)
    omega[4, 3] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        maximise_each(features, omega)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_posterior_draw_is_the_pathwise_draw_of_numpy(family: str) -> None:
    for n in (0, 1, 6, 25, 60):
        rng = np.random.default_rng(n)
        dim = 1 + n % 4
        x, y = rng.random((n, dim)), rng.standard_normal(n)
        hyper = Hyperparameters(tuple(rng.uniform(0.2, 1.0, dim)), 1.4, 0.02, family, 0.3, 2.0)
        ours = posterior_draw(hyper, x, y, np.random.default_rng(1), 50, 1.2)
        theirs = pathwise_draw(condition(hyper, x, y), np.random.default_rng(1), 50, 1.2)
        assert ours.weights is not None and theirs.weights is not None
        np.testing.assert_array_equal(ours.weights, theirs.weights)
        assert (ours.kernel_part is None) == (theirs.kernel_part is None) == (n == 0)
        if ours.kernel_part is not None and theirs.kernel_part is not None:
            np.testing.assert_allclose(
                ours.kernel_part.v, theirs.kernel_part.v, atol=1e-10 * np.abs(theirs.kernel_part.v).max()
            )


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from compiled_copy.elementary import exponential
print(exponential(-1.0), sum(exponential.stats.cache_hits.values()))
"""


@pytest.mark.parametrize("dim", [1, 3, 7])
@pytest.mark.parametrize("family", FAMILIES)
def test_values_and_derivatives_at_many_points_are_those_of_numpy(family: str, dim: int) -> None:
    rng = np.random.default_rng(dim)
    hyper = Hyperparameters(tuple(rng.uniform(0.1, 2.0, dim)), 1.7, 0.01, family, 0.0, 1.0)
    part = KernelPart(hyper.kernel, rng.random((40, dim)), rng.standard_normal(40))
    features = [draw_features(rng, dim, 60, 0.4, family, variance=1.3, normalise=normalise) for normalise in (True, False)]
    draws = [Draw(one, rng.standard_normal(60), part, 0.4, 2.5) for one in features]
    draws += [Draw(one, rng.standard_normal(60)) for one in features] + [Draw(kernel_part=part, offset=-1.0)]
    for draw, count in zip(draws, [600, 257, 256, 1, 40], strict=True):
        x = rng.random((count, dim))
        values, surface = compiled_surface(draw, dim)
        np.testing.assert_allclose(values(x), value(draw, x), rtol=1e-11, atol=1e-11)
        for found, expected in zip(surface(x[:9]), derivatives(draw)(x[:9]), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.long
def test_the_cache_is_used_again_and_given_up_when_any_routine_has_changed(tmp_path: Path) -> None:
    package = tmp_path / "compiled_copy"
    shutil.copytree(ROOT / "fedbo" / "surrogates" / "compiled", package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in package.glob("*.py"):
        path.write_text(path.read_text().replace("fedbo.surrogates.compiled", "compiled_copy"))
    package.chmod(0o555)  # as where somebody else has installed it
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run() -> list[str]:
        command = [sys.executable, "-c", SCRIPT.format(folder=str(tmp_path))]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()

    value = repr(float(np.exp(-1.0)))
    assert run() == [value, "0"]
    assert run() == [value, "1"]
    package.chmod(0o755)
    (package / "grid.py").write_text((package / "grid.py").read_text() + "# another routine has changed\n")
    assert run() == [value, "0"]
    assert not (package / "__pycache__").exists() and any((tmp_path / "cache").rglob("*.nbi"))
