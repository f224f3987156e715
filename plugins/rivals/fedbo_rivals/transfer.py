"""Transfer methods, the part that RGPE and TAF share: an agent receives the surrogates of others and decides by all of them.

A message is nu_n and Sigma_n^-1 of a Bayesian linear model on random features that all agents share, M + M^2 numbers
(Dai et al. 2020, section 3.2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge, Gt

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Origin, Payload, Problem
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.feature_columns import shared_features
from fedbo.algorithms.components.inner_search import maximise_acquisition
from fedbo.algorithms.components.surrogate import LocalState, Surrogate, first_point, scaled
from fedbo.algorithms.gp import incumbent
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import Marked, OneOf
from fedbo.surrogates.acquisition import expected_improvement, prediction
from fedbo.surrogates.features import KERNELS, Features, phi
from fedbo.surrogates.gp import Posterior
from fedbo.surrogates.linear import inverse_precision, linear_model, mean, update
from fedbo_rivals.ensemble import Ensemble, ensemble

LEAST = 1e-60  # of a variance in a message; those of agents are above 1 / (their observations and the noise)

Acquisition = Callable[[Array], tuple[Array, Array]]


class TransferState(NamedTuple):
    """An agent's state: its surrogate, an earlier task, and the surrogates of others.

    history_phi `(t_n, M)`, history_y `(t_n,)`: the features and values of the earlier task.
    phi `(n, M)`: the features of its observations.
    nu `(N, M)`, inverse `(N, M, M)`, best `(N,)`: the messages of the others.
    weight `(N,)`: above 0 for agents with a message.
    t: number of its decisions.
    """

    local: LocalState
    features: Features
    history_phi: Array
    history_y: Array
    phi: Array
    nu: Array
    inverse: Array
    best: Array
    weight: Array
    t: int = 0


class TransferServer(NamedTuple):
    """The coordinator's state: the newest message of every agent, and who has sent one, `held (N,)`."""

    nu: Array
    inverse: Array
    best: Array
    held: Array


@dataclass(frozen=True, slots=True)
class Transfer(Marked, ABC):
    """The settings and both halves that such methods share; a method weights the surrogates of others.

    own: the agent's Gaussian process.
    features: number of random features that all agents share, with `kernel` and `length_scale`.
    noise: the noise variance of the linear model on them.
    centre: model the values clipped as `own` does, less their mean and over their standard deviation.
    every: send a fresh message before the first and after every k-th iteration; 0 sends one before the first only.
    """

    queries: ClassVar[int | None] = 1

    own: Surrogate = field(default_factory=Surrogate)
    """The agent's own Gaussian process: a table of surrogate settings."""
    features: Annotated[int, Ge(1)] = 100
    """Random features M of a message."""
    kernel: Annotated[str, OneOf(KERNELS)] = "matern52"
    """Kernel of the features."""
    length_scale: Annotated[float, Gt(0)] = 0.2
    """Length scale of the features."""
    noise: Annotated[float, Gt(0)] = 0.01
    """Noise variance of the linear model."""
    centre: bool = True
    """Whether a message is about standardised values."""
    every: Annotated[int, Ge(0), "0 means once, before the start"] = 0
    """Iterations between two messages; 0: one message before the first."""

    @abstractmethod
    def _acquisition(
        self, posterior: Posterior, state: TransferState, models: Ensemble, streams: Streams
    ) -> Acquisition | None:
        """Return the acquisition, `(n,)` with gradients `(n, d)`; None when no other agent counts.

        The posterior contains the p pending points with their expected values, after the n observed ones, and so keeps the
        search away from them. Surrogates are ranked by the n observations alone, since expected values come from the agent's
        surrogate.
        """

    @property
    def _incumbents(self) -> bool:
        """Return whether a message contains the largest value seen."""
        return False

    def sends(self, step: int) -> bool:
        """Return True before the start, and after every `every`-th iteration."""
        return step == 0 if not self.every else step % self.every == 0

    def upload(self, problem: Problem) -> Declaration:
        """Declare a surrogate: nu_n `(M,)` and Sigma_n^-1 `(M, M)`, optionally with the largest observed value."""
        declared = {"nu": Field((self.features,)), "inverse": Field((self.features, self.features), positive=True)}
        return {**declared, "best": Field((1,))} if self._incumbents else declared

    def download(self, problem: Problem) -> Declaration:
        """Declare the newest surrogates of all agents, and their weights."""
        n, m = problem.n_agents, self.features
        declared = {"nu": Field((n, m)), "inverse": Field((n, m, m)), "weight": Field((n,))}
        return {**declared, "best": Field((n,))} if self._incumbents else declared

    def agent_init(self, problem: Problem, streams: Streams) -> TransferState:
        """Draw the shared features and load the earlier task."""
        m = self.features
        features = shared_features(streams, problem.dim, m, self.length_scale, self.kernel)
        known = problem.history_x if problem.history_x is not None else np.empty((0, problem.dim))
        values = problem.history_y if problem.history_y is not None else np.empty(0)
        rows = phi(features, to_coordinates(known, self.own.coordinates))
        own, nobody = self.own.begin(problem), np.empty(0)
        return TransferState(
            own,
            features,
            rows,
            history_y=values,
            phi=np.empty((0, m)),
            nu=np.empty((0, m)),
            inverse=np.empty((0, m, m)),
            best=nobody,
            weight=nobody,
        )

    def ask(self, state: TransferState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, TransferState]:
        """Maximise an acquisition made of the own surrogate and those of others."""
        for message in inbox:
            got = message.payload
            best = got.get("best", np.zeros(len(got["weight"])))
            state = state._replace(nu=got["nu"], inverse=got["inverse"], best=best, weight=got["weight"])
        if not len(state.local.u):
            return Decision(first_point(state.local, streams), "own"), state
        known = self.own.fit(state.local.cautious(), streams)
        state = state._replace(t=state.t + 1, local=state.local.fitted_by(known))
        posterior = self.own.posterior(known)
        acquisition = None
        if (there := state.weight > 0).any():
            held = state._replace(local=known, best=state.best[there], weight=state.weight[there])
            models = ensemble(state.features, state.nu[there], state.inverse[there], self.noise)
            acquisition = self._acquisition(posterior, held, models, streams)
        origin: Origin = "own" if acquisition is None else "federated"
        function = acquisition or own_improvement(posterior, len(known.y))
        u = maximise_acquisition(function, known, self.own.coordinates, streams)
        return self.own.fresh(u, known, streams, origin), state

    def pending(self, state: TransferState, x: Array) -> TransferState:
        """Record the points that are being evaluated."""
        return state._replace(local=self.own.noting(state.local, x))

    def avoiding(self, state: TransferState, x: Array) -> TransferState:
        """Record the points whose evaluations failed."""
        return state._replace(local=self.own.noting_failed(state.local, x))

    def tell(self, state: TransferState, x: Array, y: Array) -> TransferState:
        """Append the observations."""
        rows = phi(state.features, to_coordinates(x, self.own.coordinates))
        return state._replace(local=self.own.observed(state.local, x, y), phi=np.concatenate([state.phi, rows]))

    def outbox(self, state: TransferState, streams: Streams) -> tuple[Payload | None, TransferState]:
        """Write a message about all observations; before the first iteration about an earlier task alone, if there was one."""
        rows, y = state.history_phi, state.history_y
        if state.t or not len(y):
            rows, y = np.concatenate([rows, state.phi]), np.concatenate([y, state.local.y])
        if not len(y):
            return None, state
        if self.centre:
            centred, spread = scaled(self.own.clipped(y))
            y = centred / spread
        model = update(linear_model(self.features, self.noise), rows, y)
        payload = {"nu": mean(model), "inverse": inverse_precision(model)}
        return {**payload, "best": np.array([y.max()])} if self._incumbents else payload, state

    def server_init(self, problem: Problem) -> TransferServer:
        """Start without messages."""
        n, m = problem.n_agents, self.features
        return TransferServer(np.zeros((n, m)), np.zeros((n, m, m)), np.zeros(n), np.zeros(n))

    def receive(self, state: TransferServer, message: Inbound, now: float) -> TransferServer:
        """Store an agent's newest message; ValueError for a singular matrix, which no agent sends."""
        if not message.payload["inverse"].diagonal().min() > LEAST:
            raise ValueError("a variance is 0")
        state.nu[message.sender] = message.payload["nu"]
        state.inverse[message.sender] = message.payload["inverse"]
        state.best[message.sender] = message.payload.get("best", np.zeros(1))[0]
        state.held[message.sender] = 1.0
        return state

    def broadcast(
        self, state: TransferServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], TransferServer]:
        """Send the surrogates of the others; a stale one has a smaller weight."""
        common = {"nu": state.nu.copy(), "inverse": state.inverse.copy()}
        if self._incumbents:
            common["best"] = state.best.copy()
        for array in common.values():  # one copy for all recipients, since none may write to it
            array.flags.writeable = False
        payloads: dict[int, Payload] = {}
        for agent in recipients:
            weight = state.held * staleness_weight
            weight[agent] = 0.0
            if weight.any():
                payloads[agent] = {**common, "weight": weight}
        return payloads, state


def own_improvement(posterior: Posterior, seen: int) -> Acquisition:
    """Return the expected improvement of a Gaussian process over the largest of its first `seen` values, the observed ones."""
    best = incumbent(posterior, "observed", seen)
    return lambda u: expected_improvement(prediction(posterior, u), best)
