"""Objects of an actor pool, which tell it whether they have a job: Ray can lose a call or its result without an error."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W", bound="PoolWorker")


class PoolWorker:
    """An object that runs one job after another, and can be asked on another thread whether it has one."""

    _at_work = False

    def at_work(self) -> bool:
        """Return whether a job is running; may be called from another thread."""
        return self._at_work


def as_job(method: Callable[Concatenate[W, P], R]) -> Callable[Concatenate[W, P], R]:
    """Wrap a method that runs a job of a worker."""

    @wraps(method)
    def called(worker: W, /, *given: P.args, **named: P.kwargs) -> R:
        worker._at_work = True
        try:
            return method(worker, *given, **named)
        finally:
            worker._at_work = False

    return called
