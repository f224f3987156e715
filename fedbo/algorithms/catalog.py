"""The catalogue of algorithms: ours, whose folders are listed at run time, so that a new one is a new file, and plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from fedbo.algorithms.base import Algorithm
from fedbo.settings.declared import DeclaredNames, declaring
from fedbo.settings.errors import unknown
from fedbo.settings.plugins import Catalogue, settings_of


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in the catalogue: the settings' class, what this name fixes in them, and named presets."""

    settings: type[Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    summary: str = ""

    def free(self) -> tuple[str, ...]:
        """List the settings that may be given."""
        return tuple(f.name for f in fields(self.settings) if f.name not in self.fixed)

    def make(self, preset: str | None = None, **settings: Any) -> Algorithm:
        """Make the algorithm; ValueError for an unknown preset or setting, or from the settings themselves."""
        if preset is not None and preset not in self.presets:
            raise ValueError(unknown("preset", preset, self.presets))
        free = self.free()
        for name in settings:
            if name not in free:
                raise ValueError(unknown("setting", name, free))
        algorithm = self.settings(**{**self.presets.get(preset or "", {}), **settings, **self.fixed})
        assert isinstance(algorithm, Algorithm)
        return algorithm


@cache
def algorithms() -> DeclaredNames[Entry]:
    """Return the built-in algorithms by name, in alphabetical order."""
    return DeclaredNames(declaring("fedbo.algorithms", "ALGORITHMS"), "ALGORITHMS")


@cache
def catalogue() -> Catalogue[Entry]:
    """Return all algorithms by name: the built-in ones and those of plug-ins."""
    return Catalogue("algorithms", algorithms(), _admitted)


def entry(name: str) -> Entry:
    """Find an algorithm; ValueError with a suggestion when there is none of this name."""
    if name not in catalogue():
        raise ValueError(unknown("algorithm", name, catalogue()))
    return catalogue()[name]


def _admitted(found: Any) -> Entry:
    """Return the entry of a plug-in's object: an entry, or the class of an algorithm's settings."""
    if isinstance(found, Entry):
        settings_of(Algorithm, found.settings)
        return found
    return Entry(settings_of(Algorithm, found))
