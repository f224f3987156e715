"""Search spaces in Optuna's words: those of declared spaces, and one that is inferred from the trials of a study."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.tuning.arguments import numbered

Distributions = dict[str, BaseDistribution]


def distributions(space: Any) -> Distributions:
    """Return Optuna's distribution of every parameter that is not constant: the declared one, or an equivalent."""
    read, found = read_space(written_space(space)), Distributions()
    for parameter, choices in zip(read.parameters, read.choices, strict=True):
        declared = space.get(parameter.name) if isinstance(space, Mapping) else None
        if isinstance(declared, BaseDistribution):
            found[parameter.name] = declared
        elif choices is not None:
            found[parameter.name] = CategoricalDistribution(choices)
        elif parameter.whole:
            found[parameter.name] = IntDistribution(int(parameter.low), int(parameter.high), parameter.log)
        else:
            found[parameter.name] = FloatDistribution(parameter.low, parameter.high, parameter.log)
    return found


def union(trials: Sequence[FrozenTrial]) -> Distributions:
    """Return the distribution of each parameter of any trial; of ranges that differ, the smallest that holds all."""
    found = Distributions()
    for trial in trials:
        for name, each in trial.distributions.items():
            known = found.setdefault(name, each)
            if known is not each and known != each:
                found[name] = _hull(known, each)
    return {name: each for name, each in found.items() if not each.single()}


def _hull(one: Any, other: Any) -> BaseDistribution:
    if isinstance(one, CategoricalDistribution):  # whose choices no storage lets change
        return one
    low, high = min(one.low, other.low), max(one.high, other.high)
    same = one.step == other.step and one.step is not None and float((other.low - one.low) / one.step).is_integer()
    if isinstance(one, IntDistribution):
        return IntDistribution(low, high, one.log, one.step if same else 1)
    return FloatDistribution(low, high, one.log, one.step if same else None)


class InferredSpace(NamedTuple):
    """A space of trials as an agent reads it, in which choices and steps are counted.

    A parameter that some trials lack depends on an earlier one with choices or whole numbers, where the value of that one
    tells in which trials it is. Any other has the middle of its range where it is lacking, and is left out where most lack it.
    """

    names: Distributions
    written: str
    always: frozenset[str]  # names of parameters without which a configuration is not complete

    @classmethod
    def of(cls, trials: Sequence[FrozenTrial], given: Mapping[str, BaseDistribution]) -> InferredSpace | None:
        """Return the space of these distributions; None where it has no parameter."""
        whole = [trial.params for trial in trials if trial.state == TrialState.COMPLETE]  # others may end before they have all
        order = dict.fromkeys(name for params in whole for name in params if name in given and not given[name].single())
        found = {name: _condition(name, order, given, whole) for name in order}
        often = {name for name in order if 2 * sum(name in params for params in whole) >= len(whole)}
        names = {name: given[name] for name in order if found[name] is not None or name in often}
        if not names:
            return None
        space = json.loads(written_space({name: _declared(each) for name, each in names.items()}))
        space["hyperparameters"].sort(key=lambda each: [*names].index(each["name"]))  # parents first
        space["conditions"] = [rule for name in names if (rule := found[name]) is not None and rule["parent"] in names]
        depend = {each["child"] for each in space["conditions"]}
        return cls(names, json.dumps(space), frozenset(names.keys() - depend))

    def configuration(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration of a trial's parameters, in which middles stand for those that it lacks."""
        space = read_space(self.written)
        found = {name: _coded(self.names[name], value) for name, value in params.items() if name in self.names}
        wanted = space.expected(found)
        for parameter, choices, default in zip(space.parameters, space.choices, space.defaults, strict=True):
            found.setdefault(parameter.name, default if choices is None else choices[int(default)])
        return {name: value for name, value in found.items() if name in wanted}

    def params(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that a trial has for a configuration."""
        return {name: _decoded(self.names[name], code) for name, code in configuration.items()}


def _steps(distribution: Any) -> bool:
    step = getattr(distribution, "step", None)
    return step is not None and (step != 1 or isinstance(distribution, FloatDistribution))


def _declared(each: Any) -> Any:
    """Return the range or the choices of an agent's space."""
    if isinstance(each, CategoricalDistribution):
        return numbered(each.choices)
    if _steps(each):
        return (0, round((each.high - each.low) / each.step))
    return (each.low, each.high, "log") if each.log else (each.low, each.high)


def _coded(each: Any, value: Any) -> Any:
    """Return a value as an agent has it."""
    if isinstance(each, CategoricalDistribution):
        return numbered(each.choices)[int(each.to_internal_repr(value))]
    return round((value - each.low) / each.step) if _steps(each) else value


def _decoded(each: Any, code: Any) -> Any:
    """Return the value that a trial has."""
    if isinstance(each, CategoricalDistribution):
        return each.choices[int(code)]
    return min(each.low + code * each.step, each.high) if _steps(each) else code


def _condition(
    name: str, order: Iterable[str], given: Mapping[str, BaseDistribution], known: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return on which parameter that is earlier in the `order` one depends, as ConfigSpace writes it; None if on none."""
    there = [trial for trial in known if name in trial]
    if not 2 <= len(there) < len(known):  # a single one would be explained by anything
        return None
    for parent in takewhile(lambda each: each != name, order):
        inside = {_coded(given[parent], trial[parent]) for trial in there if parent in trial}
        outside = {_coded(given[parent], trial[parent]) for trial in known if name not in trial and parent in trial}
        if not outside or inside & outside or any(parent not in trial for trial in there):
            continue
        found = {"child": name, "parent": parent}
        if isinstance(given[parent], CategoricalDistribution):
            return {"type": "IN", **found, "values": sorted(inside)}
        if isinstance(given[parent], IntDistribution) and min(inside) > max(outside):
            return {"type": "GT", **found, "value": max(outside)}
        if isinstance(given[parent], IntDistribution) and max(inside) < min(outside):
            return {"type": "LT", **found, "value": min(outside)}
    return None
