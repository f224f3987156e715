"""Sums on shared features: they are those of pooled data, and the model on them is what dense algebra says."""

from __future__ import annotations

import numpy as np
import pytest
from sums import M, N, agent, answers, message

from fedbo.algorithms.streams import Streams
from fedbo.settings.records import changed
from fedbo.surrogates.features import draw_features, phi
from fedbo_rivals.ensemble import predictions
from fedbo_rivals.feature_sums import FeatureStatistics, linear_posterior, statistics
from fedbo_rivals.quantile_transfer import QuantileTransfer


def test_sums_over_agents_are_the_statistics_of_their_pooled_data() -> None:
    rng = np.random.default_rng(0)
    rows, y = rng.standard_normal((20, M)), rng.standard_normal(20)
    parts = [statistics(rows[at : at + 5], y[at : at + 5]) for at in range(0, 20, 5)]
    for total, whole in zip((sum(part) for part in zip(*parts, strict=True)), statistics(rows, y), strict=True):
        np.testing.assert_allclose(total, whole, rtol=1e-12)


@pytest.mark.parametrize("noise", [0.01, 1.0])
def test_the_posterior_from_sums_is_that_of_the_gaussian_process_on_pooled_data(noise: float) -> None:
    """In the dual form, with the kernel phi(x)'phi(z): K (K + noise I)^-1 y, and K - K (K + noise I)^-1 K."""
    rng = np.random.default_rng(1)
    features = draw_features(rng, 2, M, 0.3, "matern52")
    x, at, y = rng.random((50, 2)), rng.random((7, 2)), rng.standard_normal(50)
    rows, wanted = phi(features, x), phi(features, at)
    found = predictions(linear_posterior(features, statistics(rows, y), noise), at)
    inverse = np.linalg.inv(rows @ rows.T + noise * np.eye(50))
    np.testing.assert_allclose(found.mean[:, 0], wanted @ rows.T @ inverse @ y, rtol=1e-6, atol=1e-8)
    cross = wanted @ rows.T
    variance = (wanted**2).sum(axis=1) - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    np.testing.assert_allclose(found.variance[:, 0], variance, rtol=1e-5, atol=1e-8)


def test_an_answer_is_the_sum_over_all_others_and_stale_messages_count_for_less() -> None:
    method = QuantileTransfer(features=M)
    payloads = {number: message(method, number) for number in range(3)}
    worth = np.array([1.0, 0.5, 0.25, 1.0])
    found = answers(method, payloads, worth)
    for number in range(N):
        for name in FeatureStatistics._fields:
            wanted = sum(worth[other] * payloads[other][name] for other in payloads if other != number)
            np.testing.assert_allclose(found[number][name], wanted, rtol=1e-12, atol=1e-12)
    assert set(answers(method, {2: payloads[2]})) == {0, 1, 3} and not answers(method, {})


def test_a_message_does_not_change_with_offset_and_scale_of_the_values() -> None:
    method = QuantileTransfer(features=M)
    state = agent(method, 1)
    moved = state._replace(local=changed(state.local, y=7.0 + 3.0 * state.local.y))
    for one, other in zip(*(method.outbox(each, Streams(1, owner=1))[0].values() for each in (state, moved)), strict=True):  # type: ignore[union-attr]
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
