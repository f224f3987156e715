"""Distributions of durations, in any unit of time, and the time of a transmission.

The environment of a study draws from them, and so do objectives that simulate durations.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt

from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check

Array = npt.NDArray[np.float64]


class _Lasting:
    """Distributions with a permanent factor for each agent; `between` is the standard deviation of its logarithm."""

    __slots__ = ()
    costs: ClassVar[bool] = False
    between: float
    """Standard deviation of the logarithm of an agent's lasting factor."""

    def __post_init__(self) -> None:
        check(self)

    def speed(self, rng: np.random.Generator) -> float:
        """Sample one agent's permanent factor, with expectation 1."""
        return lasting_factor(rng, self.between)


@dataclass(frozen=True, slots=True)
class Constant:
    """Every duration is `mean`."""

    model: ClassVar[str] = "constant"
    costs: ClassVar[bool] = False
    mean: Annotated[float, Ge(0), Lt(inf)] = 1.0
    """Every duration."""

    def __post_init__(self) -> None:
        check(self)

    def speed(self, rng: np.random.Generator) -> float:
        """Return 1: all agents are equal."""
        return 1.0

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Return `size` copies of the mean."""
        return np.full(size, self.mean)


@dataclass(frozen=True, slots=True)
class Lognormal(_Lasting):
    """Log-normal durations with expectation `mean`, whose tail is heavy enough for stragglers.

    - `sigma`: standard deviation of the logarithm, from one duration to the next.
    - `between`: standard deviation of the logarithm of an agent's permanent factor, so that some agents are always slow.
    """

    model: ClassVar[str] = "lognormal"
    mean: Annotated[float, Gt(0), Lt(inf)] = 1.0
    """Expected duration."""
    sigma: Annotated[float, Ge(0), Lt(inf)] = 1.0
    """Standard deviation of the logarithm, from one duration to the next."""
    between: Annotated[float, Ge(0), Lt(inf)] = 0.0

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Sample `size` durations."""
        # The term -sigma^2 / 2 makes `mean` the expectation.
        return np.asarray(self.mean * np.exp(self.sigma * rng.standard_normal(size) - 0.5 * self.sigma**2))


@dataclass(frozen=True, slots=True)
class Exponential(_Lasting):
    """Exponentially distributed durations with expectation `mean`: the elapsed time tells nothing about the remaining time.

    `between` is the standard deviation of the logarithm of an agent's permanent factor.
    """

    model: ClassVar[str] = "exponential"
    mean: Annotated[float, Gt(0), Lt(inf)] = 1.0
    """Expected duration."""
    between: Annotated[float, Ge(0), Lt(inf)] = 0.0

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Sample `size` durations."""
        return rng.exponential(self.mean, size)


@dataclass(frozen=True, slots=True)
class Pareto(_Lasting):
    """Pareto durations with expectation `mean`: a few take very long, P(longer than x) falls as x to the power of -`alpha`.

    The shortest is mean * (alpha - 1) / alpha; for `alpha` of 2 or below the variance is infinite. `between` is the standard
    deviation of the logarithm of an agent's permanent factor.
    """

    model: ClassVar[str] = "pareto"
    mean: Annotated[float, Gt(0), Lt(inf)] = 1.0
    """Expected duration."""
    alpha: Annotated[float, Gt(1), Lt(inf), "else its expectation is infinite"] = 2.5
    """The tail falls as x^-alpha; the variance is infinite up to 2."""
    between: Annotated[float, Ge(0), Lt(inf)] = 0.0

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Sample `size` durations."""
        minimum = self.mean * (self.alpha - 1) / self.alpha
        return np.asarray(minimum * (1.0 + rng.pareto(self.alpha, size)))  # NumPy's is the Lomax law, which begins at 0


@dataclass(frozen=True, slots=True)
class Gamma(_Lasting):
    """Gamma durations with expectation `mean` and variance mean**2 / `shape`: an integer shape is that many stages in a row.

    `between` is the standard deviation of the logarithm of an agent's permanent factor.
    """

    model: ClassVar[str] = "gamma"
    mean: Annotated[float, Gt(0), Lt(inf)] = 1.0
    """Expected duration."""
    shape: Annotated[float, Gt(0), Lt(inf)] = 2.0
    """Variance is mean² / shape."""
    between: Annotated[float, Ge(0), Lt(inf)] = 0.0

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Sample `size` durations."""
        return rng.gamma(self.shape, self.mean / self.shape, size)


_LAWS = {one.model: one for one in (Exponential, Lognormal, Gamma, Pareto)}
_OF_LAWS = ("sigma", "shape", "alpha")


@dataclass(frozen=True, slots=True)
class DurationLaw:
    """A law of durations, with the settings of the model of this name; of all other settings only `mean` is allowed."""

    model: Annotated[str, OneOf(tuple(_LAWS))]
    """Name of the law."""
    mean: Annotated[float, Gt(0), Lt(inf)] = 1.0
    """Expected duration."""
    sigma: float | None = None
    """As of `lognormal`. Default: 1."""
    shape: float | None = None
    """As of `gamma`. Default: 2."""
    alpha: float | None = None
    """As of `pareto`. Default: 2.5."""

    def __post_init__(self) -> None:
        check(self)
        made = self.make()
        for name in _OF_LAWS:
            if hasattr(made, name):
                object.__setattr__(self, name, getattr(made, name))
            elif getattr(self, name) is not None:
                raise SettingError(name, f"is no setting of {self.model}; remove it", getattr(self, name))

    def make(self) -> Exponential | Lognormal | Gamma | Pareto:
        """Return the model."""
        declared: Any = _LAWS[self.model]
        own = {name: getattr(self, name) for name in _OF_LAWS if hasattr(declared, name) and getattr(self, name) is not None}
        made: Exponential | Lognormal | Gamma | Pareto = declared(mean=self.mean, **own)
        return made


def transmission_time(latency: float, size: int, bandwidth: float | None) -> float:
    """Return the transmission time of a message of `size` bytes: `latency`, plus size / `bandwidth` if that is set."""
    return latency + size / bandwidth if bandwidth else latency


def lasting_factor(rng: np.random.Generator, between: float) -> float:
    """Sample an agent's log-normal factor with expectation 1."""
    # The term -between^2 / 2 makes the expectation 1.
    return float(np.exp(between * rng.standard_normal() - 0.5 * between**2))
