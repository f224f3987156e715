"""Settings and what they may be: ranges declared as marks on their fields, one check that reads these, and its errors.

    @dataclass(frozen=True)
    class Search:
        queries: Annotated[int, Ge(1)] = 1
        kernel: Annotated[str, OneOf(("se", "matern52"))] = "se"

        def __post_init__(self) -> None:
            check(self)

The marks are those of `annotated_types`, and `OneOf`; a text among them is the error's hint. Study files are checked by the
same marks, and `fedbo list` shows them.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from annotated_types import Ge, Gt, Le, Lt

Marks = tuple[Any, ...]
BOUNDS: dict[type[Any], tuple[str, Callable[[Any, Any], Any]]] = {
    Gt: ("above", operator.gt),
    Ge: ("at least", operator.ge),
    Lt: ("below", operator.lt),
    Le: ("at most", operator.le),
}


@dataclasses.dataclass(frozen=True, slots=True)
class OneOf:
    """A mark for a field whose value is one of a few words."""

    choices: tuple[str, ...]


class SettingError(ValueError):
    """A wrong setting: `key` is its name, and `remedy` says what would do.

    Its message is both, one after the other. What `came` instead, if given, is told in the message alone, before the `hint`:
    who shows the remedy beside the setting shows its value there already.
    """

    def __init__(self, key: str, needed: str, came: object = None, hint: str = "") -> None:
        super().__init__(key, needed, came, hint)
        self.key, self.remedy = key, f"{needed}; {hint}" if hint else needed

    def __str__(self) -> str:
        """Write name, what is needed, what came and the hint."""
        key, needed, came, hint = self.args
        return f"{key} {needed}{'' if came is None else f', not {came}'}{hint and f'; {hint}'}"


class UnknownChoice(SettingError):
    """A setting that is none of its choices; its message says so without repeating the setting's name."""

    def __init__(self, key: str, choice: str, known: Iterable[str]) -> None:
        super().__init__(key, unknown(key, choice, known))
        self.args = (key, choice, tuple(known))

    def __str__(self) -> str:
        """Say what there is."""
        return self.remedy


def check(settings: Any) -> None:
    """Refuse the first setting outside what its field's marks declare: SettingError. None stands for no value and passes."""
    for name, marks in marks_of(type(settings)).items():
        value = getattr(settings, name)
        if value is None:
            continue
        for mark in marks:
            if isinstance(mark, OneOf) and value not in mark.choices:
                raise UnknownChoice(name, value, mark.choices)
            if type(mark) in BOUNDS and not BOUNDS[type(mark)][1](value, _bound(mark)):
                raise SettingError(name, f"must be {range_of(marks)}", value, hint_of(marks))


def marks_of(declared: Any) -> Mapping[str, Marks]:
    """Give the marks of a dataclass's fields, by name; those of `Annotated[int, Ge(1)] | None` count for any number."""
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
    inner = typing.get_args(hint) if origin in (typing.Union, types.UnionType) else ()
    return next(filter(None, map(_marks, inner)), ())


def range_of(marks: Marks) -> str:
    """Write what marks declare: `at least 1`, `above 0 and finite`, `in (0, 1]`, `one of a, b`; nothing where it is nothing."""
    for mark in marks:
        if isinstance(mark, OneOf):
            return f"one of {', '.join(mark.choices)}"
    lower = next((mark for mark in marks if isinstance(mark, Gt | Ge)), None)
    upper = next((mark for mark in marks if isinstance(mark, Lt | Le)), None)
    if lower is not None and upper is not None and _bound(upper) < math.inf:
        opening, closing = "(" if isinstance(lower, Gt) else "[", ")" if isinstance(upper, Lt) else "]"
        return f"in {opening}{_bound(lower):.9g}, {_bound(upper):.9g}{closing}"
    words = [f"{BOUNDS[type(mark)][0]} {_bound(mark):.9g}" for mark in (lower, upper) if mark is not None]
    return " and ".join(words).replace("below inf", "finite")


def hint_of(marks: Marks) -> str:
    """Give the text among marks, if any."""
    return next((mark for mark in marks if isinstance(mark, str)), "")


def _bound(mark: Any) -> Any:
    return getattr(mark, type(mark).__name__.lower())


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that there is no such name, what was probably meant, and what there is."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return f"no {kind} '{name}'{hint} there are: {', '.join(names) or 'none'}"
