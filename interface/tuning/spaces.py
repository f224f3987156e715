"""Search spaces declared by ConfigSpace, as a dictionary, or as in Ray Tune and Optuna, converted to one form."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import ConfigSpace as CS

from fedbo.objectives.typed_spaces.declared_space import read_space

MAX_STEPS = 1000


def written_space(space: Any) -> str:
    """Write a search space as JSON, the form in which a study holds it.

    `space` is a `ConfigSpace.ConfigurationSpace`, or a dictionary of names, each with a range `(low, high)`, a list of choices,
    a constant, one of ConfigSpace's hyperparameters, or what `ray.tune.uniform` and its like or Optuna's distributions make;
    what has been written already stays. ValueError names what cannot be converted, with the remedy.
    """
    if isinstance(space, str):
        read_space(space)
        return space
    if isinstance(space, Mapping) and not isinstance(space, CS.ConfigurationSpace):
        space = CS.ConfigurationSpace({str(name): _converted(str(name), each) for name, each in space.items()})
    if not isinstance(space, CS.ConfigurationSpace):
        raise ValueError(f"space = {space!r} will not do: give a ConfigSpace.ConfigurationSpace or a dictionary of ranges")
    try:
        return json.dumps(space.to_serialized_dict())
    except TypeError as error:
        raise ValueError(f"space will not do: {error}; choices are numbers, strings, booleans and None") from None


def _converted(name: str, each: Any) -> Any:
    module = type(each).__module__
    if isinstance(each, Mapping) and set(each) == {"grid_search"}:
        return CS.Categorical(name, list(each["grid_search"]))
    if module.startswith("ray.tune"):
        return _from_ray(name, each)
    if module.startswith("optuna"):
        return _from_optuna(name, each)
    return each


def _from_ray(name: str, domain: Any) -> Any:
    """Convert a domain of Ray Tune; its whole numbers end below the upper bound."""
    kind = type(domain).__name__
    if kind == "Categorical":
        return CS.Categorical(name, list(domain.categories))
    sampler, step = domain.get_sampler(), None
    if type(sampler).__name__ == "Quantized":
        sampler, step = sampler.get_sampler(), sampler.q
    how = type(sampler).__name__.strip("_")
    if kind not in ("Float", "Integer") or how not in ("Uniform", "LogUniform"):
        raise ValueError(f"parameter {name}: is a {how} {kind} of Ray Tune; uniform, loguniform, randint and choice would do")
    low, high, log = domain.lower, domain.upper, how == "LogUniform"
    if step is not None and step != 1:
        return _stepped(name, low, high, step, whole=kind == "Integer")
    if kind == "Integer":
        return CS.Integer(name, (low, high if step == 1 else high - 1), log=log)
    return CS.Float(name, (low, high), log=log)


def _from_optuna(name: str, distribution: Any) -> Any:
    """Convert a distribution of Optuna."""
    kind = type(distribution).__name__
    if kind == "CategoricalDistribution":
        return CS.Categorical(name, list(distribution.choices))
    if kind not in ("FloatDistribution", "IntDistribution"):
        raise ValueError(f"parameter {name}: is a {kind} of Optuna; Float, Int and CategoricalDistribution would do")
    low, high, step, log = distribution.low, distribution.high, distribution.step, distribution.log
    if low == high:
        return CS.Constant(name, low)
    if kind == "IntDistribution":
        return CS.Integer(name, (low, high), log=log) if step == 1 else _stepped(name, low, high, step, whole=True)
    return CS.Float(name, (low, high), log=log) if step is None else _stepped(name, low, high, step, whole=False)


def _stepped(name: str, low: float, high: float, step: float, whole: bool) -> Any:
    """Make an ordinal of the values from low to high in steps."""
    count = math.floor((high - low) / step + 1e-9) + 1
    if count > MAX_STEPS:
        raise ValueError(f"parameter {name}: has {count} steps of {step:g}; at most {MAX_STEPS} would do, or none")
    values = [low + place * step for place in range(count)]
    return CS.OrdinalHyperparameter(name, [int(value) if whole else float(f"{value:.12g}") for value in values])
