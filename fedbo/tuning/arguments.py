"""The arguments of `fedbo.tune`: their defaults, their checks, and their names in errors about the study."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast, get_args

from fedbo.objectives.typed_function import PickledFunction
from fedbo.objectives.typed_spaces.declared_space import ordered
from fedbo.settings import arguments
from fedbo.settings.arguments import Mode
from fedbo.settings.errors import ArgumentError, SettingError
from fedbo.study.document import Loc, StudyError, as_document, lookup, one_line

if TYPE_CHECKING:
    from fedbo.execution.notices import Callback

Resources = Mapping[str, float]


class Options(TypedDict, total=False):
    """The keyword arguments of `fedbo.tune` except objective, space and number of agents; all have defaults."""

    algorithm: str | Mapping[str, Any]
    iterations: int
    initial: int
    metric: str
    mode: Mode
    metrics: Sequence[Mapping[str, Any]]
    parallel: int
    prefetch: int
    resources: Resources | Sequence[Resources]
    target: float
    evaluations: int
    seconds: float
    cost: float
    time_limit: float
    memory_limit: int
    retries: int
    failure: Literal["avoid", "drop", "stop"]
    seed: int
    name: str
    address: str
    out: str | Path
    resume: bool
    repeats: bool
    start: Any
    enqueue: Sequence[Mapping[str, Any]]
    steps: int
    stopping: str | Mapping[str, Any]
    callbacks: Sequence[Callback | str]
    mirror: Any
    study: Mapping[str, Any]


# Without a default here an option is None: not set. The algorithm's depends on the number of agents.
DEFAULTS: Options = {
    "iterations": 20,
    "initial": 3,
    "metric": "value",
    "mode": "max",
    "parallel": 1,
    "prefetch": 0,
    "retries": 0,
    "failure": "avoid",
    "seed": 0,
    "name": "tuning",
    "resume": False,
    "repeats": False,
    "callbacks": (),
}

EVALUATION = ("retries", "failure", "time_limit", "memory_limit", "parallel", "prefetch")  # keys of [evaluation] of these names

# The place in a study that an argument sets; a key below such a place is an entry of the argument.
PLACES: dict[Loc, str] = {
    ("objective", "function"): "objective",
    ("objective", "metric_name"): "metric",
    ("metric",): "metrics",
    ("agents", "initial"): "initial",
    ("agents", "history"): "start",
    ("budget", "time"): "seconds",
    ("algorithm", 0, "name"): "algorithm",
    ("algorithm", 0): "algorithm",
    ("algorithm",): "algorithm",
    ("hosting", "address"): "address",
    ("stopping", "kind"): "stopping",
    ("stopping",): "stopping",
    **{("study", name): name for name in ("name", "seed")},
    **{("objective", name): name for name in ("space", "agents", "steps")},
    **{("budget", name): name for name in ("iterations", "target", "evaluations", "cost")},
    **{("evaluation", name): name for name in (*EVALUATION, "resources")},
}
_KEY = re.compile(r"\[+(\w+)\]+ (\w+)(?: = ((?:\"[^\"]*\"|[^\s;,]+)))?")


def check_arguments(function: Any, space: Any, agents: Any, options: Mapping[str, Any]) -> None:
    """Raise ArgumentError for the first invalid argument; the search space is checked by `written_space`."""
    check_objective(function, "stopping" in options)
    arguments.whole("agents", agents, 1)
    for name, check in _CHECKS.items():
        if name in options:
            check(name, options[name])
    if options.get("stopping") is not None and "steps" not in options:
        raise arguments.wrong("stopping", options["stopping"], "needs the number of steps of an evaluation; add steps=…")


def check_objective(function: Any, reports: bool = False) -> None:
    """Raise ArgumentError unless this is a function of a configuration that can be sent to another process."""
    if not callable(function) or inspect.isclass(function):
        raise arguments.wrong("objective", function, "must be a function of a configuration, for example def f(config)")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise arguments.wrong("objective", function, "must return a number; write a plain function, without async or yield")
    if reports and not _takes(function, "report"):
        raise arguments.wrong("objective", function, "has no argument 'report', which 'stopping' requires; add it")
    try:
        PickledFunction(function).__reduce__()
    except Exception as error:
        words = f"cannot be sent to other processes ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
        raise arguments.wrong(
            "objective", function, f"{words}; open files, locks and connections inside the function"
        ) from None


def _takes(function: Callable[..., Any], name: str) -> bool:
    try:
        taken = inspect.signature(function).parameters
    except ValueError:
        return True
    return name in taken or any(each.kind is each.VAR_KEYWORD for each in taken.values())


def in_arguments(found: StudyError, document: Mapping[str, Any], table: Mapping[str, Any]) -> ArgumentError:
    """Return the errors of a study as errors of the arguments that it was made from, one line each.

    `table` is the argument `study`; errors in its keys name these keys.
    """
    lines = [_line(fault, document, table) for fault in found.faults]
    return ArgumentError("\n".join(dict.fromkeys(lines)))


def _line(fault: SettingError, document: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    try:
        value = lookup(document, fault.path)
    except KeyError:
        value = None
    shows = value is not None and not isinstance(value, Mapping | list) and fault.path[-1] not in ("space", "function")
    return f"{_name(fault.path, table)}{f' = {one_line(value)}' if shows else ''}: {_in_python(fault.remedy)}"


def _name(loc: Loc, table: Mapping[str, Any] | None = None) -> str:
    """Return the name of the argument that sets a place of a study, with the entry in it."""
    if table is None or not _sets(table, loc):
        for length in range(len(loc), 0, -1):
            if loc[:length] in PLACES:
                return PLACES[loc[:length]] + "".join(f"[{step!r}]" for step in loc[length:])
    return "study" + "".join(f"[{step!r}]" for step in loc)


def _sets(table: Mapping[str, Any], loc: Loc) -> bool:
    try:
        lookup(table, loc)
    except KeyError:
        return False
    return True


def _in_python(remedy: str) -> str:
    """Return a remedy with the names of arguments in place of the keys of a study."""

    def replaced(found: re.Match[str]) -> str:
        head, key, value = found.groups()
        name = _name((head, 0, key) if head == "algorithm" else (head, key))
        return name if value is None else f"{name}={value}" if "[" not in name else f"{name} = {value}"

    return _KEY.sub(replaced, remedy)


def _resources(name: str, value: Any) -> None:
    tables = [value] if isinstance(value, Mapping) else value
    if not isinstance(tables, list | tuple) or not all(isinstance(table, Mapping) for table in tables):
        raise arguments.wrong(name, value, "must be a table, for example {'CPU': 2}, or a list with one table per agent")
    for table in tables:
        for resource, amount in table.items():
            called = f"{name}[{resource!r}]"
            arguments.text(f"{name}: the name of a resource", resource)
            if arguments.number(called, amount) < 0:
                raise arguments.wrong(called, amount, "must be at least 0")


def check_algorithm(name: str, value: Any) -> None:
    """Check that a value is the name of an algorithm, or a table with one."""
    if not isinstance(value, str | Mapping) or not value:
        raise arguments.wrong(name, value, "must be a name or a table, for example {'name': 'fts', 'every': 2}")
    if isinstance(value, Mapping) and not isinstance(value.get("name"), str):
        raise arguments.wrong(name, value, "has no name; add one, for example 'name': 'fts'")


def check_stopping(name: str, value: Any) -> None:
    """Check that a value is the name of a stopper, or its table."""
    if not isinstance(value, str | Mapping):
        raise arguments.wrong(name, value, "must be 'asha', 'hyperband', 'median', or a table, for example {'kind': 'asha'}")


def check_metric(metric: Any, mode: Any) -> None:
    """Check a metric's name and its direction, each of which may be None."""
    if metric is not None:
        arguments.text("metric", metric)
    if mode is not None:
        arguments.one_of("mode", mode, get_args(Mode))


def value_of_metrics(options: Mapping[str, Any]) -> tuple[str, Mode]:
    """Return the name and the direction of an evaluation's value: those set, or those of the first objective of `metrics`."""
    first: Mapping[str, Any] = next((table for table in options.get("metrics", ()) if table.get("mode") is not None), {})
    name = options.get("metric") or first.get("name") or DEFAULTS["metric"]
    return str(name), cast(Mode, options.get("mode") or first.get("mode") or DEFAULTS["mode"])


def _metrics(name: str, value: Any) -> None:
    remedy = "must be a list of tables, for example [{'name': 'error', 'mode': 'min'}, {'name': 'memory', 'at_most': 8e9}]"
    if not isinstance(value, list | tuple) or not value or not all(isinstance(table, Mapping) for table in value):
        raise arguments.wrong(name, value, remedy)


def _address(name: str, value: Any) -> None:
    if value != "auto" and not re.fullmatch(r"(ray://)?[^/]+:\d+", arguments.text(name, value)):
        raise arguments.wrong(name, value, "must be 'auto', 'HOST:PORT' or 'ray://HOST:PORT', for example '10.0.0.1:6379'")


def _study(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise arguments.wrong(name, value, "must be a dictionary of tables, for example {'exchange': {'mode': 'barrier'}}")
    as_document(value)


def numbered(choices: Sequence[Any]) -> list[Any]:
    """Return the places of any choices as choices of a space: whole numbers where their order is meaningful, else texts."""
    return [place if ordered(choices) else str(place) for place in range(len(choices))]


def _at_least(least: int) -> Callable[[str, Any], object]:
    return lambda name, value: arguments.whole(name, value, least)


def _above_zero(name: str, value: Any) -> None:
    arguments.number(name, value, above=0.0)


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "algorithm": check_algorithm,
    "mode": lambda name, value: arguments.one_of(name, value, get_args(Mode)),
    "metrics": _metrics,
    "resources": _resources,
    "target": arguments.number,
    "failure": lambda name, value: arguments.one_of(name, value, ("avoid", "drop", "stop")),
    "address": _address,
    "out": arguments.path,
    "steps": _at_least(2),
    "stopping": check_stopping,
    "study": _study,
    **dict.fromkeys(("iterations", "parallel", "evaluations", "memory_limit"), _at_least(1)),
    **dict.fromkeys(("initial", "prefetch", "retries", "seed"), _at_least(0)),
    **dict.fromkeys(("seconds", "cost", "time_limit"), _above_zero),
    **dict.fromkeys(("metric", "name"), arguments.text),
    **dict.fromkeys(("repeats", "resume"), arguments.flag),
}
