"""The landmine fields as a federated bandit: the reward is a field's AUC, and what counts is its mean over all fields.

The boxes are those of Li et al. 2024 (Fed-PNE, experiments) and Dai et al. 2020. A machine draws nothing, so that each is
fitted once however often its point is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Lt

from fedbo.objectives.base import Array, Metric, Parameter, require_agent
from fedbo.objectives.classifiers.landmine import FIELDS, PARAMETERS, Landmine, LandmineField
from fedbo.objectives.models.families import Noise
from fedbo.objectives.space import inside
from fedbo.settings.ranges import Marked

KEPT = 2**18  # AUCs that a process remembers


@dataclass(frozen=True, eq=False)
class FieldReward:
    """One field: the AUC of the machine with (C, gamma), plus noise."""

    field: int
    noise: Noise
    parameters: tuple[Parameter, ...]
    best_value: float | None

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy AUC at x `(2,)`."""
        return float(self.evaluate_many(x, 1, rng)[0])

    def evaluate_many(self, x: Array, count: int, rng: np.random.Generator) -> Array:
        """Return `count` noisy AUCs at x `(2,)`."""
        return self.score(x) + self.noise.draws(rng, count)

    def score(self, x: Array) -> float:
        """Return the AUC without noise."""
        c, gamma = inside(self.parameters, x)
        return _auc(self.field, float(c), float(gamma))

    def scores(self, x: Array) -> Array:
        """Return the AUCs `(n,)` without noise at points `(n, 2)`."""
        return np.array([self.score(one) for one in x])


@dataclass(frozen=True)
class LandmineAUC(Marked):
    """29 landmine fields as a bandit: find the best mean AUC.

    log: make both axes geometric.
    noise: variance of normal noise.
    half_width: half width of uniform noise.
    """

    random_per_replicate: ClassVar[bool] = False
    reads_data: ClassVar[bool] = True
    metric: ClassVar[Metric] = Metric("AUC")

    log: bool = False
    """Whether axes are geometric."""
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Variance of normal noise."""
    half_width: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Half the width of uniform noise."""

    @property
    def n_agents(self) -> int:
        """Count the fields."""
        return FIELDS

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the ranges of C and gamma."""
        return tuple(Parameter(p.name, p.low, p.high, self.log) for p in PARAMETERS)

    @property
    def mean_best(self) -> tuple[float, tuple[float, float], float]:
        """Return the largest mean AUC known, its place, and the shortfall of a search from another grid."""
        return MEAN_BEST

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> FieldReward:
        """Build one field's objective, whichever streams there are."""
        require_agent(agent, FIELDS)
        return FieldReward(agent, Noise(self.noise, self.half_width), self.parameters, _field(agent).best_value)


@lru_cache(maxsize=FIELDS)
def _field(number: int) -> LandmineField:
    nothing = np.random.Generator(np.random.Philox(0))  # a field is the same whatever is drawn
    return Landmine().objective(number, nothing, nothing)


@lru_cache(maxsize=KEPT)
def _auc(number: int, c: float, gamma: float) -> float:
    return _field(number).evaluate(np.array([c, gamma]), np.random.Generator(np.random.Philox(0)))


# Found by us among 1,794 points: geometric grids of 20 x 20 and (in part) 24 x 24, scans along C at gamma 0.01 and 0.0101, and
# two random walks from the best points, of which the second ended 6e-5 lower. AUCs move in steps, so that this is no proof.
MEAN_BEST = (0.7122807201230582, (4.01107289178498, 0.01), 6e-5)

FEDERATIONS = {"landmine_auc": LandmineAUC}
