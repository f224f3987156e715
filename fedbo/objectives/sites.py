"""The objectives of a study whose sites keep them: the coordinator knows their parameters and their metric alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from fedbo.objectives.base import Array, CountedFederation, Metric, Objective, Parameter, require, require_agent
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.python_function import CalledFunction
from fedbo.objectives.space import inside
from fedbo.objectives.typed_function import PickledFunction, TypedCall
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings.ranges import check


@dataclass(frozen=True, slots=True)
class AtItsSite:
    """The objective of an agent as the coordinator has it: it cannot be evaluated."""

    agent: int
    best_value: float | None = None

    def evaluate(self, x: Array, rng: np.random.Generator) -> float | Outcome:
        """Raise RuntimeError."""
        raise RuntimeError(f"the objective of agent {self.agent} is at its site; run the study with: fedbo serve")

    def score(self, x: Array) -> float | None:
        """Raise RuntimeError."""
        raise RuntimeError(f"the objective of agent {self.agent} is at its site; run the study with: fedbo serve")


@dataclass(frozen=True)
class Sites(CountedFederation):
    """The objectives of sites, which evaluate them themselves.

    A site's function takes a point `x (d,)` in native units, or with a `space` a configuration, as those of `python_function`
    and `typed_function` do.
    """

    random_per_replicate: ClassVar[bool] = False

    agents: Annotated[int, Ge(1)]
    """Number of sites, each with one agent."""
    low: tuple[float, ...] = ()
    """Lower end of each parameter."""
    high: tuple[float, ...] = ()
    """Upper end of each parameter."""
    space: str | None = None
    """ConfigSpace.ConfigurationSpace as JSON, in place of low and high."""
    direction: Literal["maximise", "minimise"] = "maximise"
    """Whether larger or smaller values are better."""
    names: tuple[str, ...] = ()
    """Names of the parameters. Default: x1, x2, …"""
    log: tuple[bool, ...] = ()
    """Which axes are geometric. Default: none."""
    metric_name: str = "value"
    """Name of the value in results, and its key where a function returns a dictionary."""

    def __post_init__(self) -> None:
        check(self)
        if self.space:
            require(
                not (self.low or self.high or self.names or self.log), "space", self.space, "remove low, high, names and log"
            )
            read_space(self.space)
            return
        d = len(self.low)
        require(d >= 1, "low", self.low, "set one number for each parameter, or set a space")
        require(len(self.high) == d, "high", self.high, f"set as many numbers as in low: {d}")
        require(len(self.names) in (0, d), "names", self.names, f"set no number or {d}")
        require(len(set(self.names)) == len(self.names), "names", self.names, "use a different name for each parameter")
        require(len(self.log) in (0, d), "log", self.log, f"set no number or {d}")
        inside(self.parameters, np.array(self.low))  # refuses an empty range, or a log range that reaches 0

    @property
    def lattice(self) -> Space | None:
        """Return the typed space; None for parameters that are real numbers."""
        return read_space(self.space) if self.space else None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters in the order of x."""
        if self.space:
            return read_space(self.space).parameters
        names = self.names or tuple(f"x{i + 1}" for i in range(len(self.low)))
        log = self.log or (False,) * len(self.low)
        places = range(len(self.low))
        return tuple(Parameter(names[at], float(self.low[at]), float(self.high[at]), log[at]) for at in places)

    @property
    def metric(self) -> Metric:
        """Return the name and direction of the value."""
        return Metric(self.metric_name, sign=1 if self.direction == "maximise" else -1)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Objective:
        """Return the coordinator's view of one agent's objective."""
        require_agent(agent, self.agents)
        return AtItsSite(agent)


@dataclass(frozen=True)
class AtThisSite:
    """The federation as one of its sites has it: with the objective of its own agent.

    `own` is a function of a point or of a configuration, or an object with the methods of an `Objective`.
    """

    random_per_replicate: ClassVar[bool] = False
    sites: Sites
    own: Callable[..., Any] | Objective

    @property
    def n_agents(self) -> int:
        """Count the agents."""
        return self.sites.n_agents

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters in the order of x."""
        return self.sites.parameters

    @property
    def metric(self) -> Metric:
        """Return the name and direction of the value."""
        return self.sites.metric

    @property
    def lattice(self) -> Space | None:
        """Return the typed space; None for parameters that are real numbers."""
        return self.sites.lattice

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Objective:
        """Return the objective of this site's agent, whichever number that has."""
        sites, sign = self.sites, self.sites.metric.sign
        if isinstance(self.own, Objective):
            return self.own
        if not sites.space:
            return CalledFunction(self.own, agent, sign, parameters=sites.parameters, metric=sites.metric_name)
        carried = PickledFunction(self.own)
        return TypedCall(carried, agent, sign, metric=sites.metric_name, space=read_space(sites.space), written=sites.space)


FEDERATIONS = {"sites": Sites}
