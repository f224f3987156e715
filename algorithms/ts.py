"""Thompson sampling: every agent alone, maximising a draw from its own Gaussian process (FTS with p_t = 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedbo.algorithms.base import Array, Decision, Declaration, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry, unknown
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.draws import Draw, WeightSpace, pathwise_draw, weight_space_draw
from fedbo.surrogates.gp import ROBUST, GPSettings, Hyperparameters, condition, fit_gp
from fedbo.surrogates.maximise import maximise

SURROGATES = {"robust": ROBUST, "faithful": GPSettings()}
DRAWS = ("pathwise", "weights")


class TSState(NamedTuple):
    """An agent's observations `x (n, d)`, `y (n,)`, and its surrogate's hyperparameters, fitted to the first `fitted`."""

    x: Array
    y: Array
    hyper: Hyperparameters | None = None
    fitted: int = 0


@dataclass(frozen=True, slots=True)
class TS:
    """Thompson sampling on an exact Gaussian process.

    `surrogate` names how the process is fitted, `refit` after how many observations it is fitted anew, `draw` how a
    function is drawn: `pathwise` from the exact posterior, `weights` from `features` fresh random features as the papers
    do. `beta` scales the posterior's standard deviation in the draw (beta_t of Dai et al. 2020, Alg. 1 line 4): a
    constant, or 0 for the theoretical value of their Theorem 1 with RKHS norm `norm` and failure probability `delta`.
    """

    surrogate: str = "robust"
    refit: int = 5
    draw: str = "pathwise"
    features: int = 200
    beta: float = 1.0
    norm: float = 1.0
    delta: float = 0.1

    def __post_init__(self) -> None:
        if self.surrogate not in SURROGATES:
            raise ValueError(unknown("surrogate", self.surrogate, SURROGATES))
        if self.draw not in DRAWS:
            raise ValueError(unknown("draw", self.draw, DRAWS))
        for name, least in (("refit", 1), ("features", 1), ("beta", 0), ("norm", 0)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
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
        return TSState(np.empty((0, problem.dim)), np.empty(0))

    def ask(self, state: TSState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, TSState]:
        """Maximise a draw from the posterior; a point that has been evaluated already gives way to a uniform one."""
        dim = state.x.shape[1]
        if not len(state.x):
            return Decision(streams.rng("first point").random((1, dim)), "own"), state
        state = self.fit(state, streams)
        x, _ = maximise(self.function(state, streams), streams.rng("own maximiser"), dim, extra=state.x)
        return Decision(fresh(x, state.x, streams), "own"), state

    def fit(self, state: TSState, streams: Streams) -> TSState:
        """Fit the hyperparameters anew when enough observations have come in."""
        if state.hyper is not None and len(state.x) - state.fitted < self.refit:
            return state
        settings = SURROGATES[self.surrogate]
        hyper = fit_gp(state.x, state.y, settings, streams.rng("restarts"), state.hyper)
        return state._replace(hyper=hyper, fitted=len(state.x))

    def function(self, state: TSState, streams: Streams) -> Draw:
        """Draw a function f_t ~ GP(mu, beta_t^2 sigma^2)."""
        assert state.hyper is not None
        rng = streams.rng("own draw")
        beta = self.beta or self.theoretical_beta(state)
        if self.draw == "weights":
            return weight_space_draw(state.hyper, state.x, state.y, rng, WeightSpace(self.features, beta))
        return pathwise_draw(condition(state.hyper, state.x, state.y), rng, self.features, beta)

    def theoretical_beta(self, state: TSState) -> float:
        """Compute beta_t = B + sigma sqrt(2 (gamma_{t-1} + 1 + log(4 / delta))) (Dai et al. 2020, Theorem 1).

        The information gain gamma is that of the points at hand, which bounds nothing but is what can be computed.
        """
        assert state.hyper is not None
        hyper, n = state.hyper, len(state.x)
        gram = hyper.kernel(state.x, state.x) / hyper.noise_variance + np.eye(n)
        gamma = 0.5 * float(np.linalg.slogdet(gram)[1])
        return self.norm + math.sqrt(hyper.noise_variance * 2 * (gamma + 1 + math.log(4 / self.delta)))

    def tell(self, state: TSState, x: Array, y: Array) -> TSState:
        """Append the observations."""
        return state._replace(x=np.vstack([state.x, x]), y=np.concatenate([state.y, y]))

    def outbox(self, state: TSState, streams: Streams) -> tuple[Payload | None, TSState]:
        """Say nothing."""
        return None, state

    def server_init(self, problem: Problem) -> Any:
        """There is no coordinator half."""
        return None

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        """Nothing can arrive."""
        return state

    def broadcast(self, state: Any, recipients: Sequence[int], streams: Streams) -> tuple[dict[int, Payload], Any]:
        """Nothing goes out."""
        return {}, state


def fresh(x: Array, known: Array, streams: Streams) -> Array:
    """Give `x (d,)` as a decision `(1, d)`, or a uniform point where x has been evaluated already."""
    if len(known) and bool((known == x).all(axis=1).any()):
        return streams.rng("instead of a repeated point").random((1, len(x)))
    return np.array(x)[None, :]


ALGORITHMS = {
    "ts": Entry(
        TS,
        presets={"faithful": {"surrogate": "faithful", "draw": "weights", "features": 200, "refit": 5, "beta": 1.0}},
        summary="Thompson sampling on an exact Gaussian process, every agent alone",
    )
}
