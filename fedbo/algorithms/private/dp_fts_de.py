"""Differentially private FTS with distributed exploration (Dai et al. 2021, Algorithms 1 and 2), and its controls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedbo.algorithms import ts
from fedbo.algorithms.base import Array, Declaration, Field, Inbound, Mechanism, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.draw_search import Values
from fedbo.algorithms.components.federated import Federated, FederatedState
from fedbo.algorithms.components.inner_search import maximiser_rng
from fedbo.algorithms.components.schedules import Schedule, check_probabilities, check_temperature, temperature
from fedbo.algorithms.components.several import metrics
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Numbers, StreamBlock, Streams
from fedbo.algorithms.ts import TS
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf
from fedbo.surrogates.features import Features
from fedbo.surrogates.linear import feature_rows
from fedbo.surrogates.maximise import maximise_pieces


class DPServer(NamedTuple):
    """The coordinator's state, made of releases only.

    omega `(P, M)`: the vectors to follow.
    mass: the sum of weights in their mean.
    changed: whether they have changed.
    """

    omega: Array
    mass: float = 0.0
    changed: bool = False


@dataclass(frozen=True, slots=True)
class DPFTSDE(Federated):
    """DP-FTS-DE; `Federated` has the settings that are not named here, and `Mechanism` describes releases.

    The unit cube is split into P boxes, and agent n belongs to box n mod P. Vector i of a release is a mean of the messages for
    box i. Agent n has the weight exp((a 1 + 1) / T) before normalisation, where 1 is for the agents of box i only. A federated
    query maximises phi(x)'omega_i, x in box i, over the whole cube.

    regions: P.
    own_regions: an agent's initial points lie in its box; if off, in the whole cube, which leaves half of distributed
      exploration.
    contrast: a.
    temperature: schedule of T over releases, the first is number 1 (see `schedules`).
    message: "draw", one draw from the linear model as in the paper, or "mean", its posterior mean. The mean is much shorter:
      less is clipped, and less noise hides it.
    centre: messages are of standardised values and stay so, so that lengths are comparable between agents.
    memory: m in [0, 1); agents follow the mean of all releases so far, weighted m^k for the k-th last but one. This costs no
      privacy.
    clip, noise_multiplier, share: S, z and q of the mechanism; `sampling`, `per_block`, `quantile`, `rate` and `count_noise`
      keep their names.
    control: "noise" turns every message into a random direction of the same length.

    With several objectives or bounds a message has k blocks of M numbers. It is clipped as one vector, so one agent changes a
    release by as much as with one objective, and the ledger charges the same.
    """

    horizon_use: ClassVar[str] = ""

    p: Schedule = "1-1/t from 0"
    regions: Annotated[int, Ge(1)] = 4
    """Regions P of distributed exploration."""
    own_regions: bool = True
    """Whether initial points lie in the agent's own region."""
    temperature: Schedule = "paper"
    """Temperature T of release t: a number, "paper", or a function."""
    contrast: Annotated[float, Ge(0), Lt(inf)] = 15.0
    """Contrast a of the weights; 0: all alike."""
    message: Annotated[str, OneOf(("draw", "mean"))] = "mean"
    """Message: a draw, as in the paper, or the posterior mean."""
    memory: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Decay m of the weights of earlier releases; 0: the newest alone."""
    clip: Annotated[float, Gt(0)] = 2.5
    """Clipping norm S; a message is shortened to S / sqrt(P)."""
    noise_multiplier: Annotated[float, Ge(0), Lt(inf)] = 1.0
    """Noise multiplier z of a release."""
    share: Annotated[float, Gt(0), Le(1)] = 0.35
    """Sampling rate q of the agents."""
    sampling: Annotated[str, OneOf(("fixed", "poisson"))] = "poisson"
    """Independent coins, or a fixed number of agents."""
    per_block: bool = False
    """Whether noise follows each block's largest weight, as in the authors' code."""
    quantile: Annotated[float, Gt(0), Lt(1)] | None = None
    """Quantile of the norms that an adaptive clipping norm follows."""
    rate: Annotated[float, Gt(0), Lt(inf)] = 0.2
    """Rate at which the clipping norm follows."""
    count_noise: Annotated[float, Ge(0), Lt(inf)] = 1.0
    """Standard deviation of the noise in the count for the quantile; above z / 2."""

    def __post_init__(self) -> None:
        Federated.__post_init__(self)
        check_temperature(self.temperature, "temperature")
        if not self.aggregation.is_mean:
            needed = 'must have rule = "mean", because the privacy mechanism sums messages'
            raise SettingError("aggregation", needed, self.aggregation.rule, "use 'fts' for a robust centre")
        if self.clip == inf and (self.noise_multiplier or self.quantile is not None):
            raise SettingError("clip", "must be finite if there is noise or a quantile", "inf")
        if self.quantile is not None and self.noise_multiplier and not 2 * self.count_noise > self.noise_multiplier:
            needed = "must be above noise_multiplier / 2 if there is a quantile"
            raise SettingError("count_noise", needed, self.count_noise)

    @property
    def reveals(self) -> Reveals:
        """Return what releases reveal: without noise one may be a single agent's message."""
        if self.noise_multiplier:
            return Reveals.NOISY_SUMS
        return Reveals.DRAWS if self.message == "draw" else Reveals.COMPUTABLE

    def mechanism(self, problem: Problem) -> Mechanism:
        """Declare the release of messages; SettingError when a fixed share selects no agent."""
        if self.sampling == "fixed" and round(self.share * problem.n_agents) < 1:
            raise SettingError("share", f"must select at least one of the {problem.n_agents} agents, not {self.share}")
        return Mechanism(
            blocks=self.regions,
            clip=self.clip,
            noise=self.noise_multiplier,
            share=self.share,
            sampling=self.sampling,
            per_block=self.per_block,
            quantile=self.quantile,
            rate=self.rate,
            count_noise=self.count_noise,
        )

    def weights(self, problem: Problem, release: int) -> Array:
        """Return the softmax weights `(P, N)` of section 3.2; every row sums to 1."""
        count = self.regions
        own = region_of(np.arange(problem.n_agents), count) == np.arange(count)[:, None]
        # Over the largest exponent, since a low temperature would make its exponential overflow; alike where nobody belongs.
        other = np.exp(-self.contrast / temperature(self.temperature, release + 1))
        weights = np.where(own | ~own.any(axis=1, keepdims=True), 1.0, other)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def upload(self, problem: Problem) -> Declaration | None:
        """Declare one vector omega_n `(M,)`, or one block for each metric, `(k M,)`, which are clipped together.

        Raises SettingError when the settings do not suit the problem.
        """
        self.mechanism(problem)
        check_probabilities(self.p, problem.iterations)
        for release in range(1, problem.iterations + 2):
            temperature(self.temperature, release)
        return {"omega": Field((self.features * metrics(problem),))}

    def download(self, problem: Problem) -> Declaration | None:
        """Declare one vector for each region; all zeros mean that there is nothing to follow."""
        return {"omega": Field((self.regions, self.features * metrics(problem)))}

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Move uniform points `(q, d)` into the agent's own region (Alg. 2 line 2)."""
        if not self.own_regions:
            return uniform
        low, high = split_cube(self.regions, problem.dim)
        own = region_of(problem.agent, self.regions)
        return np.asarray(low[own] + (high[own] - low[own]) * uniform)

    def _capacity(self, problem: Problem) -> int:
        return self.regions

    def held(self, payload: Payload) -> tuple[Array, Array]:
        omega = payload["omega"]
        return omega, np.full(self.regions, float(omega.any()))

    def federated_query(self, state: FederatedState, streams: Streams) -> tuple[Array, FederatedState]:
        return self._summit(state.features, state.omega, streams), state

    def federated_queries(self, features: Features, held: Sequence[tuple[Array, Array]], streams: StreamBlock) -> Array:
        return np.array([self._summit(features, omega, own) for (omega, _), own in zip(held, streams, strict=True)])

    def _surfaces(self, states: Sequence[FederatedState], streams: Streams) -> tuple[list[Values], Sequence[FederatedState]]:
        low, high = _boxes(self.regions, states[0].local.u.shape[1], self.own.coordinates)

        def piecewise(state: FederatedState) -> Values:
            def values(u: Array) -> Array:
                region = ((u[:, None] >= low) & (u[:, None] <= high)).all(axis=2).argmax(axis=1)
                return np.asarray(np.einsum("nm,nm->n", feature_rows(state.features, u), state.omega[region]))

            return values

        return [piecewise(each) for each in states], states

    def _summit(self, features: Features, omega: Array, streams: Streams) -> Array:
        """Maximise the piecewise function (Alg. 2 line 8)."""
        dim = features.frequencies.shape[1]
        rng = maximiser_rng(dim, streams)
        pieces = (self.regions, dim, self.own.coordinates)
        if rng is not None:
            return maximise_pieces(features, omega, *_boxes(*pieces), rng)[0]
        return _summit(*pieces, omega.tobytes(), features.frequencies.tobytes(), features.phases.tobytes())

    @property
    def width(self) -> float:
        """Messages are draws omega_n ~ N(nu_n, sigma^2 Sigma_n^-1) (equation (2)), or nu_n."""
        return 1.0 if self.message == "draw" else 0.0

    def messages(self, omega: Array, spread: Array, used: Numbers, streams: Iterable[Streams]) -> Array:
        if self.control != "noise":
            return omega
        each = zip(omega, used, streams, strict=True)
        return np.array([_direction(one, count, own.rng("message")) for one, count, own in each])

    def server_init(self, problem: Problem) -> DPServer:
        """Start without a release."""
        return DPServer(np.zeros((self.regions, self.features * metrics(problem))))

    def receive(self, state: DPServer, message: Inbound, now: float) -> DPServer:
        """Raise an error, since single messages must not reach this half."""
        raise AssertionError("messages use the mechanism")

    def released(self, state: DPServer, vectors: Array, release: int) -> DPServer:
        """Add a release to the mean."""
        before = self.memory * state.mass
        return DPServer((before * state.omega + vectors) / (before + 1.0), before + 1.0, changed=True)

    def closed(self, state: DPServer) -> DPServer:
        """Return zero vectors, so that agents stop following them."""
        return DPServer(np.zeros_like(state.omega), changed=True)

    def broadcast(
        self, state: DPServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], DPServer]:
        """Send the newest vectors to all recipients (Alg. 1 line 12)."""
        if not state.changed:
            return {}, state
        omega = state.omega.copy()  # one for all recipients, since none may write to it
        omega.flags.writeable = False
        return dict.fromkeys(recipients, {"omega": omega}), state


def _direction(omega: Array, used: int, rng: np.random.Generator) -> Array:
    """Return a random direction of a draw's length, by numbers after those that the draw used."""
    rng.standard_normal(used)
    direction = rng.standard_normal(len(omega))
    return np.asarray(direction * (np.linalg.norm(omega) / np.linalg.norm(direction)))


def _boxes(count: int, dim: int, coordinates: str) -> Regions:
    """Return the regions in the surrogate's coordinates; these are monotone in each input, so boxes stay boxes."""
    low, high = split_cube(count, dim)
    return Regions(to_coordinates(low, coordinates), to_coordinates(high, coordinates))


@lru_cache(maxsize=64)
def _summit(count: int, dim: int, coordinates: str, omega: bytes, frequencies: bytes, phases: bytes) -> Array:
    """Return the place `(d,)` of the maximum; cached, since all agents of a process receive the same vectors."""
    shared = Features(np.frombuffer(frequencies).reshape(-1, dim), np.frombuffer(phases))
    vectors = np.frombuffer(omega).reshape(count, -1)
    return maximise_pieces(shared, vectors, *_boxes(count, dim, coordinates), None)[0]


FAITHFUL: dict[str, Any] = {
    "own": TS(**ts.FAITHFUL),  # type: ignore[arg-type]
    "p": "1-1/t from 0",
    "regions": 4,
    "own_regions": True,
    "temperature": "paper",
    "contrast": 15.0,
    "message": "draw",
    "memory": 0.0,
    "features": 100,
    "kernel": "se",
    "length_scale": 0.01,
    "noise": 1e-6,
    "centre": False,
    "apart": 0.0,
    "every": 1,
    "clip": 22.0,
    "noise_multiplier": 1.0,
    "share": 0.35,
    "sampling": "poisson",
    "per_block": False,
    "quantile": None,
}


def _entry(summary: str, control: str = "none", **fixed: Any) -> Entry:
    return Entry(DPFTSDE, {"control": control, **fixed}, {"faithful": FAITHFUL}, summary)


class Regions(NamedTuple):
    """P boxes of equal volume that cover the unit cube and share no more than faces: corners `low` and `high`, `(P, d)`."""

    low: Array
    high: Array


@lru_cache(maxsize=64)
def split_cube(count: int, dim: int) -> Regions:
    """Split the unit cube into `count` boxes: each along its longest side, in proportion to the boxes of each part."""
    boxes = np.array(_split(np.zeros(dim), np.ones(dim), count)).reshape(count, 2, dim)
    boxes.flags.writeable = False
    return Regions(boxes[:, 0], boxes[:, 1])


def _split(low: Array, high: Array, count: int) -> list[tuple[Array, Array]]:
    if count == 1:
        return [(low, high)]
    first = count // 2
    # Sides of equal length differ by rounding; the first of them is to be cut in every box alike.
    side = int(np.argmax(np.round(high - low, 9)))
    cut = low[side] + (high[side] - low[side]) * (first / count)
    below, above = high.copy(), low.copy()
    below[side] = above[side] = cut
    return _split(low, below, first) + _split(above, high, count - first)


def region_of(agent: Any, count: int) -> Any:
    """Return the region of an agent, or of each in an array; numbers of agents differ by at most one."""
    return agent % count


ALGORITHMS = {
    "dp_fts": _entry("differentially private FTS, without distributed exploration", regions=1),
    "fts_de": _entry(
        "FTS with distributed exploration, without privacy", noise_multiplier=0.0, clip=inf, share=1.0, quantile=None
    ),
    "dp_fts_de": _entry("differentially private FTS with distributed exploration"),
    "dp_fts_de_noise": _entry("control for dp_fts_de: every message is a random direction", "noise"),
    "dp_fts_de_uniform": _entry("control for dp_fts_de: uniform points instead of federated queries", "uniform"),
}
