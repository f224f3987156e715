"""Training by FedAvg: each agent is a server that tunes the federated training of a model on its own clients' digits.

No file is needed: the images are scikit-learn's digits (1,797 of 8 x 8 pixels; Alpaydin and Kaynak 1998). Sixteen servers
are fixed, six of them for development. An evaluation trains a multinomial logistic regression in so many communication
rounds; its cost is how long these take with the clients' computing times and network, in seconds, so that the
hyperparameters decide both. A round lasts until the slowest client that takes part has answered: it receives the model,
computes, and sends its own model back. The time on the network is that of the platform's messages, latency and bytes over
bandwidth; computing times vary as the platform's evaluation times do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le, Lt

from fedbo.objectives.base import Array, Fidelity, Metric, Parameter, Part, require, require_agent
from fedbo.objectives.classifiers.digits import digit_images
from fedbo.objectives.classifiers.fedavg import (
    ClientData,
    FedAvgSettings,
    Sampling,
    client_data,
    drawn_sampling,
    fedavg_round,
    participants,
)
from fedbo.objectives.classifiers.partitions import OF_EACH, PARTITIONS, partition
from fedbo.objectives.space import inside
from fedbo.settings.durations import Lognormal, transmission_time
from fedbo.settings.ranges import OneOf, check

Indices = npt.NDArray[np.int64]

SERVERS = tuple(f"server-{number:02d}" for number in range(1, 17))
PARTS: Mapping[Part, tuple[str, ...]] = {"all": SERVERS, "development": SERVERS[:6], "held_out": SERVERS[6:]}
CLASSES = 10
CLIENTS = 10
VALIDATION = 200  # images on which a server judges its model
IMAGES = 240  # that train, in the middle of 150 to 384
DEVELOPED_ON = 700  # images of servers for development; the others have the rest
MISLABELLED = 0.1  # share of the training labels that are exchanged among themselves
CLASSES_EACH = 2  # of a client, with the partition "classes"
PARAMETERS = (
    Parameter("client_rate", 1e-2, 1e1, log=True),
    Parameter("server_rate", 1e-1, 1e1, log=True),
    Parameter("local_epochs", 1, 8, log=True, whole=True),
    Parameter("batch_size", 4, 64, log=True, whole=True),
    Parameter("share", 0.1, 1.0),
)
COMPUTE = Lognormal(1.0, sigma=0.3, between=0.5)  # factors on computing times: of each round, and lasting ones of clients
IMAGE_TIME, BATCH_TIME = 0.01, 0.02  # seconds of a client of factor 1
_HELD = 8  # trainings of which an objective remembers how far they came
_DATA, _DEALING, _SAMPLING, _TIMES = range(4)  # draws of a server, each from a stream of its own


@dataclass(frozen=True, eq=False)
class TrainingState:
    """The progress of a training: the weights `(m, c)`, and the validation error after each round so far."""

    weights: Array
    errors: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class ServerAgent:
    """One server's clients, the draws of its rounds, and its validation images `(n, m)` with their labels `(n,)`.

    An evaluation draws nothing. The states of the last trainings are cached, so that an evaluation at a later round resumes
    them.
    """

    clients: ClientData
    sampling: Sampling
    times: RoundTimes
    validation: tuple[Array, Indices]
    parameters: tuple[Parameter, ...] = field(default=PARAMETERS, repr=False)
    best_value: float | None = None
    _held: dict[bytes, TrainingState] = field(default_factory=dict, repr=False)

    @property
    def data_size(self) -> int:
        """Count the examples that train."""
        return int(self.clients.sizes.sum())

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return minus the validation error at x `(5,)` after all rounds; nothing is drawn."""
        return self.evaluate_at(x, len(self.sampling.clients), rng)

    def score(self, x: Array) -> float | None:
        """Return None: an observation is already noise-free."""
        return None

    def evaluate_at(self, x: Array, fidelity: int, rng: np.random.Generator) -> float:
        """Return minus the validation error at x `(5,)` after `fidelity` rounds; nothing is drawn."""
        point = inside(self.parameters, x)
        key, settings = point.tobytes(), settings_of(point)
        state = self._held.pop(key, None) or TrainingState(np.zeros((self.clients.inputs.shape[2], CLASSES)))
        for number in range(len(state.errors), fidelity):
            weights = fedavg_round(state.weights, self.clients, self.sampling, number, settings)
            state = TrainingState(weights, (*state.errors, self._error(weights)))
        self._held[key] = state
        if len(self._held) > _HELD:
            del self._held[next(iter(self._held))]
        return -state.errors[fidelity - 1]

    def score_at(self, x: Array, fidelity: int) -> float | None:
        """Return None: an observation is already noise-free."""
        return None

    def cost(self, x: Array) -> float:
        """Return the duration of all rounds at x `(5,)`, in seconds of the clients' time."""
        settings, sizes = settings_of(inside(self.parameters, x)), self.clients.sizes
        asked = self.sampling.clients[:, : participants(settings.share, len(sizes))]
        return float(self.times.rounds(asked, sizes, settings.local_epochs, settings.batch_size).sum())

    def _error(self, weights: Array) -> float:
        images, label = self.validation
        return float(np.mean((images @ weights).argmax(axis=1) != label))


def settings_of(point: Array) -> FedAvgSettings:
    """Return the hyperparameters at a point `(5,)` in native units."""
    client_rate, server_rate, local_epochs, batch_size, share = point.tolist()
    return FedAvgSettings(client_rate, server_rate, int(local_epochs), int(batch_size), share)


@dataclass(frozen=True)
class FedAvgTraining:
    """FedAvg on scikit-learn's digits: tune learning rates, local epochs, batch size and client share.

    Each agent is a server with ten clients. The cost of an evaluation is the time of its rounds in seconds.

    part: the servers to choose from.
    agents: the number of servers of `part`, in their order.
    partition: how a server's images are dealt among its clients.
    rounds: the number of rounds before the model is judged.
    heterogeneity: with 0 servers differ in their images alone; up to 1 their numbers of images, pixel scales, classes and the
      skew among their clients differ more and more.
    latency: the mean latency of a message, in seconds.
    bandwidth: the bandwidth of a client's link, in bytes per second.
    """

    costly: ClassVar[bool] = True
    random_per_replicate: ClassVar[bool] = False
    reads_data: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    metric: ClassVar[Metric] = Metric("error", sign=-1)

    part: Part = "all"
    """All servers, those for development, or held-out ones."""
    agents: Annotated[int, Ge(1)] | None = None
    """First servers of the part that take part. Default: all."""
    partition: Annotated[str, OneOf(PARTITIONS)] = "dirichlet"
    """How a server's images are dealt to its ten clients."""
    rounds: Annotated[int, Ge(1), Le(100)] = 20
    """Communication rounds, the largest fidelity."""
    heterogeneity: Annotated[float, Ge(0.0), Le(1.0)] = 1.0
    """Differences between servers: 0 none, 1 large."""
    latency: Annotated[float, Gt(0.0), Lt(np.inf)] = 0.1
    """Mean least duration of a message [s]."""
    bandwidth: Annotated[float, Gt(0.0), Lt(np.inf)] = 50_000.0
    """Bytes per second of a client's link."""

    def __post_init__(self) -> None:
        check(self)
        most = len(PARTS[self.part])
        require(self.agents is None or self.agents <= most, "agents", self.agents, f"use 1 to {most}, the servers of this part")

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Name the servers."""
        return PARTS[self.part][: self.agents]

    @property
    def n_agents(self) -> int:
        """Count the servers."""
        return len(self.agent_names)

    @property
    def fidelity(self) -> Fidelity | None:
        """Declare the rounds as the fidelity axis."""
        return Fidelity("round", 1, self.rounds) if self.rounds > 1 else None

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> ServerAgent:
        """Build one server's objective, which does not depend on the streams."""
        require_agent(agent, self.n_agents)
        number = SERVERS.index(self.agent_names[agent])
        rng = _rng(number, _DATA)
        images, label, parts = _dealt(self, number, rng)
        scaled = (images / 16.0 - 0.3) * np.exp(0.5 * self.heterogeneity * rng.standard_normal())
        trains = len(images) - VALIDATION
        clients = client_data(scaled[:trains], _mislabelled(label[:trains], rng), parts, CLASSES)
        validation = np.column_stack([scaled[trains:], np.ones(VALIDATION)])
        sampling = drawn_sampling(clients.sizes, self.rounds, int(PARAMETERS[2].high), _key(number, _SAMPLING))
        size = validation.shape[1] * CLASSES * validation.itemsize
        models = ClientModels(COMPUTE, Lognormal(self.latency, 0.5), self.bandwidth, IMAGE_TIME, BATCH_TIME)
        times = models.drawn(len(parts), self.rounds, size, _key(number, _TIMES))
        return ServerAgent(clients, sampling, times, (validation, label[trains:]))


def _dealt(federation: FedAvgTraining, number: int, rng: np.random.Generator) -> tuple[Array, Indices, tuple[Indices, ...]]:
    """Return a server's images with the validation images at the end, their labels, and the parts of its clients."""
    scale = federation.heterogeneity
    images, label = digit_images()
    all_rows = _rng(len(SERVERS), _DATA).permutation(len(label))
    pool = all_rows[:DEVELOPED_ON] if SERVERS[number] in PARTS["development"] else all_rows[DEVELOPED_ON:]
    count = round(IMAGES * 1.6 ** (scale * rng.uniform(-1.0, 1.0)))
    order = rng.permutation(pool)
    of_each = np.concatenate([order[label[order] == one][:OF_EACH] for one in range(CLASSES)])  # whatever the weights are
    rest = np.setdiff1d(order, of_each)
    weight = np.exp(0.5 * scale * rng.standard_normal(CLASSES))[label[rest]]
    rows = np.append(of_each, rng.choice(rest, count + VALIDATION - len(of_each), replace=False, p=weight / weight.sum()))
    concentration = 0.3 * 10.0 ** (scale * rng.uniform(-1.0, 1.0))
    skew = CLASSES_EACH if federation.partition == "classes" else concentration
    parts = partition(federation.partition, label[rows[:count]], CLIENTS, skew, _rng(number, _DEALING))
    return images[rows], label[rows], parts


def _key(number: int, purpose: int) -> int:
    return (purpose << 64) + number


def _rng(number: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=_key(number, purpose)))


def _mislabelled(label: Indices, rng: np.random.Generator) -> Indices:
    given = label.copy()
    chosen = rng.permutation(len(label))[: round(MISLABELLED * len(label))]
    given[chosen] = label[np.roll(chosen, 1)]
    return given


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
            compute, down, up = (_client_rng(key, client, purpose) for purpose in range(3))
            factors[:, client] = self.compute.speed(compute) * self.compute.draw(compute, rounds)
            lasting = self.latency.speed(_client_rng(key, client, 3))
            delays = lasting * (self.latency.draw(down, rounds) + self.latency.draw(up, rounds))
            network[:, client] = [transmission_time(delay, 2 * size, self.bandwidth) for delay in delays.tolist()]
        return RoundTimes(factors, network, self.image_time, self.batch_time)


def _client_rng(key: int, client: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, client, purpose]))


FEDERATIONS = {"fedavg_training": FedAvgTraining}
