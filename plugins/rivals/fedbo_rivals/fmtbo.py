"""Federated many-task Bayesian optimisation, FMTBO (Zhu, Wang, Jin 2024): agents share hyperparameters, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.collaborative import Collaborative, CollaborativeState, Surface
from fedbo.algorithms.components.coordinates import design_points, to_coordinates
from fedbo.algorithms.components.surrogate import LocalState, Surrogate
from fedbo.algorithms.gp import incumbent
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import log_expected_improvement, prediction
from fedbo.surrogates.gp import Hyperparameters, Posterior, predict
from fedbo_rivals.ensemble import discordance

# What an agent's hyperparameters are moved into when they come back from the coordinator, where damaged ones may be among them.
LENGTH_SCALES, VARIANCES, NOISES = (0.01, 100.0), (1e-3, 1e3), (1e-8, 1.0)


class HyperServer(NamedTuple):
    """The coordinator's state: the newest message of every agent.

    parameters `(N, d + 2)`: theta, the variance and the noise variance.
    ranks `(N, M)`: the ranks of its predictions.
    size `(N,)`: its number of observations, 0 without a message.
    """

    parameters: Array
    ranks: npt.NDArray[np.int64]
    size: Array


@dataclass(frozen=True, slots=True)
class FMTBO(Collaborative):
    """Federated many-task Bayesian optimisation; `Collaborative` has the settings that are not named here.

    An agent has two Gaussian processes on its observations: a local one, and a global one. The coordinator averages the
    hyperparameters of the global one over similar agents, weighted by their numbers of observations. Similar agents order
    `points` design points alike, with the fewest discordant pairs.

    alike: share of all agents that count as similar, the agent included.
    gamma: the agent maximises gamma times the expected improvement of the global process plus 1 - gamma times that of the local
      one.
    hyperparameters: the averaged ones are "kept", or "refitted" as the start of the agent's fit.
    """

    horizon_use: ClassVar[str] = ""
    reveals: ClassVar[Reveals] = Reveals.COMPUTABLE

    every: Annotated[int, Ge(0), "0 means once, before the start"] = 1
    gamma: Annotated[float, Ge(0), Le(1)] = 0.5
    """Share of the global process in the acquisition."""
    alike: Annotated[float, Gt(0), Le(1)] = 0.8
    """Share of the agents whose hyperparameters are averaged."""
    points: Annotated[int, Ge(2)] = 50
    """Design points M; in two inputs the largest square number below."""
    hyperparameters: Annotated[str, OneOf(("kept", "refitted"))] = "kept"
    """Averaged ones are kept, or start the global process's own fit."""

    def upload(self, problem: Problem) -> Declaration:
        """Declare hyperparameters `(d + 2,)`, ranks of predictions at M design points, and the number of observations."""
        m = len(design_points(self.points, problem.dim))
        return {"parameters": Field((problem.dim + 2,)), "ranks": Field((m,), "int64"), "size": Field((1,))}

    def download(self, problem: Problem) -> Declaration:
        """Declare the averaged hyperparameters `(d + 2,)`."""
        return {"parameters": Field((problem.dim + 2,))}

    def _decide(self, state: CollaborativeState, streams: Streams) -> tuple[Decision, CollaborativeState]:
        if state.answer is None or not len(state.local.u):
            return self._own_query(state, streams)
        state = self._fitted(state, streams)
        local = state.local
        mine, shared = self.own.posterior(local), self.own.posterior(self._global(state, local, streams))
        surface = mixed_improvement(mine, shared, self.gamma, incumbent(mine, "mean", len(local.y)))
        return self._maximise(surface, local, streams, "federated"), state

    def _global(self, state: CollaborativeState, local: LocalState, streams: Streams) -> LocalState:
        """Return an agent's data with the hyperparameters of its global process; before an answer with the local ones."""
        if state.answer is None or local.hyper is None:
            return local
        hyper = with_parameters(local.hyper, state.answer["parameters"])
        if self.hyperparameters == "kept":
            return changed(local, hyper=hyper)
        anew = changed(local, hyper=hyper, fitted=len(local.u) - self.own.refit)
        refitted = self.own.fit(anew, streams.within(f"{streams.scope}global")).hyper
        assert refitted is not None
        # Both processes are of values in the same units.
        return changed(local, hyper=replace(refitted, offset=local.hyper.offset, scale=local.hyper.scale))

    def outbox(self, state: CollaborativeState, streams: Streams) -> tuple[Payload | None, CollaborativeState]:
        """Send the hyperparameters of the global process on all observations, and its ranks of the design points."""
        u, y = self._known(state)
        if not len(y):
            return None, state
        known = self.own.fit(LocalState(u, y), streams.within(f"{streams.scope}message"))
        known = self._global(state, known, streams)
        assert known.hyper is not None
        design = to_coordinates(design_points(self.points, u.shape[1]), self.own.coordinates)
        ranks = predict(self.own.posterior(known), design)[0].argsort(kind="stable").argsort(kind="stable")
        size = np.array([float(len(y))])
        return {"parameters": parameters(known.hyper, u.shape[1]), "ranks": ranks, "size": size}, state

    def server_init(self, problem: Problem) -> HyperServer:
        """Start without messages."""
        n, m = problem.n_agents, len(design_points(self.points, problem.dim))
        return HyperServer(np.zeros((n, problem.dim + 2)), np.zeros((n, m), np.int64), np.zeros(n))

    def receive(self, state: HyperServer, message: Inbound, now: float) -> HyperServer:
        """Store an agent's newest message."""
        state.parameters[message.sender] = message.payload["parameters"]
        state.ranks[message.sender] = message.payload["ranks"]
        state.size[message.sender] = max(message.payload["size"][0], 0.0)
        return state

    def broadcast(
        self, state: HyperServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], HyperServer]:
        """Answer each agent that has sent a message with the average hyperparameters of the agents most similar to it."""
        weight = state.size * staleness_weight
        there = np.flatnonzero(weight)
        count = max(int(self.alike * len(there)), 1)
        payloads: dict[int, Payload] = {}
        for agent in recipients:
            if weight[agent]:
                apart = discordance(state.ranks[there].astype(np.float64), state.ranks[agent].astype(np.float64))
                chosen = there[np.argsort(np.where(there == agent, -1.0, apart), kind="stable")[:count]]
                average = weight[chosen] @ state.parameters[chosen] / weight[chosen].sum()
                payloads[agent] = {"parameters": average}
        return payloads, state


def parameters(hyper: Hyperparameters, dim: int) -> Array:
    """Return theta = 1 / (2 length_scale^2) of each input, the variance and the noise variance, `(d + 2,)`."""
    theta = 0.5 / np.broadcast_to(np.asarray(hyper.length_scale, dtype=np.float64), (dim,)) ** 2
    return np.append(theta, [hyper.variance, hyper.noise_variance])


def with_parameters(hyper: Hyperparameters, given: Array) -> Hyperparameters:
    """Return a process with these `parameters (d + 2,)`; its kernel, offset and scale are kept."""
    scales = np.clip(np.sqrt(0.5 / np.maximum(given[:-2], 1e-12)), *LENGTH_SCALES)
    length_scale = tuple(float(scale) for scale in scales) if isinstance(hyper.length_scale, tuple) else float(scales[0])
    variance, noise = float(np.clip(given[-2], *VARIANCES)), float(np.clip(given[-1], *NOISES))
    return replace(hyper, length_scale=length_scale, variance=variance, noise_variance=noise)


def mixed_improvement(mine: Posterior, shared: Posterior, gamma: float, best: float) -> Surface:
    """Return the logarithm of gamma EI(shared) + (1 - gamma) EI(mine), both over `best`, and its gradient."""
    weights = np.log(np.maximum([1.0 - gamma, gamma], 1e-300))

    def surface(u: Array) -> tuple[Array, Array]:
        parts = [log_expected_improvement(prediction(posterior, u), best) for posterior in (mine, shared)]
        values = np.stack([weight + value for weight, (value, _) in zip(weights, parts, strict=True)])
        value = np.logaddexp(values[0], values[1])
        part = np.exp(values - value)
        return value, part[0][:, None] * parts[0][1] + part[1][:, None] * parts[1][1]

    return surface


# As in the authors' community package: squared exponential without noise to speak of, averages as starts of the fits.
FAITHFUL = {"own": Surrogate("smooth", coordinates="plain", clip=0.0, refit=1), "hyperparameters": "refitted"}

ENTRY = Entry(FMTBO, presets={"faithful": FAITHFUL}, summary="agents share the hyperparameters of their Gaussian processes")
