"""Trust in a run that somebody else has made: Python functions that its study names are run for those only who say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedbo.study.study import Study

_CALLED = ("function", "cost")  # the settings of objectives that name functions; others may have colons for other reasons


def functions(study: Study) -> list[str]:
    """List the places, such as "package.module:name", from which the study's objective and its algorithms take functions."""
    found = {value for key in _CALLED if isinstance(value := study.objective.settings.get(key), str)}
    history = study.agents.history
    for table in (*study.algorithm, *([] if history is None else [history.algorithm])):
        found.update(_places(table.model_dump(exclude={"label"})))
    for key, values in study.sweep.items():
        if key.split(".")[0] in ("algorithm", "agents", "objective"):
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


def distrust(study: Study, deed: str) -> str | None:
    """Say why a deed would run what belongs to whoever has made the study, and what would do; None if there is nothing."""
    if not (named := functions(study)):
        return None
    places = ", ".join(map(repr, named))
    remedy = "if you trust them, add --trust (trust=True in Python)"
    return f"{deed} runs Python functions that its study names ({places}); {remedy}"
