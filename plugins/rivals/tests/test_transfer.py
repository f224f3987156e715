"""RGPE and TAF: what is sent, how the surrogates of others count, and that the best acquisition is found."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from fedbo.algorithms.base import Array, Inbound, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.surrogate import Surrogate
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import expected_improvement, prediction
from fedbo.surrogates.gp import condition, predict
from fedbo_rivals.ensemble import (
    Ensemble,
    ensemble,
    joint_draws,
    leave_one_out_draws,
    leave_one_out_loss,
    means,
    predictions,
    ranking_loss,
)
from fedbo_rivals.rgpe import RGPE
from fedbo_rivals.taf import TAF
from fedbo_rivals.transfer import Transfer, TransferState

both = pytest.mark.parametrize("name", ["rgpe", "taf"])
N, M = 4, 60
PROBLEM = Problem(2, N, (0,), 3, 10, history=40)
CENTRE = np.array([0.3, 0.7])


def bowl(x: Array) -> Array:
    return np.asarray(1.0 - ((x - CENTRE) ** 2).sum(axis=1))


def told(algorithm: Transfer, signs: tuple[float, ...] = (1.0, -1.0, 0.0)) -> tuple[TransferState, Inbound]:
    """Let the agents 1, 2, 3 know the bowl with these signs (0 for pure noise), and agent 0 six points of the bowl itself."""
    server = algorithm.server_init(PROBLEM)
    rng = np.random.default_rng(3)
    for agent, sign in enumerate(signs, start=1):
        x = rng.random((40, 2))
        y = sign * bowl(x) if sign else rng.standard_normal(40)
        mine = dataclasses.replace(PROBLEM, agent=agent, history_x=x, history_y=y)
        streams = Streams(1, owner=agent)
        payload, _ = algorithm.outbox(algorithm.agent_init(mine, streams), streams)
        assert payload is not None
        server = algorithm.receive(server, Inbound(agent, 0, 0.0, payload), 0.0)
    answers, _ = algorithm.broadcast(server, (0,), np.ones(N), Streams(1, owner=COORDINATOR))
    state = algorithm.agent_init(dataclasses.replace(PROBLEM, agent=0), Streams(1, owner=0))
    x = rng.random((6, 2))
    return algorithm.tell(state, x, bowl(x)), Inbound(COORDINATOR, 0, 0.0, answers[0])


def made(name: str, **settings: Any) -> Any:
    return entry(name).make(features=M, **settings)


@both
@pytest.mark.parametrize("preset", [None, "faithful"])
@pytest.mark.parametrize("m", [50, 100])
def test_a_message_has_as_many_numbers_as_the_paper_counts(name: str, preset: str | None, m: int) -> None:
    """M + M^2, and one more for TAF (Dai et al. 2020, section 3.2)."""
    declared = entry(name).make(preset, features=m).upload(PROBLEM)
    assert declared is not None
    assert sum(int(np.prod(field.shape)) for field in declared.values()) == m + m**2 + (name == "taf")


@both
def test_the_linear_model_of_a_message_predicts_the_senders_function(name: str) -> None:
    algorithm = made(name, own=Surrogate(clip=0.0))
    state, message = told(algorithm)
    models = ensemble(state.features, message.payload["nu"], message.payload["inverse"], algorithm.noise)
    x = np.random.default_rng(5).random((200, 2))
    u = 2 / np.pi * np.arcsin(np.sqrt(x))
    predicted = means(models, u)
    assert np.corrcoef(predicted[:, 1], bowl(x))[0, 1] > 0.9
    assert np.corrcoef(predicted[:, 2], bowl(x))[0, 1] < -0.7


def held(algorithm: Transfer, signs: tuple[float, ...]) -> tuple[Any, TransferState, Ensemble]:
    """Give agent 0's posterior, its state with the others' weights, and their models."""
    state, message = told(algorithm, signs)
    _, state = algorithm.ask(state, (message,), Streams(1, owner=0).at(1))
    there = state.weight > 0
    models = ensemble(state.features, state.nu[there], state.inverse[there], algorithm.noise)
    state = state._replace(weight=state.weight[there], best=state.best[there])
    return algorithm.own.posterior(state.local), state, models


def test_rgpe_trusts_who_ranks_well_and_drops_who_ranks_badly() -> None:
    algorithm: RGPE = made("rgpe")
    posterior, state, models = held(algorithm, (1.0, -1.0, 0.0))
    weights = algorithm.ensemble_weights(posterior, state, models, Streams(1, owner=0).at(1))
    assert weights.sum() == pytest.approx(1.0) and (weights >= 0).all()
    assert weights[0] > 0.5 and weights[1] == 0.0


@pytest.mark.parametrize(("count", "sign"), [(3, -1.0), (6, -1.0), (6, 1.0)])
def test_rgpes_weights_are_those_of_a_count_over_draws(count: int, sign: float) -> None:
    """Each draw counts for who ranks best in it, the own surrogate alone where it does; stale surrogates weigh less."""
    algorithm: RGPE = made("rgpe")
    posterior, state, models = held(algorithm, (1.0, 1.0, sign))
    local = changed(state.local, u=state.local.u[:count], y=state.local.y[:count])
    state, posterior = state._replace(local=local, weight=np.array([0.5, 1.0, 0.25])), algorithm.own.posterior(local)
    found = algorithm.ensemble_weights(posterior, state, models, Streams(1, owner=0).at(1))
    rng = Streams(1, owner=0).at(1).rng("ranking")
    others = ranking_loss(joint_draws(models, posterior.x, algorithm.samples, rng), local.y)
    own = leave_one_out_loss(leave_one_out_draws(posterior, algorithm.samples, rng), local.y)
    counts, shared = np.zeros(4), 0
    for draw in range(algorithm.samples):
        losses = [*others[:, draw], own[draw]]
        losses = [
            math.inf if k < 3 and np.median(others[k]) > np.percentile(own, 95) else loss for k, loss in enumerate(losses)
        ]
        best = [k for k in range(4) if losses[k] == min(losses)]
        best = [3] if 3 in best else best
        shared += len(best) > 1
        counts[best] += 1 / len(best)
    counts *= [0.5, 1.0, 0.25, 1.0]
    assert (shared > 0) == (count == 6) and (counts > 0).sum() > 1
    np.testing.assert_allclose(found, counts / counts.sum())


def test_rgpe_goes_by_the_last_of_the_others_alone() -> None:
    algorithm: RGPE = made("rgpe")
    posterior, state, models = held(algorithm, (-1.0, -1.0, 1.0))
    weights = algorithm.ensemble_weights(posterior, state, models, Streams(1, owner=0))
    assert not weights[:2].any() and weights[2] > 0
    assert algorithm._acquisition(posterior, state, models, Streams(1, owner=0)) is not None


def test_rgpe_ranks_without_the_points_that_are_under_way() -> None:
    algorithm: RGPE = made("rgpe")
    observed, state, models = held(algorithm, (1.0, -1.0, 0.0))
    waiting = state._replace(local=changed(state.local, waiting=np.array([[0.2, 0.4], [0.9, 0.1]])))
    posterior = algorithm.own.posterior(waiting.local)
    acquisition = algorithm._acquisition(posterior, waiting, models, Streams(1, owner=0))
    assert acquisition is not None
    weights = algorithm.ensemble_weights(observed, state, models, Streams(1, owner=0))
    u = np.random.default_rng(0).random((50, 2))
    own, others = prediction(posterior, u), predictions(models, u)
    mean = weights[-1] * own.mean + others.mean @ weights[:-1]
    sd = np.sqrt(weights[-1] ** 2 * own.variance + others.variance @ weights[:-1] ** 2)
    z = (mean - observed.y.max()) / sd
    np.testing.assert_allclose(acquisition(u)[0], sd * (z * norm.cdf(z) + norm.pdf(z)), atol=1e-9)


@pytest.mark.parametrize("name", ["rgpe", "taf"])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_surrogate_is_sent_after_every_kth_iteration_or_once(name: str, every: int) -> None:
    assert [step for step in range(7) if entry(name).make(every=every).sends(step)] == list(range(0, 7, every))
    assert [step for step in range(7) if entry(name).make(every=0).sends(step)] == [0]


def test_rgpe_counts_everybody_alike_before_there_is_anything_to_rank() -> None:
    algorithm: RGPE = made("rgpe")
    posterior, state, models = held(algorithm, (1.0, -1.0, 0.0))
    short = state._replace(local=changed(state.local, u=state.local.u[:2], y=state.local.y[:2]))
    weights = algorithm.ensemble_weights(posterior, short, models, Streams(1, owner=0).at(1))
    np.testing.assert_allclose(weights, 0.25)


def test_rgpe_maximises_the_expected_improvement_of_the_mixture() -> None:
    """The acquisition of the decision is no less than on a grid of 10,000 points, recomputed agent by agent."""
    algorithm: RGPE = made("rgpe")
    state, message = told(algorithm)
    streams = Streams(1, owner=0).at(1)
    decision, after = algorithm.ask(state, (message,), streams)
    posterior, thin, models = held(algorithm, (1.0, -1.0, 0.0))
    weights = algorithm.ensemble_weights(posterior, thin, models, streams)

    def acquisition(u: Array) -> Array:
        own_mean, own_variance = predict(posterior, u)
        at = predictions(models, u)
        mean = weights[-1] * own_mean + sum(w * at.mean[:, n] for n, w in enumerate(weights[:-1]))
        variance = weights[-1] ** 2 * own_variance + sum(w**2 * at.variance[:, n] for n, w in enumerate(weights[:-1]))
        sd = np.sqrt(variance)
        z = (mean - posterior.y.max()) / sd
        return np.asarray(sd * (z * norm.cdf(z) + norm.pdf(z)))

    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 100)] * 2), axis=-1).reshape(-1, 2)
    chosen = 2 / np.pi * np.arcsin(np.sqrt(decision.x))
    assert decision.origin == "federated"
    assert acquisition(chosen)[0] >= acquisition(grid).max() * (1 - 1e-6)


def test_taf_weighs_by_epanechnikovs_kernel_of_the_share_of_wrong_pairs() -> None:
    """Maximised is own improvement plus weighted predicted improvements; who ranks everything wrong has no weight."""
    algorithm: TAF = made("taf")
    posterior, state, models = held(algorithm, (1.0, -1.0, 0.0))
    acquisition = algorithm._acquisition(posterior, state, models, Streams(1, owner=0))
    assert acquisition is not None
    u = np.random.default_rng(0).random((50, 2))
    y, predicted = state.local.y, means(models, posterior.x).T
    weight = []
    for one in predicted:
        wrong = [(one[j] < one[k]) != (y[j] < y[k]) for j in range(6) for k in range(6) if j != k]
        distance = np.mean(wrong) / 0.5
        weight.append(0.75 * (1 - distance**2) if distance < 1 else 0.0)
    assert weight[0] > 0.5 and weight[1] == 0.0
    own = expected_improvement(prediction(posterior, u), posterior.y.max())[0]
    gains = np.maximum(means(models, u) - state.best, 0.0)
    expected = (0.75 * own + gains @ np.array(weight)) / (0.75 + sum(weight))
    np.testing.assert_allclose(acquisition(u)[0], expected, atol=1e-12)


@both
def test_the_gradient_of_the_acquisition_is_that_of_finite_differences(name: str) -> None:
    algorithm = made(name)
    posterior, state, models = held(algorithm, (1.0, -1.0, 0.0))
    if name == "taf":
        state = state._replace(best=state.best - 2.0)
    else:
        assert (algorithm.ensemble_weights(posterior, state, models, Streams(1, owner=0))[[0, -1]] > 0.1).all()
    acquisition = algorithm._acquisition(posterior, state, models, Streams(1, owner=0))
    assert acquisition is not None
    u, h = 0.1 + 0.8 * np.random.default_rng(0).random((20, 2)), 1e-6
    for j in range(2):
        step = h * np.eye(2)[j]
        slope = (acquisition(u + step)[0] - acquisition(u - step)[0]) / (2 * h)
        np.testing.assert_allclose(acquisition(u)[1][:, j], slope, atol=2e-5)


@both
def test_without_a_message_it_is_expected_improvement_alone(name: str) -> None:
    algorithm = made(name)
    state, _ = told(algorithm)
    decision, _ = algorithm.ask(state, (), Streams(1, owner=0).at(1))
    own = {"surrogate": "robust", "coordinates": "arcsine", "refit": 5}  # those of the transfer methods
    alone = entry("gp_ei").make(incumbent="observed", search="newton", **own)
    mine = alone.agent_init(PROBLEM, Streams(1, owner=0))
    mine = alone.tell(mine, np.sin(0.5 * np.pi * state.local.u) ** 2, state.local.y)
    other, _ = alone.ask(mine, (), Streams(1, owner=0).at(1))
    np.testing.assert_allclose(decision.x, other.x, atol=1e-6)
    assert decision.origin == "own"


@both
def test_others_that_know_the_function_lead_to_its_maximum_at_once(name: str) -> None:
    algorithm = made(name)
    state, message = told(algorithm, (1.0, 1.0, 1.0))
    decision, _ = algorithm.ask(state, (message,), Streams(1, owner=0).at(1))
    assert np.abs(decision.x[0] - CENTRE).max() < 0.15


@both
def test_a_stale_surrogate_counts_for_less(name: str) -> None:
    algorithm = made(name)
    server = algorithm.server_init(PROBLEM)
    state, message = told(algorithm)
    for agent in (1, 2):
        payload = {word: message.payload[word][agent] for word in ("nu", "inverse")}
        if name == "taf":
            payload["best"] = message.payload["best"][agent : agent + 1]
        server = algorithm.receive(server, Inbound(agent, 0, 0.0, payload), 0.0)
    worth = np.array([1.0, 0.5, 1.0, 1.0])
    answers, _ = algorithm.broadcast(server, (0, 1), worth, Streams(1, owner=COORDINATOR))
    np.testing.assert_array_equal(answers[0]["weight"], [0.0, 0.5, 1.0, 0.0])
    np.testing.assert_array_equal(answers[1]["weight"], [0.0, 0.0, 1.0, 0.0])


@both
@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("features", 0, "features must be at least 1, not 0"),
        ("noise", 0.0, "noise must be above 0, not 0.0"),
        ("every", -1, "every must be at least 0"),
        ("kernel", "sea", "no kernel 'sea'; did you mean 'se'"),
    ],
)
def test_a_setting_that_will_not_do_is_refused(name: str, setting: str, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        entry(name).make(**{setting: value})


def test_settings_of_one_method_are_checked_too() -> None:
    with pytest.raises(ValueError, match="samples must be at least 1, not 0"):
        entry("rgpe").make(samples=0)
    with pytest.raises(ValueError, match="bandwidth must be above 0, not 0"):
        entry("taf").make(bandwidth=0.0)


@pytest.mark.parametrize("acquisition", ["gp_ei", "gp_ucb"])
def test_bayesian_optimisation_alone_maximises_its_acquisition(acquisition: str) -> None:
    """No less than on a grid of 10,000 points, recomputed from the posterior's mean and variance."""
    algorithm: Any = entry(acquisition).make()
    state = algorithm.agent_init(PROBLEM, Streams(2, owner=0))
    x = np.random.default_rng(1).random((8, 2))
    state = algorithm.tell(state, x, bowl(x))
    decision, state = algorithm.ask(state, (), Streams(2, owner=0).at(1))
    posterior = condition(state.hyper, state.u, algorithm.modelled(state))
    best = predict(posterior, posterior.x)[0].max()

    def value(u: Array) -> Array:
        mean, variance = predict(posterior, u)
        sd = np.sqrt(variance)
        if acquisition == "gp_ucb":
            return np.asarray(mean + 2.0 * sd)
        z = (mean - best) / sd
        return np.asarray(sd * (z * norm.cdf(z) + norm.pdf(z)))

    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 100)] * 2), axis=-1).reshape(-1, 2)
    chosen = 2 / np.pi * np.arcsin(np.sqrt(decision.x))
    assert value(chosen)[0] >= value(grid).max() * (1 - 1e-6)


@pytest.mark.parametrize("improvement", [False, True])
def test_pooled_finds_the_maximum_that_others_have_seen_and_counts_them_less_where_they_differ(improvement: bool) -> None:
    """What others observed leads to the maximum at once; a likeness fitted to a reversed function is lower."""
    algorithm: Any = entry("pooled").make(improvement=improvement)
    likeness = []
    for sign in (1.0, -1.0):
        server = algorithm.server_init(PROBLEM)
        rng = np.random.default_rng(3)
        for agent in (1, 2, 3):
            x = rng.random((40, 2))
            mine = dataclasses.replace(PROBLEM, agent=agent, history_x=x, history_y=sign * bowl(x))
            payload, _ = algorithm.outbox(algorithm.agent_init(mine, Streams(1)), Streams(1))
            server = algorithm.receive(server, Inbound(agent, 0, 0.0, payload), 0.0)
        answers, _ = algorithm.broadcast(server, (0,), np.ones(N), Streams(1))
        state = algorithm.agent_init(dataclasses.replace(PROBLEM, agent=0), Streams(1))
        x = rng.random((8, 2))
        state = algorithm.tell(state, x, bowl(x))
        message = Inbound(COORDINATOR, 0, 0.0, answers[0])
        decision, state = algorithm.ask(state, (message,), Streams(1, owner=0).at(1))
        likeness.append(state.rho)
        if sign > 0:
            assert np.abs(decision.x[0] - CENTRE).max() < 0.1
    assert likeness[0] >= 0.7 > likeness[1]


def test_pooled_passes_over_rows_that_were_damaged_to_nan() -> None:
    """A row that lost its value or a coordinate counts for nothing, as if the agent had never sent it."""
    algorithm: Any = entry("pooled").make()
    rng = np.random.default_rng(3)
    x, own = rng.random((12, 2)), rng.random((8, 2))
    mine = dataclasses.replace(PROBLEM, agent=1, history_x=x, history_y=bowl(x))
    payload, _ = algorithm.outbox(algorithm.agent_init(mine, Streams(1)), Streams(1))
    damaged = {name: array.copy() for name, array in payload.items()}
    damaged["y"][2], damaged["x"][5, 1] = np.nan, np.inf
    without = {name: array.copy() for name, array in payload.items()}
    without["x"][[2, 5]], without["y"][[2, 5]] = np.nan, np.nan
    asked = []
    for sent in (payload, damaged, without):
        server = algorithm.receive(algorithm.server_init(PROBLEM), Inbound(1, 0, 0.0, sent), 0.0)
        answers, _ = algorithm.broadcast(server, (0,), np.ones(N), Streams(1))
        state = algorithm.tell(algorithm.agent_init(dataclasses.replace(PROBLEM, agent=0), Streams(1)), own, bowl(own))
        message = Inbound(COORDINATOR, 0, 0.0, answers[0])
        decision, state = algorithm.ask(state, (message,), Streams(1, owner=0).at(1))
        assert np.isfinite(decision.x).all()
        asked.append(decision.x.tobytes())
    assert asked[1] == asked[2] != asked[0]


def test_pooled_without_others_has_no_likeness_and_one_agent_with_others_has() -> None:
    algorithm: Any = entry("pooled").make()
    state = algorithm.agent_init(dataclasses.replace(PROBLEM, agent=0), Streams(1))
    x = np.random.default_rng(3).random((8, 2))
    _, state = algorithm.ask(algorithm.tell(state, x, bowl(x)), (), Streams(1, owner=0).at(1))
    assert state.rho == 0.0
