"""Guided optimisation: what a message holds, who is answered with what, what controls keep, and that guidance is followed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import test_typed_search

from fedbo.algorithms.base import Array, Inbound, Payload, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.components.coordinates import from_coordinates, to_coordinates
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.surrogates.acquisition import Criterion, log_expected_improvement, prediction
from fedbo.surrogates.gp import Hyperparameters, condition
from fedbo.testing.lockstep import Lockstep
from fedbo_rivals.guidance import guide_rows, maximise_guided, widening
from fedbo_rivals.guide import Guide, hellinger
from fedbo_rivals.guide_agent import NARROWEST, GuideState

N = 6
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)
PLACE = np.array([0.8, 0.3])


def bowl(x: Array, centre: Array = PLACE) -> Array:
    return np.asarray(-((x - centre) ** 2).sum(axis=1))


def known(method: Guide, number: int, count: int = 20, centre: Array = PLACE) -> GuideState:
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), Streams(1, owner=number))
    x = np.random.default_rng(number).random((count, 2))
    return method.tell(state, x, number + bowl(x, centre))


def message(method: Guide, number: int, centre: Array = PLACE) -> Payload:
    payload, _ = method.outbox(known(method, number, centre=centre), Streams(1, owner=number).at(1))
    assert payload is not None
    return payload


def answers(method: Guide, sent: list[tuple[int, Payload]], weight: Array | None = None) -> dict[int, Payload]:
    server = method.server_init(PROBLEM)
    for step, (number, payload) in enumerate(sent):
        server = method.receive(server, Inbound(number, step, 0.0, payload), 0.0)
    weight = np.ones(N) if weight is None else weight
    return method.broadcast(server, range(N), weight, Streams(1, owner=COORDINATOR))[0]


def payload(mean: Any, share: float = 1.0, value: float = 0.0, sd: float = 0.1) -> Payload:
    mean = np.asarray(mean, dtype=float)
    return {"share": np.array([share]), "mean": mean, "variance": np.full(len(mean), sd**2), "value": np.array([value])}


def told(*means: Any, sd: float = 0.05) -> list[Inbound]:
    mean = np.array(means, dtype=float)
    answer = {"weight": np.ones(len(mean)), "mean": mean, "variance": np.full(mean.shape, sd**2)}
    return [Inbound(COORDINATOR, 0, 0.0, answer)]


def test_a_message_has_2_d_and_2_numbers_and_says_where_the_best_value_is() -> None:
    sent = message(Guide(), 3)
    assert sum(array.size for array in sent.values()) == 2 * 2 + 2
    assert np.abs(sent["mean"] - PLACE).max() < 0.08
    assert (np.sqrt(sent["variance"]) < 0.15).all() and 0.0 < sent["share"][0] <= 1.0


def test_a_message_is_about_the_shape_of_values_and_not_about_their_level_or_scale() -> None:
    def sent(scale: float) -> Payload:
        state = Guide().agent_init(PROBLEM, Streams(1, owner=0))
        x = np.random.default_rng(1).random((15, 2))
        return Guide().outbox(Guide().tell(state, x, 100.0 + scale * bowl(x)), Streams(1, owner=0))[0] or {}

    for name, array in sent(1.0).items():
        np.testing.assert_allclose(sent(1000.0)[name], array, atol=0.02)


def test_an_agent_without_observations_sends_nothing() -> None:
    assert Guide().outbox(Guide().agent_init(PROBLEM, Streams(1)), Streams(1))[0] is None


def test_the_newest_message_of_each_agent_counts_once_however_many_it_sends() -> None:
    """A fast agent that sends twenty messages has no more weight than a slow one that sends one."""
    slow = (1, payload([0.2, 0.2]))
    once = answers(Guide(), [slow, (2, payload([0.8, 0.8]))])[0]
    often = answers(Guide(), [(2, payload([0.1, 0.9]))] * 20 + [slow, (2, payload([0.8, 0.8]))])[0]
    for name in once:
        np.testing.assert_array_equal(often[name], once[name])


def test_no_agent_is_answered_with_its_message_alone_but_with_a_cluster_to_which_it_belongs() -> None:
    sent = [(0, payload([0.2, 0.2])), (1, payload([0.8, 0.8])), (2, payload([0.82, 0.8]))]
    found = answers(Guide(), sent)
    np.testing.assert_allclose(found[0]["mean"], [[0.81, 0.8]])
    assert {tuple(mean) for mean in found[1]["mean"].round(6).tolist()} == {(0.2, 0.2), (0.81, 0.8)}
    assert answers(Guide(), sent[:1]).keys() == set(range(1, N))


def test_an_answer_has_at_most_as_many_gaussians_as_asked_for_and_stale_ones_weigh_less() -> None:
    sent = [(number, payload([0.15 * number, 0.9 - 0.15 * number])) for number in range(N)]
    assert len(answers(Guide(received=3), sent)[0]["weight"]) == 3
    assert len(answers(Guide(), sent)[0]["weight"]) == 5
    weight = np.array([1.0, 1.0, 0.1, 1.0, 1.0, 0.0])
    found = answers(Guide(), sent, weight)[0]
    by_place = dict(zip(found["mean"][:, 0].round(2).tolist(), found["weight"], strict=True))
    assert by_place[0.3] == pytest.approx(0.1 * by_place[0.15]) and 0.75 not in by_place


def test_damaged_messages_are_moved_into_their_range() -> None:
    harmed = {**payload([1e300, -3.0], value=1e200), "share": np.array([-5.0]), "variance": np.array([-1.0, 1e9])}
    found = answers(Guide(), [(1, harmed), (2, payload([0.4, 0.4]))])[0]
    assert all(np.isfinite(array).all() for array in found.values())
    assert ((found["mean"] >= 0.0) & (found["mean"] <= 1.0)).all() and (found["variance"] > 0.0).all()


@pytest.mark.parametrize("acquisition", ["ei", "ucb", "ts"])
def test_strong_guidance_is_followed_and_without_it_the_agent_goes_elsewhere(acquisition: str) -> None:
    """Ten seeds: an agent with three observations goes within .15 of a place it has no reason for.

    A draw is below its mean there as often as above it, so half of the draws go elsewhere.
    """
    near = {}
    for strength in (0.0, 20.0):
        method = Guide(acquisition=acquisition, strength=strength)
        found = []
        for seed in range(10):
            state = method.tell(method.agent_init(PROBLEM, Streams(seed)), *initial(seed))
            decision, _ = method.ask(state, told([0.15, 0.85]), Streams(seed).at(1))
            assert decision.origin == "federated"
            found.append(np.abs(decision.x[0] - [0.15, 0.85]).max() < 0.15)
        near[strength] = sum(found)
    assert near[0.0] <= 2 and near[20.0] >= (3 if acquisition == "ts" else 8)


def initial(seed: int) -> tuple[Array, Array]:
    x = np.random.default_rng(seed).random((3, 2))
    return x, bowl(x)


def test_without_messages_it_is_gp_ei_to_the_bit() -> None:
    alone, other = entry("guide_alone").make(refit=1), entry("gp_ei").make()
    states = [method.agent_init(PROBLEM, Streams(4)) for method in (alone, other)]
    x = np.random.default_rng(4).random((3, 2))
    states = [method.tell(state, x, bowl(x)) for method, state in zip((alone, other), states, strict=True)]
    for step in range(1, 5):
        asked = [m.ask(s, (), Streams(4).at(step)) for m, s in zip((alone, other), states, strict=True)]
        np.testing.assert_array_equal(asked[0][0].x, asked[1][0].x)
        states = [m.tell(s, d.x, bowl(d.x)) for m, (d, s) in zip((alone, other), asked, strict=True)]


def test_the_centre_is_one_wide_gaussian_that_nobody_sends() -> None:
    centre, guided = entry("guide_centre").make(), Guide()
    assert centre.upload(PROBLEM) is None and centre.outbox(known(Guide(), 1), Streams(1))[0] is None
    decided = []
    for method, inbox in ((centre, []), (guided, told([0.5, 0.5], sd=0.25))):
        state = method.tell(method.agent_init(PROBLEM, Streams(2)), *initial(2))
        decided.append(method.ask(state, inbox, Streams(2).at(1))[0].x)
    np.testing.assert_array_equal(decided[0], decided[1])


def test_a_shuffled_message_keeps_its_distance_from_the_centre_and_a_noise_message_does_not() -> None:
    plain = message(Guide(), 3)
    for number in range(1, 5):
        sent, _ = Guide(control="shuffled").outbox(known(Guide(), 3), Streams(1, owner=3).at(1).within(str(number)))
        assert sent is not None
        own, _ = Guide().outbox(known(Guide(), 3), Streams(1, owner=3).at(1).within(str(number)))
        assert own is not None
        np.testing.assert_allclose(np.sort(np.abs(sent["mean"] - 0.5)), np.sort(np.abs(own["mean"] - 0.5)))
        np.testing.assert_allclose(np.sort(sent["variance"]), np.sort(own["variance"]))
    noise = message(Guide(control="noise"), 3)
    np.testing.assert_array_equal(noise["variance"], plain["variance"])
    assert np.abs(noise["mean"] - plain["mean"]).max() > 0.1


@pytest.mark.parametrize("acquisition", ["ei", pytest.param("ts", marks=pytest.mark.long)])
def test_in_a_typed_space_what_is_asked_can_be_evaluated_and_is_new(acquisition: str) -> None:
    typed = test_typed_search.space(n=(1, 50), kind=["a", "b", "c"])
    problem = Problem(2, 3, (0, 1, 2), 3, 5, lattice=typed)
    method = Guide(acquisition=acquisition, every=1)
    run = Lockstep(method, problem, lambda decision, streams: -((decision.x - 0.2 * streams.owner) ** 2).sum(axis=1), 4)
    run.begin()
    run.exchange()
    run.run(5)
    for agent in range(3):
        own = [decisions[agent] for decisions in run.decisions]
        assert all(np.array_equal(typed.project(decision.x), decision.x) for decision in own)
        led = [decision.x.tobytes() for decision in own if decision.origin == "federated"]
        assert led and len(set(led)) == len(led)


def test_guidance_fades_with_the_agents_own_decisions() -> None:
    method = Guide(strength=0.5)
    state = method.tell(method.agent_init(PROBLEM, Streams(1)), *initial(1))
    for t in (1, 4, 9):
        guides = method._guides(state._replace(t=t, answer=told([0.1, 0.2], [0.3, 0.4])[0].payload))
        assert guides is not None and guides["weight"].sum() == pytest.approx(0.5 / np.sqrt(t))
        assert (guides["variance"] >= NARROWEST**2).all()


def test_an_agent_without_observations_begins_where_others_expect_the_best() -> None:
    method = Guide()
    decision, _ = method.ask(method.agent_init(PROBLEM, Streams(1)), told([0.1, 0.9]), Streams(1).at(1))
    assert decision.origin == "federated" and decision.x[0].tolist() == [0.1, 0.9]
    decision, _ = method.ask(method.agent_init(PROBLEM, Streams(1)), [], Streams(1).at(1))
    assert decision.origin == "own"


@pytest.mark.parametrize("name", ["plain", "arcsine", "stretched"])
def test_gaussians_in_coordinates_are_those_of_the_cube_near_their_mean(name: str) -> None:
    mean, sd = np.array([[0.4, 0.6], [0.05, 0.9]]), np.array([[0.01, 0.02], [0.01, 0.02]])
    seen = Guide(coordinates=name).begin(PROBLEM)
    guides = {"weight": np.array([0.5, 0.25]), "mean": mean, "variance": sd**2}
    rows = guide_rows(guides, name, seen)
    np.testing.assert_allclose(rows[:, 0], guides["weight"])
    x = mean + 0.5 * sd
    found = (to_coordinates(x, name) - rows[:, 1:3]) * rows[:, 3:]
    np.testing.assert_allclose(found, 0.5, rtol=1e-9 if name == "plain" else 0.35)
    np.testing.assert_allclose(from_coordinates(rows[:, 1:3], name), mean, rtol=1e-9)


@pytest.mark.parametrize("dim", [1, 2])
def test_the_hellinger_distance_is_that_of_the_densities(dim: int) -> None:
    one, other = payload(np.full(dim, 0.4), sd=0.1), payload(np.full(dim, 0.6), sd=0.05)
    line = np.linspace(-0.5, 1.5, 4001)
    first, second = (
        np.exp(-0.5 * ((line - p["mean"][0]) ** 2) / p["variance"][0]) / np.sqrt(2 * np.pi * p["variance"][0])
        for p in (one, other)
    )
    overlap = float(np.trapezoid(np.sqrt(first * second), line)) ** dim
    assert hellinger(one, other) == pytest.approx(np.sqrt(1.0 - overlap), abs=1e-6)
    assert hellinger(one, one) == 0.0


def test_a_message_that_has_not_changed_enough_is_not_sent() -> None:
    method = Guide(send_when=0.9)
    first, state = method.outbox(known(method, 2), Streams(1, owner=2).at(1))
    again, kept = method.outbox(state, Streams(1, owner=2).at(1))
    assert first is not None and again is None and kept is state
    x = np.array([[0.2, 0.2], [0.21, 0.2], [0.2, 0.21]])
    moved, _ = method.outbox(method.tell(state, x, np.full(3, 40.0)), Streams(1, owner=2).at(2))
    assert moved is not None and np.abs(moved["mean"] - 0.2).max() < 0.15


@pytest.mark.parametrize("name", ["guide_alone", "guide_centre"])
def test_a_control_without_messages_never_sends(name: str) -> None:
    """Else the coordinator would wait for its messages, and close rounds without any."""
    method = entry(name).make()
    assert method.upload(PROBLEM) is None and not any(method.sends(step) for step in range(9))


def rows_of(seed: int, dim: int, count: int) -> Array:
    rng = np.random.default_rng((7, seed, dim))
    return np.column_stack([rng.random(count), rng.random((count, dim)), 1.0 / rng.uniform(0.1, 0.8, (count, dim))])


def test_the_slope_of_the_factor_is_that_of_differences() -> None:
    rows, x, step = rows_of(1, 3, 4), np.random.default_rng(2).random((5, 3)), 1e-6
    slope = widening(rows, x)[1]
    for k in range(3):
        shift = step * np.eye(3)[k]
        difference = (widening(rows, x + shift)[0] - widening(rows, x - shift)[0]) / (2.0 * step)
        np.testing.assert_allclose(slope[:, k], difference, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("bounding", [False, True])
def test_the_guided_search_ends_no_lower_than_a_fine_grid(bounding: bool) -> None:
    rng = np.random.default_rng(3)
    x = rng.random((20, 2))
    y = -((x - 0.4) ** 2).sum(axis=1) + 0.1 * np.cos(9.0 * x).sum(axis=1)
    posterior = condition(Hyperparameters((0.4, 0.6), 1.3, 1e-3, "matern52", float(y.mean()), float(y.std())), x, y)
    criterion, rows = Criterion(2.0 if bounding else float(y.max()), bounding), rows_of(3, 2, 3)
    seen = LocalState(x, y)
    found = maximise_guided(posterior, criterion, rows, seen, "plain", Streams(3, owner=0))
    side = np.linspace(0.0, 1.0, 101)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

    def values(u: Array) -> Array:
        at = prediction(posterior, u)
        factor = widening(rows, u)[0]
        if bounding:
            return np.asarray(at.mean + 2.0 * factor * np.sqrt(at.variance))
        return np.asarray(log_expected_improvement(at._replace(variance=factor**2 * at.variance), criterion.level)[0])

    assert values(found[None, :])[0] >= values(grid).max() - 1e-6
