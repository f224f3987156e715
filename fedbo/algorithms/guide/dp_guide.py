"""Guided Bayesian optimisation with differential privacy: agents share one noisy Gaussian of where their optima may be.

An agent sends moments of its Gaussian, so that a sum over agents has those of all. The coordinator makes one Gaussian of the
released sums (docs/algorithms/guide.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import scipy
from annotated_types import Ge, Gt, Le, Lt

from fedbo.algorithms.base import Array, Declaration, Field, Inbound, Mechanism, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.guide.guide_agent import GuideAgent, GuideState, LikelyOptimum, gaussians_declared
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf

NORM = sqrt(3.0)  # which no message exceeds: the weight, the first and the second moments have norm 1 each at most
SURE = 2.0  # standard deviations of its noise that the released weight must exceed


class MomentServer(NamedTuple):
    """The coordinator's state: the sum of all releases `(2 d + 1,)`, their number, and the number of agents."""

    total: Array
    agents: int
    releases: int = 0


@dataclass(frozen=True, slots=True)
class DPGuide(GuideAgent):
    """Guided optimisation with a private Gaussian; `GuideAgent` has the settings not named here, `Mechanism` the release.

    A message has 2 d + 1 numbers: a weight w in [0, 1], and w times the first and second moments of the agent's Gaussian about
    the middle of the cube. The weight is the share times the normal probability of the value. No message is clipped, since its
    norm is at most sqrt(3). The answer is the Gaussian with the mean moments of all agents, widened by the variance of the
    noise; there is none while the released weight is within two standard deviations of it.

    noise_multiplier, share, sampling: z, q and `sampling` of the mechanism.
    """

    horizon_use: ClassVar[str] = ""

    every: Annotated[int, Ge(0), "0 means once, before the start"] = 0
    noise_multiplier: Annotated[float, Ge(0), Lt(inf)] = 1.5
    """Noise multiplier z of a release."""
    share: Annotated[float, Gt(0), Le(1)] = 1.0
    """Sampling rate q of the agents."""
    sampling: Annotated[str, OneOf(("fixed", "poisson"))] = "poisson"
    """Independent coins, or a fixed number of agents."""

    @property
    def reveals(self) -> Reveals:
        """Return what releases reveal; without noise as much as the messages of `guide`."""
        return Reveals.NOISY_SUMS if self.noise_multiplier else Reveals.COMPUTABLE

    def mechanism(self, problem: Problem) -> Mechanism:
        """Declare how messages are released."""
        norm = NORM * (1.0 + 1e-12)  # which no rounding exceeds
        return Mechanism(1, clip=norm, noise=self.noise_multiplier, share=self.share, sampling=self.sampling)

    def weights(self, problem: Problem, release: int) -> Array:
        """Return the same weight for all agents `(1, N)`."""
        return np.full((1, problem.n_agents), 1.0 / problem.n_agents)

    def upload(self, problem: Problem) -> Declaration | None:
        """Declare weight and weighted moments, `(2 d + 1,)`."""
        return {"moments": Field((2 * problem.dim + 1,))}

    def download(self, problem: Problem) -> Declaration | None:
        """Declare one Gaussian: its weight `(1,)`, mean and variance `(1, d)`."""
        return gaussians_declared(problem.dim)

    def outbox(self, state: GuideState, streams: Streams) -> tuple[Payload | None, GuideState]:
        """Send the weighted moments of the heaviest Gaussian."""
        optimum = self._optimum(state, streams)
        return (None if optimum is None else {"moments": moments(optimum)}), state

    def server_init(self, problem: Problem) -> MomentServer:
        """Start without a release."""
        return MomentServer(np.zeros(2 * problem.dim + 1), problem.n_agents)

    def receive(self, state: MomentServer, message: Inbound, now: float) -> MomentServer:
        """Raise an error, since single messages must not reach this half."""
        raise AssertionError("messages use the mechanism")

    def released(self, state: MomentServer, vectors: Array, release: int) -> MomentServer:
        """Add a release to the mean."""
        return state._replace(total=state.total + vectors[0], releases=state.releases + 1)

    def closed(self, state: MomentServer) -> MomentServer:
        """Return the state unchanged: repeating earlier releases costs no privacy."""
        return state

    def broadcast(
        self, state: MomentServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], MomentServer]:
        """Send the Gaussian with the mean moments of all releases to all recipients."""
        if not state.releases:
            return {}, state
        noise = self.noise_multiplier * NORM / (state.agents * self.share * sqrt(state.releases))
        gaussian = gaussian_of(state.total / state.releases, noise)
        return ({} if gaussian is None else dict.fromkeys(recipients, gaussian)), state


def moments(optimum: LikelyOptimum) -> Array:
    """Return the weight and the weighted moments `(2 d + 1,)` of an agent's Gaussian, of norm sqrt(3) at most."""
    weight = float(np.clip(optimum.share, 0.0, 1.0) * scipy.special.ndtr(optimum.value))
    first = 2.0 * np.clip(optimum.mean, 0.0, 1.0) - 1.0
    second = np.minimum(first**2 + 4.0 * optimum.variance, 1.0)
    return np.asarray(weight * np.concatenate([[1.0], first / sqrt(len(first)), second / sqrt(len(first))]))


def gaussian_of(mean: Array, noise: float) -> Payload | None:
    """Return the Gaussian with noisy mean moments `(2 d + 1,)`; None if the noise hides the weight."""
    weight, dim = float(mean[0]), (len(mean) - 1) // 2
    if not weight > SURE * noise:
        return None
    first, second = np.clip(sqrt(dim) * mean[1:].reshape(2, dim) / weight, -1.0, 1.0)
    off = 0.5 * sqrt(dim) * noise / weight  # the noise moves the mean by about so much
    variance = 0.25 * np.maximum(second - first**2, 0.0) + off**2
    return {"weight": np.ones(1), "mean": 0.5 + 0.5 * first[None], "variance": variance[None]}


ALGORITHMS = {
    "dp_guide": Entry(DPGuide, {"control": "none"}, summary="guide with differential privacy: agents share one noisy Gaussian"),
    "dp_guide_noise": Entry(
        DPGuide, {"control": "noise"}, summary="control for dp_guide: every message has a uniform place for its mean"
    ),
}
