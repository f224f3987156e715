"""Search spaces as Optuna's distributions. Needs Optuna: pip install optuna."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from fedbo.objectives.typed_spaces.declared_space import read_space
from fedbo.tuning.spaces import written_space


def distributions(space: Any) -> dict[str, BaseDistribution]:
    """Give Optuna's distribution of every parameter that has a choice: the declared one, or what means the same."""
    read, found = read_space(written_space(space)), dict[str, BaseDistribution]()
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
