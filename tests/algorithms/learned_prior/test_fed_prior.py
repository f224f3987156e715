"""The federated prior: what is sent and answered, what the controls take away, and that it is used."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.base import Array, Inbound, Payload, Problem
from fedbo.algorithms.components.centres import Aggregation
from fedbo.algorithms.components.coordinates import design_points, from_coordinates, slopes, to_coordinates
from fedbo.algorithms.learned_prior.fed_prior import FedPrior
from fedbo.algorithms.learned_prior.learned_prior import expected, shrunk
from fedbo.algorithms.learned_prior.prior_agent import MOST, PriorAgent, PriorState, belief_of
from fedbo.algorithms.learned_prior.prior_space import PriorSpace
from fedbo.algorithms.private.dp_fed_prior import DPFedPrior
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.coordinator.environment.lies import is_falsifiable
from fedbo.settings.records import changed

N, M = 6, 49
PROBLEM = Problem(2, N, tuple(range(N)), 3, 10)
CENTRE = np.array([0.3, 0.7])


def bowl(x: Array, agent: int = 0) -> Array:
    """A bowl whose top is elsewhere for each agent, and of another height."""
    return np.asarray(agent - 5.0 * ((x - CENTRE - 0.01 * agent) ** 2).sum(axis=1))


def agent(method: FedPrior, number: int, x: Array) -> PriorState:
    streams = Streams(1, owner=number)
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=number), streams)
    return method.tell(state, x, bowl(x, number))._replace(t=1)


def message(method: FedPrior, number: int, count: int = 25) -> Payload:
    x = np.random.default_rng(number).random((count, 2))
    payload, _ = method.outbox(agent(method, number, x), Streams(1, owner=number).at(1))
    assert payload is not None
    return payload


def answers(method: FedPrior, payloads: dict[int, Payload], staleness: Array | None = None) -> dict[int, Payload]:
    server = method.server_init(PROBLEM)
    for number, payload in payloads.items():
        server = method.receive(server, Inbound(number, 1, 0.0, payload), 0.0)
    weight = np.ones(N) if staleness is None else staleness
    return method.broadcast(server, range(N), weight, Streams(1, owner=COORDINATOR))[0]


def told(payloads: dict[int, Payload], weight: Array, others: list[int]) -> tuple[Array, Array, Array]:
    """Mean and covariance of what others have said, each written out agent by agent, and how many they count as."""
    said = [(weight[other], payloads[other]["values"], payloads[other]["certainty"]) for other in others]
    total = np.sum([w * r for w, _, r in said], axis=0)
    level = np.sum([w * values.sum() for w, values, _ in said]) / total.sum()
    mean = (np.sum([w * values for w, values, _ in said], axis=0) + level) / (total + 1.0)
    spread = np.sum([w * np.outer(values - r * mean, values - r * mean) for w, values, r in said], axis=0)
    return mean, spread / np.sqrt(np.outer(total, total)), total


@pytest.mark.parametrize("rule", ["mean", "trimmed_mean"])
@pytest.mark.parametrize("staleness", [None, np.array([1.0, 0.5, 0.25, 1.0, 0.0, 1.0])])
def test_an_answer_has_mean_and_shrunk_covariance_of_the_others(staleness: Array | None, rule: str) -> None:
    """Also where a robust centre leaves nobody out; distances are then cut, so only the mean is looked at."""
    method = FedPrior(points=M, directions=100, aggregation=Aggregation(rule, trim=0.0))
    payloads = {number: message(method, number, 5 + 5 * number) for number in range(N)}
    weight = np.ones(N) if staleness is None else staleness
    found = answers(method, payloads, staleness)
    for number in range(N):
        others = [other for other in range(N) if other != number and weight[other]]
        mean, covariance, total = told(payloads, weight, others)
        np.testing.assert_allclose(found[number]["mean"], mean, rtol=1e-7)
        stretch = sum(weight[other] * payloads[other]["certainty"].mean() * payloads[other]["stretch"][0] for other in others)
        assert found[number]["stretch"][0] == pytest.approx(stretch)
        if rule == "mean":
            kept, residual = shrunk(covariance, total.mean())
            directions = found[number]["directions"]
            np.testing.assert_allclose(directions.T @ directions, kept, rtol=1e-6, atol=1e-8 * covariance.max())
            assert found[number]["residual"][0] == pytest.approx(residual)


def test_where_an_agent_has_not_looked_it_says_nothing_whatever_its_level() -> None:
    method, streams = FedPrior(points=M), Streams(1, owner=1)
    x = np.random.default_rng(0).random((40, 2)) * [0.3, 1.0]
    state = method.agent_init(dataclasses.replace(PROBLEM, agent=1), streams)
    state = method.tell(state, x, 10.0 + np.sin(25.0 * x).sum(axis=1))._replace(t=1)
    payload, _ = method.outbox(state, streams.at(1))
    assert payload is not None
    far, r = design_points(M, 2)[:, 0] > 0.8, payload["certainty"]
    assert r[far].max() < 0.1 and np.abs(payload["values"][far]).max() < 1.2 and r.max() > 0.9


def test_few_directions_are_the_largest() -> None:
    payloads = {number: message(FedPrior(points=M), number) for number in range(N)}
    every = answers(FedPrior(points=M), payloads)[0]["directions"]
    few = answers(FedPrior(points=M, directions=2), payloads)[0]["directions"]
    np.testing.assert_array_equal(few, every[:2])
    assert len(every) == N - 1 and (np.diff((every**2).sum(axis=1)) <= 0).all()
    assert answers(FedPrior(points=M, directions=0), payloads)[0]["directions"].shape == (0, M)


def test_one_other_agent_has_a_mean_and_no_direction_and_nobody_has_no_answer() -> None:
    method = FedPrior(points=M)
    found = answers(method, {3: message(method, 3)})
    assert 3 not in found and found[0]["directions"].shape == (0, M)
    mean, covariance, total = told({3: message(method, 3)}, np.ones(N), [3])
    np.testing.assert_allclose(found[0]["mean"], mean, rtol=1e-12)
    assert total.max() <= 1.0 and found[0]["residual"][0] == pytest.approx(covariance.trace() / M)
    assert answers(method, {}) == {}


def test_a_message_comes_near_the_function_about_its_own_level() -> None:
    method, x = FedPrior(points=M), np.random.default_rng(2).random((40, 2))
    sent = method.outbox(agent(method, 2, x), Streams(1, owner=2).at(1))[0]
    wanted = bowl(design_points(M, 2), 2)
    assert sent is not None
    told = bowl(x, 2).mean() + sent["values"] / sent["certainty"]
    assert np.abs(told - wanted).max() < 0.1 * np.ptp(wanted)


LEVELS = [1e3, -50.0, 1e6]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(3))
def test_the_level_of_an_agent_changes_no_message(level: float, seed: int) -> None:
    """So levels of agents cannot look like a shape, whatever their certainties are."""
    method, x = FedPrior(points=M), np.random.default_rng(seed).random((12, 2))
    plain, moved = (
        method.outbox(method.tell(agent(method, 1, x[:0]), x, values)._replace(t=1), Streams(1, owner=1).at(1))[0]
        for values in (bowl(x, 1), level + bowl(x, 1))
    )
    assert plain is not None and moved is not None
    for name, wanted in plain.items():
        np.testing.assert_allclose(moved[name], wanted, atol=2e-3)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("method", [FedPrior(points=M), DPFedPrior(points=M)], ids=["fed_prior", "dp_fed_prior"])
def test_what_an_agent_believes_follows_its_own_level(method: PriorAgent, count: int, level: float) -> None:
    x = np.random.default_rng(count).random((count, 2))
    plain, moved = (believed(method, x, values) for values in (bowl(x), level + bowl(x)))
    np.testing.assert_allclose(moved - level, plain, atol=1e-2)


@pytest.mark.parametrize("method", [FedPrior(points=M), DPFedPrior(points=M)], ids=["fed_prior", "dp_fed_prior"])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_an_agent_in_other_units_than_all_others_believes_the_same(method: PriorAgent, scale: float) -> None:
    x = np.random.default_rng(3).random((5, 2))
    near, far = (believed(method, x, times * bowl(x)) / times for times in (np.sqrt(scale), scale))
    np.testing.assert_allclose(far, near, atol=1e-2)
    assert np.corrcoef(far, bowl(design_points(M, 2)))[0, 1] > 0.8


def test_one_agent_in_other_units_hardly_changes_what_others_are_told() -> None:
    """Its values are at most four times those of the median agent."""
    method = FedPrior(points=M)
    payloads = {number: message(method, number, 25) for number in range(N)}
    loud = {**payloads, 5: {**payloads[5], "values": 1e6 * payloads[5]["values"]}}
    quiet = {**payloads, 5: {**payloads[5], "values": 4.0 * payloads[5]["values"]}}
    for number in range(N - 1):
        found, most = (answers(method, given)[number]["mean"] for given in (loud, quiet))
        np.testing.assert_allclose(found, most, atol=0.15 * np.abs(most).max())


def believed(method: PriorAgent, x: Array, y: Array) -> Array:
    """What an agent that was told of bowls and has seen values `(n,)` expects at the design points."""
    local = changed(method.agent_init(PROBLEM, Streams(1)).local, u=x, y=y)
    return expected(belief_of(method._prior(answer_for(method), local, PriorSpace(2, "plain")), local), design_points(M, 2))


def answer_for(method: PriorAgent) -> Payload:
    """An answer of a method, from bowls."""
    if isinstance(method, FedPrior):
        return answers(method, {number: message(method, number) for number in range(1, N)})[0]
    shape = bowl(design_points(M, 2))
    shape -= shape.mean()
    return {"mean": shape / np.linalg.norm(shape), "noise": np.array([0.01]), "stretch": np.zeros(1)}


@pytest.mark.parametrize("control", ["noise", "shuffled"])
def test_controls_take_the_information_out(control: Any) -> None:
    plain, without = message(FedPrior(points=M), 1), message(FedPrior(points=M, control=control), 1)
    assert without["stretch"] == 0 and sorted(without["certainty"]) == sorted(plain["certainty"])
    assert not np.array_equal(without["values"], plain["values"])
    if control == "shuffled":
        pairs = [sorted(zip(one["values"], one["certainty"], strict=True)) for one in (without, plain)]
        np.testing.assert_allclose(*pairs)
    else:
        np.testing.assert_array_equal(without["certainty"], plain["certainty"])


def test_whoever_lies_may_falsify_all_of_a_message() -> None:
    declared = FedPrior(points=M).upload(PROBLEM)
    assert declared is not None and all(is_falsifiable(field) for field in declared.values())


def test_groups_with_opposite_functions_are_told_apart_by_what_an_agent_sees() -> None:
    """Half of the agents have a bowl, half the same upside down; eight observations say to which an agent belongs."""
    method, payloads = FedPrior(points=M, coordinates="plain"), {}
    for number in range(N):
        x = np.random.default_rng(number).random((40, 2))
        state = method.agent_init(PROBLEM, Streams(1, owner=number))
        payload, _ = method.outbox(method.tell(state, x, (-1) ** number * bowl(x))._replace(t=1), Streams(1, owner=number))
        assert payload is not None
        payloads[number] = payload
    found, at = answers(method, payloads), design_points(M, 2)
    x = np.random.default_rng(9).random((8, 2))
    for number in (0, 1):
        local = changed(method.agent_init(PROBLEM, Streams(1)).local, u=x, y=(-1) ** number * bowl(x))
        belief = belief_of(method._prior(found[number], local, PriorSpace(2, "plain")), local)
        wanted = (-1) ** number * bowl(at)
        assert np.corrcoef(expected(belief, at), wanted)[0, 1] > 0.95


def test_alone_nothing_is_sent() -> None:
    alone = FedPrior(control="alone")
    assert alone.upload(PROBLEM) is None and alone.download(PROBLEM) is None
    assert not any(alone.sends(step) for step in range(20))


def test_points_speak_for_the_coordinates_in_which_the_function_is_smooth() -> None:
    method, x = FedPrior(points=M), np.random.default_rng(0).random((40, 2)) ** 3
    for name, sign in (("stretched", 1), ("plain", -1)):
        state = method.agent_init(dataclasses.replace(PROBLEM, agent=1), Streams(1, owner=1))
        u = to_coordinates(x, name)
        state = method.tell(state, x, np.sin(7.0 * u[:, 0]) + np.cos(5.0 * u[:, 1]))._replace(t=1)
        payload, _ = method.outbox(state, Streams(1, owner=1).at(1))
        assert payload is not None and sign * payload["stretch"][0] > 1.0 and abs(payload["stretch"][0]) <= MOST


@pytest.mark.parametrize("name", ["arcsine", "plain", "stretched"])
def test_coordinates_go_there_and_back(name: str) -> None:
    x = np.concatenate([np.linspace(0.0, 1.0, 201), [1e-9, 1 - 1e-9]])[:, None]
    u = to_coordinates(x, name)
    np.testing.assert_allclose(from_coordinates(u, name), x, atol=1e-12)
    assert u[0] == 0 and u[200] == 1 and u[100] == pytest.approx(0.5) and (np.diff(u[:201, 0]) > 0).all()
    between, step = np.linspace(0.02, 0.98, 20), 1e-6
    wanted = (from_coordinates(between + step, name) - from_coordinates(between - step, name)) / (2 * step)
    np.testing.assert_allclose(slopes(between, name), wanted, rtol=1e-5)


def test_the_first_query_goes_to_where_others_are_best_and_every_second_late_one_is_its_own() -> None:
    method = FedPrior(points=M, alone_after=4)
    answer = answers(method, {number: message(method, number, 40) for number in range(1, N)})[0]
    state = agent(method, 0, np.empty((0, 2)))._replace(t=0)
    inbox, origins = [Inbound(COORDINATOR, 1, 0.0, answer)], []
    for step in range(1, 9):
        decision, state = method.ask(state, inbox, Streams(1, owner=0).at(step))
        if step == 1:
            assert np.abs(decision.x[0] - CENTRE - 0.03).max() < 0.06
        origins.append(decision.origin)
        state, inbox = method.tell(state, decision.x, bowl(decision.x)), []
    assert origins[:4] == ["federated"] * 4 and origins[4:] == ["own", "federated"] * 2
    assert state.local.y.max() > -0.02


def test_the_design_holds_the_faces_and_is_dense_near_them_and_inside() -> None:
    x = np.unique(design_points(100, 2))
    assert x[0] == 0 and x[-1] == 1 and len(x) == 10
    assert np.diff(to_coordinates(x, "plain")).max() < 0.2 and np.diff(to_coordinates(x, "stretched")).max() < 0.25
    assert design_points(100, 5).shape == (100, 5) and design_points(2, 1).tolist() == [[0.0], [1.0]]
