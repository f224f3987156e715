"""Methods with bounds and several objectives: the contract, missing metrics, messages, and better answers than chance."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ConfigSpace as CS
import numpy as np
import pytest
from several_play import METHODS, REFERENCES, Measure, SeveralPlay, played, problem_of, slope_in_circle, two_bowls

from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.algorithms.base import Avoiding, Multiple, Overlapping, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.several import Several
from fedbo.algorithms.messages import fault
from fedbo.algorithms.streams import Streams
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.surrogates.fronts import hypervolume
from fedbo.testing.algorithm_contract import asked
from fedbo.testing.lockstep import release

MEASURES = {"a bound": slope_in_circle, "two objectives": two_bowls}
BY_DRAWS = ("ts", "fts", "fed_prior", "dp_fts_de")


# Of the slower ones, one kind of metrics is enough here.
LATER = {("fed_prior", "two objectives"), ("dp_fts_de", "a bound"), ("share_best", "a bound"), ("gp_ei", "two objectives")}
PAIRS = [pytest.param(name, what, marks=[pytest.mark.long] * ((name, what) in LATER)) for name in METHODS for what in MEASURES]


@pytest.mark.parametrize(("name", "what"), PAIRS)
def test_points_messages_and_repetition_are_as_with_one_metric(name: str, what: str) -> None:
    """The points lie in the cube, messages are as declared, and a run that is stored every round is the same to the bit."""
    measure = MEASURES[what]
    first = played(name, measure)
    assert isinstance(first.algorithm, Multiple) and isinstance(first.algorithm, Avoiding | Overlapping)
    assert first.algorithm.handles(first.problem) == ""
    for decisions in first.decisions:
        for decision in decisions.values():
            assert decision.x.shape == (1, 2) and ((decision.x >= 0) & (decision.x <= 1)).all()
    up, down = first.algorithm.upload(first.problem), first.algorithm.download(first.problem)
    for payload in (payload for sent in first.sent for payload in sent.values()):
        assert fault(payload, up or {}) is None
    for payload in (payload for answers in first.answers for payload in answers.values()):
        assert fault(payload, down or {}) is None
    again = SeveralPlay(first.algorithm, first.problem, measure)
    again.transmit = lambda messages: [message for message in messages for _ in range(2)][::-1]
    again.begin()
    again.exchange()
    for number in range(1, 5):
        again.states, again.server = [unpack(pack(state)) for state in again.states], unpack(pack(again.server))
        again.run(number)
    assert asked(again) == asked(first)


@pytest.mark.parametrize("name", METHODS)
def test_one_objective_without_bounds_has_the_state_that_it_had(name: str) -> None:
    problem = Problem(2, 2, (0, 1), 3, 5, agent=0)
    method = entry(name).make()
    assert not isinstance(method.agent_init(problem, Streams(0, 0, 0)), Several)
    assert isinstance(method.agent_init(replace(problem, constraints=1), Streams(0, 0, 0)), Several)


@pytest.mark.parametrize("name", ["gp_ei", "ts", "fts", "fed_prior", "share_best"])
def test_an_evaluation_with_some_metrics_counts_for_these_and_fails_for_the_others(name: str) -> None:
    """Every third evaluation has no margin; no point is chosen again, and the models have what is known."""
    problem = replace(problem_of(slope_in_circle, rounds=4), agent=0)
    play = SeveralPlay(entry(name).make(), problem, slope_in_circle)
    play.lost = lambda step, agent: (1,) if step % 3 == 1 else ()
    play.begin()
    play.exchange()
    play.run(4)
    for state in play.states:
        values, margins = (getattr(own, "local", own) for own in state.states)
        assert len(values.u) == 8 and len(margins.u) == 6 and len(margins.failed) == 2
        assert len(np.unique(state.x, axis=0)) == 8
        state = play.algorithm.avoiding(state, np.array([[0.3, 0.3]]))  # type: ignore[attr-defined]
        assert [len(getattr(own, "local", own).failed) for own in state.states] == [1, 3]


@pytest.mark.parametrize("name", ["gp_ei", "ts", "fts", "fed_prior"])
def test_a_metric_that_is_never_known_leaves_uniform_points(name: str) -> None:
    play = SeveralPlay(entry(name).make(), problem_of(slope_in_circle), slope_in_circle)
    play.lost = lambda step, agent: (1,)
    play.begin()
    play.exchange()
    play.run(2)
    assert all(decision.origin in ("own", "federated") for decisions in play.decisions for decision in decisions.values())


@pytest.mark.parametrize("name", ["gp_ei", "ts"])
def test_pending_points_are_not_chosen_again(name: str) -> None:
    play = played(name, two_bowls, rounds=2, agents=1)
    method, state, x = play.algorithm, play.states[0], []
    for step in range(3, 7):
        state = method.pending(state, np.array(x).reshape(-1, 2))  # type: ignore[attr-defined]
        decision, state = method.ask(state, (), Streams(1, 0, 0, step))
        x.append(decision.x[0])
    assert len(np.unique(np.round(x, 6), axis=0)) == 4


@pytest.mark.parametrize("seed", range(3))
def test_the_objective_counts_after_a_feasible_point_even_if_margins_look_like_noise(seed: int) -> None:
    """A random quarter of the points keep a bound, and the mean nowhere does; opposite slopes lead to opposite corners."""
    rng = np.random.default_rng([7, seed])
    x, margins = rng.random((24, 2)), np.where(rng.permutation(24) < 6, 1.0, -1.0)[:, None]
    chosen = []
    for sign in (1.0, -1.0):
        method: Any = entry("gp_ei").make(coordinates="arcsine")
        state = method.agent_init(replace(problem_of(slope_in_circle), agent=0), Streams(0, 0, 0))
        state = method.tell_outcomes(state, x, sign * x.sum(axis=1, keepdims=True), margins)
        decision, state = method.ask(state, (), Streams(seed, 0, 0).at(1))
        assert state.states[1].hyper.noise_variance > 0.3
        chosen.append(decision.x.sum())
    assert chosen[0] > 1.2 and chosen[1] < 0.8


@pytest.mark.parametrize("name", ["fts", "fed_prior", "dp_fts_de"])
def test_messages_hold_no_limits_and_no_weights(name: str) -> None:
    """An agent with another limit and another weight of the same metrics sends the same shapes, up to rounding."""

    def stricter(x: np.ndarray, agent: int) -> tuple[np.ndarray, np.ndarray]:
        values, margins = slope_in_circle(x, agent)
        return values, margins - 0.05

    sent = []
    for measure in (slope_in_circle, stricter):
        play = SeveralPlay(entry(name).make(), problem_of(measure), measure)
        play.begin()
        play.exchange()
        sent.append(play.sent[0])
    for agent, payload in sent[0].items():
        for key, array in payload.items():
            np.testing.assert_allclose(array, sent[1][agent][key], rtol=1e-5, atol=1e-7, err_msg=key)


def test_a_block_of_a_message_is_the_message_about_that_metric() -> None:
    play = played("fts", slope_in_circle, rounds=1)
    method, state = play.algorithm, play.states[0]
    whole, _ = method.outbox(state, Streams(3, 0, 0, 2))
    first, _ = method.outbox(state.states[0], Streams(3, 0, 0, 2))
    assert whole is not None and first is not None
    np.testing.assert_array_equal(whole["omega"][:100], first["omega"])
    assert not np.allclose(whole["omega"][100:], first["omega"])


def test_blocks_of_a_private_message_are_clipped_together_and_one_agent_changes_a_release_no_more() -> None:
    """Planted neighbours: an agent that says its message, or one with loud blocks, against one that says nothing."""
    method: Any = entry("dp_fts_de").make(noise_multiplier=0.0, clip=1.5, share=1.0, features=20)
    play = SeveralPlay(method, problem_of(two_bowls), two_bowls)
    play.begin()
    message = method.outbox(play.states[0], Streams(0, 0, 0))[0]["omega"]
    assert message.shape == (40,)
    alone = replace(play.problem, objectives=1, references=(), weights=())
    law, weights = method.mechanism(play.problem), method.weights(play.problem, 0)
    assert law == method.mechanism(alone) and np.array_equal(weights, method.weights(alone, 0))
    rng = np.random.default_rng(1)
    loud = [message, 50.0 * message, *(rng.standard_normal(40) * np.repeat(rng.exponential(20.0, 2), 20) for _ in range(50))]
    for said in loud:
        worlds = [release(law, weights, {0: own, 1: message}, rng) for own in (said, np.zeros(40))]
        assert np.linalg.norm(worlds[0] - worlds[1]) <= weights.max() * law.clip * (1 + 1e-9)


def test_a_front_in_a_message_is_bounded_feasible_and_not_dominated() -> None:
    play = played("share_best", two_bowls, settings={"front": 3}, initial=12)
    for agent, payload in play.sent[0].items():
        x, known = play.observed[agent][0]
        assert 1 <= len(payload["x"]) <= 3
        places = [int(np.flatnonzero((x == point).all(axis=1))[0]) for point in payload["x"]]
        above = (known[None] >= known[places][:, None]).all(axis=2) & (known[None] > known[places][:, None]).any(axis=2)
        assert not above.any()
    assert play.algorithm.upload(play.problem)["x"].longest == 3  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "settings", "changes", "reason"),
    [
        ("gp_ei", {}, {"objectives": 3, "references": (0.0,) * 3}, "two objectives, not 3"),
        ("gp_ei", {}, {"objectives": 2, "references": (0.0, 0.0), "weights": (1.0, 2.0)}, "no weights"),
        ("gp_ei", {"search": "newton"}, {"constraints": 1}, "search = 'newton'"),
        ("gp_ucb", {}, {"constraints": 1}, "upper confidence bound"),
        ("gp_ei", {}, {"objectives": 2}, "a reference for each objective"),
        ("ts", {}, {"objectives": 2}, "a reference for each objective"),
        ("ts", {"scalarise": "pareto"}, {"objectives": 2, "weights": (1.0, 2.0)}, "has no weights"),
        ("share_best", {"form": "box"}, {"constraints": 1}, "form = 'box'"),
        ("share_best", {"values": True}, {"constraints": 1}, "values = true"),
    ],
)
def test_settings_that_do_not_suit_say_why(name: str, settings: Any, changes: Any, reason: str) -> None:
    method: Any = entry(name).make(**settings)
    assert reason in method.handles(replace(Problem(2, 2, (0, 1), 3, 5), **changes))
    if "constraints" not in changes:
        assert method.handles(replace(Problem(2, 2, (0, 1), 3, 5), constraints=1)) == ""


@pytest.mark.parametrize("name", METHODS)
def test_in_a_typed_space_points_can_be_evaluated_and_differ(name: str) -> None:
    """A category of three choices, a whole number and a number, with a bound and with two objectives."""
    parameters = {"kind": ["a", "b", "c"], "n": (1, 9), "x": (0.0, 1.0)}
    typed = read_space(json.dumps(CS.ConfigurationSpace(parameters, seed=0).to_serialized_dict()))
    for measure in (slope_in_circle, two_bowls):
        problem = replace(problem_of(measure, dim=3, rounds=2), agent=0, lattice=typed)
        method: Any = entry(name).make()
        state, streams = method.agent_init(problem, Streams(0, 0, 0)), Streams(0, 0, 0)
        x = typed.project(np.random.default_rng(1).random((6, 3)))
        for step in range(1, 4):
            values, margins = measure(x, 0)
            state = method.tell_outcomes(state, x, values, margins)
            decision, state = method.ask(state, (), streams.at(step))
            x = decision.x
            np.testing.assert_array_equal(typed.project(x), x)
            assert not (state.x == x).all(axis=1).any()


Figure = Callable[[np.ndarray], float]


def _best_feasible(metrics: np.ndarray) -> float:
    feasible = (metrics[:, 1:] >= 0).all(axis=1)
    return float(metrics[feasible, 0].max(initial=0.0))


def _uniform(measure: Measure, seed: int, count: int, agent: int) -> np.ndarray:
    return np.hstack(measure(np.random.default_rng([seed, agent]).random((count, 2)), agent))


QUICK = ("gp_ei",)
PRIVATE = "dp_fts_de"  # whose noise hides two agents, so that only its own draws help


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.long) for n in METHODS])
def test_the_constrained_optimum_is_found_better_than_by_chance(name: str) -> None:
    """1 + 0.3 sqrt(2) on the circle, by the mean of two agents and of `seeds` runs, against the 95 % quantile of chance."""
    _beats_chance(name, slope_in_circle, _best_feasible, {})


@pytest.mark.parametrize(
    "scalarise", ["hypervolume", *(pytest.param(how, marks=pytest.mark.long) for how in ("chebyshev", "pareto"))]
)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "ts" else pytest.mark.long) for n in BY_DRAWS])
def test_draws_find_more_hypervolume_than_chance(name: str, scalarise: str) -> None:
    settings = {"scalarise": scalarise} if name in ("ts", "fed_prior") else {"own": entry("ts").make(scalarise=scalarise)}
    if name == PRIVATE:
        settings |= {"noise_multiplier": 0.0, "share": 1.0}
    _beats_chance(name, two_bowls, _volume, settings)


@pytest.mark.long
@pytest.mark.parametrize("name", ["gp_ei", pytest.param("share_best", marks=pytest.mark.long)])
def test_improvements_find_more_hypervolume_than_chance(name: str) -> None:
    _beats_chance(name, two_bowls, _volume, {})


def _volume(metrics: np.ndarray) -> float:
    return hypervolume(metrics, np.array(REFERENCES))


def _beats_chance(name: str, measure: Measure, figure: Figure, settings: Any) -> None:
    """Play 16 evaluations of two agents with one seed, or 24 with three; chance has as many, in 200 worlds."""
    count, seeds = (16, 1) if name in QUICK else (24, 3)
    plays = [played(name, measure, seed, count - 4, settings) for seed in range(seeds)]
    found = np.mean([figure(play.metrics(agent)) for play in plays for agent in range(2)])
    chance = []
    for world in range(200):
        told = [_uniform(measure, world * seeds + seed, count, agent) for seed in range(seeds) for agent in range(2)]
        chance.append(np.mean([figure(each) for each in told]))
    assert found > np.quantile(chance, 0.95)
