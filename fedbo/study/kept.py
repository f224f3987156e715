"""Results that a table or a study computes once and caches, such as the objects that it declares."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from pydantic import BaseModel

T = TypeVar("T")


class Keeping(BaseModel):
    """A frozen table that caches the results of methods marked `kept`.

    The cache is a slot, since pydantic compares, copies and pickles private attributes. A changed copy
    computes its results again.
    """

    __slots__ = ("_kept",)

    def keep_from(self, other: Keeping) -> None:
        """Copy the cache of another table with equal declarations."""
        object.__setattr__(self, "_kept", dict(_of(other)))


def kept(method: Callable[[Any], T]) -> Callable[[Any], T]:
    """Call a method without arguments once for each table; an exception is not cached."""

    @wraps(method)
    def keeping(self: Any) -> T:
        results, name = _of(self), method.__qualname__
        if name not in results:
            results[name] = method(self)
        found: T = results[name]
        return found

    return keeping


def _of(table: Keeping) -> dict[str, Any]:
    try:
        results: dict[str, Any] = object.__getattribute__(table, "_kept")
    except AttributeError:
        results = {}
        object.__setattr__(table, "_kept", results)
    return results
