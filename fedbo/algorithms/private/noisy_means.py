"""Methods whose private messages are released as their noisy mean, one for all agents: common settings and coordinator half."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedbo.algorithms.base import Array, Inbound, Mechanism, Problem
from fedbo.algorithms.reveals import Reveals
from fedbo.settings.ranges import OneOf


class MeanServer(NamedTuple):
    """The coordinator's state: the sum of all releases `(k,)`, the number of agents, and that of releases."""

    total: Array
    agents: int
    releases: int = 0


@dataclass(frozen=True)
class NoisyMeans:
    """Settings of the mechanism, and releases of messages of which none has a norm above `norm`, so that none is clipped."""

    norm: ClassVar[float]
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
        """Return what releases reveal; without noise as much as the messages of a method that is not private."""
        return Reveals.NOISY_SUMS if self.noise_multiplier else Reveals.COMPUTABLE

    def mechanism(self, problem: Problem) -> Mechanism:
        """Declare how messages are released."""
        norm = self.norm * (1.0 + 1e-12)  # which no rounding exceeds
        return Mechanism(1, clip=norm, noise=self.noise_multiplier, share=self.share, sampling=self.sampling)

    def weights(self, problem: Problem, release: int) -> Array:
        """Return the same weight for all agents `(1, N)`."""
        return np.full((1, problem.n_agents), 1.0 / problem.n_agents)

    def receive(self, state: MeanServer, message: Inbound, now: float) -> MeanServer:
        """Raise an error, since single messages must not reach this half."""
        raise AssertionError("messages use the mechanism")

    def released(self, state: MeanServer, vectors: Array, release: int) -> MeanServer:
        """Add a release to the mean."""
        return state._replace(total=state.total + vectors[0], releases=state.releases + 1)

    def closed(self, state: MeanServer) -> MeanServer:
        """Return the state unchanged: repeating earlier releases costs no privacy."""
        return state

    def noise_of(self, state: MeanServer) -> float:
        """Return the standard deviation of the noise in each number of the mean of all releases."""
        return self.noise_multiplier * self.norm / (state.agents * self.share * sqrt(state.releases))
