"""Plug-ins: entries that installed packages add to the catalogues by entry points, and objects that a study names by place."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any, TypeVar

from fedbo.settings.errors import FedboError
from fedbo.settings.own_modules import import_own
from fedbo.settings.trust import UntrustedError, module_at

T = TypeVar("T")
# Groups of what a study or a command names, and all groups.
NAMED = ("algorithms", "objectives", "timings", "availabilities", "exchanges", "selections", "callbacks")
GROUPS = (*NAMED, "rooms")


class PluginError(FedboError, ValueError):
    """A plug-in, or a class that is named by its place, cannot be used; the message states which, why, and the remedy."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A name that an installed distribution adds to a group, and the `place` "package.module:object" of its object."""

    group: str
    name: str
    place: str
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """Return the distribution and its version."""
        return f"{self.distribution} {self.version}"


def installed(group: str) -> tuple[Plugin, ...]:
    """Return the plug-ins of a group, sorted by name; several distributions may declare the same name."""
    return declared().get(group, ())


@cache
def declared() -> dict[str, tuple[Plugin, ...]]:
    """Return the plug-ins of all groups. They are cached, since reading all distributions takes longer than a small run."""
    everything = importlib.metadata.entry_points()
    found = {group: {_plugin(group, each) for each in everything.select(group=f"fedbo.{group}")} for group in GROUPS}
    return {group: tuple(sorted(of, key=lambda each: (each.name, each.distribution))) for group, of in found.items()}


def _plugin(group: str, entry: EntryPoint) -> Plugin:
    source = entry.dist
    distribution, version = ("?", "?") if source is None else (source.name, source.version)
    return Plugin(group, entry.name, entry.value, distribution=distribution, version=version)


class Catalogue(Mapping[str, T]):
    """The names of a group and their objects: fedbo's own, and those of plug-ins, which are imported at first use.

    `admitted` converts a plug-in's object to an entry, or raises ValueError. A name with a colon is the place of an object,
    "package.module:object" or "file.py:object". Looking up a plug-in that cannot be used raises PluginError.
    """

    def __init__(self, group: str, own: Mapping[str, T], admitted: Callable[[Any], T]) -> None:
        self.group, self.own, self._admitted = group, own, admitted
        self._found: dict[str, tuple[ModuleType, T]] = {}

    def __getitem__(self, name: str) -> T:
        """Return the entry of a name; KeyError when there is none, PluginError when it cannot be used."""
        if name in self.own:
            return self.own[name]
        return self._at_place(name) if ":" in name else self._of_plugin(name)

    def __iter__(self) -> Iterator[str]:
        yield from sorted({*self.own, *(each.name for each in installed(self.group))})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self.own or isinstance(name, str) and (":" in name or bool(self._named(name)))

    def usable(self) -> Iterator[tuple[str, T]]:
        """Yield the names that can be used, with their entries."""
        for name in self:
            try:
                yield name, self[name]
            except PluginError:
                continue

    def broken(self) -> Iterator[str]:
        """Yield one line for each plug-in, and each module of fedbo, that cannot be used, with the reason."""
        yield from getattr(self.own, "broken", list)()
        for each in installed(self.group):
            if each.name in self.own:
                yield f"{_called(each)} has a name of fedbo's own, and is not used; let its author choose another one"
                continue
            try:
                self[each.name]
            except PluginError as error:
                yield str(error)

    def _named(self, name: str) -> list[Plugin]:
        return [each for each in installed(self.group) if each.name == name]

    def _of_plugin(self, name: str) -> T:
        named = self._named(name)
        if not named:
            raise KeyError(name)
        one, *others = named
        if others:
            sources = ", ".join(each.origin for each in named)
            raise PluginError(f"several plug-ins have the name '{name}' ({sources}); uninstall all of them but one")
        try:
            return self._entry(name, import_own(one.place.partition(":")[0]), one.place)
        except (Exception, SystemExit) as error:  # whatever the code of others does when it is imported
            raise PluginError(f"{_called(one)} cannot be used: {_words(error)}; mend or uninstall it") from error

    def _entry(self, name: str, module: ModuleType, place: str) -> T:
        """Return the entry of an object, converted again only where its module was imported again."""
        if name not in self._found or self._found[name][0] is not module:
            self._found[name] = module, self._admitted(_object(module, place))
        return self._found[name][1]

    def _at_place(self, place: str) -> T:
        try:
            return self._entry(place, module_at(_whole(place), files=True), place)
        except UntrustedError:
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(f'cannot be used: {_words(error)}; write "package.module:Class" or "file.py:Class"') from error


def used(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the plug-ins among pairs of a group and a name, as "group.name" with distribution and version."""
    pairs = set(named)
    found = [
        each for group in sorted({group for group, _ in pairs}) for each in installed(group) if (group, each.name) in pairs
    ]
    for each in found:
        if each.distribution != "?" and (now := importlib.metadata.version(each.distribution)) != each.version:
            raise PluginError(f"{_called(each)} was imported before version {now} was installed; restart Python")
    return {f"{each.group}.{each.name}": each.origin for each in found}


def settings_of(protocol: type, found: Any) -> type[Any]:
    """Return a plug-in's class of settings; ValueError unless it is a dataclass with all members of a protocol."""
    if not isinstance(found, type) or not is_dataclass(found):
        raise ValueError(f"it is {found!r:.80}, and a frozen dataclass of settings would do")
    settings = {each for base in found.__mro__ for each in getattr(base, "__annotations__", ())}
    members = (name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_"))
    missing = sorted(name for name in members if not hasattr(found, name) and name not in settings)
    if missing:
        raise ValueError(f"{found.__name__} has no '{missing[0]}', which the protocol {protocol.__name__} asks for")
    return found


def _whole(place: str) -> str:
    module_name, _, name = place.rpartition(":")
    if not module_name or not name:
        raise ValueError(f"'{place}' has no object, or no module")
    return place


def _object(found: Any, place: str) -> Any:
    """Return the object of a place in its module."""
    module_name, _, name = place.rpartition(":")
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"'{module_name}' has no '{name}'")
        found = getattr(found, part)
    return found


def _called(plugin: Plugin) -> str:
    return f"the plug-in '{plugin.name}' of {plugin.origin}"


def _words(error: BaseException) -> str:
    said = " ".join(str(error).split())[:300]
    return said if isinstance(error, ValueError) else f"{type(error).__name__}: {said}"
