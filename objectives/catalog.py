"""The catalogue of objectives: ours, whose folder is listed at run time, so that a new one is a new file, and plug-ins."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache, partial
from typing import Any

import fedbo.objectives
from fedbo.objectives.base import Federation
from fedbo.settings.plugins import Catalogue, settings_of


@cache
def federations() -> dict[str, type[Any]]:
    """List the settings classes of our own federations by name, in alphabetical order."""
    found: dict[str, type[Any]] = {}
    for module in pkgutil.iter_modules(fedbo.objectives.__path__):
        found.update(getattr(importlib.import_module(f"fedbo.objectives.{module.name}"), "FEDERATIONS", {}))
    return dict(sorted(found.items()))


@cache
def catalogue() -> Catalogue[type[Any]]:
    """Give all federations' settings classes by name: ours and those of plug-ins."""
    return Catalogue("objectives", federations(), partial(settings_of, Federation))
