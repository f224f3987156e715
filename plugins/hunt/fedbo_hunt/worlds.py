"""Worlds of a study: some of its tables drawn anew as random studies draw them, each of them on or off in a world.

Worlds that differ only in their numbers are one family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbo.algorithms.base import Private
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.settings.arguments import wrong
from fedbo.study.document import StudyError
from fedbo.study.study import load_study
from fedbo_hunt.surroundings import Draws, draw_availability, draw_exchange, draw_fault, draw_group, draw_timing

Document = dict[str, Any]
Path = tuple[str | int, ...]

VARIED = ("timing", "availability", "fault", "exchange", "agents")
_TRIES = 200
_SPAN = 8.0  # how far from its value in a world a number is searched, as a factor
_SHARES = frozenset(("probability", "share", "explore"))
_PLACES = frozenset(("agents", "targets"))  # lists of agents, which are no numbers to search


@dataclass(frozen=True, slots=True)
class World:
    """A world: the tables that replace those of the study, and how it was found."""

    changes: Document
    how: str = "drawn"

    @property
    def family(self) -> str:
        """Return what the world has apart from the values of its numbers."""
        numbers = dict(numbers_of(self.changes))
        return repr(sorted((path, None if path in numbers else value) for path, value in _leaves(self.changes, ())))

    def document(self, study: Document) -> Document:
        """Return the study in this world."""
        return {**study, **self.changes}

    def space(self) -> str:
        """Return the search space of its numbers, by their places; empty without numbers."""
        ranges = {str(place): _range(path[-1], value) for place, (path, value) in enumerate(numbers_of(self.changes))}
        return written_space(ranges) if ranges else ""

    @property
    def values(self) -> list[float | int]:
        """Return its numbers."""
        return [value for _, value in numbers_of(self.changes)]

    def at(self, values: Mapping[str, float | int]) -> World:
        """Return the world of the same family with other numbers."""
        changes = self.changes
        for place, (path, _) in enumerate(numbers_of(self.changes)):
            value = values[str(place)]
            changes = _with(changes, path, value if isinstance(value, int) else float(f"{value:.2g}"))
        return World(changes, "guided")


def check_varied(varied: Sequence[str]) -> None:
    """Check the names of the tables to vary; ArgumentError."""
    names = [*varied] if isinstance(varied, Sequence) and not isinstance(varied, str) else [None]
    if not names or any(name not in VARIED for name in names) or len(set(names)) < len(names):
        raise wrong("vary", varied, f"must be a list of some of {', '.join(VARIED)}, each once")


class Worlds:
    """The worlds of a study, whose tables `varied` are drawn anew; the same for the same seed."""

    def __init__(self, study: Document, varied: Sequence[str], seed: int) -> None:
        self.study, self._varied, self._seed = study, varied, seed
        self._checked = load_study(study, trust=True)

    def draw(self, number: int) -> World:
        """Draw world `number`; ArgumentError if the study fits hardly any drawn world."""
        refused = "no table was drawn"
        for attempt in range(_TRIES):
            draws = Draws(np.random.default_rng([self._seed, number, attempt]))
            changes = {name: table for name, table in self._drawn(draws) if table}
            if not changes:
                continue
            try:
                load_study({**self.study, **changes}, trust=True)
            except StudyError as error:
                refused = str(error).splitlines()[0]
            else:
                return World(changes)
        raise wrong("vary", [*self._varied], f"fits no world to this study ({refused}); vary other tables")

    def _drawn(self, draws: Draws) -> Iterator[tuple[str, Any]]:
        """Yield the tables of a drawn world; each of those varied with probability 1/2."""
        checked, objective = self._checked, self.study["objective"]
        count = checked.federation().n_agents
        on = {name: draws.chance(0.5) for name in self._varied}
        if on.get("agents"):
            if type(objective.get("agents")) is int:
                count = draws.whole(2, 2 * count)
                yield "objective", {**objective, "agents": count}
            if draws.chance(0.5):
                group = draw_group(draws, list(range(count)))
                group.pop("leaving", None)  # steps that are lost may be repeated without end
                yield "group", [group]
        if on.get("timing"):
            yield "timing", draw_timing(draws, costs=False)
        if on.get("availability"):
            yield "availability", draw_availability(draws)
        if on.get("fault"):
            yield "fault", [draw_fault(draws, list(range(count)), []) for _ in range(draws.whole(1, 2))]
        if on.get("exchange"):
            targets = [agent for agent in checked.targets if agent < count]
            private = any(isinstance(table.make(), Private) for table in checked.algorithm)
            yield "exchange", draw_exchange(draws, len(targets), private)


def numbers_of(changes: Document) -> Iterator[tuple[Path, float | int]]:
    """Yield the places and values of the numbers above 0 in a world's tables, apart from agents in lists."""
    for path, value in _leaves(changes, ()):
        in_list = len(path) > 1 and path[-2] in _PLACES and isinstance(path[-1], int)
        if type(value) in (int, float) and value > 0 and not in_list and path[0] != "objective":
            yield path, value


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if entries is None:
        yield path, value
        return
    for key, inner in entries:
        yield from _leaves(inner, (*path, key))


def _range(name: str | int, value: float | int) -> tuple[Any, ...]:
    """Return the range of a number: by a factor of 8 around it, a share up to 1."""
    if isinstance(value, int):
        return (1, max(2, 4 * value))
    return (value / _SPAN, min(1.0, value * _SPAN) if name in _SHARES else value * _SPAN, "log")


def _with(value: Any, path: Path, new: Any) -> Any:
    """Return a table with another value at a path."""
    if not path:
        return new
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    changed = {key: _with(inner, path[1:], new) if key == path[0] else inner for key, inner in entries}
    return changed if isinstance(value, dict) else list(changed.values())
