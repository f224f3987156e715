"""The catalogue of objectives: the folder is listed at run time, so a new one is a new file that nothing else names."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

import fedbo.objectives


@cache
def federations() -> dict[str, type[Any]]:
    """List every federation's settings class by name, in alphabetical order."""
    found: dict[str, type[Any]] = {}
    for module in pkgutil.iter_modules(fedbo.objectives.__path__):
        found.update(getattr(importlib.import_module(f"fedbo.objectives.{module.name}"), "FEDERATIONS", {}))
    return dict(sorted(found.items()))
