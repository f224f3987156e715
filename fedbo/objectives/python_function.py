"""Any Python function as an objective: `f(x)`, `f(x, agent)` or `f(x, agent, rng)`, named or given directly."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, SupportsFloat

import numpy as np
from annotated_types import Ge

from fedbo.objectives.base import Array, CountedFederation, Metric, Parameter, require, require_agent
from fedbo.objectives.outcome import Outcome, outcome_by_name
from fedbo.objectives.space import inside
from fedbo.settings.errors import SettingError, invalid
from fedbo.settings.own_code import ends_process, exit_words
from fedbo.settings.ranges import check
from fedbo.settings.trust import file_of, module_at


@dataclass(frozen=True, eq=False)
class CalledFunction:
    """One agent's view of a Python function; a value that is not a finite number is passed on as it is.

    Without a function for the `cost`, every evaluation costs 1. `wanted` is the number of arguments of the function, 0 if it is
    not known yet.
    """

    function: Callable[..., float | Outcome]
    agent: int
    sign: int
    parameters: tuple[Parameter, ...] = field(repr=False)
    best_value: float | None = None
    costs: Callable[..., float] | None = None
    metric: str = "value"
    wanted: int = 0

    @property
    def needs_rng(self) -> bool:
        """Return whether the function asks for a generator."""
        return (self.wanted or _wanted(self.function)) > 2

    def evaluate(self, x: Array, rng: np.random.Generator) -> float | Outcome:
        """Call the function at x `(d,)`.

        TypeError unless it returns a number, a dictionary of numbers with `metric`, or an outcome with native value and score.
        """
        point = inside(self.parameters, x).copy()  # a copy, since the function may change its argument
        value: Any = self.function(*(point, self.agent, rng)[: self.wanted or _wanted(self.function)])
        if isinstance(value, Outcome):
            return Outcome(self.sign * value.value, self.sign * value.score, value.metrics, value.reports)
        if isinstance(value, Mapping):
            return outcome_by_name(value, self.metric, self.sign)
        if isinstance(value, str | bytes | bytearray | bool | np.bool_):  # which float() reads too
            raise TypeError(f"{_named(self.function)} returned {value!r}; return one number")
        try:
            return self.sign * float(value)
        except (TypeError, ValueError) as failure:
            raise TypeError(f"{_named(self.function)} returned {value!r}; return one number") from failure

    def score(self, x: Array) -> float | None:
        """Return None: there is nothing better than an observation."""
        return None

    def cost(self, x: Array) -> float:
        """Return the cost of an evaluation at x `(d,)`; ValueError unless the function returns a finite number above 0."""
        if self.costs is None:
            return 1.0
        point = inside(self.parameters, x).copy()
        value = self.costs(*(point, self.agent)[: _wanted(self.costs)])
        if not (isinstance(value, SupportsFloat) and 0.0 < float(value) < np.inf):
            raise ValueError(f"{_named(self.costs)} returned {value!r}; return one finite number above 0")
        return float(value)


@dataclass(frozen=True)
class PythonFunction(CountedFederation):
    """A Python function tuned by several agents.

    function: a callable, or its place as "package.module:name" or "file.py:name". It takes x `(d,)` in native units, and
      optionally the agent's index and a `numpy.random.Generator` for all its randomness. It returns a number, or numbers by
      name, with `metric_name` among them.
    low, high: bounds of each parameter.
    names, log: optional, one each; `log` makes an axis geometric.
    best: the best native value if known, the same for all agents.
    metric_name: name of the value in results.
    cost: a second, deterministic function of x and optionally the agent: the cost of an evaluation, in any unit.
    """

    random_per_replicate: ClassVar[bool] = False

    function: str | Callable[..., float]
    """Place of the function, "module:name" or "file.py:name"; in Python also the function."""
    low: tuple[float, ...]
    """Lower end of each parameter."""
    high: tuple[float, ...]
    """Upper end of each parameter."""
    agents: Annotated[int, Ge(1)] = 1
    """Number of agents."""
    direction: Literal["maximise", "minimise"] = "maximise"
    """Whether larger or smaller values are better."""
    names: tuple[str, ...] = ()
    """Names of the parameters. Default: x1, x2, …"""
    log: tuple[bool, ...] = ()
    """Which axes are geometric. Default: none."""
    best: float | None = None
    """Best native value where it is known."""
    metric_name: str = "value"
    """Name of the value in results, and its key in a returned dictionary."""
    cost: str | Callable[..., float] | None = None
    """Place of a function cost(x) or cost(x, agent) above 0."""

    def __post_init__(self) -> None:
        check(self)
        d = len(self.low)
        require(d >= 1, "low", self.low, "set one number for each parameter")
        require(len(self.high) == d, "high", self.high, f"set as many numbers as in low: {d}")
        require(len(self.names) in (0, d), "names", self.names, f"set no number or {d}")
        require(len(set(self.names)) == len(self.names), "names", self.names, "use a different name for each parameter")
        require(len(self.log) in (0, d), "log", self.log, f"set no number or {d}")
        inside(self.parameters, np.array(self.low))  # refuses an empty range, or a log range that reaches 0
        load(self.function)
        if self.cost is not None:
            load(self.cost, "cost")

    @property
    def costly(self) -> bool:
        """Return whether a cost function is set."""
        return self.cost is not None

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters in the order of x, the same object to all agents."""
        names = self.names or tuple(f"x{i + 1}" for i in range(len(self.low)))
        log = self.log or (False,) * len(self.low)
        return tuple(
            Parameter(name, float(low), float(high), geometric)
            for name, low, high, geometric in zip(names, self.low, self.high, log, strict=True)
        )

    @property
    def metric(self) -> Metric:
        """Return the name and direction of the function's value."""
        return Metric(self.metric_name, sign=1 if self.direction == "maximise" else -1)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> CalledFunction:
        """Build one agent's view of the function."""
        require_agent(agent, self.agents)
        sign = self.metric.sign
        best = None if self.best is None else sign * self.best
        costs = None if self.cost is None else load(self.cost, "cost")
        found = CalledFunction(load(self.function), agent, sign, parameters=self.parameters, best_value=best, costs=costs)
        return replace(found, metric=self.metric_name, wanted=self._wanted)

    @cached_property
    def _wanted(self) -> int:
        return _wanted(load(self.function))


def load(function: str | Callable[..., float], setting: str = "function") -> Callable[..., float]:
    """Return the callable, imported if it is named as "package.module:name".

    ValueError describes what is wrong with the `setting` that holds it.
    """
    if not isinstance(function, str):
        require(callable(function), setting, function, 'use a callable, or name it as "package.module:name"')
        return function
    module_name, _, name = function.rpartition(":")
    require(bool(module_name and name), setting, function, 'write it as "package.module:name"')
    module = _module(module_name, function, setting)
    if not hasattr(module, name):
        there = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise invalid(setting, function, f"{module.__name__} has no {name!r}; its callables: {there}")
    found: Any = getattr(module, name)
    require(callable(found), setting, function, f"it is a {type(found).__name__}; use a callable")
    return found  # type: ignore[no-any-return]


def _module(module_name: str, function: str, setting: str) -> Any:
    try:
        return module_at(function, files=True)
    except ModuleNotFoundError as failure:
        # a module that the user's own module misses is the user's error, and is shown as it is
        if failure.name is None or not (module_name + ".").startswith(failure.name + "."):
            raise
        remedy = f"no module {failure.name!r}; put {failure.name}.py beside the study, or its folder in PYTHONPATH"
        raise invalid(setting, function, remedy) from failure
    except ValueError as failure:
        if isinstance(failure, SettingError) or file_of(function) is None:
            raise
        raise invalid(setting, function, str(failure)) from failure
    except SystemExit as error:  # a script without `if __name__ == "__main__"`
        if ends_process(error):
            raise
        remedy = f"its import exits: {exit_words(error)}; put the script's code under if __name__ == '__main__'"
        raise invalid(setting, function, remedy) from error


def _wanted(function: Callable[..., Any]) -> int:
    """Count the arguments that a function asks for: x, the agent when required or so named, then likewise rng."""
    try:
        taken = list(inspect.signature(function).parameters.values())
    except ValueError:  # some functions written in C do not say
        return 1
    wanted = 1
    for parameter, name in zip(taken[1:], ("agent", "rng"), strict=False):
        by_position = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if not by_position or (parameter.default is not parameter.empty and parameter.name != name):
            break
        wanted += 1
    return wanted


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


FEDERATIONS = {"python_function": PythonFunction}
