"""Federated Thompson sampling, the part that its variants share: a coin decides between the agent's draw and the messages.

A message contains the weights of a Bayesian linear model on random features that all agents share, so it is a function on the
cube (Dai et al. 2020, section 3.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import sqrt
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from fedbo.algorithms.base import Array, Decision, Inbound, Payload, Problem
from fedbo.algorithms.components import several, several_federated
from fedbo.algorithms.components.centres import Aggregation
from fedbo.algorithms.components.coordinates import FEW, distance, from_coordinates, to_coordinates
from fedbo.algorithms.components.draw_search import Values, unsuitable
from fedbo.algorithms.components.feature_columns import FederatedColumns, serves, shared_features
from fedbo.algorithms.components.schedules import Schedule, check_probability, probability
from fedbo.algorithms.components.several import Several
from fedbo.algorithms.components.surrogate import LocalState, evaluable
from fedbo.algorithms.streams import Numbers, StreamBlock, Streams
from fedbo.algorithms.ts import TS
from fedbo.settings.ranges import OneOf, check
from fedbo.settings.records import changed, copied
from fedbo.surrogates.features import KERNELS, Features
from fedbo.surrogates.linear import Models, Observations, draw_one, normals_for


@dataclass(slots=True)
class FederatedState:
    """An agent's state: its Thompson sampling, an earlier task, and the vectors of others.

    history_u `(t_n, d)`, history_y `(t_n,)`: points, in coordinates, and values of the earlier task.
    omega `(K, M)`: the vectors that it holds.
    weight `(K,)`: their weights, 0 for those it does not hold.
    t: number of its decisions.
    factor: that of the history and the agent's first points, as `linear.draw_one` returns it.
    """

    local: LocalState
    features: Features
    history_u: Array
    history_y: Array
    omega: Array
    weight: Array
    t: int = 0
    factor: Array | None = None


@dataclass(frozen=True, slots=True)
class Federated(ABC):
    """The settings and the agent half that such methods share; a method declares its messages and how to follow them.

    In iteration t an agent maximises a draw from its posterior with probability p_t, and otherwise the messages of others.

    own: the agent's Thompson sampling.
    p: schedule of p_t (see `schedules`).
    features: number of shared random features, with `kernel`.
    length_scale: by default 0.2 in up to two inputs and 0.35 sqrt(d) in more, where short scales carry no information.
    noise: the noise variance of the linear model on the features.
    centre: model the values less their mean and over their standard deviation.
    apart: a federated query nearer than this to an evaluated point, in every coordinate, is replaced by the agent's draw.
    every: send a fresh message before the first and after every k-th iteration; 0 sends one before the first only.
    aggregation: how several messages become one vector to follow.
    control: "noise" takes the information out of every message; "uniform" replaces every federated query by a uniform point.
    """

    queries: ClassVar[int | None] = 1

    own: TS = field(default_factory=TS)
    """The agent's own Thompson sampling: a table of settings of ts."""
    p: Schedule = "1-1/sqrt(t)"
    """Probability p_t of an own query: a number, schedule or function of t."""
    features: Annotated[int, Ge(1)] = 100
    """Random features M; a message has M numbers."""
    kernel: Annotated[str, OneOf(KERNELS)] = "matern52"
    """Kernel of the shared features."""
    length_scale: Annotated[float, Gt(0)] | None = None
    """Length scale of the features. Default: 0.2 in up to two inputs, else 0.35 sqrt(d)."""
    noise: Annotated[float, Gt(0)] = 0.01
    """Noise variance of the linear model."""
    centre: bool = True
    """Whether a message is about standardised values."""
    apart: Annotated[float, Ge(0)] = 0.03
    """Distance to evaluated points below which a federated query becomes an own one."""
    every: Annotated[int, Ge(0), "0 means once, before the start"] = 1
    """Iterations between two messages; 0: one message before the first."""
    aggregation: Aggregation = Aggregation()
    """Mean of the messages, or a robust centre."""
    control: Annotated[str, OneOf(("none", "noise", "uniform"))] = "none"
    """Control of an experiment, fixed by the algorithm's name."""

    def __post_init__(self) -> None:
        check(self)
        check_probability(self.p, "p")

    @abstractmethod
    def _capacity(self, problem: Problem) -> int:
        """Return K, the number of vectors that an agent can hold."""

    @abstractmethod
    def held(self, payload: Payload) -> tuple[Array, Array]:
        """Return the vectors `(K, M)` that an agent holds with an answer of the coordinator, and their weights `(K,)`."""

    @abstractmethod
    def federated_query(self, state: FederatedState, streams: Streams) -> tuple[Array, FederatedState]:
        """Choose the federated query, in coordinates, `(d,)`."""

    @abstractmethod
    def federated_queries(self, features: Features, held: Sequence[tuple[Array, Array]], streams: StreamBlock) -> Array:
        """Choose the federated queries `(k, d)` of agents that hold these vectors and weights, in the cube."""

    @property
    @abstractmethod
    def width(self) -> float:
        """Return the width of the draws of messages: 1 as the posterior, 0 for its mean."""

    @abstractmethod
    def messages(self, omega: Array, spread: Array, used: Numbers, streams: Iterable[Streams]) -> Array:
        """Turn draws `(k, M)`, made of `used (k,)` normal numbers each, into messages about values with a `spread (k,)`."""

    def sends(self, step: int) -> bool:
        """Return True before the start, and after every `every`-th iteration."""
        return step == 0 if not self.every else step % self.every == 0

    @abstractmethod
    def _surfaces(self, states: Sequence[FederatedState], streams: Streams) -> tuple[list[Values], Sequence[FederatedState]]:
        """Return the function to follow for each metric of an agent, of points `(n, d)` in coordinates."""

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        """Draw the shared features and load the earlier task."""
        if several.is_several(problem):
            return several.begin(problem, lambda alone: self.agent_init(alone, streams))
        features = shared_features(streams, problem.dim, self.features, self._scale(problem.dim), self.kernel)
        known = problem.history_x if problem.history_x is not None else np.empty((0, problem.dim))
        values = problem.history_y if problem.history_y is not None else np.empty(0)
        points = to_coordinates(known, self.own.coordinates)
        holds = self._capacity(problem) if problem.agent in problem.targets else 0
        own = self.own.agent_init(problem, streams)
        omega, weight = _nothing(holds, self.features)
        return FederatedState(local=own, features=features, history_u=points, history_y=values, omega=omega, weight=weight)

    def ask(self, state: Any, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Any]:
        """Follow the agent's surrogate or the messages of others (Dai et al. 2020, Alg. 1 lines 2 to 7; 2021, Alg. 2)."""
        if isinstance(state, Several):
            return several_federated.ask(self, state, inbox, streams)
        state = self._begun(state, inbox, streams)
        if np.count_nonzero(state.weight) and streams.uniform("coin") > probability(self.p, state.t):
            u, state = self.federated_query(state, streams)
            away = distance(state.local.taken, u)
            if away >= self.apart and not state.local.is_near_failure(u):
                return self._followed(from_coordinates(u[None], self.own.coordinates), away, state, streams), state
        decision, local = self.own.ask(state.local, (), streams)
        return decision, state if local is state.local else changed(state, local=local)

    def _begun(self, state: FederatedState, inbox: Sequence[Inbound], streams: Streams) -> FederatedState:
        """Update the state with the received messages."""
        after = copied(state)
        for message in inbox:
            after.omega, after.weight = self.held(message.payload)
        # The surrogate is fitted on schedule, also before a federated query: TS alone has the same hyperparameters then.
        after.local = state.local.fitted_by(self.own.fit(state.local.cautious(), streams))
        after.t += 1
        return after

    def _followed(self, x: Array, away: float, state: FederatedState, streams: Streams) -> Decision:
        """Decide on a federated query `x (1, d)` at distance `away` from the evaluated points."""
        if self.control == "uniform":
            return Decision(evaluable(state.local, streams.rng("uniform instead").random(x.shape)), "uniform")
        return self.own.unrepeated(x, away, state.local, streams, "federated")

    def columns(self, problem: Problem, streams: Streams) -> FederatedColumns | None:
        """Keep the states of many agents as arrays, with the surrogate "features" and messages after the start."""
        if not self.every or several.is_several(problem) or not serves(self.own, problem):
            return None
        return FederatedColumns(self, problem, streams)

    def pending(self, state: Any, x: Array) -> Any:
        """Record the points that are being evaluated."""
        if isinstance(state, Several):
            return several.noting(state, x, self.pending)
        return changed(state, local=self.own.noting(state.local, x))

    def avoiding(self, state: Any, x: Array) -> Any:
        """Record the points whose evaluations failed."""
        if isinstance(state, Several):
            return several.avoiding(state, x, self.avoiding)
        return changed(state, local=self.own.noting_failed(state.local, x))

    def tell(self, state: FederatedState, x: Array, y: Array) -> FederatedState:
        """Append the observations."""
        after = copied(state)
        after.local = self.own.tell(state.local, x, y)
        return after

    def tell_outcomes(self, state: Several, x: Array, values: Array, margins: Array) -> Several:
        """Append the metrics of each evaluation."""
        return several.told(state, x, np.hstack([values, margins]), self.tell, self.avoiding)

    def handles(self, problem: Problem) -> str:
        """Return why the settings do not suit the objectives and bounds of a problem; empty where they do."""
        return unsuitable(self.own.scalarise, problem)

    def _scale(self, dim: int) -> float:
        """Return the length scale of the shared features."""
        if self.length_scale is not None:
            return self.length_scale
        return 0.2 if dim <= FEW else 0.35 * sqrt(dim)

    def is_one_model(self, dim: int) -> bool:
        """Return whether the agent's linear model equals the shared one: same features and same noise."""
        mine = (self.features, self._scale(dim), self.noise)
        return self.kernel == "se" and mine == (self.own.features, self.own.length_scale, self.own.noise)

    def outbox(self, state: Any, streams: Streams) -> tuple[Payload | None, Any]:
        """Write a message about all observations (Dai et al. 2020, section 3.1).

        Before the first iteration a message describes the earlier task alone, if there was one.
        """
        if isinstance(state, Several):
            return several_federated.outbox(self, state, streams)
        known = self._known(state)
        if not len(known.y):  # who knows nothing has nothing to say
            return None, state
        used = normals_for(np.array([len(known.y)]), self.features)
        normals = streams.rng("message").standard_normal(int(used[0]))
        omega, spread, factor = draw_one(self.models(state.features), known, self.width, normals)
        if factor is not state.factor:
            shares_factor = self.is_one_model(known.x.shape[1]) and not len(state.history_y)
            state = copied(state)
            state.local, state.factor = state.local.grown(factor) if shares_factor else state.local, factor
        return {"omega": self.messages(omega[None], np.array([spread]), used, [streams])[0]}, state

    def models(self, features: Features) -> Models:
        """Return the linear models that messages are drawn from."""
        return Models(features, self.noise, standardise=self.centre)

    def _known(self, state: FederatedState) -> Observations:
        """Return the observations behind a message."""
        local, u, y = state.local, state.history_u, state.history_y
        if not len(y):
            return Observations(local.u, local.y, state.factor)
        if state.t:
            u, y = np.concatenate([u, local.u]), np.concatenate([y, local.y])
        return Observations(u, y, state.factor)


@lru_cache(maxsize=4)
def _nothing(holds: int, m: int) -> tuple[Array, Array]:
    """Return the empty vectors `(K, m)` and weights `(K,)` of every agent's start; cached, one for all of a process."""
    return np.zeros((holds, m)), np.zeros(holds)
