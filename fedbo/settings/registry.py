"""Functions of higher packages that lower packages call by name, so that no module imports a higher one.

`fedbo/__init__.py` registers their places. Each is imported at its first call: drawing needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_PLACES: dict[str, str] = {}


def register(**places: str) -> None:
    """Register the places, `module:function`, of functions by their names."""
    _PLACES.update(places)


def registered(name: str) -> Callable[..., Any]:
    """Import and return the function of a name; KeyError if the name is not registered."""
    module, _, function = _PLACES[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found
