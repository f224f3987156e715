"""Test problems with constraints or several objectives as federations: agents share a problem and differ in its axes.

An agent's axis is bent: a point u of the unit interval is moved to u + 4 s u (1 - u) with the agent's own s. The middle moves
by s and the ends stay, so that every agent has the optimum, or the front, of the published problem, at other points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Le, Lt

from fedbo.objectives.base import Array, CountedFederation, Metric, Parameter, require, require_agent
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.space import inside
from fedbo.objectives.synthetic import constrained_formulas as formulas
from fedbo.objectives.synthetic.constrained_formulas import ConstrainedProblem

MAX_BEND = 0.2  # at a quarter the axis would stand still at one end


@dataclass(frozen=True, eq=False)
class BentProblem:
    """One agent's problem: its axes are bent by `bends (d,)`, and normal noise of a variance is added to every quantity."""

    problem: ConstrainedProblem
    bends: Array
    noise: float = 0.0
    parameters: tuple[Parameter, ...] = field(default=(), repr=False)

    @property
    def best_value(self) -> float:
        """Return minus the least value of `f1` over the box, feasible or not."""
        return -self.problem.least

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return minus the first quantity at x `(d,)`."""
        return float(self.measure(x, rng).value)

    def measure(self, x: Array, rng: np.random.Generator, fidelity: int | None = None) -> Outcome:
        """Return minus the first quantity with all quantities by name; there are no fidelities."""
        exact = self._quantities(inside(self.parameters, x)[None])[0]
        seen = exact + np.sqrt(self.noise) * rng.standard_normal(len(exact)) if self.noise else exact
        metrics = dict(zip(self.problem.names, seen.tolist(), strict=True))
        return Outcome(-float(seen[0]), -float(exact[0]), metrics)

    def score(self, x: Array) -> float | None:
        """Return the value without noise; None where an observation has none."""
        return float(self.scores(x[None])[0]) if self.noise else None

    def scores(self, x: Array) -> Array:
        """Return the values `(n,)` without noise at points `(n, d)`."""
        return -self._quantities(inside(self.parameters, x))[:, 0]

    def outcomes(self) -> dict[str, Array]:
        """Return the quantities at the optimum, or along the Pareto set, which bending the axes does not change."""
        return dict(zip(self.problem.names, self.problem.function(self.problem.optima).T, strict=True))

    def _quantities(self, x: Array) -> Array:
        low, high = (np.array([getattr(axis, end) for axis in self.parameters]) for end in ("low", "high"))
        u = (x - low) / (high - low)
        return self.problem.function(low + (high - low) * (u + 4.0 * self.bends * u * (1.0 - u)))


@dataclass(frozen=True)
class _Problems(CountedFederation, ABC):
    """Base class of federations of test problems."""

    random_per_replicate: ClassVar[bool] = True
    metric: ClassVar[Metric] = Metric("f1", sign=-1)

    agents: Annotated[int, Ge(1)] = 10
    """Number of agents."""
    spread: Annotated[float, Ge(0.0), Le(MAX_BEND)] = 0.1
    """Largest move of an axis' middle, a share of the axis; 0 makes agents equal."""
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Variance of the normal noise of every metric."""

    @property
    @abstractmethod
    def problem(self) -> ConstrainedProblem:
        """Return the problem."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the box."""
        return self.problem.parameters

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name the metrics of an evaluation."""
        return self.problem.names

    @property
    def metric_tables(self) -> tuple[dict[str, Any], ...]:
        """Return the `[[metric]]` tables of the published problem, for which `outcomes` holds its optimum or front."""
        return self.problem.tables

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> BentProblem:
        """Build one agent's problem; its bends are its own draws."""
        require_agent(agent, self.agents)
        bends = self.spread * agent_rng.uniform(-1.0, 1.0, len(self.parameters))
        return BentProblem(problem=self.problem, bends=bends, noise=self.noise, parameters=self.parameters)


@dataclass(frozen=True)
class Gardner(_Problems):
    """A sum under a product of sines (Gardner et al. 2014, simulation 2).

    1.8 % of the box is feasible. Minimise `f1` with `g1` at most -0.95. The optimum is 0.253236.
    """

    @property
    def problem(self) -> ConstrainedProblem:
        """Return the problem."""
        return formulas.gardner()


@dataclass(frozen=True)
class HernandezLobato(_Problems):
    """A sum above a sine and inside a circle (Hernández-Lobato et al. 2016).

    Minimise `f1` with `g1` and `g2` at most 0. The optimum is 0.599788.
    """

    @property
    def problem(self) -> ConstrainedProblem:
        """Return the problem."""
        return formulas.hernandez_lobato()


@dataclass(frozen=True)
class Mystery(_Problems):
    """The mystery function (Sasena 2002), whose optimum lies on the limit of its constraint.

    Minimise `f1` with `g1` at most 0. The optimum is -1.174274.
    """

    @property
    def problem(self) -> ConstrainedProblem:
        """Return the problem."""
        return formulas.mystery()


@dataclass(frozen=True)
class BNH(_Problems):
    """Two bowls under two circles (Binh and Korn 1997).

    Minimise `f1` and `f2` with `g1` at most 25 and `g2` at least 7.7.
    """

    @property
    def problem(self) -> ConstrainedProblem:
        """Return the problem."""
        return formulas.bnh()


@dataclass(frozen=True)
class DTLZ2(_Problems):
    """DTLZ2 (Deb et al. 2002), whose front is a part of the unit sphere."""

    objectives: Annotated[int, Ge(2), Le(4)] = 2
    """Number of objectives."""
    dimensions: Annotated[int, Ge(2)] = 4
    """Number of inputs, at least that of objectives."""

    def __post_init__(self) -> None:
        _Problems.__post_init__(self)
        enough = self.dimensions >= self.objectives
        require(enough, "dimensions", self.dimensions, f"use at least {self.objectives}, the number of objectives")

    @property
    def problem(self) -> ConstrainedProblem:
        """Return the problem."""
        return formulas.dtlz2(self.dimensions, self.objectives)


FEDERATIONS = {"gardner": Gardner, "hernandez_lobato": HernandezLobato, "mystery": Mystery, "bnh": BNH, "dtlz2": DTLZ2}
