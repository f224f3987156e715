"""Federated Thompson sampling, the part that its variants share: agents follow their own draw or, by a coin, messages.

A message is the weights of a Bayesian linear model on random features that all agents share, so it is a function on the cube
(Dai et al. 2020, section 3.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import sqrt
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge, Gt

from fedbo.algorithms.base import Array, Decision, Inbound, Payload, Problem
from fedbo.algorithms.components.coordinates import FEW, to_coordinates
from fedbo.algorithms.components.same_features import shared_features
from fedbo.algorithms.components.schedules import Schedule, check_probability, probability
from fedbo.algorithms.components.surrogate import LocalState, distance, evaluable, scaled
from fedbo.algorithms.streams import Streams
from fedbo.algorithms.ts import TS
from fedbo.settings.ranges import OneOf, check
from fedbo.surrogates.features import KERNELS, Features, phi
from fedbo.surrogates.linear import gram_factor


class FederatedState(NamedTuple):
    """An agent's state: its own Thompson sampling, what it learned before, and what it holds of others.

    `history_phi (t_n, M)`, `history_y (t_n,)` are the features and values of an earlier task, `phi (n, M)` the features of
    its own observations, and `factor` the `gram_factor` of both together; `omega (K, M)` are the vectors that it holds and
    `weight (K,)` what each counts for, 0 for those it does not hold; `t` counts its decisions.
    """

    local: LocalState
    features: Features
    history_phi: Array
    history_y: Array
    phi: Array
    omega: Array
    weight: Array
    t: int = 0
    factor: Array | None = None


@dataclass(frozen=True, slots=True)
class Federated(ABC):
    """The settings and the agent half that such methods share; a method says what is sent, held and followed.

    In iteration t an agent maximises a draw from its own posterior with probability `p` (see `schedules`), as `own` says, and
    otherwise what it holds of others. All agents share `features` random features with `kernel` and `length_scale`, by default
    0.2 in up to two inputs and 0.35 sqrt(d) in more, since with short ones a message says nothing there. `noise` is the noise
    variance of the linear model on them; with `centre` it is one of the values less their mean and over their standard
    deviation.

    A federated query that is nearer than `apart` to an evaluated point, in every coordinate, would tell little: the agent
    follows its own surrogate then.

    `every` k sends a fresh message before the first and after every k-th iteration; 0 sends one before the first only.

    `control` "noise" takes the information out of every message, and "uniform" puts a uniform point in place of every
    federated query: the same schedule without the information.
    """

    own: TS = field(default_factory=TS)
    p: Schedule = "1-1/sqrt(t)"
    features: Annotated[int, Ge(1)] = 100
    kernel: Annotated[str, OneOf(KERNELS)] = "matern52"
    length_scale: Annotated[float, Gt(0)] | None = None
    noise: Annotated[float, Gt(0)] = 0.01
    centre: bool = True
    apart: Annotated[float, Ge(0)] = 0.03
    every: Annotated[int, Ge(0), "0 is once, before the start"] = 1
    control: Annotated[str, OneOf(("none", "noise", "uniform"))] = "none"

    def __post_init__(self) -> None:
        check(self)
        check_probability(self.p, "p")

    @abstractmethod
    def _capacity(self, problem: Problem) -> int:
        """Give K, the number of vectors that an agent can hold."""

    @abstractmethod
    def _receive_answer(self, state: FederatedState, payload: Payload) -> FederatedState:
        """Take in an answer of the coordinator."""

    @abstractmethod
    def _federated_query(self, state: FederatedState, streams: Streams) -> tuple[Array, FederatedState]:
        """Choose the federated query, in coordinates `(d,)`."""

    @abstractmethod
    def _message(self, rows: Array, y: Array, rng: np.random.Generator, factor: Array | None) -> Array:
        """Write the message `(M,)` about values `y (n,)` at points with features `rows (n, M)`, n > 0, and their `factor`."""

    @property
    def queries(self) -> int:
        """One point for each decision."""
        return 1

    def sends(self, step: int) -> bool:
        """Before the start, and after every `every`-th iteration."""
        return step == 0 if not self.every else step % self.every == 0

    def agent_init(self, problem: Problem, streams: Streams) -> FederatedState:
        """Draw the shared features and take in what was learned before."""
        features = shared_features(streams, problem.dim, self.features, self._scale(problem.dim), self.kernel)
        known = problem.history_x if problem.history_x is not None else np.empty((0, problem.dim))
        values = problem.history_y if problem.history_y is not None else np.empty(0)
        rows = phi(features, to_coordinates(known, self.own.coordinates))
        holds = self._capacity(problem) if problem.agent in problem.targets else 0
        own = self.own.agent_init(problem, streams)
        return FederatedState(own, features, rows, values, np.empty((0, self.features)), *_nothing(holds, self.features))

    def ask(self, state: FederatedState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, FederatedState]:
        """Follow the own surrogate or what is held of others (Dai et al. 2020, Alg. 1 lines 2 to 7; 2021, Alg. 2)."""
        for message in inbox:
            state = self._receive_answer(state, message.payload)
        # The surrogate is fitted on schedule, also before a federated query: TS alone has the same hyperparameters then.
        state = state._replace(t=state.t + 1, local=self.own.fit(state.local, streams))
        if not np.count_nonzero(state.weight) or streams.rng("coin").random() <= probability(self.p, state.t):
            return self._local_query(state, streams)
        u, state = self._federated_query(state, streams)
        if distance(state.local.taken, u) < self.apart:
            return self._local_query(state, streams)
        if self.control == "uniform":
            return Decision(evaluable(state.local, streams.rng("uniform instead").random((1, len(u)))), "uniform"), state
        return self.own.fresh(u, state.local, streams, "federated"), state

    def _local_query(self, state: FederatedState, streams: Streams) -> tuple[Decision, FederatedState]:
        decision, own = self.own.ask(state.local, (), streams)
        return decision, state._replace(local=own)

    def pending(self, state: FederatedState, x: Array) -> FederatedState:
        """Take note of the points that are being evaluated."""
        return state._replace(local=self.own.noting(state.local, x))

    def tell(self, state: FederatedState, x: Array, y: Array) -> FederatedState:
        """Append the observations."""
        own = self.own.tell(state.local, x, y)
        if own.phi is not None and self._is_one_model(x.shape[1]) and not len(state.history_y):
            return state._replace(local=own, phi=own.phi, factor=own.factor)
        rows = np.concatenate([state.phi, phi(state.features, to_coordinates(x, self.own.coordinates))])
        factor = state.factor
        if self.every:
            known = np.concatenate([state.history_phi, rows]) if len(state.history_y) else rows
            factor = gram_factor(known, self.noise, factor)
        return state._replace(local=own, phi=rows, factor=factor)

    def _scale(self, dim: int) -> float:
        """Give the length scale of the shared features."""
        if self.length_scale is not None:
            return self.length_scale
        return 0.2 if dim <= FEW else 0.35 * sqrt(dim)

    def _is_one_model(self, dim: int) -> bool:
        """Say whether an agent's own linear model is on the features that all share, with the same noise."""
        mine = (self.features, self._scale(dim), self.noise)
        return self.kernel == "se" and mine == (self.own.features, self.own.length_scale, self.own.noise)

    def outbox(self, state: FederatedState, streams: Streams) -> tuple[Payload | None, FederatedState]:
        """Write a message about all that is known (Dai et al. 2020, section 3.1).

        Before the first iteration a message is about the earlier task alone, if there was one.
        """
        rows, y = state.history_phi, state.history_y
        if not len(y):
            rows, y = state.phi, state.local.y
        elif state.t:
            rows, y = np.concatenate([rows, state.phi]), np.concatenate([y, state.local.y])
        if not len(y):
            return None, state  # who knows nothing has nothing to say
        return {"omega": self._message(rows, y, streams.rng("message"), state.factor)}, state

    def _standard(self, y: Array) -> tuple[Array, float]:
        """Give the values `(n,)` as the linear model takes them, and their spread where they were divided by it, or 1."""
        if not self.centre:
            return y, 1.0
        centred, spread = scaled(y)
        return centred / spread, spread


@lru_cache(maxsize=4)
def _nothing(holds: int, m: int) -> tuple[Array, Array]:
    """Give what every agent holds of others at first, one for all of a process: vectors `(K, m)` and weights `(K,)`."""
    return np.zeros((holds, m)), np.zeros(holds)
