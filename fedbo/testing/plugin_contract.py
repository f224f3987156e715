"""The contracts of the plug-ins of a distribution, one by one: `plugins_of` lists them, `check_plugin` checks one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import COORDINATOR
from fedbo.callbacks import callback
from fedbo.commands.help import TITLES, commands
from fedbo.execution.notices import CallbackCalls, Evaluation, LoggedEvent
from fedbo.objectives.catalog import catalogue
from fedbo.settings.plugins import GROUPS, Plugin, installed
from fedbo.settings.rooms import loaded, plugin_rooms
from fedbo.study.environment.tables import availabilities, timings
from fedbo.study.listing import GROUPS as LISTED
from fedbo.testing.algorithm_contract import check_algorithm
from fedbo.testing.contract import ContractBroken
from fedbo.testing.environment_contract import check_availability, check_exchange, check_selection, check_timing
from fedbo.testing.objective_contract import check_federation


def plugins_of(name: str) -> list[Plugin]:
    """Return the plug-ins of an installed distribution or package of this name; ValueError if it declares none."""
    listed = [plugin for group in GROUPS for plugin in installed(group)]
    found = [plugin for plugin in listed if _is_of(plugin, name)]
    if not found:
        known = ", ".join(sorted({plugin.distribution for plugin in listed})) or "none"
        raise ValueError(f"{name}: declares no plug-ins; those that do: {known}")
    return found


def check_plugin(plugin: Plugin) -> None:
    """Raise ContractBroken unless a plug-in keeps the contract of its group; PluginError if it cannot be used.

    An algorithm is checked with every preset. An exchange mode runs small studies with stragglers, absences, lost messages and
    crashes. A callback receives two evaluations, two events, a round and the end; what it raises is raised. Everything that a
    room declares is imported.
    """
    _CHECKS[plugin.group](plugin.name)


def _is_of(plugin: Plugin, name: str) -> bool:
    return _normal(plugin.distribution) == _normal(name) or f"{plugin.place}.".replace(":", ".").startswith(f"{name}.")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _check_algorithm(name: str) -> None:
    for preset in (None, *entry(name).presets):
        check_algorithm(entry(name).make(preset))


def _check_callback(name: str) -> None:
    calls = CallbackCalls([callback(name)], strict=True)
    good = Evaluation(0, 0, {"x": 0.5}, value=1.0, error=None, started=0.0, finished=1.0, metrics={"loss": 0.1})
    calls.evaluation(dataclasses.replace(good, reports=((1.0, 0.5),)))
    calls.evaluation(Evaluation(0, 1, {"x": 0.5}, value=None, error="ValueError: no", started=1.0, finished=2.0))
    calls.event(LoggedEvent(0, "random", 0, sequence=0, time=2.0, kind="arrived", agent=0, step=1, bytes=8, staleness=0))
    calls.event(LoggedEvent(0, "random", 0, sequence=1, time=2.0, kind="round", agent=COORDINATOR, round=0, bytes=8))
    calls.end()


def _check_room(name: str) -> None:
    room = plugin_rooms()[name]
    if room.tables:
        raise ContractBroken(f"{name}: a study has the tables of fedbo's own rooms alone; remove its tables")
    places = [*room.names.values(), *room.sections.values(), *room.functions.values(), *room.analyses.values(), *room.errors]
    places += [place for answer in room.answers for place in (answer.read, answer.resume)]
    for place in [*places, *room.schemas.values(), *(command.function for command in room.commands.values())]:
        loaded(place)
    if (column := room.functions.get("list_column")) and (group := loaded(column)()[0]) not in LISTED:
        raise ContractBroken(f"{name}: '{group}', of its column, is no group of fedbo list: {', '.join(LISTED)}")
    for word, command in room.commands.items():
        if commands()[word] is not command or command.title not in TITLES:
            raise ContractBroken(f"{name}: '{word}' is a command of another room, or its title is none of {', '.join(TITLES)}")


_CHECKS: dict[str, Callable[[str], None]] = {
    "algorithms": _check_algorithm,
    "objectives": lambda name: check_federation(catalogue()[name]()),
    "timings": lambda name: check_timing(timings[name]()),
    "availabilities": lambda name: check_availability(availabilities[name]()),
    "exchanges": check_exchange,
    "selections": check_selection,
    "callbacks": _check_callback,
    "rooms": _check_room,
}
