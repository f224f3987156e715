"""The catalogue of everything that a study file can name, by group."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms import catalog as algorithms
from fedbo.algorithms.components.centres import Aggregation
from fedbo.algorithms.reveals import Reveals, revealed_by
from fedbo.coordinator.detection import Detection
from fedbo.coordinator.environment.faults import FAULTS
from fedbo.coordinator.environment.timing import DecisionTimeModel, SpeedClasses
from fedbo.coordinator.selection import Selection, choosers
from fedbo.coordinator.staleness import Staleness
from fedbo.objectives import catalog as objectives
from fedbo.objectives.derived.differences import Differences
from fedbo.settings.plugins import Catalogue
from fedbo.settings.ranges import marks_of, meanings, range_of
from fedbo.settings.rooms import offered, optional_or, plugin_rooms, study_tables
from fedbo.study.document import one_line
from fedbo.study.environment.tables import availabilities, exchanges, timings
from fedbo.study.settings import names_of, plain
from fedbo.study.study_tables import StudyTables


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One entry of the catalogue: its name and summary, its settings with defaults and ranges, and its presets.

    - `reveals`: what messages of an algorithm with default settings reveal; empty for anything else.
    - `declared`: the class that declares the settings, if there is one.
    - `more`: what columns of rooms say of it, by their headings.
    """

    name: str
    summary: str
    settings: Mapping[str, str]
    presets: tuple[str, ...] = ()
    ranges: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reveals: str = ""
    declared: type[Any] | None = None
    more: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def meanings(self) -> dict[str, str]:
        """Return the meanings of the settings, for which the sources of their classes are parsed."""
        found = {} if self.declared is None else meanings(self.declared)
        return {name: found[name] for name in self.settings if name in found}

    def plain(self) -> dict[str, Any]:
        """Return all of it as what JSON can hold."""
        names = (field.name for field in dataclasses.fields(self) if field.name not in ("declared", "more"))
        return {**{name: getattr(self, name) for name in names}, **self.more, "meanings": self.meanings}


def groups() -> dict[str, list[Item]]:
    """Return everything that a study file can name, by group, with the columns that rooms offer as `list_column`."""
    found = {name: list_items() for name, list_items in GROUPS.items()}
    for column in offered("list_column"):
        group, heading, words = column()
        found[group] = [
            dataclasses.replace(item, more={**item.more, heading: words.get(item.name, "")}) for item in found[group]
        ]
    return found


def broken() -> list[str]:
    """Return one line for each unusable plug-in, with the reason."""
    known = (algorithms.catalogue(), objectives.catalogue(), timings, availabilities, exchanges, choosers, plugin_rooms())
    return [line for catalogue in known for line in catalogue.broken()]


def _algorithms() -> list[Item]:
    found = []
    for name, entry in _usable(algorithms.catalogue()):
        try:
            reveals = revealed_by(entry.make())
        except (TypeError, ValueError):  # a setting has no default: the worst case
            reveals = Reveals.OBSERVATIONS
        item, presets = _item(name, entry.settings, entry.fixed), (*entry.presets,)
        found.append(dataclasses.replace(item, summary=entry.summary or item.summary, presets=presets, reveals=reveals))
    return found


def revealed(cells: Iterable[StudyTables]) -> dict[str, Reveals]:
    """Return what the messages of each algorithm reveal, by label; the most over all cells of a sweep."""
    found: dict[str, Reveals] = {}
    for study in cells:
        for table in study.algorithm:
            declared = revealed_by(table.make())
            if table.title not in found or declared.exceeds(found[table.title]):
                found[table.title] = declared
    return found


def _declared(known: Mapping[str, type[Any]]) -> list[Item]:
    return [_item(name, declared) for name, declared in _usable(known)]


def _item(name: str, declared: type[Any], fixed: Iterable[str] = ()) -> Item:
    """Return the entry of a class, without the settings that are `fixed`."""
    names = names_of(declared, fixed)
    defaults = {field.name: _default(field) for field in dataclasses.fields(declared) if field.name in names}
    found = {name: range_of(marks) for name, marks in marks_of(declared).items()}
    ranges = {name: found[name] for name in names if found.get(name)}
    return Item(name, first_line(declared), defaults, ranges=ranges, declared=declared)


def _usable(known: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [*known.items()] if not isinstance(known, Catalogue) else [*known.usable()]


def first_line(declared: type[Any]) -> str:
    """Return the first line of a class's docstring."""
    return (inspect.getdoc(declared) or "").partition("\n")[0]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        default = field.default
        if dataclasses.is_dataclass(default):  # a table of its own, which the group "tables" lists
            default = plain(default, names_of(type(default)))
        return "" if default is None else one_line(default, 24)
    return "…" if field.default_factory is not dataclasses.MISSING else "required"


# Tables that have settings and nothing to choose between, by their keys in a study.
TABLES: dict[str, type[Any]] = {
    "objective.differences": Differences,
    "timing.speed": SpeedClasses,
    "timing.decision": DecisionTimeModel,
    "exchange.staleness": Staleness,
    "exchange.selection": Selection,
    "detection": Detection,
    "evaluation": Policy,
    "algorithm.aggregation": Aggregation,
}


def _tables_of_rooms() -> dict[str, type[Any]]:
    rooms = study_tables().items()
    return {f"{key}.{name}": declared for key, table in rooms for name, declared in table.listed.items()}


GROUPS: dict[str, Callable[[], list[Item]]] = {
    "algorithms": _algorithms,
    "objectives": lambda: _declared(objectives.catalogue()),
    "timing": lambda: _declared(timings),
    "availability": lambda: _declared(availabilities),
    "exchange": lambda: _declared(exchanges),
    "selection": lambda: _declared(choosers),
    "faults": lambda: _declared(FAULTS),
    "stopping": lambda: _declared(table.catalogue() if (table := study_tables().get("stopping")) else {}),
    "tables": lambda: _declared(TABLES | _tables_of_rooms()),
    # Suites compare methods. No study names one, so each has tasks with their objectives in place of settings.
    "suites": lambda: [
        Item(suite.name, f"version {suite.version}: {suite.summary}", {task.name: task.objective for task in suite.tasks})
        for suite in optional_or("suites", ())()
    ],
}
