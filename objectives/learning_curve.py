"""Learning curves with a known end: training to be tuned whose error falls with the epochs, faster at some places than at others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le, Lt

from fedbo.objectives.base import Array, Fidelity, Metric, Parameter, require_agent
from fedbo.objectives.space import inside
from fedbo.settings.ranges import check

PARAMETERS = (Parameter("capacity", 0.0, 1.0), Parameter("rate", 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Minus the squared distance to a centre `(2,)`, and minus what is not learned yet: epochs^-r less what that is at the end.

    The exponent r is 0.3 + rate, so that curves cross. One normal number is drawn for all epochs of an evaluation.
    """

    centre: Array
    epochs: int
    noise: float
    cost_spread: float = 0.0
    parameters: tuple[Parameter, ...] = field(default=PARAMETERS, repr=False)
    best_value: float = 0.0

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Give one noisy value at x after all epochs."""
        return self.evaluate_at(x, self.epochs, rng)

    def score(self, x: Array) -> float:
        """Give the value at x after all epochs without noise."""
        return self.score_at(x, self.epochs)

    def evaluate_at(self, x: Array, fidelity: int, rng: np.random.Generator) -> float:
        """Give one noisy value at x `(2,)` after so many epochs."""
        return self.score_at(x, fidelity) + float(np.sqrt(self.noise) * rng.standard_normal())

    def score_at(self, x: Array, fidelity: int) -> float:
        """Give the value without noise after so many epochs."""
        point = inside(self.parameters, x)
        gap, exponent = point - self.centre, -0.3 - float(point[1])
        return -float(gap @ gap) - (float(fidelity) ** exponent - float(self.epochs) ** exponent)

    def cost(self, x: Array) -> float:
        """Give the cost of all epochs: 1 plus `cost_spread` times the capacity."""
        return 1.0 + self.cost_spread * float(inside(self.parameters, x)[0])


@dataclass(frozen=True)
class LearningCurves:
    """Trainings over `epochs` epochs with two hyperparameters, whose best values lie within `spread` of common ones.

    `noise` is the variance of an observation. An evaluation costs 1 plus `cost_spread` times the capacity.
    """

    costly: ClassVar[bool] = True
    random_per_replicate: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    metric: ClassVar[Metric] = Metric("error", sign=-1)

    agents: Annotated[int, Ge(1)] = 10
    epochs: Annotated[int, Ge(2)] = 27
    spread: Annotated[float, Ge(0.0), Le(1.0)] = 0.1
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    cost_spread: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0

    def __post_init__(self) -> None:
        check(self)

    @property
    def n_agents(self) -> int:
        """Count the agents."""
        return self.agents

    @property
    def fidelity(self) -> Fidelity:
        """Declare the epochs as the fidelity axis."""
        return Fidelity("epoch", 1, self.epochs)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> LearningCurve:
        """Build one agent's training: the common place is drawn for all agents alike, the way from it for each."""
        require_agent(agent, self.agents)
        centre = np.clip(shared_rng.uniform(size=2) + self.spread * agent_rng.uniform(-1.0, 1.0, 2), 0.0, 1.0)
        return LearningCurve(centre, self.epochs, self.noise, self.cost_spread)


FEDERATIONS = {"learning_curves": LearningCurves}
