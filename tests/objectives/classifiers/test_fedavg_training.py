"""Training by FedAvg: what decides the value and the cost, that rounds are a fidelity axis, and how the servers differ."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Array, Fidelity, MultiFidelity
from fedbo.objectives.classifiers.digits import digit_images
from fedbo.objectives.classifiers.fedavg import fedavg_round
from fedbo.objectives.classifiers.fedavg_training import (
    CLIENTS,
    PARAMETERS,
    PARTS,
    SERVERS,
    FedAvgTraining,
    ServerAgent,
    settings_of,
)
from fedbo.objectives.classifiers.partitions import PARTITIONS
from fedbo.objectives.space import from_unit

RNG = Streams(0).rng("nothing is drawn")
POINT = np.array([0.3, 1.5, 2.0, 16.0, 0.5])


def server(agent: int = 0, **settings: Any) -> ServerAgent:
    streams = Streams(agent)
    return FedAvgTraining(**settings).objective(agent, streams.rng("shared"), streams.rng("own"))


def error(one: ServerAgent, rounds: int, x: Array = POINT) -> float:
    return -one.evaluate_at(x, rounds, RNG)


def test_rounds_are_the_fidelity_axis_and_fewer_are_the_beginning_of_more() -> None:
    whole, half = server(rounds=8), server(rounds=4)
    assert isinstance(whole, MultiFidelity) and FedAvgTraining(rounds=8).fidelity == Fidelity("round", 1, 8)
    assert FedAvgTraining(rounds=1).fidelity is None
    curve = [error(server(rounds=8), number) for number in range(1, 9)]  # each anew
    assert [error(whole, number) for number in range(1, 9)] == curve and whole.evaluate(POINT, RNG) == -curve[-1]
    assert [error(whole, number) for number in (5, 2, 8)] == [curve[number - 1] for number in (5, 2, 8)]
    assert [error(half, number) for number in range(1, 5)] == curve[:4]
    assert curve[0] > curve[-1] and half.cost(POINT) < whole.cost(POINT)


def test_a_training_is_continued_and_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def counted(*arguments: Any) -> Array:
        done.append(arguments[3])
        return fedavg_round(*arguments)

    monkeypatch.setattr("fedbo.objectives.classifiers.fedavg_training.fedavg_round", counted)
    one, other = server(rounds=6), np.array([0.1, 1.0, 1.0, 32.0, 0.2])
    for rounds in (2, 6):
        error(one, rounds), error(one, rounds, other)
    assert done == [0, 1, 0, 1, 2, 3, 4, 5, 2, 3, 4, 5]
    for place in range(20):
        error(one, 1, from_unit(PARAMETERS, np.full(5, place / 20)))
    assert len(pickle.dumps(one)) < len(pickle.dumps(server(rounds=6))) + 80_000, "what is remembered is bounded"


def test_the_value_is_the_validation_error_of_a_model_that_fedavg_has_trained() -> None:
    one = server(rounds=5)
    weights = np.zeros((65, 10))
    for number in range(5):
        weights = fedavg_round(weights, one.clients, one.sampling, number, settings_of(POINT))
    images, label = one.validation
    guess = [int(np.argmax([image @ weights[:, digit] for digit in range(10)])) for image in images]
    assert one.evaluate(POINT, RNG) == -np.mean([told != true for told, true in zip(guess, label, strict=True)])
    assert 0.0 < error(one, 5) < 0.8  # one that guesses at random is wrong in 9 of 10


@pytest.mark.parametrize("axis, cheap, dear", [(2, 1.0, 8.0), (3, 64.0, 4.0), (4, 0.1, 1.0)])
def test_more_epochs_smaller_batches_and_more_clients_take_longer(axis: int, cheap: float, dear: float) -> None:
    little, much = POINT.copy(), POINT.copy()
    little[axis], much[axis] = cheap, dear
    for agent in range(3):
        one = server(agent, rounds=5)
        assert one.cost(little) < one.cost(much)
    rates = POINT.copy()
    rates[:2] = 0.02, 0.2
    assert one.cost(rates) == one.cost(POINT)


def test_a_slower_network_takes_as_much_longer_as_it_is_slower() -> None:
    least = np.array([1.0, 1.0, 1.0, 64.0, 0.1])  # one client a round, so nobody waits for another
    usual, narrow = server(rounds=5), server(rounds=5, bandwidth=5_000.0)
    assert narrow.cost(least) - usual.cost(least) == pytest.approx(5 * 2 * 65 * 10 * 8 * (1 / 5_000 - 1 / 50_000))
    late = server(rounds=5, latency=0.3)
    assert late.cost(least) > usual.cost(least) and late.evaluate(least, RNG) == usual.evaluate(least, RNG)


def test_parts_share_no_server_and_no_image() -> None:
    assert set(PARTS["development"]) | set(PARTS["held_out"]) == set(SERVERS)
    assert not set(PARTS["development"]) & set(PARTS["held_out"]) and len(SERVERS) == 16
    known = {image.tobytes(): row for row, image in enumerate(digit_images()[0])}
    seen = {}
    for part in ("development", "held_out"):
        federation = FedAvgTraining(part=part, heterogeneity=0.0)  # with equal pixel scales
        agents = [federation.objective(agent, RNG, RNG) for agent in range(federation.n_agents)]
        images = [one.clients.inputs[client, :size] for one in agents for client, size in enumerate(one.clients.sizes)]
        pixels = np.vstack([*images, *(one.validation[0] for one in agents)])[:, :-1]
        seen[part] = {known[row.tobytes()] for row in np.round((pixels + 0.3) * 16.0)}
    assert not seen["development"] & seen["held_out"] and len(seen["development"]) > 600


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_image_has_one_client_and_the_partition_is_the_named_one(partition: str) -> None:
    for agent in range(0, 16, 3):
        clients = server(agent, partition=partition, rounds=2).clients
        classes = [np.count_nonzero(one.any(axis=0)) for one in clients.target]
        assert len(classes) == CLIENTS and clients.sizes.sum() == clients.target.sum() and min(clients.sizes) >= 4
        if partition in ("iid", "dirichlet"):
            assert np.ptp(clients.sizes) <= 1
        if partition == "iid":
            assert min(classes) >= 5


def test_heterogeneity_makes_servers_differ_in_size_and_scale() -> None:
    alike = [server(agent, rounds=2, heterogeneity=0.0) for agent in range(6)]
    unlike = [server(agent, rounds=2) for agent in range(6)]
    assert {one.data_size for one in alike} == {240} and len({one.data_size for one in unlike}) == 6
    scales = [np.ptp(one.validation[0][:, :-1]) for one in unlike]
    assert all(np.ptp(one.validation[0][:, :-1]) == pytest.approx(1.0) for one in alike) and max(scales) > 1.5 * min(scales)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"agents": 17}, "agents = 17 is invalid: use 1 to 16, the servers of this part"),
        ({"agents": 7, "part": "development"}, "agents = 7 is invalid: use 1 to 6"),
        ({"partition": "random"}, "partition"),
        ({"rounds": 0}, "rounds must be in"),
        ({"heterogeneity": 1.5}, "heterogeneity must be in"),
        ({"bandwidth": 0.0}, "bandwidth must be above 0"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FedAvgTraining(**settings)
