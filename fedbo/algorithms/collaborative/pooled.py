"""Pooled data: one optimiser with the observations of all agents, an upper bound for federations, which must not send them.

Its joint model is one Gaussian process over all agents: y_n = f_n(x) + noise, cov(f_n(x), f_k(z)) = k(x, z) (rho + (1 - rho)
[n = k]). This is the intrinsic coregionalisation model with one number rho for all pairs (Bonilla, Chai, Williams 2007). f_n is
sqrt(rho) times a common function plus sqrt(1 - rho) times the agent's function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy
from annotated_types import Ge, Lt

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.coordinates import COORDINATES, to_coordinates
from fedbo.algorithms.components.inner_search import maximise_draw, maximise_posterior
from fedbo.algorithms.components.surrogate import LocalState, Surrogate, first_point, standardised
from fedbo.algorithms.gp import incumbent
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import Marked, OneOf
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import Criterion
from fedbo.surrogates.draws import Draw, KernelPart
from fedbo.surrogates.features import draw_features, phi
from fedbo.surrogates.gp import ROBUST, fit_shared_gp
from fedbo.surrogates.posterior import Hyperparameters, Posterior, condition, factorise

Tasks = npt.NDArray[np.int64]


class Observed(NamedTuple):
    """Observations of all agents: points `(n, d)`, values in standard units `(n,)`, and whose they are, `(n,)`."""

    x: Array
    y: Array
    task: Tasks


def evidence(hyper: Hyperparameters, rho: float, seen: Observed) -> float:
    """Return the log density of the values."""
    factor, _ = factorise(_covariance(hyper, rho, seen))
    alpha = scipy.linalg.lapack.dpotrs(factor, seen.y, lower=1)[0]
    half = float(np.log(factor.diagonal()).sum())
    return -0.5 * float(seen.y @ alpha) - half - 0.5 * len(seen.y) * float(np.log(2.0 * np.pi))


def multitask_posterior(hyper: Hyperparameters, rho: float, seen: Observed, target: int) -> Posterior:
    """Return the process f_target given all observations, as if they were its own with more noise.

    With c_i = 1 for the target's observations and rho for all others, their covariance with f_target(x) is c_i k(x, x_i). So
    the factor L / c and the solve c alpha give the moments of f_target with the kernel k alone.
    """
    if rho == 0.0:
        mine = seen.task == target
        return condition(hyper, seen.x[mine], seen.y[mine])
    share = np.where(seen.task == target, 1.0, rho)
    factor, jitter = factorise(_covariance(hyper, rho, seen))
    alpha = share * scipy.linalg.lapack.dpotrs(factor, seen.y, lower=1)[0]
    return Posterior(hyper, seen.x, seen.y, factor=np.asfortranarray(factor / share[:, None]), alpha=alpha, jitter=jitter)


def multitask_draw(
    hyper: Hyperparameters, rho: float, seen: Observed, target: int, rng: np.random.Generator, count: int = 200
) -> Draw:
    """Draw f_target from the posterior given all observations, by pathwise conditioning on `count` features."""
    features = draw_features(
        rng, seen.x.shape[1], count, hyper.length_scale, hyper.family, variance=hyper.variance, normalise=False
    )
    tasks, place = np.unique(np.append(seen.task, target), return_inverse=True)
    common, own = rng.standard_normal(count), rng.standard_normal((len(tasks), count))
    weights = sqrt(rho) * common + sqrt(1.0 - rho) * own
    prior = np.einsum("nm,nm->n", phi(features, seen.x), weights[place[:-1]])
    noise = sqrt(hyper.noise_variance) * rng.standard_normal(len(seen.y))
    factor, _ = factorise(_covariance(hyper, rho, seen))
    pull = scipy.linalg.lapack.dpotrs(factor, seen.y - prior - noise, lower=1)[0]
    pull *= np.where(seen.task == target, 1.0, rho)
    return Draw(features, weights[place[-1]], KernelPart(hyper.kernel, seen.x, pull))


def _covariance(hyper: Hyperparameters, rho: float, seen: Observed) -> Array:
    """Return the covariance of the values, `(n, n)`."""
    covariance = hyper.kernel(seen.x, seen.x)
    if rho < 1.0:
        covariance *= np.where(seen.task[:, None] == seen.task, 1.0, rho)
    covariance.flat[:: len(covariance) + 1] += hyper.noise_variance
    return covariance


LIKENESS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99)
TABLES = 8  # the hyperparameters are fitted to so many agents' observations, …
POINTS = 300  # … and the likeness to so many observations of the others


class PooledState(NamedTuple):
    """An agent's state: its observations, now and before, and those of all others.

    number: the agent's number.
    capacity: C, the largest number of observations of an agent.
    history: points, in coordinates, and values of the earlier task.
    others `(N, C, d)`, values `(N, C)`: the others' observations, filled up with NaN.
    rho: the similarity of the agents.
    fitted: number of the agent's observations that hyperparameters and similarity were fitted to.
    """

    local: LocalState
    number: int
    capacity: int
    history: tuple[Array, Array]
    others: Array
    values: Array
    rho: float = 0.0
    fitted: int = 0


class PooledServer(NamedTuple):
    """The coordinator's state: the observations of every agent, `x (N, C, d)` and `y (N, C)`."""

    x: Array
    y: Array


@dataclass(frozen=True, slots=True)
class Pooled(Marked):
    """One Gaussian process of all agents' observations, which every agent sends to everybody.

    **This is what federated optimisation forbids**: the messages are raw observations. It is here as a bound for comparisons.

    The kernel is Matern-5/2 with one length scale for each input; every agent's values are standardised by themselves, and
    those below the quantile `clip` are taken as that quantile. Two agents are alike to a degree rho, the same for all, which
    is fitted with the hyperparameters after every `refit` observations (see `multitask.py`). `coordinates` are
    those of the surrogate and `features` the number of random features of a draw.

    Decisions maximise a draw, which is Thompson sampling, or with `improvement` the expected improvement over the largest
    posterior mean at an own point.
    """

    queries: ClassVar[int | None] = 1
    horizon_use: ClassVar[str] = "computes the size of its messages from the budget"
    reveals: ClassVar[Reveals] = Reveals.OBSERVATIONS

    coordinates: Annotated[str, OneOf(COORDINATES)] = "arcsine"
    """Coordinates of the surrogate's inputs."""
    clip: Annotated[float, Ge(0), Lt(1)] = 0.5
    """Quantile of the observed values below which values are raised to it."""
    refit: Annotated[int, Ge(1)] = 5
    """Observations between two fits of the hyperparameters."""
    features: Annotated[int, Ge(1)] = 200
    """Random features of a draw."""
    improvement: bool = False
    """Whether decisions maximise the expected improvement instead of a draw."""

    @property
    def _model(self) -> Surrogate:
        return Surrogate(coordinates=self.coordinates, clip=self.clip, refit=self.refit)

    def sends(self, step: int) -> bool:
        """Return True after every step."""
        return True

    def upload(self, problem: Problem) -> Declaration:
        """Declare all observations of an agent, `x (C, d)` and `y (C,)`, padded with NaN."""
        c = _capacity(problem)
        return {"x": Field((c, problem.dim), finite=False, observed=False), "y": Field((c,), finite=False)}

    def download(self, problem: Problem) -> Declaration:
        """Declare all observations of all agents."""
        n, c = problem.n_agents, _capacity(problem)
        return {"x": Field((n, c, problem.dim), finite=False), "y": Field((n, c), finite=False)}

    def agent_init(self, problem: Problem, streams: Streams) -> PooledState:
        """Return the state with the observations of an earlier task."""
        n, d = problem.n_agents, problem.dim
        x = problem.history_x if problem.history_x is not None else np.empty((0, d))
        y = problem.history_y if problem.history_y is not None else np.empty(0)
        history = (to_coordinates(x, self.coordinates), y)
        return PooledState(
            self._model.begin(problem),
            problem.agent,
            _capacity(problem),
            history=history,
            others=np.empty((n, 0, d)),
            values=np.empty((n, 0)),
        )

    def ask(self, state: PooledState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, PooledState]:
        """Maximise a draw from the posterior given all known observations, or the expected improvement."""
        for message in inbox:
            state = state._replace(others=message.payload["x"], values=message.payload["y"])
        if not len(state.local.u):
            return Decision(first_point(state.local, streams), "own"), state
        before = state.local
        state = state._replace(local=before.cautious())
        tables = self._tables(state)
        state = self._fit(state, tables, streams)
        local = state.local
        assert local.hyper is not None
        seen = _combined(tables)
        if self.improvement:
            posterior = multitask_posterior(local.hyper, state.rho, seen, state.number)
            best = Criterion(incumbent(posterior, "mean", len(local.u)))
            u = maximise_posterior(posterior, best, local, self.coordinates, streams)
        else:
            draw = multitask_draw(local.hyper, state.rho, seen, state.number, streams.rng("own draw"), self.features)
            u = maximise_draw(draw, local, self.coordinates, streams, extra=local.u)
        decision = self._model.fresh(u, local, streams, "federated" if len(tables) > 1 else "own")
        return decision, state._replace(local=before.fitted_by(local))

    def _tables(self, state: PooledState) -> dict[int, tuple[Array, Array]]:
        """Return the observations by agent, the agent's own first, with clipped and standardised values."""
        tables = {state.number: (state.local.u, state.local.y)}
        for agent in range(len(state.others)):
            # A number that was damaged to NaN is not refused, since what is not there is NaN: its row is passed over.
            known = np.isfinite(state.values[agent]) & np.isfinite(state.others[agent]).all(axis=1)
            if agent != state.number and known.any():
                tables[agent] = (state.others[agent][known], state.values[agent][known])
        return {agent: (u, standardised(self._model.clipped(y))) for agent, (u, y) in tables.items()}

    def _fit(self, state: PooledState, tables: dict[int, tuple[Array, Array]], streams: Streams) -> PooledState:
        """Refit hyperparameters and similarity when enough observations have arrived."""
        if state.local.hyper is not None and len(state.local.u) - state.fitted < self.refit:
            return state
        mine, *others = tables
        chosen = [mine, *others[:: max(-(-len(others) // TABLES), 1)]]
        hyper = fit_shared_gp([tables[agent] for agent in chosen], ROBUST, streams.rng("restarts"), state.local.hyper)
        seen = _combined(tables)
        foreign = np.flatnonzero(seen.task != mine)
        kept = np.append(np.flatnonzero(seen.task == mine), foreign[:: max(-(-len(foreign) // POINTS), 1)])
        part = Observed(seen.x[kept], seen.y[kept], seen.task[kept])
        rho = max(LIKENESS, key=lambda rho: evidence(hyper, rho, part)) if len(foreign) else 0.0
        return state._replace(local=changed(state.local, hyper=hyper), rho=rho, fitted=len(state.local.u))

    def avoiding(self, state: PooledState, x: Array) -> PooledState:
        """Record the points whose evaluations failed."""
        return state._replace(local=self._model.noting_failed(state.local, x))

    def tell(self, state: PooledState, x: Array, y: Array) -> PooledState:
        """Append the observations."""
        return state._replace(local=self._model.observed(state.local, x, y))

    def outbox(self, state: PooledState, streams: Streams) -> tuple[Payload, PooledState]:
        """Send all observations."""
        x, y = np.concatenate([state.history[0], state.local.u]), np.concatenate([state.history[1], state.local.y])
        full, values = np.full((state.capacity, x.shape[1]), np.nan), np.full(state.capacity, np.nan)
        full[: len(y)], values[: len(y)] = x, y
        return {"x": full, "y": values}, state

    def server_init(self, problem: Problem) -> PooledServer:
        """Start without observations."""
        n, c = problem.n_agents, _capacity(problem)
        return PooledServer(np.full((n, c, problem.dim), np.nan), np.full((n, c), np.nan))

    tells_usefulness: ClassVar[bool] = True

    def usefulness(self, state: PooledServer) -> Array:
        """Return the best value that each agent has sent `(N,)`."""
        return np.asarray(np.fmax.reduce(state.y, axis=1))

    def receive(self, state: PooledServer, message: Inbound, now: float) -> PooledServer:
        """Store an agent's newest message."""
        state.x[message.sender] = message.payload["x"]
        state.y[message.sender] = message.payload["y"]
        return state

    def broadcast(
        self, state: PooledServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], PooledServer]:
        """Send all observations to all recipients; observations do not grow stale."""
        common = {"x": state.x.copy(), "y": state.y.copy()}
        for array in common.values():  # one copy for all recipients, since none may write to it
            array.flags.writeable = False
        return dict.fromkeys(recipients, common) if np.isfinite(state.y).any() else {}, state


def _capacity(problem: Problem) -> int:
    """Return the largest number of observations that an agent may make."""
    return problem.history + problem.initial + problem.iterations


def _combined(tables: dict[int, tuple[Array, Array]]) -> Observed:
    x, y = (np.concatenate([table[part] for table in tables.values()]) for part in range(2))
    return Observed(x, y, np.repeat(np.array([*tables], dtype=np.int64), [len(table[1]) for table in tables.values()]))


ALGORITHMS = {"pooled": Entry(Pooled, summary="upper bound, not federated: one optimiser with all agents' observations")}
