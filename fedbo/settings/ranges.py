"""Settings and what they may be: ranges declared as marks on their fields, and one check that reads these.

    @dataclass(frozen=True)
    class Search:
        queries: Annotated[int, Ge(1)] = 1
        kernel: Annotated[str, OneOf(("se", "matern52"))] = "se"

        def __post_init__(self) -> None:
            check(self)

The marks are those of `annotated_types`, and `OneOf`, as which a `Literal` counts too; a text among them is the error's hint.
Study files are checked by the same marks, and `fedbo list` shows them.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from annotated_types import Ge, Gt, Le, Lt

from fedbo.settings.errors import SettingError, unknown_choice

Marks = tuple[Any, ...]
BOUNDS: dict[type[Any], tuple[str, Callable[[Any, Any], Any]]] = {
    Gt: ("above", operator.gt),
    Ge: ("at least", operator.ge),
    Lt: ("below", operator.lt),
    Le: ("at most", operator.le),
}


@dataclasses.dataclass(frozen=True, slots=True)
class OneOf:
    """A mark for a field whose value is one of a few choices."""

    choices: tuple[Any, ...]


def check(settings: Any) -> None:
    """Raise SettingError for the first setting outside the range of its field's marks. None means no value and is accepted."""
    for name, marks in marks_of(type(settings)).items():
        value = getattr(settings, name)
        if value is None:
            continue
        for mark in marks:
            if isinstance(mark, OneOf) and value not in mark.choices:
                raise unknown_choice(name, str(value), map(str, mark.choices))
            if type(mark) in BOUNDS and not BOUNDS[type(mark)][1](value, _bound(mark)):
                raise SettingError(name, f"must be {range_of(marks)}", value, hint_of(marks))


def marks_of(declared: Any) -> Mapping[str, Marks]:
    """Return the marks of a dataclass's fields by name; those of `Annotated[int, Ge(1)] | None` apply to any number."""
    return _marks_of(declared)


@cache
def _marks_of(declared: Any) -> Mapping[str, Marks]:
    hints = typing.get_type_hints(declared, include_extras=True)
    found = {field.name: _marks(hints[field.name]) for field in dataclasses.fields(declared)}
    return {name: marks for name, marks in found.items() if marks}


def _marks(hint: Any) -> Marks:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return tuple(hint.__metadata__)
    if origin is typing.Literal:
        return (OneOf(typing.get_args(hint)),)
    inner = typing.get_args(hint) if origin in (typing.Union, types.UnionType) else ()
    return next(filter(None, map(_marks, inner)), ())


def range_of(marks: Marks) -> str:
    """Return the range of marks in words: `at least 1`, `above 0 and finite`, `in (0, 1]`, `one of a, b`; empty without one."""
    for mark in marks:
        if isinstance(mark, OneOf):
            return f"one of {', '.join(map(str, mark.choices))}"
    lower = next((mark for mark in marks if isinstance(mark, Gt | Ge)), None)
    upper = next((mark for mark in marks if isinstance(mark, Lt | Le)), None)
    if lower is not None and upper is not None and _bound(upper) < math.inf:
        opening, closing = "(" if isinstance(lower, Gt) else "[", ")" if isinstance(upper, Lt) else "]"
        return f"in {opening}{_bound(lower):.9g}, {_bound(upper):.9g}{closing}"
    words = [f"{BOUNDS[type(mark)][0]} {_bound(mark):.9g}" for mark in (lower, upper) if mark is not None]
    return " and ".join(words).replace("below inf", "finite")


def hint_of(marks: Marks) -> str:
    """Return the text among marks; empty without one."""
    return next((mark for mark in marks if isinstance(mark, str)), "")


def _bound(mark: Any) -> Any:
    return getattr(mark, type(mark).__name__.lower())
