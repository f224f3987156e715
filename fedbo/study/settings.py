"""Settings of anything that a study names: checked against the dataclass that declares them, and completed by its defaults."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import hint_of, marks_of, range_of
from fedbo.settings.shown import UNENCODABLE, encodable
from fedbo.study.document import StudyError
from fedbo.study.invalid import no_such_key, remedy_of

Settings = dict[str, Any]


def names_of(declared: type[Any], fixed: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the settings of a dataclass, except those that are `fixed`."""
    left_out = set(fixed)
    return tuple(f.name for f in dataclasses.fields(declared) if f.init and f.name not in left_out)


def build(
    declared: type[Any],
    given: Settings,
    make: Callable[..., Any] | None = None,
    also: Iterable[str] = (),
    defaults_too: bool = False,
) -> Any:
    """Return an instance made from plain settings; StudyError when a key, a type or a value is invalid.

    - `make`: called with the checked settings instead of the class.
    - `also`: keys of the table besides the settings.
    - `defaults_too`: report an invalid default at its key, rather than at the table.
    """
    names = names_of(declared)
    faults = [SettingError((name,), no_such_key(name, {*names, *also})) for name in given if name not in names]
    faults += _within(declared, {name: given[name] for name in names if isinstance(given.get(name), dict)})
    told = {fault.path[0] for fault in faults}
    try:
        typed = _typed(declared, {name: value for name, value in given.items() if name not in told})
    except StudyError as found:
        raise StudyError.of([*faults, *(fault for fault in found.faults if fault.path[0] not in told)]) from found
    if faults:
        raise StudyError.of(faults)
    try:
        return (make or declared)(**typed)
    except StudyError:
        raise
    except (ValueError, TypeError) as error:
        raise StudyError.of([invalid_from(error, None if defaults_too else given)]) from error


def plain(instance: Any, names: Iterable[str]) -> Settings:
    """Return an instance's settings as values for TOML; those that are None are omitted."""
    values = {name: getattr(instance, name) for name in names}
    return {name: _pruned(to_jsonable_python(value)) for name, value in values.items() if value is not None}


def _pruned(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _pruned(item) for name, item in value.items() if item is not None}


def _within(declared: Any, tables: Settings) -> list[SettingError]:
    """Return the errors within settings that are tables, each at its own place."""
    faults: list[SettingError] = []
    for name, value in tables.items():
        if (inner := _tables_of(declared).get(name)) is not None:
            try:
                build(inner, value)
            except StudyError as found:
                faults += found.under(name).faults
    return faults


@cache  # the cells of a sweep are checked one by one
def _tables_of(declared: Any) -> dict[str, Any]:
    """Return the settings of a class that are themselves dataclasses, or may be."""
    hints = {name: (hint, *typing.get_args(hint)) for name, hint in typing.get_type_hints(declared).items()}
    return {name: one for name, some in hints.items() for one in some if dataclasses.is_dataclass(one)}


@cache
def reader_of(declared: Any) -> TypeAdapter[Any]:
    """Return the reader of a dataclass's settings from JSON: strict, with finite numbers only.

    It leaves the class's own checks of combinations to the class: the settings of a preset are not there yet.
    """
    config = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    unchecked = {"__pydantic_config__": config, "__post_init__": lambda self: None}
    return TypeAdapter(type(declared.__name__, (declared,), unchecked))


_OUTSIDE = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}


def _typed(declared: Any, given: Mapping[str, Any]) -> Settings:
    try:
        # In JSON, unlike in Python, a strict tuple may be written as a list.
        checked = reader_of(declared).validate_json(json.dumps(given))
    except ValidationError as error:
        raise StudyError.of(_collapsed(error, declared, given)) from error
    except TypeError as error:
        raise StudyError.of([SettingError((), f"{error}; settings are numbers, strings, lists and tables")]) from error
    return {name: getattr(checked, name) for name in given}


def _collapsed(error: ValidationError, declared: type[Any], given: Mapping[str, Any]) -> list[SettingError]:
    """Join pydantic's errors for the members of a union, whose names are not part of the place."""
    marks = marks_of(declared)
    found: dict[str, list[str]] = {}
    items = error.errors(include_url=False)
    outside = {str(item["loc"][0]) for item in items if item["type"] in _OUTSIDE}
    for item in items:
        if item["type"] == "json_invalid":  # of all that Python's strings may hold, only this is no JSON
            texts = {name: json.dumps(value, ensure_ascii=False) for name, value in given.items()}
            wrong = next(name for name, text in texts.items() if encodable(text) != text)
            return [SettingError((wrong,), UNENCODABLE)]
        name = str(item["loc"][0])
        if name in outside and item["type"] not in _OUTSIDE:  # the right type is known by the range
            continue
        if item["type"] in _OUTSIDE and name in marks:  # in the words of the class
            remedy = "; ".join(filter(None, (f"must be {range_of(marks[name])}", hint_of(marks[name]))))
        else:
            remedy = remedy_of(item, (name,), {})
        inner = [step for step in item["loc"][1:] if isinstance(given.get(name), dict) and step in given[name]]
        words = f"{'.'.join(str(step) for step in inner)} {remedy}" if inner else remedy
        if words not in found.setdefault(name, []):
            found[name].append(words)
    return [SettingError((name,), " or ".join(words).replace(" or must be", " or")) for name, words in found.items()]


def invalid_from(error: Exception, given: Container[str] | None = None) -> SettingError:
    """Return an error as a SettingError at its path, or at the table where the path is unknown or not `given`.

    At the table, the message of the error is the only place that shows the invalid default.
    """
    if isinstance(error, SettingError) and (given is None or error.path[0] in given):
        return SettingError(error.path, error.remedy)
    if isinstance(error, SettingError) and error.value is not None and not error.message:
        error = SettingError(error.path, error.needed, f"{error.value}, the default", error.hint or f"set {error.path[0]}")
    return SettingError((), str(error))
