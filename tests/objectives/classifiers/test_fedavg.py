"""FedAvg against gradient descent, a loop over clients and finite differences; its times against a brute-force maximum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.optimize import approx_fprime

import fedbo
from fedbo.objectives.base import Array
from fedbo.objectives.classifiers.fedavg import (
    ClientData,
    FedAvgSettings,
    Sampling,
    client_data,
    drawn_sampling,
    fedavg_round,
    gradient_sum,
    participants,
)
from fedbo.objectives.classifiers.fedavg_training import ClientModels
from fedbo.settings.durations import Lognormal, transmission_time

CLASSES, ROUNDS = 3, 4
RNG = np.random.default_rng(0)
INPUTS, LABEL = RNG.standard_normal((40, 4)), RNG.integers(CLASSES, size=40)


def clients(*sizes: int) -> ClientData:
    ends = np.cumsum(sizes)
    parts = tuple(np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True))
    return client_data(INPUTS[: ends[-1]], LABEL[: ends[-1]], parts, CLASSES)


def own(data: ClientData, client: int) -> tuple[Array, Array]:
    size = data.sizes[client]
    return data.inputs[client, :size], data.target[client, :size]


def mean_loss(weights: Array, inputs: Array, target: Array) -> float:
    """The mean of -log softmax of the right class, from its definition."""
    odds = np.exp(inputs @ weights)
    return float(-np.mean(np.log((odds * target).sum(axis=1) / odds.sum(axis=1))))


def mean_gradient(weights: Array, inputs: Array, target: Array) -> Array:
    odds = np.exp(inputs @ weights)
    return np.asarray(inputs.T @ (odds / odds.sum(axis=1, keepdims=True) - target) / len(inputs))


def trained(data: ClientData, sampling: Sampling, settings: FedAvgSettings) -> Array:
    weights = np.zeros((data.inputs.shape[2], CLASSES))
    for number in range(len(sampling.clients)):
        weights = fedavg_round(weights, data, sampling, number, settings)
    return weights


def test_the_gradient_is_that_of_finite_differences() -> None:
    inputs, target = own(clients(17), 0)
    weights = np.random.default_rng(1).standard_normal((5, CLASSES))
    slope = approx_fprime(weights.ravel(), lambda flat: mean_loss(flat.reshape(5, CLASSES), inputs, target), 1e-7)
    assert gradient_sum(weights, inputs, target).ravel() / 17 == pytest.approx(slope, abs=1e-6)


def test_one_client_with_its_whole_data_as_batch_descends_the_gradient() -> None:
    data = clients(30)
    sampling = drawn_sampling(data.sizes, ROUNDS, 1, key=1)
    weights = np.zeros((5, CLASSES))
    for _ in range(ROUNDS):
        weights = weights - 0.7 * mean_gradient(weights, *own(data, 0))
    found = trained(data, sampling, FedAvgSettings(0.7, 1.0, local_epochs=1, batch_size=64, share=1.0))
    assert np.abs(found - weights).max() < 1e-12 and np.abs(weights).max() > 0.1


@pytest.mark.parametrize("sizes", [(8, 8, 8, 8, 8), (3, 14, 7, 1, 15)])
@pytest.mark.parametrize(("server_rate", "share"), [(1.0, 1.0), (0.6, 0.4)])
def test_many_clients_at_once_are_the_average_of_clients_one_by_one(
    sizes: tuple[int, ...], server_rate: float, share: float
) -> None:
    data = clients(*sizes)
    settings = FedAvgSettings(0.3, server_rate, local_epochs=2, batch_size=4, share=share)
    sampling = drawn_sampling(data.sizes, ROUNDS, 3, key=2)
    weights = np.zeros((5, CLASSES))
    for number in range(ROUNDS):
        moves, asked = np.zeros_like(weights), sampling.clients[number, : round(5 * share)]
        for client in asked:
            inputs, target = own(data, client)
            local = weights.copy()
            for epoch in range(2):
                order = sampling.rows[number, epoch, client][: sizes[client]]
                assert sorted(order) == list(range(sizes[client]))
                for batch in (order[start : start + 4] for start in range(0, len(order), 4)):
                    local = local - 0.3 * mean_gradient(local, inputs[batch], target[batch])
            moves += sizes[client] / sum(sizes[one] for one in asked) * (local - weights)
        weights = weights + server_rate * moves
    assert np.abs(trained(data, sampling, settings) - weights).max() < 1e-12 and np.abs(weights).max() > 0.1


def test_more_rounds_and_clients_keep_what_was_drawn_for_fewer() -> None:
    few, more = (drawn_sampling(np.array([3, 5, 4]), rounds, 2, key=3) for rounds in (2, 6))
    assert np.array_equal(few.clients, more.clients[:2]) and np.array_equal(few.rows, more.rows[:2])
    assert len({row.tobytes() for row in more.rows}) == 6 and len({row.tobytes() for row in more.clients}) > 2
    assert [participants(share, 10) for share in (0.0, 0.1, 0.26, 1.0)] == [1, 1, 3, 10]
    models = ClientModels(Lognormal(1.0, 0.3, 0.5), Lognormal(0.1, 0.5), 1e4, 0.01, 0.02)
    short, long = (models.drawn(clients, rounds, 800, key=3) for clients, rounds in ((2, 4), (3, 9)))
    assert np.array_equal(short.factors, long.factors[:4, :2]) and np.array_equal(short.network, long.network[:4, :2])


def test_a_round_lasts_as_long_as_the_slowest_client_that_takes_part() -> None:
    models = ClientModels(Lognormal(1.0, 0.3, 0.5), Lognormal(0.1, 0.5), 1e4, image_time=0.01, batch_time=0.03)
    times, sizes = models.drawn(4, 6, 800, key=5), np.array([5, 12, 9, 8])
    asked = np.array([[0, 1], [2, 3], [1, 3], [0, 2], [3, 1], [2, 1]])
    found = times.rounds(asked, sizes, epochs=3, batch_size=4)
    for number, some in enumerate(asked):
        each = []
        for client in some:
            batches = len(range(0, sizes[client], 4))
            computing = times.factors[number, client] * 3 * (0.01 * sizes[client] + 0.03 * batches)
            each.append(computing + times.network[number, client])
        assert found[number] == pytest.approx(max(each), rel=1e-12)
    assert times.network.min() > transmission_time(0.0, 1600, 1e4)
    many = models.drawn(400, 50, 800, key=6)  # the means of 400 clients' factors, and of both latencies
    assert many.factors.mean() == pytest.approx(1.0, abs=0.12)
    assert (many.network - 0.16).mean() == pytest.approx(0.2, abs=0.01)


def test_a_round_takes_as_long_as_one_of_a_study_with_the_same_computing_times_and_network(tmp_path: Path) -> None:
    sizes, latency, bandwidth = np.array([2, 5, 3]), 0.25, 160.0  # a second for an image
    study = {
        "study": {"name": "rounds"},
        "objective": {"name": "quadratic", "agents": 3},
        "agents": {"initial": 1},
        "budget": {"iterations": 3},
        "algorithm": [{"name": "share_best", "every": 1}],
        "exchange": {"mode": "barrier"},
        "timing": {"latency": {"model": "constant", "mean": latency}},
        "network": {"bandwidth": bandwidth},
        "group": [
            {"name": f"client {agent}", "agents": [agent], "evaluation": {"model": "constant", "mean": float(size)}}
            for agent, size in enumerate(sizes)
        ],
    }
    events = pq.read_table(fedbo.run(study, out=tmp_path / "run").directory / "events.parquet").to_pylist()
    bytes_ = {event["bytes"] for event in events if event["kind"] in ("sent", "delivered")}
    starts = [event["time"] for event in events if event["kind"] == "started" and event["agent"] == 0]
    models = ClientModels(Lognormal(1.0, 0.0), Lognormal(latency, 0.0), bandwidth, image_time=1.0, batch_time=0.0)
    times = models.drawn(3, 3, sum(bytes_) // 2, key=0)  # a message up and one down, which differ in length
    everybody = np.tile(np.arange(3), (3, 1))
    assert len(bytes_) == 2 and np.diff(starts) == pytest.approx(times.rounds(everybody, sizes, 1, 64))
