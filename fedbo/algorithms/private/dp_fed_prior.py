"""The federated prior with differential privacy: agents learn the mean shape of the functions from each other.

Every agent sends the shape of its posterior mean at shared design points: centred, and of norm 1. Agents receive only the sum
of these vectors with normal noise, and each makes a prior of it (docs/algorithms/fed_prior.md). `NoisyMeans` is what methods
have in common whose coordinator releases a mean of vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import hypot, inf, sqrt
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedbo.algorithms.base import Array, Declaration, Field, Inbound, Mechanism, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.learned_prior.learned_prior import LearnedPrior, Shape, recovered, shape_prior
from fedbo.algorithms.learned_prior.prior_agent import MOST, PriorAgent, PriorState, level
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
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


PART = 0.5  # norm of the part of a message that speaks for or against stretched coordinates; the shape has 1
ROUNDING = 1e-9  # relative to the values, what is left of a shape without any


@dataclass(frozen=True, slots=True)
class DPFedPrior(NoisyMeans, PriorAgent):
    """Bayesian optimisation with a private prior; `PriorAgent` has the settings not named here, `Mechanism` the release.

    A message is the agent's posterior mean at about `points` design points, centred, divided by its norm, and times its
    certainty. No message is therefore clipped. The answer is the mean of all releases. An agent knows the variance of its
    noise, recovers the shape by a Gaussian process, and estimates level and scale from its observations.

    noise_multiplier, share, sampling: z, q and `sampling` of the mechanism.
    """

    norm: ClassVar[float] = hypot(1.0, PART)

    def upload(self, problem: Problem) -> Declaration | None:
        """Declare the shape at the design points, and the evidence for stretched coordinates: `(M + 1,)`."""
        return {"shape": Field((self.design_size(problem) + 1,))}

    def download(self, problem: Problem) -> Declaration | None:
        """Declare the mean shape `(M,)`, the standard deviation of its noise, and the evidence for stretched coordinates."""
        return {"mean": Field((self.design_size(problem),)), "noise": Field((1,)), "stretch": Field((1,))}

    def _learned(self, answer: Payload, local: LocalState, design: Array, length: float) -> LearnedPrior:
        unit = sqrt(len(design))  # a standard deviation of 1 over the design
        shape = _recovered(design.tobytes(), (unit * answer["mean"]).tobytes(), unit * float(answer["noise"][0]), length)
        return shape_prior(shape, *level(local))

    def outbox(self, state: PriorState, streams: Streams) -> tuple[Payload | None, PriorState]:
        """Write a message about all observations."""
        known, state = self._known(state, streams)
        if known is None:
            return None, state
        apart = known.values - known.values.mean()
        norm = float(np.linalg.norm(apart))
        flat = norm <= ROUNDING * float(np.linalg.norm(known.values))
        shape = np.zeros_like(apart) if flat else apart * (known.certainty / norm)
        return {"shape": np.append(shape, PART * known.stretch / MOST)}, state

    def server_init(self, problem: Problem) -> MeanServer:
        """Start without a release."""
        return MeanServer(np.zeros(self.design_size(problem) + 1), problem.n_agents)

    def broadcast(
        self, state: MeanServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], MeanServer]:
        """Send the mean of all releases to all recipients."""
        if not state.releases:
            return {}, state
        mean = state.total / state.releases
        stretch = mean[-1] * state.agents * MOST / PART
        payload = {"mean": mean[:-1], "noise": np.array([self.noise_of(state)]), "stretch": np.array([stretch])}
        return dict.fromkeys(recipients, payload), state


@lru_cache(maxsize=64)
def _recovered(design: bytes, values: bytes, noise: float, length: float) -> Shape:
    """Recover a shape; cached, since all agents of a process receive the same one."""
    told = np.frombuffer(values)
    return recovered(np.frombuffer(design).reshape(len(told), -1), told, noise, length)


def _entry(control: str, summary: str) -> Entry:
    return Entry(DPFedPrior, {"control": control}, summary=summary)


ALGORITHMS = {
    "dp_fed_prior": _entry("none", "fed_prior with differential privacy: agents share only a noisy mean shape"),
    "dp_fed_prior_noise": _entry("noise", "control for dp_fed_prior: messages are draws from the senders' own priors"),
    "dp_fed_prior_shuffled": _entry("shuffled", "control for dp_fed_prior: every message has its values in random order"),
    "dp_fed_prior_uniform": _entry("uniform", "control for dp_fed_prior: uniform points instead of federated queries"),
}
