"""Checks of the arguments of a function: each raises ArgumentError, `<name> = <value>: <what it must be>; <remedy>`.

Typed options for `**keywords` show each option and its default in `help` and notebooks.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from os import PathLike
from typing import Any, Literal, TypeVar

from fedbo.settings.errors import ArgumentError
from fedbo.settings.shown import shown

LONGEST = 60  # characters of a value in a message
MOST = 2**63 - 1  # the largest whole number of TOML
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")  # in memory, of a function or an object


def short(value: object) -> str:
    """Return a value as shown in an error: on one line, and shortened."""
    try:
        text = _ADDRESS.sub("", " ".join(repr(value).split()))
    except Exception:
        text = f"a {type(value).__name__}"
    return shown(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def wrong(name: str, value: object, remedy: str) -> ArgumentError:
    """Return the error of an invalid argument, for the caller to raise."""
    return ArgumentError(f"{name} = {short(value)}: {remedy}")


def whole(name: str, value: Any, least: int = 0, most: int = MOST) -> int:
    """Return an integer; True and 3.0 are not accepted."""
    found = int(value) if type(value) is not bool and isinstance(value, Integral) else None
    if found is not None and found > MOST == most:
        raise wrong(name, value, "must be at most 2**63 - 1")
    if found is None or not least <= found <= most:
        between = f", at least {least}" if most == MOST else f" from {least} to {most}"
        raise wrong(name, value, f"must be {least}" if most == least else f"must be a whole number{between}")
    return found


def number(name: str, value: Any, above: float | None = None) -> float:
    """Return a finite number."""
    try:
        found = float(value) if type(value) is not bool and isinstance(value, Real) else math.nan
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise wrong(name, value, "must be a finite number" + ("" if above is None else f" above {above:g}"))
    if above is not None and not found > above:
        raise wrong(name, value, f"must be above {above:g}")
    return found


def flag(name: str, value: Any) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise wrong(name, value, "must be True or False")
    return value


def text(name: str, value: Any) -> str:
    """Return a non-empty string."""
    if not isinstance(value, str) or not value:
        raise wrong(name, value, "must be a string that is not empty")
    return value


def one_of(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return a string that is one of the choices."""
    words = [repr(choice) for choice in choices]
    if not isinstance(value, str) or repr(value) not in words:
        raise wrong(name, value, f"must be {', '.join(words[:-1])} or {words[-1]}")
    return value


def path(name: str, value: Any, what: Literal["file", "folder"] = "folder") -> Any:
    """Return a path, or an address of remote storage."""
    if not isinstance(value, str | PathLike) or not str(value):
        raise wrong(name, value, f"must be the path of a {what}, as a string or a Path")
    if "\0" in str(value):
        raise wrong(name, value, "must not contain a zero byte; use another name")
    return value


def instance(name: str, value: Any, kind: type[Any], remedy: str) -> Any:
    """Return an instance of a class; `remedy` says how to create one."""
    if not isinstance(value, kind):
        raise wrong(name, value, f"must be a {kind.__name__}; {remedy}")
    return value


Function = TypeVar("Function", bound=Callable[..., Any])


def spelled_out(options: type, defaults: Mapping[str, Any]) -> Callable[[Function], Function]:
    """Return a decorator that puts the keys of a TypedDict into a signature in place of `**keywords`.

    Options without a default have None, which counts as not given.
    """

    def decorated(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        more = [_parameter(name, hint, defaults.get(name)) for name, hint in options.__annotations__.items()]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return decorated


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    words = getattr(hint, "__forward_arg__", hint)  # as written, so that nothing is imported for it
    words = f"{words} | None" if default is None and words != "Any" and not words.endswith("None") else words
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=words)


Mode = Literal["min", "max"]
SearchKind = Literal["history", "importance", "slices", "parallel"]
FigureKind = Literal[
    Literal["overview", "curves", "regret", "timeline", "trouble", "privacy", "optima", "fronts", "feasible", "sweep"],
    SearchKind,
]
Each = Literal["algorithm", "agent", "all"]
