"""Signatures of public functions: words that they take, and typed options for `**keywords`.

`help` and notebooks show each option and its default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

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
