"""Functions of upper rooms that lower rooms call by a name, so that no file imports what stands above it.

`fedbo/__init__.py` says where each of them is. It is imported when it is first called: drawing needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_PLACES: dict[str, str] = {}


def register(**places: str) -> None:
    """Note the places, `module:function`, of functions by their names."""
    _PLACES.update(places)


def registered(name: str) -> Callable[..., Any]:
    """Import and return the function of a name; KeyError where nothing registers it."""
    module, _, function = _PLACES[name].partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found
