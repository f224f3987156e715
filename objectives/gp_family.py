"""Functions drawn from Gaussian processes in any number of inputs, any two agents' with a given correlation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from scipy.optimize import minimize
from scipy.stats import qmc

from fedbo.objectives.base import Array, Metric, Parameter, require_agent
from fedbo.objectives.space import inside
from fedbo.settings.ranges import check

FEATURES = 500  # cosines in one function
STARTS = 10  # local searches for the best value of a function, from the best of so many points:
POINTS = 2**11


@dataclass(frozen=True, eq=False)
class CosineSum:
    """A sum of cosines, sum_j a_j cos(w_j'x + b_j), plus normal noise of variance `noise`.

    `frequencies (m, d)`, `phases (m,)` and `amplitudes (m,)` are w, b and a.
    """

    frequencies: Array
    phases: Array
    amplitudes: Array
    noise: float
    parameters: tuple[Parameter, ...] = field(repr=False)

    @cached_property
    def best_value(self) -> float:
        """Give the largest value that local searches from the best of many points find."""
        return largest(self.frequencies, self.phases, self.amplitudes)

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Give one noisy value at x `(d,)`."""
        return self.score(x) + float(np.sqrt(self.noise) * rng.standard_normal())

    def score(self, x: Array) -> float:
        """Give the value without noise."""
        return float(self.scores(x[None])[0])

    def scores(self, x: Array) -> Array:
        """Give the values `(n,)` without noise at points `(n, d)`."""
        return np.asarray(np.cos(inside(self.parameters, x) @ self.frequencies.T + self.phases) @ self.amplitudes)


@dataclass(frozen=True)
class GPFamily:
    """Draws from a Gaussian process in [0, 1]^d of which any two agents' have the correlation `likeness` at every point.

    f_n = sqrt(likeness) g_0 + sqrt(1 - likeness) g_n, where g_0 is common and all g are independent draws with variance 1 and a
    squared-exponential kernel of `length_scale`, as sums of 500 random cosines. 1 makes the agents equal, 0 unrelated.
    `dimensions` is d, `noise` the variance of an observation.
    """

    random_per_replicate: ClassVar[bool] = True
    metric: ClassVar[Metric] = Metric()

    agents: Annotated[int, Ge(1)] = 20
    likeness: Annotated[float, Ge(0.0), Le(1.0)] = 0.8
    dimensions: Annotated[int, Ge(1)] = 2
    length_scale: Annotated[float, Gt(0.0), Lt(np.inf)] = 0.2
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0

    def __post_init__(self) -> None:
        check(self)

    @property
    def n_agents(self) -> int:
        """Count the agents."""
        return self.agents

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Give d parameters x1, x2, … in [0, 1]."""
        return tuple(Parameter(f"x{i + 1}", 0.0, 1.0) for i in range(self.dimensions))

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> CosineSum:
        """Build one agent's function: g_0 is of the world, g_n the agent's own."""
        require_agent(agent, self.agents)
        parts = [self._draw(shared_rng, self.likeness), self._draw(agent_rng, 1.0 - self.likeness)]
        frequencies, phases, amplitudes = (np.concatenate(held) for held in zip(*parts, strict=True))
        return CosineSum(frequencies, phases, amplitudes, self.noise, self.parameters)

    def _draw(self, rng: np.random.Generator, variance: float) -> tuple[Array, Array, Array]:
        """Draw frequencies, phases and amplitudes of a function of a given variance (Rahimi and Recht 2007)."""
        frequencies = rng.standard_normal((FEATURES, self.dimensions)) / self.length_scale
        phases = rng.uniform(0.0, 2.0 * np.pi, FEATURES)
        return frequencies, phases, np.sqrt(2.0 * variance / FEATURES) * rng.standard_normal(FEATURES)


def largest(frequencies: Array, phases: Array, amplitudes: Array) -> float:
    """Find the largest value of a sum of cosines over the unit cube by local searches from the best of many points."""
    dim = frequencies.shape[1]

    def negative(x: Array) -> tuple[float, Array]:
        angles = frequencies @ x + phases
        return -float(amplitudes @ np.cos(angles)), frequencies.T @ (amplitudes * np.sin(angles))

    x = _points(dim)
    values = np.cos(x @ frequencies.T + phases) @ amplitudes
    starts = x[np.argsort(-values, kind="stable")[:STARTS]]
    bounds: Any = [(0.0, 1.0)] * dim
    return -min(float(minimize(negative, start, jac=True, bounds=bounds).fun) for start in starts)


@cache
def _points(dim: int) -> Array:
    return qmc.Sobol(dim, scramble=False).random(POINTS)


FEDERATIONS = {"gp_family": GPFamily}
