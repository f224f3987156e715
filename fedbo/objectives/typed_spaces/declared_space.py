"""A typed space from a declaration by ConfigSpace, in its JSON form, as stored in a study file.

A configuration may have dictionaries in it; tables have its flat form, names joined by dots.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from fedbo.objectives.base import Parameter
from fedbo.objectives.typed_spaces.typed import Fixed, Rule, Space
from fedbo.settings.errors import invalid

Written = Mapping[str, Any]
TRUE, FALSE = Rule("all"), Rule("any")
ORDER = {"LT": (-1.0,), "GT": (1.0,), "EQ": (0.0,), "LE": (-1.0, 0.0), "GE": (0.0, 1.0)}


@dataclass(frozen=True, slots=True)
class _Axes:
    """The parameters that have been read so far."""

    parameters: list[Parameter] = field(default_factory=list)
    choices: list[tuple[Any, ...] | None] = field(default_factory=list)
    defaults: list[float] = field(default_factory=list)
    unordered: list[int] = field(default_factory=list)
    fixed: dict[str, Any] = field(default_factory=dict)

    def place(self, name: str) -> int:
        return next(place for place, parameter in enumerate(self.parameters) if parameter.name == name)

    def codes(self, name: str, values: Iterable[Any]) -> tuple[float, ...]:
        """Return the native numbers of values of a parameter."""
        choices = self.choices[self.place(name)]
        if choices is None:
            return tuple(float(value) for value in values)
        return tuple(float(_index(choices, value)) for value in values)


@lru_cache(maxsize=64)
def read_space(text: str) -> Space:
    """Read a space from `ConfigurationSpace.to_serialized_dict` as JSON.

    ValueError, with a remedy, for other JSON, for a space without choices, and for parts that cannot be tuned here.
    """
    try:
        return _read(json.loads(text), text)
    except json.JSONDecodeError:
        raise invalid("space", text[:40], "write a ConfigSpace.ConfigurationSpace as JSON") from None
    except (TypeError, KeyError, AttributeError, IndexError, StopIteration):
        raise invalid("space", text[:40], "is not a space in the format of ConfigSpace; write it again") from None


def _read(written: Written, text: str) -> Space:
    listed, axes = written["hyperparameters"], _Axes()
    for each in listed:
        _add(axes, each)
    if not axes.parameters:
        raise invalid("space", text[:40], "has no parameter with more than one value; add one")
    when: dict[str, list[Rule]] = {}
    for each in written.get("conditions") or ():
        when.setdefault(_child(each), []).append(_condition(axes, each))
    names = [str(each["name"]) for each in listed]
    rules = {name: _joined("all", when[name]) for name in names if name in when}
    return Space(
        tuple(axes.parameters),
        tuple(axes.choices),
        tuple(axes.defaults),
        conditions=tuple((axes.place(name), rule) for name, rule in rules.items() if name not in axes.fixed),
        forbidden=tuple(_forbidden(axes, each) for each in written.get("forbiddens") or ()),
        fixed=tuple(Fixed(name, value, rules.get(name, TRUE)) for name, value in axes.fixed.items()),
        unordered=tuple(axes.unordered),
    )


@lru_cache(maxsize=64)
def is_nested(text: str) -> bool:
    """Return whether a space was declared by nested dictionaries, whose names are joined by dots."""
    return bool(json.loads(text).get("nested", False))


def _add(axes: _Axes, each: Written) -> None:
    kind, name = str(each["type"]), str(each["name"])
    values = {"constant": [each.get("value")], "categorical": each.get("choices"), "ordinal": each.get("sequence")}.get(kind)
    if values is None and kind not in ("uniform_float", "uniform_int"):
        raise ValueError(f"parameter {name}: is a {kind}; use a uniform, categorical, ordinal or constant parameter")
    if len(set(each.get("weights") or ())) > 1:
        raise ValueError(f"parameter {name}: has weights, which no method here knows; remove them")
    if values is None and each["lower"] == each["upper"]:
        values = [each["lower"]]
    if values is not None and len(values) == 1:
        axes.fixed[name] = values[0]
        return
    axes.choices.append(None if values is None else tuple(values))
    if values is not None:
        if kind == "categorical" and not ordered(values):
            axes.unordered.append(len(axes.parameters))
        axes.parameters.append(Parameter(name, 0.0, float(len(values) - 1), whole=True))
        axes.defaults.append(float(_index(tuple(values), each["default_value"])))
        return
    low, high, log = float(each["lower"]), float(each["upper"]), bool(each["log"])
    axes.parameters.append(Parameter(name, low, high, log, whole=kind == "uniform_int"))
    axes.defaults.append(float(each["default_value"]))


def ordered(values: Sequence[Any]) -> bool:
    """Return whether choices are numbers in ascending or descending order, which is meaningful."""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return False
    return sorted(values) in (list(values), list(values)[::-1])


def _index(choices: tuple[Any, ...], value: Any) -> int:
    """Return the place of a value, or -1; 1, 1.0 and True are different values."""
    same = (place for place, choice in enumerate(choices) if choice == value and type(choice) is type(value))
    return next(same, -1)


def _child(each: Written) -> str:
    return str(each["child"]) if "child" in each else _child((each.get("conditions") or each["components"])[0])


def _condition(axes: _Axes, each: Written) -> Rule:
    kind = str(each["type"])
    if kind in ("AND", "OR"):
        parts = [_condition(axes, part) for part in each.get("conditions") or each["components"]]
        return _joined("all" if kind == "AND" else "any", parts)
    values = each["values"] if kind == "IN" else [each["value"]]
    return _statement(axes, str(each["parent"]), kind, values)


def _statement(axes: _Axes, name: str, kind: str, values: list[Any]) -> Rule:
    """Return the rule that a parameter equals one of the values, differs from it, or is less or greater than it."""
    if name in axes.fixed:
        value = axes.fixed[name]
        if kind in ("EQ", "EQUALS", "IN", "NEQ"):
            return TRUE if (value in values) == (kind != "NEQ") else FALSE
        return TRUE if bool(np.isin(np.sign(value - values[0]), ORDER[kind])) else FALSE
    axis, codes = axes.place(name), axes.codes(name, values)
    if kind in ("EQ", "EQUALS", "IN"):
        return Rule("in", axis, codes)
    if kind == "NEQ":
        code = codes[0]
        return Rule("any", parts=(Rule("between", axis, below=code), Rule("between", axis, above=code)))
    strict = Rule("between", axis, below=codes[0]) if kind in ("LT", "LE") else Rule("between", axis, above=codes[0])
    return strict if kind in ("LT", "GT") else Rule("any", parts=(strict, Rule("in", axis, codes)))


def _joined(kind: str, parts: list[Rule]) -> Rule:
    return parts[0] if len(parts) == 1 else Rule(kind, parts=tuple(parts))


def _forbidden(axes: _Axes, each: Written) -> Rule:
    kind = str(each["type"])
    if kind in ("AND", "OR"):
        parts = [_forbidden(axes, part) for part in each["clauses"]]
        return _joined("all" if kind == "AND" else "any", parts)
    if kind.startswith("RELATION_"):
        return _relation(axes, each)
    values = each["values"] if kind == "IN" else [each["value"]]
    return _statement(axes, str(each["name"]), kind.removeprefix("CLAUSE_"), values)


def _relation(axes: _Axes, each: Written) -> Rule:
    left, right, order = str(each["left"]), str(each["right"]), ORDER[str(each["type"]).removeprefix("RELATION_")]
    for name in (left, right):
        if name in axes.fixed or axes.choices[axes.place(name)] is not None:
            raise ValueError(f"parameter {name}: a forbidden relation requires whole numbers; forbid combinations instead")
    return Rule("compare", axes.place(left), order, other=axes.place(right))


def flattened(configuration: Mapping[str, Any], separator: str = ".", before: str = "") -> dict[str, Any]:
    """Return the values of a nested configuration by their joined names; a flat one stays as it is."""
    flat: dict[str, Any] = {}
    for name, value in configuration.items():
        inner = isinstance(value, Mapping)
        flat |= flattened(value, separator, f"{before}{name}{separator}") if inner else {f"{before}{name}": value}
    return flat


def in_words(configuration: Mapping[str, Any]) -> str:
    """Return a configuration in one line, such as `rate=0.01, model.depth=3`."""
    written = {
        name: f"{value:.6g}" if isinstance(value, float) else repr(value) for name, value in flattened(configuration).items()
    }
    return ", ".join(f"{name}={value}" for name, value in written.items())


def nested(flat: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """Return a configuration with nested dictionaries from its joined names."""
    shape: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, name = path.split(separator)
        place = shape
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value
    return shape


def as_declared(written: str | None, flat: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration in the shape in which its space was declared: nested if the space was."""
    return nested(flat) if written is not None and is_nested(written) else flat
