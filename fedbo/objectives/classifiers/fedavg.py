"""Federated averaging (FedAvg; McMahan et al. 2017, Alg. 1) of a multinomial logistic regression, many clients at once.

The server's learning rate is that of Reddi et al. 2021 (Alg. 1, with plain averaging as the server's optimiser); at 1 it is
McMahan's average. The participating clients and the order of their rows are drawn before the training. They are therefore the
same for all hyperparameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array
from fedbo.objectives.classifiers.logistic import softmax

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FedAvgSettings:
    """The hyperparameters: both learning rates, epochs of a client in a round, rows of a batch, and the share of clients."""

    client_rate: float
    server_rate: float
    local_epochs: int
    batch_size: int
    share: float


@dataclass(frozen=True, eq=False)
class ClientData:
    """The rows of k clients: `inputs (k, n, m)`, classes `target (k, n, c)` as 0 and 1, and the numbers of rows `sizes (k,)`.

    A client with fewer than n rows has zeros after them, whose gradient is zero.
    """

    inputs: Array
    target: Array
    sizes: Indices


@dataclass(frozen=True, eq=False)
class Sampling:
    """The draws of all rounds.

    clients `(rounds, k)`: permutations, the order in which clients are asked.
    rows `(rounds, epochs, k, n)`: permutations of a client's rows, then its zeros.
    """

    clients: Indices
    rows: npt.NDArray[np.int16]


def client_data(inputs: Array, label: Indices, parts: tuple[Indices, ...], classes: int) -> ClientData:
    """Return each client's part of the rows `inputs (n, m)` with `label (n,)`, after a constant input of 1 is added."""
    sizes = np.array([len(part) for part in parts])
    rows, target = np.column_stack([inputs, np.ones(len(inputs))]), np.eye(classes)[label]
    shape = len(parts), int(sizes.max())
    data = ClientData(np.zeros((*shape, rows.shape[1])), np.zeros((*shape, classes)), sizes)
    for client, part in enumerate(parts):
        data.inputs[client, : len(part)], data.target[client, : len(part)] = rows[part], target[part]
    return data


def drawn_sampling(sizes: Indices, rounds: int, epochs: int, key: int) -> Sampling:
    """Draw clients and rows for each round by its number, so that more rounds or epochs keep the first ones."""
    clients, rows = np.empty((rounds, len(sizes)), np.int64), np.empty((rounds, epochs, len(sizes), sizes.max()), np.int16)
    beyond = np.arange(sizes.max()) >= sizes[:, None]
    for number in range(rounds):
        rng = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, number]))
        clients[number] = rng.permutation(len(sizes))
        place = rng.random(rows.shape[1:])
        place[:, beyond] = 2.0  # zeros come after all rows
        rows[number] = place.argsort(axis=-1, kind="stable")
    return Sampling(clients, rows)


def participants(share: float, clients: int) -> int:
    """Count the clients of a round: the share of all, rounded, and at least one (McMahan et al. 2017, Alg. 1)."""
    return max(1, round(share * clients))


def fedavg_round(weights: Array, data: ClientData, sampling: Sampling, number: int, settings: FedAvgSettings) -> Array:
    """Return the weights `(m, c)` after round `number`, from those before it."""
    asked = sampling.clients[number, : participants(settings.share, len(data.sizes))]
    asked = asked[np.argsort(-data.sizes[asked], kind="stable")]  # who still has rows is then always a first part
    local = local_training(weights, data, asked, sampling.rows[number, : settings.local_epochs], settings)
    share = data.sizes[asked] / data.sizes[asked].sum()
    return np.asarray(weights + settings.server_rate * np.tensordot(share, local - weights, 1))


def local_training(
    weights: Array, data: ClientData, asked: Indices, rows: npt.NDArray[np.int16], settings: FedAvgSettings
) -> Array:
    """Return the final weights `(p, m, c)` of the clients `asked (p,)`, the largest first, from the start `weights`."""
    sizes, at_once, who = data.sizes[asked], settings.batch_size, asked[:, None]
    local = np.repeat(weights[None], len(asked), axis=0)
    for order in rows:
        inputs, target = data.inputs[who, order[asked]], data.target[who, order[asked]]
        for start in range(0, int(sizes[0]), at_once):
            busy = int(np.count_nonzero(sizes > start))
            batch = inputs[:busy, start : start + at_once]
            rate = settings.client_rate / np.minimum(sizes[:busy] - start, at_once)
            step = gradient_sum(local[:busy], batch, target[:busy, start : start + at_once])
            step *= rate[:, None, None]
            local[:busy] -= step
    return local


def gradient_sum(weights: Array, inputs: Array, target: Array) -> Array:
    """Return the gradient `(…, m, c)` of the summed -log softmax of the right class at `weights`, of the same shape.

    `inputs (…, n, m)` and `target (…, n, c)` are rows and their classes.
    """
    surplus = softmax(inputs @ weights)
    surplus -= target
    return np.asarray(np.swapaxes(inputs, -1, -2) @ surplus)
