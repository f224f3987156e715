"""The maximiser against dense grids, many climbs and DIRECT, and its reproducibility to the bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
import numpy.typing as npt
import pytest
from newton_ascent_2d import newton_ascent_2d, plane
from reference_derivatives import derivatives
from reference_maximise import reference_maximise, values
from scipy.optimize import Bounds, direct

from fedbo.surrogates import candidates
from fedbo.surrogates.draws import (
    Draw,
    KernelPart,
    compiled_features,
    compiled_kernel,
    message_function,
    pathwise_draw,
    value,
    weight_space_draw,
)
from fedbo.surrogates.features import draw_features
from fedbo.surrogates.gp import Hyperparameters, condition
from fedbo.surrogates.kernels import FAMILIES, make_kernel
from fedbo.surrogates.maximise import (
    _KNOWN,
    MaximiserSettings,
    _candidates_of_equal,
    maximise,
    maximise_from,
)
from fedbo.surrogates.newton_ascent import newton_ascent

Array = npt.NDArray[np.float64]


def message(seed: int, dim: int = 2, scale: float = 0.1, normalise: bool = True) -> Draw:
    rng = np.random.default_rng((seed, dim))
    return message_function(draw_features(rng, dim, 100, scale, normalise=normalise), rng.standard_normal(100))


def own(seed: int, scale: float) -> Draw:
    rng = np.random.default_rng(seed)
    x = rng.random((5 + 5 * seed, 2))
    return weight_space_draw(Hyperparameters(scale, 0.1, 1e-4), x, np.sin(4.0 * x[:, 0]) * x[:, 1], rng)


def many_climbs(draw: Draw, dim: int, scale: float, count: int) -> float:
    """The best of climbs from the better quarter of many uniform points."""
    starts = np.random.default_rng(0).random((count, dim))
    starts = starts[np.argsort(-value(draw, starts))[: count // 4]]
    return newton_ascent(derivatives(draw), starts, np.full(dim, scale), 1e-8, 40)[1]


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7])
def test_candidate_values_by_the_addition_theorem_are_the_values(dim: int, normalise: bool) -> None:
    draw = message(0, dim, 0.2, normalise)
    sizes = candidates.grid_sizes(candidates.frequencies(draw, dim), 0.8)
    found = values(draw, dim, sizes).ravel()[:300]
    points = candidates.product(dim, sizes).points(np.arange(len(found)))
    np.testing.assert_allclose(found, value(draw, points), atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_candidate_values_of_a_kernel_part_are_the_values(family: str, dim: int) -> None:
    rng = np.random.default_rng(dim)
    kernel = make_kernel(family, tuple(0.2 + 0.1 * np.arange(dim)), 1.5)
    draw = Draw(kernel_part=KernelPart(kernel, rng.random((7, dim)), rng.standard_normal(7)))
    sizes = candidates.grid_sizes(candidates.frequencies(draw, dim), 0.8)
    found = values(draw, dim, sizes).ravel()[:200]
    points = candidates.product(dim, sizes).points(np.arange(len(found)))
    np.testing.assert_allclose(found, value(draw, points), atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 8), marks=pytest.mark.long)])
@pytest.mark.parametrize("scale", [0.05, *(pytest.param(scale, marks=pytest.mark.long) for scale in (0.01, 0.3))])
def test_maxima_are_those_that_direct_finds_with_20000_evaluations(scale: float, seeds: range) -> None:
    for seed in seeds:
        draw = message(seed, scale=scale) if scale == 0.01 else own(3 * seed + 1, scale)
        negative: Callable[[Array], float] = partial(lambda draw, x: -float(value(draw, x[None])[0]), draw)
        theirs = direct(
            negative,
            Bounds([0.0] * 2, [1.0] * 2),
            eps=1e-4,
            maxfun=20_000,
            maxiter=20_000,
            locally_biased=False,
            vol_tol=0.0,
            len_tol=0.0,
        )
        point, found = maximise(draw, np.random.default_rng(0), 2)
        assert found >= -theirs.fun - 1e-3
        assert value(draw, point[None])[0] == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize("dim, scale, count", [(1, 0.01, 400), (2, 0.01, 4000), (2, 0.3, 200), (3, 0.2, 1000)])
def test_maxima_are_those_of_very_many_climbs(dim: int, scale: float, count: int) -> None:
    for seed in range(4):
        draw = message(seed, dim, scale, normalise=seed % 2 == 0)
        found = maximise(draw, np.random.default_rng(0), dim)[1]
        assert found >= many_climbs(draw, dim, scale, count) - 1e-3


@pytest.mark.parametrize("dim", [5, 10])
def test_in_many_inputs_the_maximum_is_within_a_tenth_of_that_of_many_climbs(dim: int) -> None:
    for seed in range(3):
        draw = message(seed, dim, 0.5)
        found = maximise(draw, np.random.default_rng(0), dim)[1]
        assert found >= 0.9 * many_climbs(draw, dim, 0.5, 600)


@pytest.mark.parametrize("family", FAMILIES)
def test_pathwise_draws_and_means_are_maximised_as_on_a_dense_grid(family: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.random((20, 2))
    posterior = condition(Hyperparameters((0.1, 0.3), 1.0, 1e-3, family, 5.0, 2.0), x, np.cos(8.0 * x[:, 0]) + x[:, 1])
    axis = np.linspace(0.0, 1.0, 151)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    mean = Draw(kernel_part=KernelPart(posterior.hyper.kernel, posterior.x, posterior.alpha), offset=5.0, scale=2.0)
    for draw in (pathwise_draw(posterior, rng), mean):
        point, found = maximise(draw, rng, 2, extra=x)
        assert found >= value(draw, grid).max() - 1e-9
        assert value(draw, point[None])[0] == pytest.approx(found, abs=1e-9)


def test_a_maximum_on_an_edge_or_in_a_corner_is_found_exactly() -> None:
    kernel = make_kernel("se", 0.5, 1.0)
    for centre in ([1.2, 0.4], [1.3, -0.2]):
        draw = Draw(kernel_part=KernelPart(kernel, np.array([centre]), np.ones(1)))
        point, _ = maximise(draw, np.random.default_rng(0), 2)
        np.testing.assert_allclose(point, np.clip(centre, 0.0, 1.0), atol=1e-4)


def test_both_climbs_end_at_the_same_maximum() -> None:
    settings = MaximiserSettings()
    for dim in (1, 2):
        for seed in range(10):
            draw = message(seed, dim, 0.2, normalise=seed % 2 == 0)
            assert draw.features is not None and draw.weights is not None
            starts, reach = np.random.default_rng(seed).random((1, dim)), np.full(dim, 0.2)
            at_once = newton_ascent(derivatives(draw), starts, reach, settings.tolerance, settings.iterations)
            alone = newton_ascent_2d(plane(draw.features, draw.weights), starts, reach, settings.tolerance, settings.iterations)
            assert alone[1] == pytest.approx(at_once[1], abs=1e-6)


def random_draw(case: int) -> tuple[Draw, Array | None]:
    """A draw of any kind, in 1 to 5 inputs, and perhaps further starts."""
    rng = np.random.default_rng((7, case))
    dim, m, n = (1, 2, 2, 2, 3, 5)[case % 6], (30, 100, 200, 7)[case % 4], (0, 1, 5, 20, 40)[case % 5]
    family, scale = ("se", "matern52", "matern32")[case % 3], tuple(rng.uniform(0.1, 0.8, dim))
    x, y = rng.random((n, dim)), rng.standard_normal(n)
    features = draw_features(rng, dim, m, scale, family, variance=rng.uniform(0.5, 2.0), normalise=bool(case % 2))
    draw = Draw(features, rng.standard_normal(m), None, 0.3 * (case % 7 == 0), 2.0 if case % 4 else 1.0)
    if case % 2 == 0:
        draw = pathwise_draw(condition(Hyperparameters(scale, 1.3, 1e-2, family, 0.1, 1.5), x, y), rng, m)
    if case % 8 == 0 and n:
        draw = draw._replace(features=None, weights=None)
    return draw, x if n and case % 3 else None


def dim_of(draw: Draw) -> int:
    return draw.features.frequencies.shape[1] if draw.features is not None else draw.kernel_part.x.shape[1]  # type: ignore[union-attr]


@pytest.mark.long
@pytest.mark.parametrize("part", range(5))
def test_compiled_values_gradients_and_hessians_are_those_of_numpy(part: int) -> None:
    from fedbo.surrogates.compiled.surface import derivatives as compiled_derivatives

    for case in range(part, 300, 5):
        draw, _ = random_draw(case)
        dim = dim_of(draw)
        x = np.random.default_rng(case).random((dim, 1 + case % 9))
        waves, kernels = compiled_features(draw, dim), compiled_kernel(draw, dim)
        found = compiled_derivatives(waves, kernels, draw.offset, x)
        expected = derivatives(draw)(x.T)
        for ours, theirs in zip(found, expected, strict=True):
            level = max(1.0, float(np.abs(theirs).max()))
            np.testing.assert_allclose(np.moveaxis(ours, -1, 0), theirs, rtol=0, atol=1e-10 * level)


@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.long)])
def test_the_compiled_maximiser_ends_where_that_of_numpy_does(count: int) -> None:
    exact = 0
    for case in range(count):
        draw, extra = random_draw(case)
        dim = dim_of(draw)
        point, top = maximise(draw, np.random.default_rng(case), dim, extra=extra)
        expected, highest = reference_maximise(draw, np.random.default_rng(case), dim, extra=extra)
        # A climb ends when a step promises less than 1e-8. Where a maximum is flat, or LAPACK's eigenvectors move a held
        # input off its face by a rounding error, rounding decides about the last step.
        assert top == pytest.approx(highest, rel=1e-7, abs=1e-7)
        np.testing.assert_allclose(point, expected, atol=2e-4)
        exact += bool(np.abs(point - expected).max() < 1e-10 and abs(top - highest) < 1e-10)
    assert exact >= 0.8 * count


def test_extra_points_are_climbed_from_as_well() -> None:
    # A needle between the candidates: without the extra point nothing points to it.
    needle = Draw(kernel_part=KernelPart(make_kernel("se", 1e-4, 1.0), np.array([[0.50213, 0.31347]]), np.ones(1)))
    found = maximise(needle, np.random.default_rng(0), 2, extra=np.array([[0.1, 0.1], [0.50218, 0.31342]]))
    np.testing.assert_allclose(found[0], [0.50213, 0.31347], atol=1e-6)


def test_a_flat_function_has_a_maximum_too() -> None:
    draw = message_function(draw_features(np.random.default_rng(0), 2, 20, 0.3), np.zeros(20))
    point, found = maximise(draw, np.random.default_rng(0), 2)
    assert found == 0.0 and ((point >= 0.0) & (point <= 1.0)).all()


def test_a_draw_that_is_not_finite_is_refused() -> None:
    draw = message(0)
    assert draw.weights is not None
    with pytest.raises(ValueError, match="the draw has values that are not finite"):
        maximise(draw._replace(weights=draw.weights * np.nan), np.random.default_rng(0), 2)


def test_neighbours_and_caches_never_change_a_bit() -> None:
    rng = np.random.default_rng(0)
    features = draw_features(rng, 2, 100, 0.1)
    draws = [message_function(features, rng.standard_normal(100)) for _ in range(6)]
    draws += [own(seed, 0.2) for seed in range(3)]
    first = [maximise(draw, np.random.default_rng(1), 2) for draw in draws]
    for index in (8, 2, 5, 0, 7, 1, 3, 6, 4):
        _KNOWN.clear()
        _candidates_of_equal.cache_clear()
        candidates.product.cache_clear()
        point, found = maximise(draws[index], np.random.default_rng(1), 2)
        assert point.tobytes() == first[index][0].tobytes() and found == first[index][1]


SCRIPT = """
import numpy as np
from fedbo.surrogates.draws import message_function, pathwise_draw, weight_space_draw
from fedbo.surrogates.features import draw_features
from fedbo.surrogates.gp import ROBUST, condition, fit_gp
from fedbo.surrogates.maximise import maximise

def everything():
    rng = np.random.default_rng(3)
    x = rng.random((15, 2))
    y = np.sin(5 * x[:, 0]) + x[:, 1]
    hyper = fit_gp(x, y, ROBUST, rng)
    draws = [weight_space_draw(hyper, x, y, rng), pathwise_draw(condition(hyper, x, y), rng)]
    shapes = ((2, 0.01), (5, 0.4))
    draws += [message_function(draw_features(rng, d, 100, l), rng.standard_normal(100)) for d, l in shapes]
    results = [maximise(draw, rng, draw.features.frequencies.shape[1]) for draw in draws]
    return [np.append(point, found).tobytes().hex() for point, found in results]
"""


@pytest.mark.long
def test_a_fresh_process_gives_the_same_bits() -> None:
    space: dict[str, Callable[[], list[str]]] = {}
    exec(SCRIPT, space)  # noqa: S102
    message(1), own(1, 0.1)
    here = space["everything"]()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + "\nprint('\\n'.join(everything()))"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == here


def test_a_smooth_message_is_maximised_in_far_less_than_a_millisecond_and_an_own_draw_in_five() -> None:
    smooth, rough, rng, seconds = message(0), own(4, 0.05), np.random.default_rng(0), []
    for draw in (smooth, rough):
        times = []
        for _ in range(20):
            begin = process_time()
            maximise(draw, rng, 2)
            times.append(process_time() - begin)
        seconds.append(min(times))
    assert seconds[0] < 1e-3 and seconds[1] < 5e-3


def two_hills(x: Array) -> tuple[Array, Array]:
    """A hill of height 1 about 0.3 in every input, and one of height 2 about 0.8."""
    value, gradient = np.zeros(len(x)), np.zeros_like(x)
    for centre, height in ((0.3, 1.0), (0.8, 2.0)):
        hill = height * np.exp(-20.0 * ((x - centre) ** 2).sum(axis=1))
        value, gradient = value + hill, gradient - 40.0 * hill[:, None] * (x - centre)
    return value, gradient


def test_climbs_from_given_points_do_not_all_begin_at_the_best_of_them() -> None:
    near_the_lower = 0.3 + 1e-3 * np.arange(30)[:, None] * np.ones(3)
    points = np.vstack([near_the_lower, np.full((1, 3), 0.68)])
    assert two_hills(points)[0].argmax() < 30
    point, top = maximise_from(two_hills, points, MaximiserSettings(starts=2))
    np.testing.assert_allclose(point, 0.8, atol=5e-3)
    assert top == pytest.approx(2.0, abs=1e-2)


def test_a_function_that_is_not_finite_is_refused_at_the_given_points() -> None:
    with pytest.raises(ValueError, match="not finite"):
        maximise_from(lambda x: (np.full(len(x), np.nan), np.zeros_like(x)), np.zeros((3, 2)))
