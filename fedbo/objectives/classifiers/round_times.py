"""How long rounds of federated training take: each lasts until the slowest client that takes part has answered.

A client receives the model, computes, and sends its own model back. The time on the network is that of the platform's
messages, latency and bytes over bandwidth; computing times vary as the platform's evaluation times do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array
from fedbo.settings.durations import Lognormal, transmission_time

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RoundTimes:
    """The draws of k clients.

    factors `(rounds, k)`: factors of the computing times.
    network `(rounds, k)`: network times, in seconds.
    image_time, batch_time: seconds of a client with factor 1 for an image, and for a batch in addition to its images.
    """

    factors: Array
    network: Array
    image_time: float
    batch_time: float

    def rounds(self, clients: Indices, sizes: Indices, epochs: int, batch_size: int) -> Array:
        """Return the duration of each round `(rounds,)`: `clients (rounds, p)` take part, and `sizes (k,)` are their images."""
        batches = -(-sizes // batch_size)
        computing = epochs * (self.image_time * sizes + self.batch_time * batches)
        each = self.factors * computing + self.network
        return np.asarray(np.take_along_axis(each, clients, axis=1).max(axis=1))


@dataclass(frozen=True, slots=True)
class ClientModels:
    """The models of clients: computing times of an image and of a batch, latencies, and bytes per second of a client's link."""

    compute: Lognormal
    latency: Lognormal
    bandwidth: float
    image_time: float
    batch_time: float

    def drawn(self, clients: int, rounds: int, size: int, key: int) -> RoundTimes:
        """Draw the times of all rounds with messages of `size` bytes, each client's by a separate counter."""
        factors, network = np.empty((rounds, clients)), np.empty((rounds, clients))
        for client in range(clients):
            compute, down, up = (_rng(key, client, purpose) for purpose in range(3))
            factors[:, client] = self.compute.speed(compute) * self.compute.draw(compute, rounds)
            lasting = self.latency.speed(_rng(key, client, 3))
            delays = lasting * (self.latency.draw(down, rounds) + self.latency.draw(up, rounds))
            network[:, client] = [transmission_time(delay, 2 * size, self.bandwidth) for delay in delays.tolist()]
        return RoundTimes(factors, network, self.image_time, self.batch_time)


def _rng(key: int, client: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, client, purpose]))
