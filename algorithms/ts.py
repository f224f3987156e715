"""Thompson sampling: every agent alone, maximising a draw from its own Gaussian process (FTS with p_t = 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedbo.algorithms.base import Array, Decision, Declaration, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry, unknown
from fedbo.algorithms.coordinates import COORDINATES, from_coordinates, to_coordinates
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.draws import Draw, WeightSpace, pathwise_draw, weight_space_draw
from fedbo.surrogates.features import Features, draw_features, phi
from fedbo.surrogates.gp import ROBUST, GPSettings, Hyperparameters, condition, fit_gp
from fedbo.surrogates.linear import draw_weights
from fedbo.surrogates.maximise import maximise

SURROGATES = {"robust": ROBUST, "faithful": GPSettings()}
DRAWS = ("pathwise", "weights")
SAME_POINT = 1e-9  # two points of the unit cube that are this close in every input count as one


class TSState(NamedTuple):
    """An agent's observations in the surrogate's coordinates, `u (n, d)`, `y (n,)`, and what was fitted to them.

    `hyper` are the hyperparameters, fitted to the first `fitted` observations; with the surrogate "features", `shared` are
    the features and `phi (n, m)` their values.
    """

    u: Array
    y: Array
    hyper: Hyperparameters | None = None
    fitted: int = 0
    shared: Features | None = None
    phi: Array | None = None


@dataclass(frozen=True, slots=True)
class TS:
    """Thompson sampling on a Gaussian process.

    `surrogate` is "robust" (Matern-5/2, one length scale for each input, standardised values, priors), "faithful" (as the
    authors of FTS fitted theirs), which are fitted anew after every `refit` observations; or it is never fitted: "fixed" is a
    squared-exponential kernel of `length_scale` with noise variance `noise`, and "features" a Bayesian linear model on as
    many random features of that kernel as `features` says, which all agents share and which costs least. These two take the
    values as they are, or with `standardise` shifted and scaled to mean 0 and variance 1. `coordinates` are those of the
    surrogate (see the module of this name). Values below the quantile `clip` of those observed are taken as that quantile, so
    that the surrogate resolves what is good and not how bad the rest is.

    `draw` is "pathwise", from the exact posterior, or "weights", with `features` fresh random features, as the papers do.
    `beta` scales the posterior's standard deviation in the draw (beta_t of Dai et al. 2020, Alg. 1 line 4); "theoretical" is
    the value of their Theorem 1 with RKHS norm `norm` and failure probability `delta`.
    """

    surrogate: str = "robust"
    coordinates: str = "arcsine"
    clip: float = 0.5
    refit: int = 5
    draw: str = "pathwise"
    features: int = 200
    length_scale: float = 0.2
    noise: float = 0.01
    standardise: bool = True
    beta: float | str = 1.0
    norm: float = 1.0
    delta: float = 0.1

    def __post_init__(self) -> None:
        choices = {"surrogate": (*SURROGATES, "fixed", "features"), "coordinates": COORDINATES, "draw": DRAWS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(unknown(name, getattr(self, name), known))
        for name in ("refit", "features"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.beta != "theoretical" and (isinstance(self.beta, str) or not self.beta > 0):
            raise ValueError(f'beta must be above 0, or "theoretical", not {self.beta!r}')
        if not self.norm >= 0:
            raise ValueError(f"norm must be at least 0, not {self.norm}")
        for name in ("length_scale", "noise"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if not 0 <= self.clip < 1:
            raise ValueError(f"clip must be at least 0 and below 1, not {self.clip}")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie between 0 and 1, not {self.delta}")

    @property
    def queries(self) -> int:
        """One point for each decision."""
        return 1

    def sends(self, step: int) -> bool:
        """Never."""
        return False

    def upload(self, problem: Problem) -> Declaration | None:
        """Nothing is sent."""
        return None

    def download(self, problem: Problem) -> Declaration | None:
        """Nothing comes back."""
        return None

    def agent_init(self, problem: Problem, streams: Streams) -> TSState:
        """Begin without observations."""
        state = TSState(np.empty((0, problem.dim)), np.empty(0))
        if self.surrogate != "features":
            return state
        rng = streams.shared("shared features")
        shared = draw_features(rng, problem.dim, self.features, self.length_scale)
        return state._replace(shared=shared, phi=np.empty((0, self.features)))

    def ask(self, state: TSState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, TSState]:
        """Maximise a draw from the posterior; a point that has been evaluated already gives way to a uniform one."""
        dim = state.u.shape[1]
        if not len(state.u):
            return Decision(streams.rng("first point").random((1, dim)), "own"), state
        state = self.fit(state, streams)
        # The incumbents of a smooth draw are not worth the climb: its candidates are dense enough.
        extra = None if self.surrogate == "features" else state.u
        u, _ = maximise(self.function(state, streams), scatter(dim, streams), dim, extra=extra)
        return self.fresh(u, state, streams, "own"), state

    def fresh(self, u: Array, state: TSState, streams: Streams, origin: str) -> Decision:
        """Decide for the point with coordinates `u (d,)`, or for a uniform one where u has been evaluated already."""
        if len(state.u) and float(np.abs(state.u - u).max(axis=1).min()) < SAME_POINT:
            return Decision(streams.rng("instead of a repeated point").random((1, len(u))), "random")
        return Decision(from_coordinates(u[None, :], self.coordinates), origin)

    def fit(self, state: TSState, streams: Streams) -> TSState:
        """Fit the hyperparameters anew when enough observations have come in."""
        if self.surrogate == "features" or not len(state.u):
            return state
        y = self.clipped(state.y)
        if self.surrogate == "fixed":
            offset, scale = (float(y.mean()), float(y.std()) or 1.0) if self.standardise else (0.0, 1.0)
            return state._replace(hyper=Hyperparameters(self.length_scale, 1.0, self.noise, "se", offset, scale))
        if state.hyper is not None and len(state.u) - state.fitted < self.refit:
            return state
        settings = SURROGATES[self.surrogate]
        hyper = fit_gp(state.u, y, settings, streams.rng("restarts"), state.hyper)
        return state._replace(hyper=hyper, fitted=len(state.u))

    def clipped(self, y: Array) -> Array:
        """Raise the values `(n,)` below the quantile `clip` (the lower of two neighbours) to it."""
        return np.maximum(y, np.sort(y)[int(self.clip * (len(y) - 1))]) if self.clip else y

    def function(self, state: TSState, streams: Streams) -> Draw:
        """Draw a function f_t ~ GP(mu, beta_t^2 sigma^2) in the surrogate's coordinates."""
        rng = streams.rng("own draw")
        beta = self.theoretical_beta(state) if isinstance(self.beta, str) else self.beta
        y = self.clipped(state.y)
        if state.phi is not None:
            y = standardised(y) if self.standardise else y
            return Draw(state.shared, draw_weights(state.phi, y, self.noise, rng, beta))
        assert state.hyper is not None
        if self.draw == "weights":
            return weight_space_draw(state.hyper, state.u, y, rng, WeightSpace(self.features, beta))
        return pathwise_draw(condition(state.hyper, state.u, y), rng, self.features, beta)

    def theoretical_beta(self, state: TSState) -> float:
        """Compute beta_t = B + sigma sqrt(2 (gamma_{t-1} + 1 + log(4 / delta))) (Dai et al. 2020, Theorem 1).

        The information gain gamma is that of the points at hand: what can be computed, and no bound.
        """
        if state.phi is not None:
            gram, noise = state.phi @ state.phi.T, self.noise
        else:
            assert state.hyper is not None
            gram, noise = state.hyper.kernel(state.u, state.u), state.hyper.noise_variance
        gamma = 0.5 * float(np.linalg.slogdet(gram / noise + np.eye(len(gram)))[1])
        return self.norm + math.sqrt(noise * 2 * (gamma + 1 + math.log(4 / self.delta)))

    def tell(self, state: TSState, x: Array, y: Array) -> TSState:
        """Append the observations."""
        u = to_coordinates(x, self.coordinates)
        rows = None
        if state.phi is not None and state.shared is not None:
            rows = np.concatenate([state.phi, phi(state.shared, u)])
        return state._replace(u=np.concatenate([state.u, u]), y=np.concatenate([state.y, y]), phi=rows)

    def outbox(self, state: TSState, streams: Streams) -> tuple[Payload | None, TSState]:
        """Say nothing."""
        return None, state

    def server_init(self, problem: Problem) -> Any:
        """There is no coordinator half."""
        return None

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        """Nothing can arrive."""
        return state

    def broadcast(
        self, state: Any, recipients: Sequence[int], worth: Array, streams: Streams
    ) -> tuple[dict[int, Payload], Any]:
        """Nothing goes out."""
        return {}, state


def scatter(dim: int, streams: Streams) -> np.random.Generator | None:
    """Give the maximiser's random stream where it needs one, beyond three inputs."""
    return streams.rng("maximiser") if dim > 3 else None


def standardised(y: Array) -> Array:
    """Shift and scale values `(n,)` to mean 0 and standard deviation 1; equal values become 0."""
    centred, spread = scaled(y)
    return centred / spread


def scaled(y: Array) -> tuple[Array, float]:
    """Give the values `(n,)` less their mean, and their standard deviation, or 1 where that is 0."""
    if not len(y):
        return y, 1.0
    centred = y - np.add.reduce(y) / len(y)
    return centred, math.sqrt(float(centred @ centred) / len(y)) or 1.0


FAITHFUL = {
    "surrogate": "faithful",
    "coordinates": "plain",
    "clip": 0.0,
    "draw": "weights",
    "features": 200,
    "refit": 5,
    "beta": 1.0,
}

ALGORITHMS = {
    "ts": Entry(TS, presets={"faithful": FAITHFUL}, summary="Thompson sampling on a Gaussian process, every agent alone")
}
