"""The federated prior in spaces with categories: these have no order, what is inactive says nothing, the posterior is right."""

from __future__ import annotations

import itertools
import json
from typing import Any

import ConfigSpace as CS
import numpy as np
import pytest

from fedbo.algorithms.base import Array, Inbound, Problem
from fedbo.algorithms.components.coordinates import design_points
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.learned_prior import learned_prior as lp
from fedbo.algorithms.learned_prior.fed_prior import FedPrior
from fedbo.algorithms.learned_prior.prior_space import PriorSpace, choices, common_points, is_typed
from fedbo.algorithms.private.dp_fed_prior import DPFedPrior
from fedbo.algorithms.streams import COORDINATOR, Streams
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.surrogates.gp import Hyperparameters
from fedbo.surrogates.kernels import SE, Matern
from tests.algorithms.learned_prior.densities import density_function

KINDS, SHAPES, AGENTS = "edcba", "qspr", 3


def space(kinds: str = KINDS, shapes: str = SHAPES, default: float = 0.5) -> Space:
    """A kind, a shape, a whole number, and a real number that only kinds "a" and "b" have: three words matter, in no order."""
    made = CS.ConfigurationSpace(seed=0)
    kind, shape, x = (
        CS.Categorical("kind", list(kinds)),
        CS.Categorical("shape", list(shapes)),
        CS.Float("x", (0.0, 1.0), default=default),
    )
    made.add(kind, shape, CS.Integer("n", (1, 4)), x)
    made.add(CS.InCondition(x, kind, ["a", "b"]))
    return read_space(json.dumps(made.to_serialized_dict()))


def whole(kinds: str, shapes: str) -> Space:
    made = CS.ConfigurationSpace({"kind": list(kinds), "shape": list(shapes), "n": (1, 4)}, seed=0)
    return read_space(json.dumps(made.to_serialized_dict()))


def worth(c: dict[str, Any], agent: int) -> float:
    kind, shape = "cadbe".index(c["kind"]), "rpqs".index(c["shape"])
    return -0.5 * kind**1.5 - 0.4 * shape - 0.3 * abs(c["n"] - 3) - 0.2 * kind * shape + 0.3 * np.sin(7.0 * kind + agent)


def asked(method: FedPrior | DPFedPrior, typed: Space, rounds: int) -> list[dict[str, Any]]:
    """What agents ask in turn, each after six configurations that are the same by name in every space."""
    problems = [Problem(3, AGENTS, range(AGENTS), 6, rounds, agent=agent, lattice=typed) for agent in range(AGENTS)]
    streams = [Streams(1, owner=agent) for agent in range(AGENTS)]
    states = [method.agent_init(*both) for both in zip(problems, streams, strict=True)]
    server: Any = method.server_init(problems[0])
    drawn = np.random.default_rng(4)
    told = [
        [{"kind": k, "shape": drawn.choice(list("pqrs")), "n": int(drawn.integers(1, 5))} for k in "abcdea"] for _ in problems
    ]
    said: list[dict[str, Any]] = []
    for step in range(rounds + 1):
        for agent, state in enumerate(states):
            x = np.array([typed.encode(c) for c in told[agent]])
            states[agent] = method.tell(state, x, np.array([worth(c, agent) for c in told[agent]]))
        sent = [method.outbox(state, own.at(step)) for state, own in zip(states, streams, strict=True)]
        states = [state for _, state in sent]
        payloads = [payload for payload, _ in sent if payload is not None]
        if isinstance(method, FedPrior):
            for agent, payload in enumerate(payloads):
                server = method.receive(server, Inbound(agent, step, 0.0, payload), 0.0)
        else:
            server = method.released(server, np.mean([payload["shape"] for payload in payloads], axis=0)[None], step)
        answers, server = method.broadcast(server, range(AGENTS), np.ones(AGENTS), Streams(1, owner=COORDINATOR).at(step))
        for agent, state in enumerate(states):
            inbox = [Inbound(COORDINATOR, step, 0.0, answers[agent])]
            decision, states[agent] = method.ask(state, inbox, streams[agent].at(step + 1))
            told[agent] = [typed.decode(decision.x[0])]
            said += [{**told[agent][0], "origin": decision.origin}]
    return said


@pytest.mark.parametrize("method", [FedPrior(points=40), DPFedPrior(points=40, noise_multiplier=0.1)])
def test_the_order_of_words_changes_nothing_but_names(method: FedPrior | DPFedPrior) -> None:
    found = [asked(method, whole(*orders), 2) for orders in (("abcde", "pqrs"), ("dbeac", "srpq"))]
    assert found[0] == found[1]
    assert {said["origin"] for said in found[0]} >= {"federated"}


def test_design_points_are_valid_configurations_that_do_not_depend_on_order_and_defaults() -> None:
    spaces = [space(), space("abcde", "pqrs"), space(default=0.9)]
    found = [[typed.decode(x) for x in common_points(60, 4, typed)] for typed in spaces]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 60 == len({json.dumps(c) for c in found[0]})
    assert all(("x" in c) == (c["kind"] in "ab") for c in found[0])
    counts = [sum(c["kind"] == kind for c in found[0]) for kind in KINDS]
    assert min(counts) >= 6


def test_a_small_space_is_its_own_design() -> None:
    typed = whole("abc", "pq")
    assert len(common_points(100, 3, typed)) == 24


@pytest.mark.parametrize("parameters", [{"x": (0.0, 1.0), "y": (0.0, 2.0)}, {"x": (0.0, 1.0), "n": (1, 9)}])
def test_numbers_alone_are_seen_as_a_cube(parameters: dict[str, Any]) -> None:
    plain = read_space(json.dumps(CS.ConfigurationSpace(parameters).to_serialized_dict()))
    assert not is_typed(None) and not is_typed(plain) and is_typed(space()) and is_typed(whole("abc", "pq"))
    np.testing.assert_array_equal(common_points(49, 2, plain), design_points(49, 2))
    assert choices(2, "learned", plain) == (PriorSpace(2, "arcsine"), PriorSpace(2, "stretched"))


def written_out(c: dict[str, Any]) -> list[float]:
    """The coordinates of a configuration, one for each word of a category and the middle for what it does not have."""
    kinds = [np.sqrt(0.5) * (c["kind"] == kind) for kind in KINDS]
    shapes = [np.sqrt(0.5) * (c["shape"] == shape) for shape in SHAPES]
    return [*kinds, (c["n"] - 0.5) / 4.0, *shapes, c.get("x", 0.5)]


def test_the_posterior_is_that_of_a_dense_computation_over_all_configurations() -> None:
    typed, rng = space(), np.random.default_rng(3)
    assert [parameter.name for parameter in typed.parameters] == ["kind", "n", "shape", "x"]
    kinds, shapes, numbers = (typed.centres(axis) for axis in (0, 2, 1))
    every = np.unique(
        typed.project(np.array([(k, n, s, x) for k, n, s, x in itertools.product(kinds, numbers, shapes, (0.1, 0.7))])), axis=0
    )
    design, own = common_points(30, 4, typed), PriorSpace(4, "plain", typed)
    dense = np.array([written_out(typed.decode(x)) for x in every])
    at_design = np.array([written_out(typed.decode(x)) for x in design])
    np.testing.assert_allclose(own.seen(every), dense, atol=1e-12)
    moments = lp.Moments(rng.standard_normal(30), 0.5 * rng.standard_normal((2, 30)), 0.2)
    scales = tuple(np.exp(rng.uniform(-0.5, 0.5, 11)).tolist())
    fitted = LocalState(dense, np.zeros(len(dense)), Hyperparameters(scales, 1.0, 0.01, "matern52"))
    prior = lp.learned_prior(own.seen(design), moments, 0.9)._replace(lengths=own.lengths(fitted))
    parameters = lp.PriorParameters(0.25, 0.4, 0.03, 0.8)
    seen, y = rng.choice(len(every), 7, replace=False), rng.standard_normal(7)
    belief = lp.believe(prior, parameters, own.seen(every[seen]), y)

    gram = SE(0.9)(at_design, at_design) + lp.INTERPOLATION_NOISE * np.eye(30)
    weights = SE(0.9)(dense, at_design) @ np.linalg.inv(gram)
    mean = moments.mean.mean() + weights @ (moments.mean - moments.mean.mean())
    spread = weights @ moments.directions.T
    covariance = 0.8 * spread @ spread.T + 0.4 * prior.scale**2 * Matern(scales)(dense, dense)
    observed = covariance[np.ix_(seen, seen)] + 0.03 * prior.scale**2 * np.eye(7)
    gain = covariance[:, seen] @ np.linalg.inv(observed)
    np.testing.assert_allclose(lp.expected(belief, own.seen(every)), mean + gain @ (y - mean[seen]), atol=1e-7)
    variance = np.diag(covariance - gain @ covariance[seen])
    for slopes in (True, False):
        at = lp.predictor(belief)(own.seen(every), slopes)
        np.testing.assert_allclose(prior.scale**2 * at.variance, variance, atol=1e-7)
        np.testing.assert_allclose(prior.centre + prior.scale * at.mean, mean + gain @ (y - mean[seen]), atol=1e-7)


def test_the_density_of_what_is_fitted_knows_each_length_scale() -> None:
    """Against the normal density written out, at two sets of parameters whose priors are taken off."""
    rng, scales = np.random.default_rng(5), (0.5, 1.5, 3.0)
    x, y = rng.random((9, 3)), rng.standard_normal(9)
    prior = lp.flat_prior(3, 0.2, 2.0)._replace(lengths=scales)
    density, found = density_function(prior, x, y), []
    for parameters in (lp.PriorParameters(0.3, 0.7, 0.05), lp.PriorParameters(0.9, 0.2, 0.01)):
        theta = np.log(parameters)
        apart = (theta - np.log(prior.parameters)) / lp.SPREADS
        lengths = tuple(parameters.length_scale * each for each in scales)
        matrix = Matern(lengths, parameters.variance)(x, x) + parameters.noise_variance * np.eye(9)
        target = (y - 0.2) / 2.0
        wanted = 0.5 * target @ np.linalg.solve(matrix, target) + 0.5 * np.linalg.slogdet(matrix)[1] + 0.5 * apart @ apart
        found.append(density(theta)[0] - wanted)
        step = 1e-6 * np.eye(4)
        slopes = [(density(theta + one)[0] - density(theta - one)[0]) / 2e-6 for one in step]
        np.testing.assert_allclose(density(theta)[1], slopes, rtol=1e-4, atol=1e-6)
    assert found[0] == pytest.approx(found[1], abs=1e-9)


def test_without_observations_the_first_query_is_where_others_are_best() -> None:
    typed = whole("abcde", "pqrs")
    method, answer = FedPrior(points=80), {}
    design = [typed.decode(x) for x in common_points(80, 3, typed)]
    values: Array = np.array([worth(c, 0) for c in design])
    answer = {"mean": values, "directions": np.empty((0, 80)), "residual": np.array([0.1]), "stretch": np.zeros(1)}
    state = method.agent_init(Problem(3, 2, (0, 1), 0, 5, agent=0, lattice=typed), Streams(1))
    decision, _ = method.ask(state, [Inbound(COORDINATOR, 0, 0.0, answer)], Streams(1).at(1))
    assert typed.decode(decision.x[0]) == design[int(values.argmax())]
