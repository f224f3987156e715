"""Differences between agents on top of any federation of functions: in scale, offset, correlation and quantity of data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedbo.objectives.base import Array, Objective, Parameter, cost_of, observe
from fedbo.objectives.derived.federation import DerivedFederation
from fedbo.objectives.derived.mean import BatchFunction, even_points
from fedbo.objectives.models.cosines import CosineSum, drawn_cosines
from fedbo.objectives.space import from_unit, to_unit
from fedbo.settings.ranges import Marked

POINTS = 1024  # of the unit cube, from which the mean and the standard deviation of a function are taken
_SAME = ("agent_names", "dense", "described", "lattice")  # attributes of a federation that still hold


@dataclass(frozen=True, slots=True)
class Differences(Marked):
    """Additional differences between agents, beyond those of the federation.

    f_n becomes o_n + s_n (m + sqrt(likeness) (f_n - m) + sqrt(1 - likeness) v g_n). m and v are mean and standard deviation of
    f_n over the box. g_n is a draw for each agent from a Gaussian process with mean 0 and variance 1 over the box. A typical
    agent has s_n = 1, o_n = 0 and quantity 1.

    scale: standard deviation of log s_n.
    offset: standard deviation of o_n.
    likeness: correlation of the functions of two agents with the same f.
    length_scale: that of the Gaussian process, in the unit cube.
    quantity: standard deviation of the logarithm of an agent's quantity of data, which divides the variance of its noise.
    """

    scale: Annotated[float, Ge(0.0), Le(10.0)] = 0.0
    """Standard deviation of the logarithm of an agent's factor on its values."""
    offset: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Standard deviation of a constant added to an agent's values."""
    likeness: Annotated[float, Ge(0.0), Le(1.0)] = 1.0
    """Correlation of two agents' functions that are equal in the federation."""
    length_scale: Annotated[float, Gt(0.0), Lt(np.inf)] = 0.2
    """Length scale of an agent's own part in the unit cube."""
    quantity: Annotated[float, Ge(0.0), Le(10.0)] = 0.0
    """Standard deviation of log quantity of data, which divides the noise variance."""


@dataclass(frozen=True, eq=False)
class DifferingAgent:
    """One agent's function, changed: its `factor` s_n, its `offset` o_n, its quantity of data, and its `own` part, if any.

    With that part it is the sum of f_n and of the own part by their `weights`, moved by `shift`, before factor and offset.
    """

    objective: Any
    parameters: tuple[Parameter, ...]
    factor: float
    offset: float
    data_size: float
    own: CosineSum | None = None
    shift: float = 0.0
    weights: tuple[float, float] = (1.0, 0.0)

    @property
    def best_value(self) -> float | None:
        """Return the largest value over the box; unknown with a function of the agent."""
        best = self.objective.best_value
        return None if best is None or self.own is not None else self.offset + self.factor * best

    @property
    def cusps(self) -> Array:
        """Return the places `(k, 1)` of cusps, those of the original function."""
        return np.asarray(getattr(self.objective, "cusps", np.empty((0, 1))))

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(d,)`."""
        return float(self.evaluate_many(x, 1, rng)[0])

    def evaluate_many(self, x: Array, count: int, rng: np.random.Generator) -> Array:
        """Return `count` noisy values at x `(d,)`, with the function's noise, reduced by the quantity of data."""
        exact = float(self.objective.scores(x[None])[0])
        noise = observe(self.objective, x, count, rng) - exact
        return np.asarray(self._changed(np.array([exact]), x[None]) + self.factor * noise / np.sqrt(self.data_size))

    def score(self, x: Array) -> float:
        """Return the value without noise."""
        return float(self.scores(x[None])[0])

    def scores(self, x: Array) -> Array:
        """Return the values `(n,)` without noise at points `(n, d)`."""
        return self._changed(self.objective.scores(x), x)

    def cost(self, x: Array) -> float:
        """Return the cost of an evaluation, that of the original function."""
        return cost_of(self.objective, x)

    def _changed(self, values: Array, x: Array) -> Array:
        if self.own is not None:
            alike, apart = self.weights
            values = self.shift + alike * values + apart * self.own.scores(to_unit(self.parameters, x))
        return np.asarray(self.offset + self.factor * values)


@dataclass(frozen=True)
class DifferingFederation(DerivedFederation):
    """A federation whose agents differ more than its settings imply; the additional draws follow those of their functions."""

    random_per_replicate: ClassVar[bool] = True

    differences: Differences

    @property
    def n_agents(self) -> int:
        """Count the agents."""
        return self.federation.n_agents

    def __getattr__(self, name: str) -> Any:
        """Return other attributes of the federation that remain valid."""
        if name in _SAME:
            return getattr(self.federation, name)
        raise AttributeError(name)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Objective:
        """Build one agent's function and change it."""
        told, function = self.differences, self.federation.objective(agent, shared_rng, agent_rng)
        scale, offset, quantity = agent_rng.standard_normal(3) * (told.scale, told.offset, told.quantity)
        changed = DifferingAgent(
            function, self.parameters, factor=float(np.exp(scale)), offset=float(offset), data_size=float(np.exp(quantity))
        )
        if told.likeness == 1.0 or not isinstance(function, BatchFunction):  # the checks of a study refuse the latter
            return changed
        units = even_points(len(self.parameters), POINTS)
        values = function.scores(from_unit(self.parameters, units))
        frequencies, phases, amplitudes = drawn_cosines(agent_rng, len(self.parameters), told.length_scale, 1.0)
        cube = tuple(Parameter(one.name, 0.0, 1.0) for one in self.parameters)
        own = CosineSum(frequencies, phases, amplitudes, noise=0.0, parameters=cube)
        g = own.scores(units)
        alike, apart = float(np.sqrt(told.likeness)), float(np.sqrt(1.0 - told.likeness) * values.std() / g.std())
        shift = float((1.0 - alike) * values.mean() - apart * g.mean())
        return replace(changed, own=own, shift=shift, weights=(alike, apart))
