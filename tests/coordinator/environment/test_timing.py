"""Models of duration against their laws, and sequences of durations that depend on agent and number alone."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.duration_blocks import durations
from fedbo.coordinator.environment.timing import (
    TIMINGS,
    Constant,
    Cost,
    DecisionTimeModel,
    Exponential,
    Gamma,
    Lognormal,
    Pareto,
    SpeedClasses,
    Timing,
)

RANDOM = [Lognormal(2.0, 0.5, 0.3), Exponential(2.0, 0.3), Pareto(2.0, 5.0, 0.3), Gamma(2.0, 3.0, 0.3)]
MODELS: list[Timing] = [Constant(2.0), *RANDOM, Cost(2.0)]
law = pytest.mark.parametrize("timing", RANDOM, ids=lambda timing: timing.model)


@law
def test_the_mean_duration_is_the_declared_one(timing) -> None:
    """Normal approximation, 40,000 draws, seed 1: false alarm below 1e-5 for each model."""
    draws = timing.draw(np.random.default_rng(1), 40_000)
    assert draws.min() > 0
    assert abs(draws.mean() - timing.mean) < 4.5 * draws.std() / np.sqrt(len(draws))


@law
def test_agents_factors_are_lognormal_with_expectation_one(timing) -> None:
    """Kolmogorov-Smirnov, 2,000 agents, seeds 0 to 1,999: false alarm below 1e-5 for each model."""
    factors = [timing.speed(np.random.default_rng(seed)) for seed in range(2_000)]
    declared = stats.lognorm(s=0.3, scale=np.exp(-0.5 * 0.3**2))
    assert declared.mean() == pytest.approx(1.0)
    assert stats.kstest(factors, declared.cdf).pvalue > 1e-5


@pytest.mark.parametrize("timing", [Constant(), Lognormal(), Exponential(), Pareto(), Gamma(), Cost()], ids=lambda t: t.model)
def test_without_a_spread_between_them_agents_are_alike(timing) -> None:
    assert timing.speed(np.random.default_rng(1)) == 1.0


def test_paretos_tail_falls_with_its_exponent() -> None:
    """P(longer than x) = (minimum / x)**alpha; exact binomial tests of 50,000 draws, seed 2: false alarm below 1e-5 each."""
    timing, n = Pareto(mean=3.0, alpha=2.5), 50_000
    draws, minimum = timing.draw(np.random.default_rng(2), n), 3.0 * 1.5 / 2.5
    assert draws.min() >= minimum
    for factor in (1.1, 2.0, 5.0, 10.0):
        longer = int((draws > factor * minimum).sum())
        assert stats.binomtest(longer, n, factor**-2.5).pvalue > 1e-5


def test_a_gamma_model_has_its_variance_and_its_law() -> None:
    """Normal approximation of the variance, and Kolmogorov-Smirnov; 50,000 draws, seed 3: false alarm below 1e-5 each."""
    draws = Gamma(mean=2.0, shape=2.0).draw(np.random.default_rng(3), 50_000)
    squares = (draws - 2.0) ** 2
    assert abs(squares.mean() - 2.0**2 / 2.0) < 4.5 * squares.std() / np.sqrt(len(squares))
    assert stats.kstest(draws, stats.gamma(2.0, scale=1.0).cdf).pvalue > 1e-5


def test_what_remains_of_an_exponential_duration_does_not_know_how_long_it_has_lasted() -> None:
    """Kolmogorov-Smirnov on the rest of all that outlast 2 of 50,000, seed 4: false alarm below 1e-5 for each."""
    draws = Exponential(mean=1.5).draw(np.random.default_rng(4), 50_000)
    rest = draws[draws > 2.0] - 2.0
    assert len(rest) > 10_000
    for sample in (draws, rest):
        assert stats.kstest(sample, stats.expon(scale=1.5).cdf).pvalue > 1e-5


def test_a_cost_gives_the_rate_and_says_that_it_is_a_factor() -> None:
    assert Cost(0.25).draw(np.random.default_rng(1), 3).tolist() == [0.25, 0.25, 0.25]
    assert {name for name, declared in TIMINGS.items() if declared.costs} == {"cost", "log_linear"}
    assert [declared.model for declared in TIMINGS.values()] == list(TIMINGS)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), max_size=40), st.sampled_from(MODELS))
@settings(max_examples=60)
def test_a_duration_is_the_same_whatever_was_asked_before(asked: list[tuple[int, int]], timing: Timing) -> None:
    used = durations(lambda agent: timing, "evaluation time", Streams(7))
    for agent, step in asked:
        fresh = durations(lambda agent: timing, "evaluation time", Streams(7))
        assert used(agent, step) == fresh(agent, step)


@law
def test_durations_come_from_the_streams_of_their_purpose(timing) -> None:
    given, own = durations(lambda agent: timing, "latency up", Streams(5)), Streams(5).of(3)
    speed = timing.speed(own.at(0).rng("latency up speed"))
    for block in (0, 2, 1):
        expected = timing.draw(own.at(block).rng("latency up"), 64) * speed
        assert [given(3, 64 * block + place) for place in range(64)] == expected.tolist()


def test_each_agent_has_a_model_of_its_own() -> None:
    models: list[Timing] = [Constant(0.5), Exponential(3.0), Constant(4.0), Lognormal(1.0, 0.2)]
    mixed = durations(models.__getitem__, "evaluation time", Streams(1))
    for step in (0, 100, 5):
        for agent, model in enumerate(models):
            alone = durations(lambda _, model=model: model, "evaluation time", Streams(1))
            assert mixed(agent, step) == alone(agent, step)
    assert mixed(0, 70) == 0.5 and mixed(2, 70) == 4.0


def test_a_model_is_asked_for_once_and_purposes_and_agents_do_not_share_luck() -> None:
    asked: list[int] = []

    def timing_of(agent: int) -> Timing:
        asked.append(agent)
        return Exponential()

    one, other = (durations(timing_of, purpose, Streams(1)) for purpose in ("latency up", "latency down"))
    seen = {given(agent, step) for given in (one, other) for agent in range(3) for step in (0, 64, 0)}
    assert len(seen) == 2 * 3 * 2
    assert asked == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("shares", [(), (0.0, 3.0, 1.0), (0.2, 0.3, 0.5)])
def test_classes_of_speed_have_their_shares(shares: tuple[float, ...]) -> None:
    """Exact binomial test of each class, 6,000 agents, seed 6: false alarm below 1e-5 each."""
    classes, n = SpeedClasses((1.0, 2.0, 4.0), shares), 6_000
    drawn = [classes.factor(Streams(6).of(agent).rng("speed class")) for agent in range(n)]
    assert set(drawn) <= set(classes.factors)
    for factor, share in zip(classes.factors, shares or (1.0, 1.0, 1.0), strict=True):
        p = share / sum(shares or (3.0,))
        assert stats.binomtest(drawn.count(factor), n, p).pvalue > 1e-5


def test_decisions_take_longer_with_the_power_of_t_n() -> None:
    assert [DecisionTimeModel()(t_n) for t_n in (0, 1, 1000)] == [0.0, 0.0, 0.0]
    cubic = DecisionTimeModel(1e-6)
    assert cubic(100) == pytest.approx(1.0) and cubic(200) == pytest.approx(8.0)
    assert DecisionTimeModel(0.5, 0.0)(0) == 0.5 and DecisionTimeModel(0.5, 1.0)(7) == 3.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(-1), "^mean must be at least 0 and finite, not -1$"),
        (lambda: Constant(nan), "^mean must be at least 0 and finite, not nan$"),
        (lambda: Lognormal(-1), "^mean must be above 0 and finite, not -1$"),
        (lambda: Lognormal(sigma=-0.5), "^sigma must be at least 0 and finite, not -0.5$"),
        (lambda: Exponential(0), "^mean must be above 0 and finite, not 0$"),
        (lambda: Exponential(inf), "^mean must be above 0 and finite, not inf$"),
        (lambda: Pareto(-2.0), "^mean must be above 0 and finite, not -2.0$"),
        (lambda: Pareto(alpha=1.0), "^alpha must be above 1 and finite, not 1.0; else its expectation is infinite$"),
        (lambda: Gamma(shape=0.0), "^shape must be above 0 and finite, not 0.0$"),
        (lambda: Cost(-1.0), "^rate must be at least 0 and finite, not -1.0$"),
        *[
            (lambda declared=declared: declared(between=-1.0), "^between must be at least 0 and finite, not -1.0$")
            for declared in (Lognormal, Exponential, Pareto, Gamma)
        ],
        (lambda: DecisionTimeModel(-1.0), "^coefficient must be at least 0 and finite, not -1.0$"),
        (lambda: DecisionTimeModel(1.0, inf), "^power must be at least 0 and finite, not inf$"),
        (lambda: SpeedClasses(()), r"^factors must be one or more numbers above 0, not \(\)$"),
        (lambda: SpeedClasses((1.0, 0.0)), r"^factors must be one or more numbers above 0, not \(1.0, 0.0\)$"),
        (lambda: SpeedClasses((1.0, 2.0), (1.0,)), "^shares must have one number for each of the 2 factors, or none, not 1$"),
        (
            lambda: SpeedClasses((1.0, 2.0), (1.0, -1.0)),
            r"^shares must be at least 0, with at least one above 0, not \(1.0, -1.0\)$",
        ),
        (
            lambda: SpeedClasses((1.0, 2.0), (0.0, 0.0)),
            r"^shares must be at least 0, with at least one above 0, not \(0.0, 0.0\)$",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_what_came_and_what_would_do(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
