"""GP-TS (Chowdhury and Gopalan 2017), the "Kernel TS" of federated bandit papers: every agent alone, on a grid of arms.

In round t a function is drawn from the posterior of a Gaussian process, its standard deviations multiplied by v_t. The agent
plays the arm with the largest value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Lt

from fedbo.algorithms.bandits.arms import KERNELS, ArmPosterior, draw, draw_independent, grid, nearest, observe, prior
from fedbo.algorithms.base import Array, Decision, Inbound, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.local_only import LocalOnly
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf

DRAWS = ("joint", "diagonal")


class GPTSState(NamedTuple):
    """The arms `arms (K, d)`, the posterior of their values, and lambda, the noise variance of the model."""

    arms: Array
    posterior: ArmPosterior
    regulariser: float


@dataclass(frozen=True, slots=True)
class GPTS(LocalOnly):
    """Thompson sampling on a grid of about `arms` midpoints, the D_t of the paper, which does not grow here.

    The prior has mean 0 and variance 1. The posterior's standard deviations are multiplied by v_t = `norm` + `deviation` sqrt(2
    (gamma_{t-1} + 1 + ln(2 / `delta`))).

    kernel: "se", "matern52" or "exponential", with `length_scale`.
    norm: B, a bound on the objective's RKHS norm.
    deviation: R, where the noise is R-sub-Gaussian.
    regulariser: lambda; 1 + 2/T by default.
    multiplier: if set, replaces v_t.
    draws: "joint" draws all arms together; "diagonal" draws each arm independently.
    """

    arms: Annotated[int, Ge(1)] = 200
    """About the number of arms, on a grid."""
    kernel: Annotated[str, OneOf(KERNELS)] = "se"
    """Kernel of the Gaussian process."""
    length_scale: Annotated[float, Gt(0)] = 0.2
    """Length scale in the unit cube."""
    norm: Annotated[float, Ge(0)] = 1.0
    """Bound B on the objective's RKHS norm."""
    deviation: Annotated[float, Ge(0)] = 0.1
    """Noise scale R (sub-Gaussian)."""
    delta: Annotated[float, Gt(0), Lt(1)] = 0.1
    """Failure probability of the guarantee."""
    regulariser: Annotated[float, Gt(0)] | None = None
    """Regularisation lambda. Default: 1 + 2/T."""
    multiplier: Annotated[float, Ge(0)] | None = None
    """Factor on the posterior's standard deviation. Default: v_t of the theory."""
    draws: Annotated[str, OneOf(DRAWS)] = "joint"
    """Joint posterior of all arms, or each arm by itself."""

    @property
    def horizon_use(self) -> str:
        """Return the use of T by the default of lambda; empty if `regulariser` is set."""
        return "has a regulariser of 1 + 2/T" if self.regulariser is None else ""

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Return no points: the first round is a draw from the prior."""
        return uniform[:0]

    def agent_init(self, problem: Problem, streams: Streams) -> GPTSState:
        """Start with the prior; T is the number of evaluations that the agent may make, or of its decisions."""
        rounds = max(problem.pulls or problem.iterations, 1)
        regulariser = 1.0 + 2.0 / rounds if self.regulariser is None else self.regulariser
        posterior = prior(self.kernel, self.length_scale, problem.dim, self.arms)
        return GPTSState(grid(problem.dim, self.arms), posterior, regulariser)

    def scale(self, posterior: ArmPosterior) -> float:
        """Return v_t."""
        # differs from the paper: gamma_{t-1} is the information gain of the arms that were played, not the largest possible.
        if self.multiplier is not None:
            return self.multiplier
        return self.norm + self.deviation * sqrt(2.0 * (posterior.gain + 1.0 + log(2.0 / self.delta)))

    def ask(self, state: GPTSState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, GPTSState]:
        """Play the arm at which a draw is largest."""
        sample = draw if self.draws == "joint" else draw_independent
        values = sample(state.posterior, streams.rng("arms drawn"), self.scale(state.posterior))
        best = int(np.argmax(values))
        return Decision(state.arms[best : best + 1].copy(), "own"), state

    def tell(self, state: GPTSState, x: Array, y: Array) -> GPTSState:
        """Update the posterior with the values, in any order and any number."""
        posterior = state.posterior
        for arm, value in zip(nearest(state.arms, x), y, strict=True):
            posterior = observe(posterior, int(arm), float(value), state.regulariser)
        return state._replace(posterior=posterior)


# The kernel TS that Dai et al. 2023 compare with in their code; they also stop learning after 1000 values, we do not.
DAI2023 = {"kernel": "exponential", "length_scale": 1.0, "regulariser": 0.1, "multiplier": 0.1, "draws": "diagonal"}

ALGORITHMS = {
    "gp_ts": Entry(
        GPTS, presets={"dai2023": DAI2023}, summary="GP-TS: Thompson sampling on a grid of arms, without communication"
    )
}
