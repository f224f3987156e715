"""Trust in a run that somebody else has made: the Python functions that its study names are run only on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedbo.study.study import Study

_CALLED = ("function", "cost")  # the settings of objectives that name functions; others may have colons for other reasons


def functions(study: Study) -> list[str]:
    """List the places, such as "package.module:name", from which the study's objective and its algorithms take functions."""
    found = {value for key in _CALLED if isinstance(value := study.objective.settings.get(key), str)}
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
    if not (named := functions(study)):
        return None
    places = ", ".join(map(repr, named))
    remedy = "if you trust them, add --trust (trust=True in Python)"
    return f"{action} runs Python functions that its study names ({places}); {remedy}"
