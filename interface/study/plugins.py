"""What of others a study names: plug-ins, with the distributions that they are from, and Python code by its place.

Code that a run names which somebody else has made is run only on request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from fedbo.settings.plugins import GROUPS, Catalogue, used
from fedbo.study.tables import Named

if TYPE_CHECKING:
    from fedbo.study.study import Study

_KEYS = ("name", "model", "mode")  # of a catalogue, as the last part of a key that is swept
_CALLED = ("function", "cost")  # the settings of objectives that name functions; others may have colons for other reasons


def named(value: Any) -> Iterator[tuple[str, str]]:
    """List the groups and names of all that a study, or a table of it, names in catalogues that plug-ins can extend."""
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
    """List what a sweep may name, which group it may be of."""
    for key, values in sweep.items():
        if key.split(".")[-1] in _KEYS:
            yield from ((group, each) for group in GROUPS for each in values if isinstance(each, str))


def distributions(study: BaseModel) -> dict[str, str]:
    """Give the plug-ins that a study names, as "group.name", with their distributions and versions."""
    return used(named(study))


def functions(study: Study) -> list[str]:
    """List the places, such as "package.module:name", from which the study takes functions and classes.

    Plug-ins are none of them: who installed them trusts them.
    """
    found = {value for key in _CALLED if isinstance(value := study.objective.settings.get(key), str)}
    found.update(name for _, name in named(study) if ":" in name)
    histories = (study.agents.history, *(table.history for table in study.group))
    earlier = [history.algorithm for history in histories if history is not None and history.algorithm is not None]
    for table in (*study.algorithm, *earlier):
        found.update(_places(table.model_dump(exclude={"label"})))
    for key, values in study.sweep.items():
        if key.split(".")[0] in ("algorithm", "agents", "group", "objective"):
            found.update(_places(values))
    return sorted(found)


def _places(value: Any) -> Iterator[str]:
    if isinstance(value, str) and ":" in value:
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _places(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _places(each)


def why_untrusted(study: Study, action: str) -> str | None:
    """Say why an action would run functions named by the study's author, and what to do; None if it would run none."""
    if not (found := functions(study)):
        return None
    places = ", ".join(map(repr, found))
    remedy = "if you trust them, add --trust (trust=True in Python)"
    return f"{action} runs Python functions that its study names ({places}); {remedy}"
