"""Published test functions as federations: agents that share a formula and differ in where it peaks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedbo.objectives.base import CountedFederation, Metric, Parameter, require, require_agent
from fedbo.objectives.models import formulas
from fedbo.objectives.models.families import Family, FormulaAgent, Heterogeneity, Noise
from fedbo.objectives.models.formulas import Formula
from fedbo.settings.ranges import check


@dataclass(frozen=True)
class Bandit(CountedFederation, ABC):
    """The settings that federations of test functions share; a subclass provides the formula.

    family: how agents differ. "same"; "shift" (the function is moved by up to `spread` of the box along each axis); "mixture"
      (each agent has different weights for three such shifts, common to all); "rotation" (turned by up to `spread` of a full
      turn); or "offset" (a normal constant of standard deviation `spread`, which does not move the maximum).
    scaled: scale values into [0, 1].
    noise: variance of normal noise.
    half_width: half width of uniform noise.
    """

    agents: Annotated[int, Ge(1)] = 10
    """Number of agents."""
    family: Family = "shift"
    """How agents differ: not at all, moved, mixed, rotated, or by a constant."""
    spread: Annotated[float, Ge(0.0), Lt(np.inf)] | None = None
    """Size of the differences. Default: that of the family."""
    scaled: bool = False
    """Whether rewards are scaled to [0, 1]."""
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Variance of normal noise."""
    half_width: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Half the width of uniform noise."""

    def __post_init__(self) -> None:
        check(self)
        self._heterogeneity.check(self.formula, self._noise)

    @property
    @abstractmethod
    def formula(self) -> Formula:
        """Return the formula."""

    @property
    def random_per_replicate(self) -> bool:
        """Return whether every replicate has different objectives."""
        return self.family != "same"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the box."""
        return self.formula.parameters

    @property
    def metric(self) -> Metric:
        """Return the metric: the formula's quantity, or the reward if scaled."""
        return Metric("reward") if self.scaled else self.formula.metric

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> FormulaAgent:
        """Build one agent's function."""
        require_agent(agent, self.agents)
        return self._heterogeneity.of(self.formula, self._noise, shared_rng, agent_rng)

    @property
    def _heterogeneity(self) -> Heterogeneity:
        return Heterogeneity(self.family, self.spread, self.scaled)

    @property
    def _noise(self) -> Noise:
        return Noise(self.noise, self.half_width)


@dataclass(frozen=True)
class Garland(Bandit):
    """The garland on [0, 1]: a hill with a cusp at each of 19 zeros.

    Its largest value is 0.997772, at pi / 6.
    """

    @property
    def formula(self) -> Formula:
        """Return the garland."""
        return formulas.garland()


@dataclass(frozen=True)
class DoubleSine(Bandit):
    """A wave between two cusps: the difficult function of POO.

    By default the cusps are u^0.32 and u^1.74 of the distance to `tmax`.
    It has 0 < `rho1` <= `rho2` < 1, and is 0 at `tmax` and negative elsewhere.
    """

    rho1: Annotated[float, Gt(0.0), Lt(1.0)] = 0.3
    """Exponent -log2(rho1) on one side."""
    rho2: Annotated[float, Gt(0.0), Lt(1.0)] = 0.8
    """Exponent -log2(rho2) on the other side; at least rho1."""
    tmax: Annotated[float, Ge(0.0), Le(1.0)] = 0.5
    """Place of the maximum."""

    def __post_init__(self) -> None:
        Bandit.__post_init__(self)
        require(self.rho1 <= self.rho2, "rho2", self.rho2, "use a number of at least rho1 and below 1")

    @property
    def formula(self) -> Formula:
        """Return the wave."""
        return formulas.double_sine(self.rho1, self.rho2, self.tmax)


@dataclass(frozen=True)
class Himmelblau(Bandit):
    """Himmelblau's function on [-5, 5]^2, to be minimised: four places where it is 0."""

    @property
    def formula(self) -> Formula:
        """Return Himmelblau's function."""
        return formulas.himmelblau()


@dataclass(frozen=True)
class Ackley(Bandit):
    """Ackley's function on [-32.768, 32.768]^d, to be minimised: a funnel among many pits."""

    dimensions: Annotated[int, Ge(1)] = 2
    """Number of inputs d."""

    @property
    def formula(self) -> Formula:
        """Return Ackley's function."""
        return formulas.ackley(self.dimensions)


@dataclass(frozen=True)
class Rastrigin(Bandit):
    """Rastrigin's function on [-5.12, 5.12]^d, to be minimised: a bowl among many pits."""

    dimensions: Annotated[int, Ge(1)] = 2

    @property
    def formula(self) -> Formula:
        """Return Rastrigin's function."""
        return formulas.rastrigin(self.dimensions)


@dataclass(frozen=True)
class Hartmann(Bandit):
    """The Hartmann function on [0, 1]^3 or [0, 1]^6, to be minimised: four bumps."""

    dimensions: Literal[3, 6] = 6
    """Number of inputs."""

    @property
    def formula(self) -> Formula:
        """Return the Hartmann function."""
        return formulas.hartmann(self.dimensions)


FEDERATIONS = {
    "garland": Garland,
    "double_sine": DoubleSine,
    "himmelblau": Himmelblau,
    "ackley": Ackley,
    "rastrigin": Rastrigin,
    "hartmann": Hartmann,
}
