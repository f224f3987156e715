"""Settings: their ranges, declared as marks on their fields and read by one check, and their meanings, the strings below.

    @dataclass(frozen=True)
    class Search:
        queries: Annotated[int, Ge(1)] = 1
        "Points of a decision."
        kernel: Annotated[str, OneOf(("se", "matern52"))] = "se"

        def __post_init__(self) -> None:
            check(self)

The marks are those of `annotated_types`, and `OneOf`, as which a `Literal` counts too; a text among them is the error's hint.
Study files are checked by the same marks, and `fedbo list` shows them. Reference pages and the JSON Schema are generated from
the meanings. Python discards these strings, as it does comments, so they are read from the source, at their first use.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
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
    """Raise SettingError for the first setting outside the range of its field's marks, which also hold for each of a tuple.

    None means no value and is accepted, and so is what is not a number where a range is one of numbers.
    """
    for name, marks in marks_of(type(settings)).items():
        value = getattr(settings, name)
        if value is None:
            continue
        for mark in marks:
            if isinstance(mark, OneOf) and value not in mark.choices:
                raise unknown_choice(name, str(value), map(str, mark.choices))
            numbers = [one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, int | float)]
            if type(mark) in BOUNDS and not all(BOUNDS[type(mark)][1](one, _bound(mark)) for one in numbers):
                raise SettingError(name, f"must be {range_of(marks)}", value, hint_of(marks))


class Marked:
    """The base of settings of which all that is required stands in the marks of their fields."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check(self)


def marks_of(declared: Any) -> Mapping[str, Marks]:
    """Return the marks of a dataclass's fields by name; those of `Annotated[int, Ge(1)] | None` apply to any number."""
    return _marks_of(declared)


@cache  # apart, since mypy takes no class for an argument of a cached function
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


Texts = Mapping[str, str]  # by the name of a field; empty where a field has none of its own


def meanings(declared: Any) -> Texts:
    """Return the meaning of each field of a class, its bases' included, by name.

    A field without a string has that of its base, or that of the first field of this name in the same module, since settings
    such as `probability` mean the same in many classes.
    """
    found: dict[str, str] = {}
    for base in reversed(declared.__mro__):
        texts = _texts(base.__module__)
        for name, text in texts.get(base.__qualname__, {}).items():
            shared = (other[name] for other in texts.values() if other.get(name))
            if meaning := text or found.get(name) or next(shared, ""):
                found[name] = meaning
    return found


@cache
def _texts(module: str) -> Mapping[str, Texts]:
    """Return the fields of all classes of a module with the strings below them; empty where its source is missing."""
    file = getattr(sys.modules.get(module), "__file__", None)
    source = None if file is None else Path(file).with_name(f"{module.rpartition('.')[2]}.py")  # of a compiled module too
    if source is None or not source.is_file():
        return {}
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {node.name: dict(_fields(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            yield field.target.id, " ".join(str(text).split())
