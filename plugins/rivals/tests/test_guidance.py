"""Where an optimum may be: features, draws, the heaviest Gaussian, and how many agents' Gaussians become few."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from fedbo.surrogates.features import phi
from fedbo.surrogates.gp import Hyperparameters, condition
from fedbo_rivals.guidance import (
    CLOSE,
    Gaussians,
    draw_without_replacement,
    heaviest,
    log_weights,
    orthogonal_features,
    places_of_maxima,
    prototypes,
)

Array = npt.NDArray[np.float64]


def gaussians(count: int, dim: int, seed: int = 0) -> Gaussians:
    rng = np.random.default_rng(seed)
    mean = rng.random((count, dim))
    mean[count // 2 :] = mean[0] + 0.01 * rng.standard_normal((count - count // 2, dim))
    return Gaussians(rng.uniform(0.2, 1.0, count), mean, rng.uniform(0.001, 0.02, (count, dim)), rng.standard_normal(count))


@pytest.mark.parametrize("family", ["se", "matern52"])
def test_products_of_orthogonal_features_are_the_kernel_in_the_mean(family: str) -> None:
    """4,000 features, fixed seed: errors of about 1 / sqrt(4,000) = .016, and .06 is never reached by chance."""
    hyper = Hyperparameters((0.4, 0.7, 0.5), 1.5, 1e-4, family)
    x = np.random.default_rng(1).random((12, 3))
    features = orthogonal_features(np.random.default_rng(2), 3, 4000, (0.4, 0.7, 0.5), family, 1.5)
    rows = phi(features, x)
    np.testing.assert_allclose(rows @ rows.T, hyper.kernel(x, x), atol=0.09)
    plain = features.frequencies[:3] * np.array([0.4, 0.7, 0.5])
    np.testing.assert_allclose(plain @ plain.T - np.diag(np.diag(plain @ plain.T)), 0.0, atol=1e-9)


def test_draws_are_largest_as_often_as_exact_draws_are() -> None:
    """On 7 points exact joint draws are cheap: 6,000 of either kind; shares differ by .05 with a chance below 1e-6."""
    candidates = np.linspace(0.0, 1.0, 7)[:, None]
    x = np.array([[0.1], [0.45], [0.8]])
    posterior = condition(Hyperparameters(0.3, 1.0, 1e-2, "matern52"), x, np.array([-0.5, 0.6, 0.3]))
    found = places_of_maxima(posterior, candidates, np.random.default_rng(3), 6000, 2000)
    kernel = posterior.hyper.kernel
    across = kernel(candidates, x)
    inverse = np.linalg.inv(kernel(x, x) + 1e-2 * np.eye(3))
    mean, covariance = across @ inverse @ posterior.y, kernel(candidates, candidates) - across @ inverse @ across.T
    exact = (
        np.random.default_rng(4).multivariate_normal(mean, covariance + 1e-9 * np.eye(7), 6000, method="eigh").argmax(axis=1)
    )
    np.testing.assert_allclose(np.bincount(found, minlength=7) / 6000, np.bincount(exact, minlength=7) / 6000, atol=0.05)


def test_the_heaviest_component_is_where_most_places_are() -> None:
    rng = np.random.default_rng(5)
    places = np.concatenate([rng.normal((0.3, 0.7), (0.02, 0.06), (140, 2)), rng.normal((0.8, 0.2), 0.03, (60, 2))])
    share, mean, variance = heaviest(places, 1)
    assert share == pytest.approx(0.7, abs=0.05)
    np.testing.assert_allclose(mean, (0.3, 0.7), atol=0.02)
    np.testing.assert_allclose(np.sqrt(variance), (0.02, 0.06), rtol=0.5)
    one = heaviest(np.tile([0.25, 0.5], (10, 1)), 1)
    assert one[0] == 1.0 and one[1].tolist() == [0.25, 0.5] and not one[2].any()


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_agents_that_mean_the_same_place_become_one_gaussian_with_their_moments(dim: int) -> None:
    sent = gaussians(9, dim, seed=dim)
    merged, place = prototypes(sent)
    for cluster in range(len(merged.share)):
        members = np.flatnonzero(place == cluster)
        for one, other in itertools.combinations(members, 2):
            assert np.sqrt(np.mean((sent.mean[one] - sent.mean[other]) ** 2)) <= CLOSE
        weight = sent.share[members] / sent.share[members].sum()
        # The moments of a mixture, from many draws of it, differ from these by less than .01.
        rng = np.random.default_rng(cluster)
        chosen = rng.choice(members, 20_000, p=weight)
        drawn = sent.mean[chosen] + np.sqrt(sent.variance[chosen]) * rng.standard_normal((20_000, dim))
        np.testing.assert_allclose(merged.mean[cluster], drawn.mean(axis=0), atol=0.01)
        np.testing.assert_allclose(merged.variance[cluster], drawn.var(axis=0), atol=0.002)
        assert merged.value[cluster] == pytest.approx(weight @ sent.value[members])
        assert merged.share[cluster] == pytest.approx(sent.share[members].sum())
    assert len(merged.share) < 9


def test_weights_follow_shares_and_values_at_a_temperature() -> None:
    three = Gaussians(np.array([1.0, 2.0, 1.0]), np.zeros((3, 1)), np.ones((3, 1)), np.array([0.0, 0.0, 1.0]))
    weight = np.exp(log_weights(three))
    assert weight.sum() == pytest.approx(1.0) and weight[1] == pytest.approx(2.0 * weight[0])
    assert weight[2] == pytest.approx(weight[0] * np.exp(10.0))  # the range is 1, so tau is 0.1
    equal = np.exp(log_weights(three._replace(value=np.array([0.0, 0.0, 0.001]))))
    assert equal[2] == pytest.approx(equal[0] * np.exp(0.1))  # tau is 0.01 at least


def test_draws_without_replacement_have_the_probabilities_of_one_by_one() -> None:
    """Two of three by weights 5, 3, 2; 4,000 draws have standard errors below .008."""
    weight, rng = np.array([0.5, 0.3, 0.2]), np.random.default_rng(6)
    drawn = [tuple(draw_without_replacement(np.log(weight), 2, rng).tolist()) for _ in range(4000)]
    for first, second in itertools.permutations(range(3), 2):
        expected = weight[first] * weight[second] / (1.0 - weight[first])
        assert drawn.count((first, second)) / 4000 == pytest.approx(expected, abs=0.04)
    assert sorted(draw_without_replacement(np.array([0.0, -1e6, -2e6]), 5, rng).tolist()) == [0, 1, 2]
