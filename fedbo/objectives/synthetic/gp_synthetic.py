"""Functions drawn from Gaussian processes, with a given similarity between agents.

On a grid of one input, the synthetic experiments of Dai et al. 2020 (FTS, appendix D.1) and 2021 (DP-FTS-DE, Sec. 5.1); and in
any number of inputs, with a given correlation of any two agents' functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedbo.objectives.base import Array, CountedFederation, Metric, Parameter, require, require_agent
from fedbo.objectives.models.cosines import CosineSum, drawn_cosines
from fedbo.objectives.space import inside
from fedbo.settings.ranges import check

PARAMETERS = (Parameter("x", 0.0, 1.0),)
REACH = 9.0  # length scales after which the squared-exponential kernel is below the rounding of 1
ALIASES = np.array([-1.0, 0.0, 1.0])  # enough at a length scale of at least one grid step: the next is below 1e-18


@dataclass(frozen=True, eq=False)
class GridFunction:
    """A function known at evenly spaced points of [0, 1]; x is taken to the nearest, observations are noisy."""

    values: Array
    noise: float
    parameters: tuple[Parameter, ...] = field(default=PARAMETERS, repr=False)

    @property
    def best_value(self) -> float:
        """Return the exact maximum over the grid."""
        return float(self.values.max())

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return the value at the grid point nearest to x `(1,)`, plus normal noise of variance `noise`."""
        return self.score(x) + float(np.sqrt(self.noise) * rng.standard_normal())

    def score(self, x: Array) -> float:
        """Return the value without noise."""
        (place,) = inside(self.parameters, x)
        return float(self.values[round(place * (len(self.values) - 1))])


@dataclass(frozen=True)
class GPSynthetic(CountedFederation):
    """A Gaussian process draw that agents share up to `difference` (Dai et al. 2020).

    The construction is that of their appendix D.1.
    A draw at `points` grid points of [0, 1], squared-exponential kernel of `length_scale`, is scaled to [0, 1].
    Agent 0 has it as it is (the target); every other adds `difference` or minus it at each grid point with probability
    one half, so `difference` is d_n, the largest gap to the target. `noise` is the variance of an observation.
    """

    random_per_replicate: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = PARAMETERS
    metric: ClassVar[Metric] = Metric()

    agents: Annotated[int, Ge(1)] = 51
    """Number of agents."""
    difference: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.02
    """Largest difference between agents at a grid point."""
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.01
    """Variance of an observation."""
    length_scale: Annotated[float, Gt(0.0), Le(1.0)] = 0.03
    """Length scale of the squared-exponential kernel."""
    points: Annotated[int, Ge(2), Le(1_000_000)] = 1000
    """Grid points."""

    def __post_init__(self) -> None:
        check(self)
        step = 1.0 / (self.points - 1)
        require(step <= self.length_scale, "length_scale", self.length_scale, f"use {step:.3g} (the grid) to 1")

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> GridFunction:
        """Build one agent's function: the draw is shared, the signs are the agent's own."""
        require_agent(agent, self.agents)
        values = common_function(self.points, self.length_scale, int(shared_rng.integers(2**63)))
        if agent == 0:
            return GridFunction(values, self.noise)
        return GridFunction(values + self.difference * agent_rng.choice((-1.0, 1.0), size=self.points), self.noise)


@dataclass(frozen=True)
class GPSyntheticDE(GPSynthetic):
    """A Gaussian process draw with small perturbations for each agent (Dai et al. 2021).

    As `GPSynthetic`, but no agent is a target: each adds at every grid point a uniform draw from [-`difference`, `difference`].
    The paper has "different small random perturbations", without their distribution or size.
    """

    agents: Annotated[int, Ge(1)] = 200

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> GridFunction:
        """Build one agent's function: the draw is shared, the perturbation is the agent's own."""
        require_agent(agent, self.agents)
        common = super().objective(0, shared_rng, agent_rng)
        return GridFunction(common.values + self.difference * agent_rng.uniform(-1.0, 1.0, self.points), self.noise)


@lru_cache(maxsize=32)
def common_function(points: int, length_scale: float, seed: int) -> Array:
    """Draw from a Gaussian process with a squared-exponential kernel on a grid of [0, 1], scaled to run from 0 to 1.

    The draw is exact: the grid is closed to a wide circle whose far side is uncorrelated, where the covariance is diagonal in
    Fourier space (Dietrich and Newsam 1997). Its spectrum is written down, not computed from the kernel, whose transform would
    lose everything below rounding. A Cholesky factor would need jitter, and its bits would depend on the installed LAPACK.
    Returns `(points,)`.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    span = points - 1  # grid steps in [0, 1]; below, frequencies are in cycles per step
    size = 2 ** int(np.ceil(np.log2(points + 2.0 * REACH * length_scale * span)))
    width = length_scale * span
    frequency = np.fft.fftfreq(size)[:, np.newaxis] + ALIASES
    spectrum = np.sqrt(2.0 * np.pi) * width * np.exp(-2.0 * (np.pi * width * frequency) ** 2).sum(axis=1)
    white = rng.standard_normal(size) + 1j * rng.standard_normal(size)
    drawn = np.fft.fft(np.sqrt(spectrum / size) * white).real[:points]
    scaled: Array = (drawn - drawn.min()) / (drawn.max() - drawn.min())
    scaled.flags.writeable = False  # it is shared by all agents of the process
    return scaled


@dataclass(frozen=True)
class GPFamily(CountedFederation):
    """Gaussian process draws on [0, 1]^d; two agents' functions have the correlation `likeness`.

    f_n = sqrt(likeness) g_0 + sqrt(1 - likeness) g_n, where g_0 is common. All g are independent draws with variance 1 and a
    squared-exponential kernel of `length_scale`, as sums of 500 random cosines.

    likeness: 1 makes the agents equal, 0 unrelated.
    dimensions: d.
    noise: variance of an observation.
    """

    random_per_replicate: ClassVar[bool] = True
    metric: ClassVar[Metric] = Metric()

    agents: Annotated[int, Ge(1)] = 20
    likeness: Annotated[float, Ge(0.0), Le(1.0)] = 0.8
    """Correlation of two agents' functions: 1 equal, 0 unrelated."""
    dimensions: Annotated[int, Ge(1)] = 2
    """Number of inputs d."""
    length_scale: Annotated[float, Gt(0.0), Lt(np.inf)] = 0.2
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return d parameters x1, x2, … in [0, 1]."""
        return tuple(Parameter(f"x{i + 1}", 0.0, 1.0) for i in range(self.dimensions))

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> CosineSum:
        """Build one agent's function: g_0 is shared, g_n is the agent's own."""
        require_agent(agent, self.agents)
        size = self.dimensions, self.length_scale
        parts = [drawn_cosines(shared_rng, *size, self.likeness), drawn_cosines(agent_rng, *size, 1.0 - self.likeness)]
        frequencies, phases, amplitudes = (np.concatenate(held) for held in zip(*parts, strict=True))
        return CosineSum(frequencies, phases, amplitudes, self.noise, self.parameters)


FEDERATIONS = {"gp_family": GPFamily, "gp_synthetic": GPSynthetic, "gp_synthetic_de": GPSyntheticDE}
