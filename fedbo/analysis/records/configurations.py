"""The configurations of a run's points, in native units and by the names of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.objectives.typed_spaces.declared_space import as_declared, read_space
from fedbo.objectives.typed_spaces.typed import Space

Array = npt.NDArray[np.float64]
Columns = dict[str, list[Any]]


class Configurations:
    """The configurations of one cell; `names` are those of all parameters, constants of a typed space included."""

    def __init__(self, parameters: list[Mapping[str, Any]], written: str | None) -> None:
        self._parameters, self._written = parameters, written
        self.space = None if written is None else read_space(written)
        fixed = () if self.space is None else self.space.fixed
        self.names = [str(each["name"]) for each in parameters] + [each.name for each in fixed]

    def declared(self, x: list[float]) -> dict[str, Any]:
        """Return the configuration at a point in the declared shape of its space: nested if the space is."""
        return as_declared(self._written, self.at(x))

    def at(self, x: list[float]) -> dict[str, Any]:
        """Return the configuration at a point, by names joined with dots; in a typed space, only its active parameters.

        It is empty for an empty point, which a site has kept to itself.
        """
        if not len(x):
            return {}
        if self.space is not None:
            return self.space.configuration(np.array(x))
        return dict(zip(self.names, x, strict=True))

    def columns(self, x: Array) -> Columns:
        """Return a column for each parameter of points `(n, d)`; None where a parameter is inactive, or sites kept points."""
        if not x.shape[1]:
            return {name: [None] * len(x) for name in self.names}
        if self.space is not None:
            return _typed_columns(self.space, x)
        kinds: list[Callable[[float], Any]] = [int if each.get("whole") else float for each in self._parameters]
        return {name: list(map(kind, values)) for name, kind, values in zip(self.names, kinds, x.T.tolist(), strict=True)}


def _typed_columns(space: Space, x: Array) -> Columns:
    active, found = space.active(x), Columns()
    for axis, (parameter, choices) in enumerate(zip(space.parameters, space.choices, strict=True)):
        values = x[:, axis].tolist()
        if choices is not None:
            values = [choices[int(value)] for value in values]
        elif parameter.whole:
            values = [int(value) for value in values]
        found[parameter.name] = _where(active[:, axis], values)
    for each in space.fixed:
        found[each.name] = _where(each.when.holds(x, active), [each.value] * len(x))
    return found


def _where(active: npt.NDArray[np.bool_], values: list[Any]) -> list[Any]:
    return [value if counts else None for value, counts in zip(values, active.tolist(), strict=True)]
