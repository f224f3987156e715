"""Typed search spaces: numbers, whole numbers, categories, ordinals, conditions and forbidden clauses, in the unit cube.

Every parameter with a choice is one axis. A category or an ordinal is a whole number, its place in the list of choices, and all
places have cells of the same length. An inactive parameter has its default value, so that each configuration is one point. A
forbidden combination is replaced by the nearest allowed one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array, Federation, Parameter
from fedbo.objectives.space import from_unit, to_unit
from fedbo.objectives.typed_spaces.allowed import NearestAllowed, moved_singly, nearest_allowed

Mask = npt.NDArray[np.bool_]
MAX_COMBINATIONS = 20_000  # combinations that are looked through for the nearest allowed one
MAX_LISTED = 2048  # configurations of a space that may run out; it is not looked after where there are more
_ULPS = 16


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a point in native units. A condition on an inactive axis is false.

    kind:
    - "in": axis `axis` is one of `values`.
    - "between": it is above `above` and below `below`.
    - "compare": its order against axis `other` is in `values`: -1 less, 0 equal, 1 greater.
    - "all" and "any": they join `parts`; without parts they are true and false.
    """

    kind: str
    axis: int = -1
    values: tuple[float, ...] = ()
    above: float = -np.inf
    below: float = np.inf
    other: int = -1
    parts: tuple[Rule, ...] = ()

    def holds(self, x: Array, active: Mask) -> Mask:
        """Return where the rule is true of points `(n, d)`, for their active axes."""
        if self.kind in ("all", "any"):
            said = [part.holds(x, active) for part in self.parts]
            empty = np.full((1, len(x)), self.kind == "all")
            joined = np.logical_and if self.kind == "all" else np.logical_or
            return np.asarray(joined.reduce([*empty, *said]))
        column = x[:, self.axis]
        if self.kind == "in":
            return np.isin(column, self.values) & active[:, self.axis]
        if self.kind == "between":
            return np.asarray((column > self.above) & (column < self.below) & active[:, self.axis])
        order = np.isin(np.sign(column - x[:, self.other]), self.values)
        return np.asarray(order & active[:, self.axis] & active[:, self.other])

    def axes(self) -> set[int]:
        """Return the axes of the rule."""
        own = {self.axis, self.other} - {-1}
        return own.union(*(part.axes() for part in self.parts))


@dataclass(frozen=True, slots=True)
class Fixed:
    """A parameter without a choice: its value, and when it is part of a configuration."""

    name: str
    value: Any
    when: Rule = Rule("all")


@dataclass(frozen=True, slots=True)
class Space:
    """A typed space.

    parameters: the axes.
    choices: for each axis the values of a category or an ordinal, or None for a number.
    defaults: defaults in native units.
    conditions: pairs of an axis and its rule, which must hold for it to be active, parents first.
    forbidden: forbidden clauses.
    fixed: constants.
    unordered: the axes of categories whose order in the list has no meaning.
    """

    parameters: tuple[Parameter, ...]
    choices: tuple[tuple[Any, ...] | None, ...]
    defaults: tuple[float, ...]
    conditions: tuple[tuple[int, Rule], ...] = ()
    forbidden: tuple[Rule, ...] = ()
    fixed: tuple[Fixed, ...] = ()
    unordered: tuple[int, ...] = ()

    def __hash__(self) -> int:
        """Return a hash of what tells spaces apart most often; that of many clauses would take a part of each decision."""
        return hash((self.parameters, self.defaults, len(self.forbidden)))

    def __post_init__(self) -> None:
        count, numbers = 1.0, [self.parameters[axis] for axis in _involved(self)]
        for parameter in numbers:
            if not parameter.whole:
                words = "forbidden clauses over real numbers are not supported"
                raise ValueError(f"parameter {parameter.name}: {words}; use a range, a condition or an ordinal")
            count *= parameter.high - parameter.low + 1
        if count > MAX_COMBINATIONS:
            names = ", ".join(parameter.name for parameter in numbers)
            words = f"forbidden clauses over {names} have {count:.3g} combinations"
            raise ValueError(f"{words}, but at most {MAX_COMBINATIONS} are supported; use a coarser ordinal")
        if self.forbidden and self._wrong(np.array([self.defaults])).any():
            raise ValueError("the default configuration is forbidden; set other defaults")

    @property
    def levels(self) -> tuple[int, ...]:
        """Count the cells of each axis; 0 for an axis of real numbers."""
        return tuple(int(p.high - p.low + 1) if p.whole else 0 for p in self.parameters)

    def project(self, u: Array) -> Array:
        """Move points of the unit cube `(n, d)` to the points of the configurations that would be evaluated."""
        x, u = from_unit(self.parameters, u), u.copy()
        x = self._repaired(x) if self.forbidden else x
        active = self.active(x)
        moved = np.where(active, x, self.defaults)
        settled = to_unit(self.parameters, moved)
        whole = np.array([parameter.whole for parameter in self.parameters])
        return np.asarray(np.where(whole | ~active, settled, u))

    def active(self, x: Array) -> Mask:
        """Return which axes are active at points `(n, d)` in native units."""
        active = np.ones(x.shape, dtype=np.bool_)
        for axis, rule in self.conditions:
            active[:, axis] &= rule.holds(x, active)
        return active

    def inactive(self, u: Array) -> Mask:
        """Return which axes are inactive at points of the unit cube `(n, d)`."""
        if not self.conditions:
            return np.zeros(u.shape, dtype=np.bool_)
        return ~self.active(from_unit(self.parameters, u))

    def configuration(self, x: Array) -> dict[str, Any]:
        """Return the configuration at a point `(d,)` in native units: its active parameters by name."""
        row = np.asarray(x, dtype=np.float64)[None, :]
        active = self.active(row)
        found: dict[str, Any] = {}
        for parameter, choices, value, counts in zip(self.parameters, self.choices, row[0], active[0], strict=True):
            if counts:
                found[parameter.name] = _value(parameter, choices, value)
        return found | {fixed.name: fixed.value for fixed in self.fixed if fixed.when.holds(row, active)[0]}

    def decode(self, u: Array) -> dict[str, Any]:
        """Return the configuration of a point `(d,)` of the unit cube."""
        return self.configuration(from_unit(self.parameters, self.project(u[None, :]))[0])

    def encode(self, configuration: Mapping[str, Any]) -> Array:
        """Return the point `(d,)` of the unit cube at which a configuration is evaluated.

        Constants may be left out. ValueError when a name or a value is wrong, an active parameter is missing, or the
        configuration is forbidden.
        """
        known = {parameter.name for parameter in self.parameters} | {fixed.name for fixed in self.fixed}
        if unknown := sorted(set(configuration) - known):
            raise ValueError(f"{unknown[0]}: is not a parameter of the space; available: {', '.join(sorted(known))}")
        x = self._placed(configuration)
        expected, constant = self.configuration(x), {fixed.name for fixed in self.fixed}
        if wrong := sorted((expected.keys() - constant - configuration.keys()) | (configuration.keys() - expected.keys())):
            words = "is missing" if wrong[0] in expected else "is not active in this configuration; remove it"
            raise ValueError(f"{wrong[0]}: {words}")
        if self.forbidden and self._wrong(x[None, :])[0]:
            raise ValueError(f"{dict(configuration)}: is forbidden")
        return _exact(self.parameters, x)

    def expected(self, configuration: Mapping[str, Any]) -> set[str]:
        """Return the names of what a configuration must have, given the values that it has; ValueError when one is wrong."""
        return set(self.configuration(self._placed(configuration)))

    def _placed(self, configuration: Mapping[str, Any]) -> Array:
        """Return a point `(d,)` in native units, which has defaults where a configuration has nothing."""
        x = np.array(self.defaults)
        for axis, (parameter, choices) in enumerate(zip(self.parameters, self.choices, strict=True)):
            if parameter.name in configuration:
                x[axis] = _code(parameter, choices, configuration[parameter.name])
        return x

    def every(self) -> Array | None:
        """Return the points `(n, d)` of all configurations that are allowed; None where there are too many to list."""
        return _every(self)

    def spread(self, u: Array, rng: np.random.Generator) -> Array:
        """Return points `(n, d)` in which repeated configurations are replaced by new ones, as long as there are any."""
        every = self.every()
        if every is None:
            return u
        found, known = self.project(u), set[tuple[float, ...]]()
        for place, point in enumerate(found.tolist()):
            if tuple(point) in known and (left := [one for one in every.tolist() if tuple(one) not in known]):
                found[place] = point = left[int(rng.integers(len(left)))]
            known.add(tuple(point))
        return found

    def by_name(self, axis: int) -> npt.NDArray[np.intp]:
        """Return the cells of an axis in their order; for an unordered category, in the order of its choices' names."""
        choices = self.choices[axis]
        if choices is None or axis not in self.unordered:
            return np.arange(self.levels[axis])
        return np.argsort(np.array([repr(choice) for choice in choices]), kind="stable")

    def centres(self, axis: int) -> Array:
        """Return the coordinates of an axis's whole numbers, in ascending order."""
        parameter = self.parameters[axis]
        return to_unit((parameter,), np.arange(parameter.low, parameter.high + 1.0)[:, None])[:, 0]

    def _wrong(self, x: Array) -> Mask:
        active = self.active(x)
        return np.asarray(np.logical_or.reduce([rule.holds(x, active) for rule in self.forbidden]))

    def _repaired(self, x: Array) -> Array:
        """Replace forbidden points by the nearest allowed ones, in the axes of the forbidden clauses."""
        axes, combined = _combinations(self)
        if not {axis for axis, _ in self.conditions} & set(axes):
            return _nearest(self).moved(x)
        unit = to_unit(tuple(self.parameters[axis] for axis in axes), combined)
        return moved_singly(x, self._wrong, (axes, combined, unit), self.defaults)


def lattice_of(federation: Federation) -> Space | None:
    """Return the typed space of a federation: its attribute `lattice`, or one made of its parameters where one is whole."""
    given: Space | None = getattr(federation, "lattice", None)
    parameters = federation.parameters
    if given is not None or not any(parameter.whole for parameter in parameters):
        return given
    return Space(parameters, (None,) * len(parameters), tuple(parameter.low for parameter in parameters))


@lru_cache(maxsize=16)
def _every(space: Space) -> Array | None:
    count = 1
    for level in space.levels:
        count *= level or MAX_LISTED + 1
    if count > MAX_LISTED:
        return None
    centres = (space.centres(axis) for axis in range(len(space.levels)))
    found: Array = np.unique(space.project(np.array(list(itertools.product(*centres)))), axis=0)
    found.setflags(write=False)
    return found


def _involved(space: Space) -> list[int]:
    """Return the axes of the forbidden clauses."""
    return sorted(set[int]().union(*(rule.axes() for rule in space.forbidden)))


@lru_cache(maxsize=32)
def _combinations(space: Space) -> tuple[list[int], Array]:
    """Return the axes of the forbidden clauses, and all combinations of their whole numbers."""
    axes = _involved(space)
    ranges = [np.arange(space.parameters[axis].low, space.parameters[axis].high + 1.0) for axis in axes]
    return axes, np.array(list(itertools.product(*ranges)))


@lru_cache(maxsize=32)
def _nearest(space: Space) -> NearestAllowed:
    """Return the nearest allowed combination of each one, where no condition decides about the axes of forbidden clauses."""
    axes, combined = _combinations(space)
    points = np.repeat(np.array([space.defaults]), len(combined), axis=0)
    points[:, axes] = combined
    unit = to_unit(tuple(space.parameters[axis] for axis in axes), combined)
    return nearest_allowed(tuple(axes), combined, unit, space._wrong(points))


def _value(parameter: Parameter, choices: tuple[Any, ...] | None, value: float) -> Any:
    if choices is not None:
        return choices[int(value)]
    return int(value) if parameter.whole else float(value)


def _code(parameter: Parameter, choices: tuple[Any, ...] | None, value: Any) -> float:
    """Return the native number of a value; ValueError when it is none of the parameter's."""
    if choices is not None:
        for place, choice in enumerate(choices):
            if choice == value and isinstance(choice, bool | np.bool_) == isinstance(value, bool | np.bool_):
                return float(place)
        raise ValueError(f"{parameter.name} = {value!r}: is not one of {list(choices)}")
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not parameter.low <= value <= parameter.high or (parameter.whole and not float(value).is_integer()):
        kind = "a whole number" if parameter.whole else "a number"
        raise ValueError(f"{parameter.name} = {value!r}: must be {kind} in [{parameter.low:g}, {parameter.high:g}]")
    return float(value)


def _exact(parameters: tuple[Parameter, ...], x: Array) -> Array:
    """Return the point `(d,)` of the unit cube that maps to x, exactly if there is one, else the nearest."""
    u = to_unit(parameters, x)
    for axis, parameter in enumerate(parameters):
        if not parameter.whole:
            near = np.array(sorted(_neighbours(float(u[axis])), key=lambda place: abs(place - u[axis])))
            found = from_unit((parameter,), near[:, None])[:, 0]
            u[axis] = near[int(np.abs(found - x[axis]).argmin())]
    return u


def _neighbours(u: float) -> Iterator[float]:
    """Return the numbers of [0, 1] within some steps of the last bit."""
    for end in (0.0, 1.0):
        place = u
        for _ in range(_ULPS):
            yield place
            place = float(np.nextafter(place, end))
