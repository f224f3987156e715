"""Federations and objectives: agents, each with a private objective over the same parameters.

Values are maximised everywhere. A quantity to minimise (an error) declares it in its `Metric` and is negated once, here. Points
are in native units in this package and in `[0, 1]^d` in all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedbo.objectives.outcome import Outcome, value_of
from fedbo.settings.errors import FedboError, invalid
from fedbo.settings.ranges import check

Array = npt.NDArray[np.float64]
Part = Literal["all", "development", "held_out"]  # of a federation: agents on which methods are developed, and the others
LARGEST_VALUE = 1e100  # in size: methods square values and add the squares up, and 1e308 is the largest number there is


@dataclass(frozen=True, slots=True)
class Parameter:
    """One tuned quantity.

    name: its name.
    low, high: its range `[low, high]` in native units.
    log: map the unit interval geometrically.
    whole: whole numbers only. Each has an equal cell of the unit interval, or with `log` the cell from half a unit below the
      number to half a unit above it, on the geometric axis.
    """

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not (np.isfinite([self.low, self.high]).all() and self.low < self.high):
            raise ValueError(f"parameter {self.name}: [{self.low}, {self.high}] is not a finite range")
        if self.log and self.low <= 0.0:
            raise ValueError(f"parameter {self.name}: a log range must start above 0, got {self.low}")
        if self.whole and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise ValueError(f"parameter {self.name}: [{self.low}, {self.high}] must have whole numbers as bounds")


@dataclass(frozen=True, slots=True)
class Metric:
    """The native quantity behind a value: native = offset + sign * value; sign -1 means it is minimised."""

    name: str = "value"
    sign: int = 1
    offset: float = 0.0

    @property
    def direction(self) -> str:
        """Return how the native quantity is optimised: `maximise` or `minimise`."""
        return "maximise" if self.sign > 0 else "minimise"

    def native(self, value: Array | float) -> Array:
        """Convert values to be maximised to the native quantity."""
        return self.offset + self.sign * np.asarray(value, dtype=np.float64)


class LibraryMissingError(FedboError, ImportError):
    """A library that some objectives need is not installed."""


class ConfigurationFailedError(FedboError, RuntimeError):
    """A configuration that an objective cannot evaluate: the evaluation fails, as `[evaluation] failure` says."""


def is_usable(value: float) -> bool:
    """Return whether methods can compute with a value: it is finite, and at most LARGEST_VALUE in size."""
    return abs(value) <= LARGEST_VALUE


def require(holds: bool, field: str, value: object, remedy: str) -> None:
    """Check a setting: raise SettingError with the field, its value and the remedy unless it holds."""
    if not holds:
        raise invalid(field, value, remedy)


def require_agent(agent: int, n_agents: int) -> None:
    """Raise IndexError for an agent that the federation does not have."""
    if not 0 <= agent < n_agents:
        raise IndexError(f"no agent {agent}: there are {n_agents}, numbered from 0 to {n_agents - 1}")


@runtime_checkable
class Objective(Protocol):
    """One agent's private black box. Objectives hold arrays and plain settings only, so they pickle.

    best_value: the largest noise-free value over the box, if known.
    evaluate: takes `x (d,)` in native units and returns one (possibly noisy) value to be maximised, or an `Outcome` with
      metrics. All its randomness comes from `rng`, which may be None where an attribute `needs_rng` is False. A point outside
      the box raises ValueError. One that cannot be evaluated raises another error, as ConfigurationFailedError.
    score: the value by which a point is judged afterwards, if it differs from an observation.
    """

    @property
    def best_value(self) -> float | None: ...

    def evaluate(self, x: Array, rng: np.random.Generator) -> float | Outcome:
        """Return one observation of the objective at x."""

    def score(self, x: Array) -> float | None:
        """Return the noise-free value at x, or None when `evaluate` already does."""


@runtime_checkable
class Repeated(Protocol):
    """An objective that can be evaluated many times at one point in one call."""

    def evaluate_many(self, x: Array, count: int, rng: np.random.Generator) -> Array:
        """Return `count` independent observations `(count,)` at x `(d,)`, in native units."""


@runtime_checkable
class Batched(Protocol):
    """An objective that can be evaluated at many points in one call, each many times."""

    def evaluate_points(self, x: Array, counts: npt.NDArray[np.int64], rng: np.random.Generator) -> Array:
        """Return `counts (n,)` independent observations of each point `(n, d)`, in native units, point after point."""

    def scores(self, x: Array) -> Array:
        """Return the noise-free values `(n,)` at points `(n, d)`."""


@runtime_checkable
class Joint(Protocol):
    """An objective whose class evaluates one point of each of several agents in one call, where nothing is drawn."""

    @property
    def is_exact(self) -> bool:
        """Whether every observation equals the score, without noise."""

    @classmethod
    def scores_each(cls, objectives: Sequence[Self], x: Array) -> Array:
        """Return the score `(k,)` of each objective at its own row of `x (k, d)`, with the bits of `score`."""


def observe(objective: Objective, x: Array, count: int, rng: np.random.Generator) -> Array:
    """Return `count` observations `(count,)` at x, one by one if the objective cannot make them at once."""
    if isinstance(objective, Repeated):
        return np.asarray(objective.evaluate_many(x, count, rng), dtype=np.float64).reshape(count)
    return np.array([value_of(objective.evaluate(x, rng), objective) for _ in range(count)], dtype=np.float64)


@runtime_checkable
class Sized(Protocol):
    """An objective that trains on private data and knows the number of its examples."""

    @property
    def data_size(self) -> int: ...


@runtime_checkable
class Costly(Protocol):
    """An objective that knows the cost of an evaluation in advance.

    `cost` takes `x (d,)` in native units and returns a finite number above 0, in any unit; it draws nothing.
    """

    def cost(self, x: Array) -> float:
        """Return the cost of an evaluation at x."""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The fidelity axis of a federation's objectives: a whole number of steps, such as epochs, from `smallest` to `largest`."""

    name: str
    smallest: int
    largest: int

    def __post_init__(self) -> None:
        if not 1 <= self.smallest < self.largest:
            raise ValueError(f"fidelity {self.name}: {self.smallest} to {self.largest} must be increasing and at least 1")


@runtime_checkable
class MultiFidelity(Protocol):
    """An objective that can be evaluated up to a fidelity below the largest, and then further from there.

    `evaluate` and `score` are those at the largest. An evaluation asks for ascending fidelities, each with a new generator of
    the same stream, so that all its values may lie on one curve. Up to fidelity f of F it takes f / F of the time of the whole.
    """

    def evaluate_at(self, x: Array, fidelity: int, rng: np.random.Generator) -> float | Outcome:
        """Return one observation of the objective at x `(d,)` with so many steps."""

    def score_at(self, x: Array, fidelity: int) -> float | None:
        """Return the noise-free value at x with this number of steps, or None when `evaluate_at` already does."""


@runtime_checkable
class Measuring(Protocol):
    """An objective that knows several metrics of an evaluation, which studies with `[[metric]]` ask for.

    `measure` takes the place of `evaluate`, or of `evaluate_at` where a fidelity is set, with the same draws and value. The
    outcome has every metric of the federation's attribute `metrics`, in native units.
    """

    def measure(self, x: Array, rng: np.random.Generator, fidelity: int | None = None) -> Outcome:
        """Return one observation at x `(d,)` with all its metrics."""


@runtime_checkable
class Enumerable(Protocol):
    """An objective whose exact front is known: it lists the outcomes of all configurations, or of enough of them.

    `outcomes` returns the noise-free metrics `(n,)` by name, in native units, of points among which are all that are best
    under any choice of objectives and limits, up to a stated spacing on a line.
    """

    def outcomes(self) -> dict[str, Array]:
        """Return the metrics of the points."""


@runtime_checkable
class Federation(Protocol):
    """A named problem: settings as dataclass fields, and one objective for each agent.

    parameters: the tuned parameters.
    metric: the native quantity.
    random_per_replicate: whether the streams shape the objectives, so that another replicate has different ones.
    objective: builds the black box of agent `agent`. `shared_rng` is equal for all agents of a replicate, for a common function
    or a split of the data; `agent_rng` belongs to this agent alone.

    A federation with `Costly` objectives may declare it: see `reports_costs`, and with configurations that fail `may_fail`.
    One with `MultiFidelity` objectives has an attribute `fidelity`: see `fidelity_of`. One with `Measuring` objectives names
    their metrics: see `metrics_of`.
    """

    @property
    def random_per_replicate(self) -> bool: ...

    @property
    def n_agents(self) -> int: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    @property
    def metric(self) -> Metric: ...

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Objective:
        """Build one agent's objective; IndexError when there is no such agent."""


class CountedFederation:
    """The base of federations with a setting `agents`, of which all that is required stands in the marks of their fields."""

    __slots__ = ()
    agents: int

    def __post_init__(self) -> None:
        check(self)

    @property
    def n_agents(self) -> int:
        """Count the agents."""
        return self.agents


def reports_costs(federation: Federation) -> bool:
    """Return whether a federation's objectives know the cost of an evaluation: its attribute `costly`, by default False."""
    return bool(getattr(federation, "costly", False))


def metrics_of(federation: Federation) -> tuple[str, ...] | None:
    """Return the names of all metrics of an evaluation, from the attribute `metrics`; None where they are not known."""
    found: tuple[str, ...] | None = getattr(federation, "metrics", None)
    return found


def may_fail(federation: Federation) -> bool:
    """Return whether evaluations raise ConfigurationFailedError at some points: the attribute `fails`, by default False."""
    return bool(getattr(federation, "fails", False))


def fidelity_of(federation: Federation) -> Fidelity | None:
    """Return the fidelity axis that a federation declares by its attribute `fidelity`; None without one."""
    found: Fidelity | None = getattr(federation, "fidelity", None)
    return found


def reported_fidelity_of(federation: Federation) -> Fidelity | None:
    """Return the axis on which running evaluations report, from the attribute `reported`; None without one."""
    found: Fidelity | None = getattr(federation, "reported", None)
    return found


def described(federation: Federation) -> str:
    """Return a federation's description of itself from its attribute `described`; empty without one."""
    return str(getattr(federation, "described", ""))


def cost_of(objective: Objective, x: Array) -> float:
    """Return the cost of an evaluation at x; 1 where the objective reports no costs."""
    return objective.cost(x) if isinstance(objective, Costly) else 1.0
