"""Guided Bayesian optimisation with differential privacy: agents share one noisy Gaussian of where their optima may be.

An agent sends moments of its Gaussian, so that a sum over agents has those of all. The coordinator makes one Gaussian of the
released sums (docs/guide.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np
import scipy

from fedbo.algorithms.base import Array, Declaration, Field, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.private.dp_fed_prior import MeanServer, NoisyMeans
from fedbo.algorithms.streams import Streams
from fedbo_rivals.guide_agent import GuideAgent, GuideState, LikelyOptimum, gaussians_declared

NORM = sqrt(3.0)  # which no message exceeds: the weight, the first and the second moments have norm 1 each at most
SURE = 2.0  # standard deviations of its noise that the released weight must exceed


@dataclass(frozen=True, slots=True)
class DPGuide(NoisyMeans, GuideAgent):
    """Guided optimisation with a private Gaussian; `GuideAgent` has the settings not named here, `Mechanism` the release.

    A message has 2 d + 1 numbers: a weight w in [0, 1], and w times the first and second moments of the agent's Gaussian about
    the middle of the cube. The weight is the share times the normal probability of the value. No message is clipped, since its
    norm is at most sqrt(3). The answer is the Gaussian with the mean moments of all agents, widened by the variance of the
    noise; there is none while the released weight is within two standard deviations of it.

    noise_multiplier, share, sampling: z, q and `sampling` of the mechanism.
    """

    norm: ClassVar[float] = NORM

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

    def server_init(self, problem: Problem) -> MeanServer:
        """Start without a release."""
        return MeanServer(np.zeros(2 * problem.dim + 1), problem.n_agents)

    def broadcast(
        self, state: MeanServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], MeanServer]:
        """Send the Gaussian with the mean moments of all releases to all recipients."""
        if not state.releases:
            return {}, state
        gaussian = gaussian_of(state.total / state.releases, self.noise_of(state))
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


ENTRY = Entry(DPGuide, {"control": "none"}, summary="guide with differential privacy: agents share one noisy Gaussian")
NOISE = Entry(DPGuide, {"control": "noise"}, summary="control for dp_guide: every message has a uniform place for its mean")
