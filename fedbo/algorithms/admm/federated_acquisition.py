"""The federated acquisition function (Krishnamoorthy, (6)): that of the agent's surrogate, and a coupling term.

We maximise, so the term is minus delta(z) = lambda' C z + rho / 2 |C z - c|^2 of the text, up to a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedbo.algorithms.admm.native_scaling import NativeScaling
from fedbo.algorithms.base import Array
from fedbo.surrogates.acquisition import (
    Prediction,
    expected_improvement,
    prediction,
    probability_of_improvement,
    upper_confidence_bound,
)
from fedbo.surrogates.candidates import product
from fedbo.surrogates.draws import Draw, pathwise_draw, value_and_gradient
from fedbo.surrogates.gp import Posterior
from fedbo.surrogates.maximise import MaximiserSettings, maximise_from

ACQUISITIONS = ("lcb", "ei", "pi", "epsilon_greedy", "ts")
TERMS = ("inside", "added")
SEARCH = MaximiserSettings(starts=4, iterations=15)
CLOUD = 0.05  # standard deviation of the candidates about the places that are known to be good
NOTHING = 1e-12  # an improvement below this, in standard deviations of the values, is none
Function = Callable[[Array], tuple[Array, Array]]


class Term(NamedTuple):
    """The augmented Lagrangian term that couples agents: C `(m, d)`, lambda `(m,)`, c `(m,)` and rho."""

    matrix: Array
    multiplier: Array
    target: Array
    rho: float

    def at(self, z: Array) -> tuple[Array, Array]:
        """Return minus delta at native points `z (n, d)`, `(n,)`, and its gradient by z, `(n, d)`."""
        use = z @ self.matrix.T
        gap = use - self.target
        value = use @ self.multiplier + 0.5 * self.rho * np.einsum("nm,nm->n", gap, gap)
        return -value, -(self.multiplier + self.rho * gap) @ self.matrix


class Subproblem(NamedTuple):
    """The subproblem of one agent: its posterior in units of `scale`, its scaling, its term."""

    posterior: Posterior
    scale: float
    scaling: NativeScaling
    term: Term

    def prediction(self, v: Array, coupled: bool = True) -> Prediction:
        """Return the prediction of the agent's objective at places `v (n, d)` of its box, plus the term if `coupled`."""
        u, z, by_u, by_z = self.scaling.at(v)
        at = prediction(self.posterior, u)
        mean, slope = at.mean, at.mean_gradient * by_u
        if coupled:
            mean, slope = self._coupled(mean, slope, z, by_z)
        return Prediction(mean, at.variance, slope, at.variance_gradient * by_u)

    def draw(self, draw: Draw) -> Function:
        """Return a draw from the posterior plus the term as a function of v."""

        def function(v: Array) -> tuple[Array, Array]:
            u, z, by_u, by_z = self.scaling.at(v)
            value, gradient = value_and_gradient(draw, u)
            return self._coupled(value, gradient * by_u, z, by_z)

        return function

    def added(self, acquisition: Callable[[Prediction], tuple[Array, Array]]) -> Function:
        """Return an acquisition of the objective alone plus the term as a function of v, both in units of the values."""

        def function(v: Array) -> tuple[Array, Array]:
            _, z, _, by_z = self.scaling.at(v)
            return self._coupled(*acquisition(self.prediction(v, coupled=False)), z, by_z)

        return function

    def _coupled(self, value: Array, gradient: Array, z: Array, by_z: Array) -> tuple[Array, Array]:
        term, slope = self.term.at(z)
        return value + term / self.scale, gradient + slope * by_z / self.scale


def mean(local: Subproblem) -> Function:
    """Return the posterior mean plus the term; its maximum is the agent's best estimate of (4) of the text."""

    def function(v: Array) -> tuple[Array, Array]:
        at = local.prediction(v)
        return at.mean, at.mean_gradient

    return function


def bound(local: Subproblem, kappa: float) -> Function:
    """Return mean plus `kappa` standard deviations plus the term; for minimisation it is the lower bound."""
    return lambda v: upper_confidence_bound(local.prediction(v), kappa)


def improvement(local: Subproblem, kind: str, term: str) -> Function:
    """Return the expected improvement, or its probability.

    With the term "inside" it is that of the objective plus the term, over the best such sum at an evaluated point. "added" is
    the text's form, the acquisition of the objective alone plus the term.
    """
    acquire = expected_improvement if kind == "ei" else probability_of_improvement
    known = local.prediction(local.scaling.v(local.scaling.to_native_u(local.posterior.x)), coupled=term == "inside")
    best = float(known.mean.max())
    if term == "inside":
        return lambda v: acquire(local.prediction(v), best)
    return local.added(lambda at: acquire(at, best))


def sample(local: Subproblem, kappa: float, rng: np.random.Generator, features: int = 100) -> Function:
    """Return a draw from the posterior, its standard deviation times `kappa`, plus the term."""
    return local.draw(pathwise_draw(local.posterior, rng, features, kappa))


def locate(function: Function, local: Subproblem, known: Array, rng: np.random.Generator) -> tuple[Array, float]:
    """Find the place `v (d,)` of the agent's box where a function is largest, and its value.

    Candidates cover the box; others lie about `known (k, d)`, native points, and at evaluated ones.
    """
    dim = known.shape[1]
    sizes = {1: (128,), 2: (20, 20), 3: (7, 7, 7)}.get(dim, (16, 16))
    grid = product(dim, sizes)
    centres = local.scaling.v(known)
    cloud = np.repeat(centres, 8, axis=0)
    cloud = np.clip(cloud + CLOUD * rng.standard_normal(cloud.shape), 0.0, 1.0)
    seen = local.scaling.v(local.scaling.to_native_u(local.posterior.x))
    everywhere = grid.points(np.arange(len(grid.u) * len(grid.v)))
    return maximise_from(function, np.vstack([centres, cloud, seen, everywhere]), SEARCH)
