"""The catalogue of objectives: ours, whose folders are listed at run time, so that a new one is a new file, and plug-ins."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from fedbo.objectives.base import Federation
from fedbo.settings.declared import DeclaredNames, declaring
from fedbo.settings.plugins import Catalogue, settings_of


@cache
def federations() -> DeclaredNames[type[Any]]:
    """Return the settings classes of the built-in federations by name, in alphabetical order."""
    return DeclaredNames(declaring("fedbo.objectives", "FEDERATIONS"), "FEDERATIONS")


@cache
def catalogue() -> Catalogue[type[Any]]:
    """Return the settings classes of all federations by name: built-in ones and those of plug-ins."""
    return Catalogue("objectives", federations(), partial(settings_of, Federation))
