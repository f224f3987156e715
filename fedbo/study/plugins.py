"""External code that a study names: plug-ins with their distributions, and Python code by its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from fedbo.settings.plugins import GROUPS, Catalogue, used
from fedbo.settings.trust import REMEDY, UntrustedError
from fedbo.study.document import shorten
from fedbo.study.tables import Named

_KEYS = ("name", "model", "mode")  # of a catalogue, as the last part of a key that is swept
_PLACE = re.compile(r"\S[^:]*:[^\W\d][\w.]*")  # of an object in a module or a file
_MOST, _LONGEST = 5, 200  # places that a line names, and characters of each


def named(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the groups and names of everything that a study, or a table of it, names in catalogues that plug-ins can extend."""
    if isinstance(value, tuple):
        for each in value:
            yield from named(each)
    elif isinstance(value, BaseModel):
        if isinstance(value, Named) and isinstance(known := type(value).catalogue(), Catalogue):
            yield known.group, getattr(value, value.key)
        for key in type(value).model_fields:
            yield from named(getattr(value, key))
        yield from _swept(getattr(value, "sweep", {}))


def _swept(sweep: dict[str, list[Any]]) -> Iterator[tuple[str, str]]:
    """Yield the names in a sweep, with every group that they may belong to."""
    for key, values in sweep.items():
        if key.split(".")[-1] in _KEYS:
            yield from ((group, each) for group in GROUPS for each in values if isinstance(each, str))


def distributions(study: BaseModel) -> dict[str, str]:
    """Return the plug-ins that a study names, as "group.name", with their distributions and versions."""
    return used(named(study))


def code_in(document: Any, refused: UntrustedError) -> str:
    """Return one line with the keys of a document that name Python code, the refused place among them, and a remedy."""
    found = {f"{key} = {shorten(place, _LONGEST)!r}": None for key, place in places_of_code(document)}
    listed = [*found][:_MOST] + ["…"] * (len(found) > _MOST)
    return (
        f"names Python code ({', '.join(listed) or repr(shorten(refused.place, _LONGEST))}), which would be executed; {REMEDY}"
    )


def places_of_code(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys and values that have the form of a place of code, except names and labels."""
    if isinstance(value, str):
        if _PLACE.fullmatch(value):
            yield key, value
    elif isinstance(value, dict):
        for name, each in value.items():
            if (key, name) != ("", "study") and name not in ("label", "file", "run", "devices"):
                yield from places_of_code(each, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from places_of_code(each, key)
