"""Configurations with dictionaries in them, and the flat form that tables have: names joined by dots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbo.objectives.typed_spaces.declared_space import is_nested


def flattened(configuration: Mapping[str, Any], separator: str = ".", before: str = "") -> dict[str, Any]:
    """Return the values of a nested configuration by their joined names; a flat one stays as it is."""
    flat: dict[str, Any] = {}
    for name, value in configuration.items():
        inner = isinstance(value, Mapping)
        flat |= flattened(value, separator, f"{before}{name}{separator}") if inner else {f"{before}{name}": value}
    return flat


def in_words(configuration: Mapping[str, Any]) -> str:
    """Return a configuration in one line, such as `rate=0.01, model.depth=3`."""
    written = {
        name: f"{value:.6g}" if isinstance(value, float) else repr(value) for name, value in flattened(configuration).items()
    }
    return ", ".join(f"{name}={value}" for name, value in written.items())


def nested(flat: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """Return a configuration with nested dictionaries from its joined names."""
    shape: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, name = path.split(separator)
        place = shape
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value
    return shape


def as_declared(written: str | None, flat: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration in the shape in which its space was declared: nested if the space was."""
    return nested(flat) if written is not None and is_nested(written) else flat
