"""Analytic test functions with a known best value, cheap enough to test and time everything else.

Each agent has a copy moved by a random shift; `spread` controls how different the agents are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le, Lt

from fedbo.objectives.base import Array, CountedFederation, Fidelity, Metric, Parameter, require, require_agent
from fedbo.objectives.models.families import Family, FormulaAgent, Heterogeneity, Noise
from fedbo.objectives.models.formulas import branin, branin_values
from fedbo.objectives.space import inside
from fedbo.settings.ranges import check

BRANIN_BOX = branin().parameters
BRANIN_SIDE = 15.0  # of both axes
USUAL_SHIFT, MAX_SHIFT = 1.0, 2.0  # keeps the minimiser (pi, 2.275) in the box for every agent


@dataclass(frozen=True, eq=False)
class Bowl:
    """Minus the squared distance to a centre `(d,)`, plus normal noise of variance `noise`.

    An evaluation at x costs 1 plus `cost_spread` times the mean of x.
    """

    centre: Array
    noise: float
    parameters: tuple[Parameter, ...] = field(repr=False)
    best_value: float = 0.0
    cost_spread: float = 0.0

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(d,)`."""
        score = self.score(x)
        return score + float(np.sqrt(self.noise) * rng.standard_normal()) if self.noise else score

    def score(self, x: Array) -> float:
        """Return the value without noise."""
        gap = inside(self.parameters, x) - self.centre
        return -float(np.add.reduce(gap * gap))

    def scores(self, x: Array) -> Array:
        """Return the values `(n,)` without noise at points `(n, d)`."""
        gap = inside(self.parameters, x) - self.centre
        return -np.asarray((gap * gap).sum(axis=1))

    @property
    def is_exact(self) -> bool:
        """Whether there is no noise."""
        return not self.noise

    @classmethod
    def scores_each(cls, objectives: Sequence[Bowl], x: Array) -> Array:
        """Return the score `(k,)` of each bowl at its own row of `x (k, d)`."""
        gap = inside(objectives[0].parameters, x) - np.array([each.centre for each in objectives])
        return -np.asarray((gap * gap).sum(axis=1))

    def cost(self, x: Array) -> float:
        """Return the cost of an evaluation at x `(d,)`."""
        return 1.0 + self.cost_spread * float(inside(self.parameters, x).mean())


@cache
def _unit_axes(dimensions: int) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"x{i + 1}", 0.0, 1.0) for i in range(dimensions))


@dataclass(frozen=True)
class Quadratic(CountedFederation):
    """Bowls in the unit cube: each agent searches for its own centre.

    The centres lie within `spread` of a common one, per coordinate, and all in [0, 1]^d; `spread` 0 makes the agents equal,
    0.5 and more unrelated. `dimensions` is d, `noise` the variance of an observation. An evaluation at x costs 1 plus
    `cost_spread` times the mean of x.
    """

    costly: ClassVar[bool] = True
    random_per_replicate: ClassVar[bool] = True
    metric: ClassVar[Metric] = Metric("squared distance", sign=-1)

    agents: Annotated[int, Ge(1)] = 10
    """Number of agents."""
    dimensions: Annotated[int, Ge(1)] = 2
    """Number of inputs d."""
    spread: Annotated[float, Ge(0.0), Le(1.0)] = 0.1
    """Spread of the agents' optima; 0 makes agents equal."""
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Variance of an observation."""
    cost_spread: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """An evaluation costs 1 plus this times the mean of x."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return d parameters x1, x2, … in [0, 1]."""
        return _unit_axes(self.dimensions)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Bowl:
        """Build one agent's bowl: the common centre is the same for all agents, the offset from it is drawn for each."""
        require_agent(agent, self.agents)
        common = shared_rng.uniform(size=self.dimensions)
        centre = np.clip(common + self.spread * agent_rng.uniform(-1.0, 1.0, self.dimensions), 0.0, 1.0)
        return Bowl(centre, self.noise, self.parameters, cost_spread=self.cost_spread)


@dataclass(frozen=True, eq=False)
class ShiftedBranin:
    """Minus the Branin function moved by a shift `(2,)`, plus normal noise of variance `noise` and uniform noise."""

    shift: Array
    noise: float
    half_width: float = 0.0
    parameters: tuple[Parameter, ...] = field(default=BRANIN_BOX, repr=False)
    best_value: float = branin().best

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(2,)`."""
        return float(self.evaluate_many(x, 1, rng)[0])

    def evaluate_many(self, x: Array, count: int, rng: np.random.Generator) -> Array:
        """Return `count` noisy values at x `(2,)`."""
        return self.score(x) + Noise(self.noise, self.half_width).draws(rng, count)

    def score(self, x: Array) -> float:
        """Return the value without noise."""
        return float(self.scores(inside(self.parameters, x)[None])[0])

    def scores(self, x: Array) -> Array:
        """Return the values `(n,)` without noise at points `(n, 2)`."""
        return branin_values(inside(self.parameters, x) - self.shift)

    @property
    def is_exact(self) -> bool:
        """Whether there is no noise."""
        return not (self.noise or self.half_width)

    @classmethod
    def scores_each(cls, objectives: Sequence[ShiftedBranin], x: Array) -> Array:
        """Return the score `(k,)` of each function at its own row of `x (k, 2)`."""
        return branin_values(inside(objectives[0].parameters, x) - np.array([each.shift for each in objectives]))


@dataclass(frozen=True)
class Branin(CountedFederation):
    """The Branin function (Dixon and Szegö 1978), moved by up to `spread` for each agent.

    The box is the usual one for every agent, so the shift also decides which of the three minimisers are inside. The middle one
    always is, so the least value is that of the plain function.

    noise: variance of an observation.
    half_width: half width of uniform noise.
    family: "shift", or "same", "mixture", "rotation" or "offset" (see `bandits.py`), where points that would leave the box are
      reflected at its sides. `spread` has the meaning of `bandits.py`, with shifts and parts of a mixture in native units.
    scaled: scale values to [0, 1].
    """

    parameters: ClassVar[tuple[Parameter, ...]] = BRANIN_BOX

    agents: Annotated[int, Ge(1)] = 10
    spread: Annotated[float, Ge(0.0), Lt(np.inf)] | None = None
    """Largest shift in native units; 0 makes agents equal."""
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    family: Family = "shift"
    """How agents differ, see bandits."""
    scaled: bool = False
    """Whether rewards are scaled to [0, 1]."""
    half_width: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Half the width of uniform noise."""

    def __post_init__(self) -> None:
        check(self)
        if self.family == "shift":
            require(0.0 <= self._shift <= MAX_SHIFT, "spread", self.spread, f"use 0 (identical agents) to {MAX_SHIFT}")
        self._heterogeneity.check(branin(), self._noise)

    @property
    def random_per_replicate(self) -> bool:
        """Return whether every replicate has different objectives."""
        return self.family != "same"

    @property
    def metric(self) -> Metric:
        """Return the metric: the minimised function, or the maximised reward if scaled."""
        return Metric("reward") if self.scaled else Metric("value", sign=-1)

    def objective(
        self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator
    ) -> ShiftedBranin | FormulaAgent:
        """Build one agent's function; a plain shift is drawn for each agent."""
        require_agent(agent, self.agents)
        if self.family == "shift" and not self.scaled:
            return ShiftedBranin(self._shift * agent_rng.uniform(-1.0, 1.0, 2), self.noise, self.half_width)
        return self._heterogeneity.of(branin(), self._noise, shared_rng, agent_rng)

    @property
    def _shift(self) -> float:
        return USUAL_SHIFT if self.spread is None else self.spread

    @property
    def _heterogeneity(self) -> Heterogeneity:
        """Return the family with shifts in units of the box, whose sides have equal length."""
        native = {"shift": self._shift, "mixture": self.spread}.get(self.family)
        return Heterogeneity(self.family, self.spread if native is None else native / BRANIN_SIDE, self.scaled)

    @property
    def _noise(self) -> Noise:
        return Noise(self.noise, self.half_width)


TRAINING = (Parameter("capacity", 0.0, 1.0), Parameter("rate", 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Minus the squared distance to a centre `(2,)`, and minus the unlearned part: epochs^-r less its value at the end.

    The exponent r is 0.3 + rate, so that curves cross. One normal number is drawn for all epochs of an evaluation.
    """

    centre: Array
    epochs: int
    noise: float
    cost_spread: float = 0.0
    parameters: tuple[Parameter, ...] = field(default=TRAINING, repr=False)
    best_value: float = 0.0

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x after all epochs."""
        return self.evaluate_at(x, self.epochs, rng)

    def score(self, x: Array) -> float:
        """Return the value at x after all epochs without noise."""
        return self.score_at(x, self.epochs)

    def evaluate_at(self, x: Array, fidelity: int, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(2,)` after `fidelity` epochs."""
        return self.score_at(x, fidelity) + float(np.sqrt(self.noise) * rng.standard_normal())

    def score_at(self, x: Array, fidelity: int) -> float:
        """Return the value without noise after `fidelity` epochs."""
        point = inside(self.parameters, x)
        gap, exponent = point - self.centre, -0.3 - float(point[1])
        return -float(gap @ gap + np.power(float(fidelity), exponent) - np.power(float(self.epochs), exponent))

    def cost(self, x: Array) -> float:
        """Return the cost of all epochs: 1 plus `cost_spread` times the capacity."""
        return 1.0 + self.cost_spread * float(inside(self.parameters, x)[0])


@dataclass(frozen=True)
class LearningCurves(CountedFederation):
    """Synthetic learning curves of trainings with two hyperparameters.

    The agents' best values lie within `spread` of common ones.
    `noise` is the variance of an observation. An evaluation costs 1 plus `cost_spread` times the capacity.
    """

    costly: ClassVar[bool] = True
    random_per_replicate: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = TRAINING
    metric: ClassVar[Metric] = Metric("error", sign=-1)

    agents: Annotated[int, Ge(1)] = 10
    epochs: Annotated[int, Ge(2)] = 27
    """Largest fidelity."""
    spread: Annotated[float, Ge(0.0), Le(1.0)] = 0.1
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    cost_spread: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """An evaluation costs 1 plus this times the capacity."""

    @property
    def fidelity(self) -> Fidelity:
        """Declare the epochs as the fidelity axis."""
        return Fidelity("epoch", 1, self.epochs)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> LearningCurve:
        """Build one agent's training: the common optimum is the same for all agents, the offset from it is drawn for each."""
        require_agent(agent, self.agents)
        centre = np.clip(shared_rng.uniform(size=2) + self.spread * agent_rng.uniform(-1.0, 1.0, 2), 0.0, 1.0)
        return LearningCurve(centre, self.epochs, self.noise, self.cost_spread)


FEDERATIONS = {"quadratic": Quadratic, "branin": Branin, "learning_curves": LearningCurves}
