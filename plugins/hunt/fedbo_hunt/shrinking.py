"""The smallest study that still breaks something, by leaving out and simplifying what its document says."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from typing import Any

from fedbo.study.study import StudyError, load_study

Document = dict[str, Any]
NEEDED = frozenset(("study", "objective", "budget", "algorithm", "name", "function", "low", "high", "space"))


def shrink(document: Document, breaks: Callable[[Document], bool], trials: int = 200, fixed: Collection[str] = ()) -> Document:
    """Return a study that still breaks and that no single change of `smaller` keeps breaking, after at most so many trials.

    A change that the checks refuse is passed over. Tables whose names are `fixed` stay as they are.
    """
    found, left = document, trials
    while left:
        for candidate in smaller(found, fixed):
            if not left:
                break
            try:
                load_study(candidate, trust=True)
            except StudyError:
                continue
            left -= 1
            if breaks(candidate):
                found = candidate
                break
        else:
            return found
    return found


def smaller(document: Document, fixed: Collection[str] = ()) -> Iterator[Document]:
    """Yield documents with one thing less: a table, an entry of a list, a key, or a simpler number; the largest parts first.

    A whole number is halved or lowered by one; any other is rounded to one digit.
    """
    for path in sorted(_places(document), key=len):
        if path[0] in fixed:
            continue
        parent: Any = document
        for step in path[:-1]:
            parent = parent[step]
        value, last = parent[path[-1]], path[-1]
        if last not in NEEDED and not (isinstance(parent, list) and len(parent) == 1):
            yield _changed(document, path, None)
        if type(value) is int and value > 1 and last != "seed":
            yield _changed(document, path, value // 2)
            yield _changed(document, path, value - 1)
        if type(value) is float and float(f"{value:.1g}") != value:
            yield _changed(document, path, float(f"{value:.1g}"))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def _changed(document: Document, path: tuple[Any, ...], value: Any) -> Document:
    """Return a copy with another value at a place, or without it where the value is None."""
    changed = copy.deepcopy(document)
    parent: Any = changed
    for step in path[:-1]:
        parent = parent[step]
    if value is None:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return changed
