"""Search spaces declared by ConfigSpace, as a dictionary, or as in Ray Tune and Optuna, converted to one form."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from typing import Any

import ConfigSpace as CS
import numpy as np

from fedbo.objectives.base import Parameter
from fedbo.objectives.space import from_unit
from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.settings.arguments import short
from fedbo.settings.errors import ArgumentError, SettingError
from fedbo.settings.shown import UNENCODABLE, encodable

Written = dict[str, Any]
MAX_STEPS = 1000
MAX_WHOLE = 2**53  # beyond which a float does not hold every whole number
MAX_FLOAT = 1e150  # of which the square is a float too
_FORMS = 'write (low, high), (low, high, "log"), a list of choices, or a constant'


def log(low: float, high: float) -> tuple[float, float, str]:
    """Return a range on a logarithmic axis, for a search space; two integers declare an integer parameter.

    ArgumentError unless 0 < low < high.
    """
    _range("log", (low, high, "log"))
    return low, high, "log"


def written_space(space: Any) -> str:
    """Return a search space as JSON, the form in which a study holds it.

    `space` is a `ConfigSpace.ConfigurationSpace` or a dictionary by name. An entry is a range `(low, high)` or `(low, high,
    "log")`, a list of choices, a constant, or a dictionary of further entries. It may also be a hyperparameter of ConfigSpace,
    a domain of Ray Tune such as `ray.tune.uniform(…)`, or a distribution of Optuna. A space that is JSON already is returned as
    it is. ArgumentError names an entry that cannot be converted, with the remedy.
    """
    if isinstance(space, str) and space.lstrip().startswith("{"):
        return _readable(space)
    if isinstance(space, CS.ConfigurationSpace):
        return _readable(_json(space.to_serialized_dict()))
    if not isinstance(space, Mapping):
        raise ArgumentError(f"space = {short(space)}: must be a dictionary of ranges, or a ConfigSpace.ConfigurationSpace")
    is_nested = any(_is_folder(value) for value in space.values())
    parameters = dict(_parameters(space, "", is_nested))
    if not parameters:
        raise ArgumentError("space = {}: must not be empty; add at least one parameter, for example {'rate': (0.0, 1.0)}")
    # ConfigSpace would round the bounds of ranges, to 1e-10 or so; the document is its own otherwise.
    whole = {
        **CS.ConfigurationSpace().to_serialized_dict(),
        "hyperparameters": [parameters[name] for name in sorted(parameters)],
    }
    return _readable(_json(whole | ({"nested": True} if is_nested else {})))


def _readable(text: str) -> str:
    """Return a written space; ArgumentError where it cannot be searched."""
    try:
        read_space(text)
    except SettingError as error:
        raise ArgumentError(f"space: {error.hint}; use a dictionary of names, with ranges or lists of choices") from None
    except ValueError as error:
        raise ArgumentError(f"space: {' '.join(str(error).split())[:200]}") from None
    return text


def _json(space: Written) -> str:
    try:
        text = json.dumps(space, ensure_ascii=False)
        if encodable(text) != text:
            raise ArgumentError(f"space: a choice {UNENCODABLE}")
        return json.dumps(space)
    except TypeError as error:
        raise ArgumentError(f"space: {error}; choices are numbers, strings, booleans and None") from None


def _is_folder(value: Any) -> bool:
    return isinstance(value, Mapping) and not isinstance(value, CS.ConfigurationSpace) and set(value) != {"grid_search"}


def _parameters(space: Mapping[Any, Any], before: str, is_nested: bool) -> Iterator[tuple[str, Written]]:
    """Yield parameters by name; those of nested dictionaries have names joined by dots."""
    for name, value in space.items():
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ArgumentError(f"space: {short(name)} is not a valid name of a parameter; use printable strings")
        if is_nested and "." in name:
            raise ArgumentError(f"space: {name!r}: names cannot contain a dot in a space with nested dictionaries; use '_'")
        if not _is_folder(value):
            yield before + name, _converted(before + name, value)
        elif not value:
            raise ArgumentError(f"space[{before + name!r}] = {{}}: must not be empty; add a parameter, or remove it")
        else:
            yield from _parameters(value, f"{before}{name}.", is_nested)


def _converted(name: str, value: Any) -> Written:
    """Return a parameter of any supported form as ConfigSpace writes it."""
    module, called = type(value).__module__, f"space[{name!r}]"
    if isinstance(value, CS.hyperparameters.Hyperparameter):
        if value.name not in (name, name.rpartition(".")[2]):
            raise ArgumentError(f"{called}: contains the hyperparameter {value.name!r}; use that name as the key")
        (space := CS.ConfigurationSpace()).add(value)
        (written,) = space.to_serialized_dict()["hyperparameters"]
        return {**written, "name": name}
    if isinstance(value, CS.ConfigurationSpace):
        raise ArgumentError(f"{called}: is a ConfigurationSpace; pass it as the whole space, or write a dictionary")
    if isinstance(value, Mapping):
        return _choices(name, value["grid_search"])
    if module.startswith("ray.tune"):
        return _from_ray(name, value)
    if module.startswith("optuna"):
        return _from_optuna(name, value)
    if isinstance(value, tuple):
        return _range(name, value)
    return _choices(name, value if isinstance(value, list) else [value])


def _range(name: str, given: tuple[Any, ...]) -> Written:
    """Return a number with these bounds: an integer only where both bounds are."""
    called = f"{'log' if name == 'log' else f'space[{name!r}]'} = {short(given)}"
    low, high = (*given, None, None)[:2]
    if len(given) not in (2, 3) or not all(isinstance(end, Real) and not isinstance(end, bool) for end in (low, high)):
        raise ArgumentError(f"{called}: a range must have two numbers; {_FORMS}")
    if len(given) == 3 and given[2] != "log":
        raise ArgumentError(f'{called}: the third entry of a range must be "log"; {_FORMS}')
    is_log, is_whole = len(given) == 3, isinstance(low, Integral) and isinstance(high, Integral)
    if not is_whole and not (abs(float(low)) <= MAX_FLOAT and abs(float(high)) <= MAX_FLOAT):
        raise ArgumentError(f"{called}: both bounds must be finite and at most {MAX_FLOAT:g}; choose a smaller range")
    if is_whole and max(abs(int(low)), abs(int(high))) > MAX_WHOLE:
        raise ArgumentError(f"{called}: integers must be at most 2**53; write floats, for example (0.0, 1e30)")
    if not low < high:
        raise ArgumentError(f"{called}: low must be less than high; swap them, or write a constant")
    if is_log and not low >= 1 / MAX_FLOAT:
        least = "above 0" if low <= 0 else f"at least {1 / MAX_FLOAT:g}"
        raise ArgumentError(f"{called}: low must be {least} on a logarithmic axis; increase it, or remove 'log'")
    ends = (int(low), int(high)) if is_whole else (float(low), float(high))
    (middle,) = from_unit((Parameter(name, ends[0], ends[1], is_log, whole=is_whole),), [0.5]).tolist()
    kind = "uniform_int" if is_whole else "uniform_float"
    found = {
        "type": kind,
        "name": name,
        "lower": ends[0],
        "upper": ends[1],
        "default_value": int(middle) if is_whole else middle,
    }
    return {**found, "log": is_log, "meta": None}


def _choices(name: str, values: Any) -> Written:
    """Return a category of distinct values; a single value is a constant."""
    called = f"space[{name!r}]"
    if not isinstance(values, list | tuple) or not values:
        raise ArgumentError(f"{called} = {short(values)}: must contain at least one choice; {_FORMS}")
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    for place, value in enumerate(plain):
        if (
            not (value is None or isinstance(value, str | bool | int | float))
            or value != value
            or value in (math.inf, -math.inf)
        ):
            words = "give it a name, which your function looks up in a dictionary" if len(plain) > 1 else _FORMS
            raise ArgumentError(f"{called}: {short(value)}: must be a finite number, a string, a boolean or None; {words}")
        if value in plain[:place]:
            other = plain[plain.index(value)]
            words = f"has {value!r} twice" if type(other) is type(value) else f"has {other!r} and {value!r}, which are equal"
            raise ArgumentError(f"{called} = {short(values)}: {words}; remove one")
    if len(plain) == 1:
        return {"type": "constant", "name": name, "value": plain[0], "meta": None}
    found = {"type": "categorical", "name": name, "choices": plain, "weights": None, "default_value": plain[0]}
    return {**found, "meta": None}


def _from_ray(name: str, domain: Any) -> Written:
    """Convert a domain of Ray Tune, whose integers exclude the upper bound."""
    kind = type(domain).__name__
    if kind == "Categorical":
        return _choices(name, list(domain.categories))
    sampler, step = domain.get_sampler(), None
    if type(sampler).__name__ == "Quantized":
        sampler, step = sampler.get_sampler(), sampler.q
    how = type(sampler).__name__.strip("_")
    if kind not in ("Float", "Integer") or how not in ("Uniform", "LogUniform"):
        words = f"is a {how} {kind} of Ray Tune"
        raise ArgumentError(f"space[{name!r}]: {words}; use uniform, loguniform, randint or choice")
    is_log, is_whole = how == "LogUniform", kind == "Integer"
    if is_log and step is not None and (step != 1 or not is_whole):
        words = f"is a logarithmic range of Ray Tune with steps of {step:g}"
        raise ArgumentError(f"space[{name!r}]: {words}; use loguniform or lograndint without steps, or choice")
    low, high = domain.lower, domain.upper
    if step is not None and (step != 1 or not is_whole):
        values = [round((low + place * step) / step) * step for place in _places(name, low, high, step)]
        return _stepped(name, values if is_whole else [float(value) for value in values])
    low, high = (int(low), int(high) - 1) if is_whole else (float(low), float(high))  # also with steps of 1
    return _choices(name, [low]) if low == high else _range(name, (low, high, *(("log",) if is_log else ())))


def _from_optuna(name: str, distribution: Any) -> Written:
    """Convert a distribution of Optuna."""
    kind = type(distribution).__name__
    if kind == "CategoricalDistribution":
        return _choices(name, list(distribution.choices))
    if kind not in ("FloatDistribution", "IntDistribution"):
        words = f"is a {kind} of Optuna"
        raise ArgumentError(f"space[{name!r}]: {words}; use FloatDistribution, IntDistribution or CategoricalDistribution")
    low, high, step = distribution.low, distribution.high, distribution.step
    log = ("log",) if distribution.log else ()
    if low == high:
        return _choices(name, [low])
    if step is not None and (step != 1 or kind == "FloatDistribution"):
        return _stepped(name, [place * step + low for place in _places(name, low, high, step)])
    number = int if kind == "IntDistribution" else float
    return _range(name, (number(low), number(high), *log))


def _places(name: str, low: float, high: float, step: float) -> range:
    """Return the numbers of the steps from low to high."""
    count = math.floor((high - low) / step + 1e-9) + 1
    if count > MAX_STEPS:
        raise ArgumentError(f"space[{name!r}]: has {count} steps of {step:g}; use at most {MAX_STEPS} steps, or no step")
    return range(count)


def _stepped(name: str, values: list[float]) -> Written:
    """Return an ordinal of values, which are computed as their library does, to the last digit."""
    if len(values) == 1:
        return _choices(name, values)
    return {"type": "ordinal", "name": name, "sequence": values, "default_value": values[0], "meta": None}
