"""Models of evaluation time, latency and decision time, in the study's unit of time."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import inf, isfinite
from typing import Annotated, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt

from fedbo.coordinator.environment.measured import Empirical
from fedbo.settings.durations import Constant, Exponential, Gamma, Lognormal, Pareto, lasting_factor
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import check

Array = npt.NDArray[np.float64]


__all__ = [
    "TIMINGS",
    "Constant",
    "Cost",
    "DecisionTimeModel",
    "Exponential",
    "Gamma",
    "LogLinear",
    "Lognormal",
    "Pareto",
    "SpeedClasses",
    "Timing",
    "same_for_all",
]


class Timing(Protocol):
    """A model of durations. `draw` returns `size` independent ones for one agent; `speed` is drawn once for each agent.

    Where `costs` holds, a duration is a factor on the cost that the objective reports for the point.
    """

    costs: ClassVar[bool]

    def speed(self, rng: np.random.Generator) -> float:
        """Return one agent's own lasting factor on its durations."""

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return `size` durations, before the agent's factor."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Every duration is `rate` times the cost that the objective reports for the point."""

    model: ClassVar[str] = "cost"
    costs: ClassVar[bool] = True
    rate: Annotated[float, Ge(0), Lt(inf)] = 1.0
    """Units of time per unit of the objective's cost."""

    def __post_init__(self) -> None:
        check(self)

    def speed(self, rng: np.random.Generator) -> float:
        """Return 1: all agents are equally fast."""
        return 1.0

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return `size` times the rate."""
        return np.full(size, self.rate)


@dataclass(frozen=True, slots=True)
class LogLinear:
    """Log-normal durations that depend on the point: their logarithm is linear in its coordinates in the unit cube.

    In the middle of the cube they have the expectation `mean`, and from one side to the other of parameter j they grow by the
    factor exp(`slopes[j]`). `sigma` and `between` are those of "lognormal". It is for [timing], not for groups.
    """

    model: ClassVar[str] = "log_linear"
    costs: ClassVar[bool] = True
    mean: Annotated[float, Gt(0), Lt(inf)] = 1.0
    """Expected duration in the middle of the search space."""
    slopes: tuple[float, ...] = ()
    """One per parameter: durations grow by e^slope from its low to its high end."""
    sigma: Annotated[float, Ge(0), Lt(inf)] = 0.0
    """Standard deviation of the logarithm, from one duration to the next."""
    between: Annotated[float, Ge(0), Lt(inf)] = 0.0
    """Standard deviation of the logarithm of an agent's lasting factor."""

    def __post_init__(self) -> None:
        check(self)
        if not all(isfinite(slope) and abs(slope) <= 50 for slope in self.slopes):
            raise SettingError("slopes", "must be numbers from -50 to 50", self.slopes)

    def speed(self, rng: np.random.Generator) -> float:
        """Draw one agent's lasting factor, with expectation 1."""
        return lasting_factor(rng, self.between)

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Draw `size` durations in the middle of the cube; elsewhere the task adds the dependence on the point as its cost."""
        return np.asarray(self.mean * np.exp(self.sigma * rng.standard_normal(size) - 0.5 * self.sigma**2))


_Model = Constant | Lognormal | Exponential | Pareto | Gamma | Cost | LogLinear | Empirical
_MODELS: tuple[type[_Model], ...] = (Constant, Lognormal, Exponential, Pareto, Gamma, Cost, LogLinear, Empirical)
TIMINGS: dict[str, type[_Model]] = {m.model: m for m in _MODELS}


@dataclass(frozen=True, slots=True)
class SpeedClasses:
    """Classes of speed: each agent belongs to one, whose factor multiplies its evaluation times.

    `shares` are the chances of the classes up to a common factor; without them all classes are equally likely.
    """

    factors: tuple[float, ...] = (1.0, 2.0, 4.0)
    """Factor on evaluation times of each class."""
    shares: tuple[float, ...] = ()
    """Relative sizes of the classes. Default: equal."""

    def __post_init__(self) -> None:
        if not self.factors or not all(isfinite(factor) and factor > 0 for factor in self.factors):
            raise SettingError("factors", "must be one or more numbers above 0", self.factors)
        if not self.shares:
            return
        if len(self.shares) != len(self.factors):
            raise SettingError(
                "shares", f"must have one number for each of the {len(self.factors)} factors, or none", len(self.shares)
            )
        if not all(isfinite(share) and share >= 0 for share in self.shares) or not sum(self.shares) > 0:
            raise SettingError("shares", "must be at least 0, with at least one above 0", self.shares)

    def factor(self, rng: np.random.Generator) -> float:
        """Draw the factor of one agent's class."""
        edges = list(accumulate(self.shares or (1.0,) * len(self.factors)))
        return self.factors[bisect(edges, rng.random() * edges[-1])]


@dataclass(frozen=True, slots=True)
class DecisionTimeModel:
    """The time that a decision takes with t_n observations: `coefficient` * t_n ** `power`; exact inference has power 3."""

    coefficient: Annotated[float, Ge(0), Lt(inf)] = 0.0
    """A decision with t_n observations takes coefficient × t_n^power."""
    power: Annotated[float, Ge(0), Lt(inf)] = 3.0
    """Exponent; 3 for exact Gaussian processes."""

    def __post_init__(self) -> None:
        check(self)

    def __call__(self, t_n: int) -> float:
        """Return the time of a decision with `t_n` observations."""
        return float(self.coefficient * t_n**self.power)


def same_for_all(models: Iterable[Timing]) -> float | None:
    """Return the single duration of all these models, or None if they have more than one."""
    found = {float(model.mean) if isinstance(model, Constant) else None for model in models}
    return found.pop() if len(found) == 1 else None
