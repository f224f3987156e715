"""Sums on shared random features: the statistics of a linear model, which add up over agents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import scipy
from annotated_types import Ge, Gt

from fedbo.algorithms.base import Array, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.components.collaborative import Collaborative, CollaborativeState
from fedbo.algorithms.components.feature_columns import shared_features
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf
from fedbo.surrogates.features import KERNELS, Features, phi
from fedbo.surrogates.posterior import factorise
from fedbo_rivals.ensemble import Ensemble, means_with_gradients


class FeatureStatistics(NamedTuple):
    """The sufficient statistics of a linear model on M features: sums over n observations, which add up over agents.

    `gram (M, M)` is Phi'Phi, `moment (M,)` Phi'y, `square (1,)` y'y, and `number (1,)` n. The coordinator's state has them with
    a first axis for the agents.
    """

    gram: Array
    moment: Array
    square: Array
    number: Array


def statistics(rows: Array, y: Array) -> FeatureStatistics:
    """Sum up the observations `y (n,)` at points with features `rows (n, M)`."""
    return FeatureStatistics(rows.T @ rows, rows.T @ y, np.array([y @ y]), np.array([float(len(y))]))


def linear_posterior(features: Features, sums: FeatureStatistics, noise: float) -> Ensemble:
    """Return the posterior of a Bayesian linear model with weights N(0, I) and this noise variance, as an ensemble of one.

    It is N(A^-1 Phi'y, noise A^-1) with A = Phi'Phi + noise I: all agents' observations count as those of one function.
    """
    precision = sums.gram.copy()
    precision.flat[:: len(precision) + 1] += noise
    factor, _ = factorise(precision)
    inverse: Array = scipy.linalg.lapack.dpotrs(factor, np.eye(len(precision)), lower=1)[0]
    return Ensemble(features, (inverse @ sums.moment)[None], noise * inverse)


@dataclass(frozen=True, slots=True)
class FeatureSums(Collaborative):
    """Base class of methods whose messages are sums on random features; `Collaborative` has the other settings.

    The answer holds the sums over all others. No more is needed, so encryption or masks could hide each agent's message.

    features: number of random features that all agents share, in the surrogate's coordinates, with `kernel` and `length_scale`.
    noise: the noise variance of the linear model on them.
    """

    features: Annotated[int, Ge(1)] = 100
    """Random features M; a message has M^2 + M + 2 numbers."""
    kernel: Annotated[str, OneOf(KERNELS)] = "matern52"
    """Kernel of the shared features."""
    length_scale: Annotated[float, Gt(0)] = 0.2
    """Length scale of the features, in the surrogate's coordinates."""
    noise: Annotated[float, Gt(0)] = 0.01
    """Noise variance of the linear model."""

    @abstractmethod
    def _scores(self, y: Array) -> Array:
        """Turn an agent's values `(n,)` into scores that are comparable over agents."""

    def upload(self, problem: Problem) -> Declaration:
        """Declare the statistics of all observations of an agent."""
        m = self.features
        return {"gram": Field((m, m), positive=True), "moment": Field((m,)), "square": Field((1,)), "number": Field((1,))}

    download = upload  # the sums over all others look the same

    def outbox(self, state: CollaborativeState, streams: Streams) -> tuple[Payload | None, CollaborativeState]:
        """Send the statistics of all observations."""
        u, y = self._known(state)
        if not len(y):
            return None, state
        return statistics(phi(self.shared(streams, u.shape[1]), u), self._scores(y))._asdict(), state

    def shared(self, streams: Streams, dim: int) -> Features:
        """Return the features that all agents share."""
        return shared_features(streams, dim, self.features, self.length_scale, self.kernel)

    def server_init(self, problem: Problem) -> FeatureStatistics:
        """Start without messages."""
        n, m = problem.n_agents, self.features
        return FeatureStatistics(np.zeros((n, m, m)), np.zeros((n, m)), np.zeros((n, 1)), np.zeros((n, 1)))

    def receive(self, state: FeatureStatistics, message: Inbound, now: float) -> FeatureStatistics:
        """Store an agent's newest statistics, unless they are damaged and describe no observations."""
        sent = FeatureStatistics(**message.payload)
        if sent.number[0] > 0:
            for kept, new in zip(state, sent, strict=True):
                kept[message.sender] = new
        return state

    def broadcast(
        self, state: FeatureStatistics, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], FeatureStatistics]:
        """Answer each agent with the sums over all others; stale statistics have a smaller weight."""
        weight = np.tile((state.number[:, 0] > 0) * staleness_weight, (len(recipients), 1))
        weight[np.arange(len(recipients)), list(recipients)] = 0.0
        # Not the total less the own share: a number that was damaged to a huge one would leave rounding errors for its sender.
        sums = [np.tensordot(weight, kept, axes=1) for kept in state]
        payloads: dict[int, Payload] = {}
        for place, agent in enumerate(recipients):
            if weight[place].any():
                payloads[agent] = {name: total[place] for name, total in zip(FeatureStatistics._fields, sums, strict=True)}
        return payloads, state


def global_mean(model: Ensemble, u: Array) -> tuple[Array, Array]:
    """Return the mean of an ensemble of one at `u (n, d)`, `(n,)`, and its gradient `(n, d)`."""
    mean, gradient = means_with_gradients(model, u)
    return mean[:, 0], gradient[:, 0]
