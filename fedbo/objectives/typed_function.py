"""A Python function of a configuration, in a typed space: `f(configuration)` or `f(configuration, agent)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import cloudpickle
import numpy as np
from annotated_types import Ge

from fedbo.objectives.base import Array, CountedFederation, Fidelity, Metric, Parameter, require, require_agent
from fedbo.objectives.outcome import Outcome, native_number, outcome_by_name
from fedbo.objectives.python_function import load
from fedbo.objectives.space import inside
from fedbo.objectives.typed_spaces.declared_space import as_declared, read_space
from fedbo.objectives.typed_spaces.reports import Reports, StoppedEarly, note_reports, restore
from fedbo.objectives.typed_spaces.typed import Space
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import check


class PickledFunction:
    """A function that pickles by value if it has no importable module, for example in a script or a notebook."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __reduce__(self) -> Any:
        return _unpickled, (cloudpickle.dumps(self.function),)


def _unpickled(data: bytes) -> PickledFunction:
    return PickledFunction(cloudpickle.loads(data))


@dataclass(frozen=True, eq=False)
class TypedCall:
    """One agent's view of a function of a configuration."""

    carried: PickledFunction
    agent: int
    sign: int
    metric: str
    space: Space = field(repr=False)
    written: str = field(repr=False)
    best_value: float | None = None

    def evaluate(self, x: Array, rng: np.random.Generator) -> Outcome:
        """Call the function with the configuration at x `(d,)`; TypeError unless it returns a number or numbers by name."""
        configuration = as_declared(self.written, self.space.configuration(inside(self.space.parameters, x)))
        takes = _takes(self.carried.function)
        report = Reports("restore" in takes)
        given = {"agent": self.agent, "rng": rng, "report": report, "restore": restore}
        try:
            value = self.carried.function(configuration, **{name: given[name] for name in takes})
        except StoppedEarly:
            value = report.said[-1].value
        except BaseException as error:
            note_reports(error, report.said)
            raise
        if isinstance(value, Mapping):
            return outcome_by_name(value, self.metric, self.sign, tuple(report.said))
        return Outcome(self.sign * native_number(value), reports=tuple(report.said))

    def score(self, x: Array) -> float | None:
        """Return None: there is nothing better than an observation."""
        return None


@dataclass(frozen=True)
class TypedFunction(CountedFederation):
    """A Python function of a configuration in a typed space.

    function: a callable, or its place as "package.module:name". It takes the configuration, and optionally `agent`, `rng`,
      `report` and `restore` by name. `report(value, step, checkpoint)` records the value after a step and returns "go", or
      "stop" to end the evaluation. `restore()` returns the last checkpoint, from which the evaluation continues, or None.
      The function returns a number, or a dictionary of numbers with `metric_name`.
    space: a `ConfigSpace.ConfigurationSpace` as JSON (`json.dumps(space.to_serialized_dict())`). `fedbo.tune` adds `"nested":
      true` for nested dictionaries; the function then receives its configuration in that shape.
    best: the best native value if known.
    steps: the number of steps of a full evaluation.
    """

    random_per_replicate: ClassVar[bool] = False

    function: str | Callable[..., Any]
    """Place of f(config), which may also take agent, rng, report and restore."""
    space: str
    """ConfigSpace.ConfigurationSpace as JSON."""
    agents: Annotated[int, Ge(1)] = 1
    """Number of agents."""
    direction: Literal["maximise", "minimise"] = "maximise"
    """Whether larger or smaller values are better."""
    metric_name: str = "value"
    """Name of the value in results, and its key in a returned dictionary."""
    best: float | None = None
    """Best native value where it is known."""
    steps: Annotated[int, Ge(2)] | None = None
    """Reports of an evaluation that is not stopped."""
    carried: Any = field(init=False, repr=False, default=None)  # a PickledFunction, of which a schema knows nothing

    def __post_init__(self) -> None:
        check(self)
        if isinstance(self.function, str) and (given := given_function(self.function)) is not None:
            object.__setattr__(self, "carried", PickledFunction(given))
        read_space(self.space)
        _check_signature(self._callable)

    @property
    def _callable(self) -> Callable[..., Any]:
        if self.carried is not None:
            function: Callable[..., Any] = self.carried.function
            return function
        given = isinstance(self.function, str) and self.function.startswith("given:")
        remedy = "it was passed to fedbo.tune in Python; call fedbo.tune again with resume=True"
        require(not given, "function", self.function, remedy)
        return load(self.function)

    @property
    def lattice(self) -> Space:
        """Return the typed space."""
        return read_space(self.space)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters in the order of x; a category is a whole number, its place in the list of choices."""
        return self.lattice.parameters

    @property
    def metric(self) -> Metric:
        """Return the name and direction of the function's value."""
        return Metric(self.metric_name, sign=1 if self.direction == "maximise" else -1)

    @property
    def reported(self) -> Fidelity | None:
        """Declare the steps that evaluations report in real time."""
        return None if self.steps is None else Fidelity("step", 1, self.steps)

    @property
    def takes_report(self) -> bool:
        """Return whether the function can report the values of its steps."""
        return "report" in _takes(self._callable)

    @property
    def takes_restore(self) -> bool:
        """Return whether the function can continue from a checkpoint."""
        return "restore" in _takes(self._callable)

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> TypedCall:
        """Build one agent's view of the function."""
        require_agent(agent, self.agents)
        best = None if self.best is None else self.metric.sign * self.best
        function = PickledFunction(self._callable)
        return TypedCall(
            function, agent, self.metric.sign, metric=self.metric_name, space=self.lattice, written=self.space, best_value=best
        )


# Of this thread: another one may pass another function of the same name at the same time.
_given: ContextVar[Mapping[str, Callable[..., Any]]] = ContextVar("given functions", default={})  # noqa: B039  # never changed


@contextmanager
def giving(place: str, function: Callable[..., Any]) -> Iterator[None]:
    """Pass a function to the studies that are made within, which know it by a place such as "given:name".

    At any other place they import it, so that they call the present version.
    """
    token = _given.set({**_given.get(), **({place: function} if place.startswith("given:") else {})})
    try:
        yield
    finally:
        _given.reset(token)


def given_function(place: str) -> Callable[..., Any] | None:
    """Return the function that was passed to studies of this thread under a place, or None."""
    return _given.get().get(place)


CARRIED = ("agent", "rng", "report", "restore")  # arguments that a function may have beside the configuration


def _takes(function: Callable[..., Any]) -> list[str]:
    """List which of `CARRIED` a function asks for."""
    try:
        taken = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C do not say
        return []
    every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken)
    named = {parameter.name for parameter in list(taken)[1:] if parameter.kind is not parameter.POSITIONAL_ONLY}
    return [name for name in CARRIED if name in named or every]


def _check_signature(function: Callable[..., Any]) -> None:
    """Raise SettingError for a function that cannot be called with a configuration and the other arguments it asks for."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C do not say
        return
    taken = list(signature.parameters.values())
    first = taken[0] if taken else None
    if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
        raise SettingError("function", "has no argument for the configuration; write it as f(config)")
    for one in taken[1:]:
        needed = one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        if needed and (one.name not in CARRIED or one.kind is one.POSITIONAL_ONLY):
            raise SettingError(
                "function", f"has the argument '{one.name}', which is never set; use {', '.join(CARRIED)}, or a default"
            )


FEDERATIONS = {"typed_function": TypedFunction}
