"""Schedules p_t: the probability with which an agent follows its own surrogate in iteration t = 1, 2, ..."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable

Schedule = float | str | Callable[[int], float]

NAMED: dict[str, Callable[[int], float]] = {
    "1-1/sqrt(t)": lambda t: 1 - 1 / math.sqrt(t),
    "1-1/t": lambda t: 1 - 1 / t,
    "1-1/t^2": lambda t: 1 - 1 / t**2,
}


def probability(schedule: Schedule, t: int) -> float:
    """Give p_t; ValueError when it is no probability.

    A schedule is a constant, one of `NAMED`, a function of t, or the place of such a function, `package.module:name`. For
    the named ones p_1 = p_2, as in the experiments of Dai et al. 2020, section 5.
    """
    if isinstance(schedule, str) and schedule in NAMED:
        p = NAMED[schedule](max(t, 2))
    elif isinstance(schedule, str):
        p = float(_imported(schedule)(t))
    else:
        p = float(schedule(t) if callable(schedule) else schedule)
    if not 0 <= p <= 1:
        raise ValueError(f"p must give probabilities; p_{t} = {p} is not in [0, 1]")
    return p


def check(schedule: Schedule, name: str) -> None:
    """Refuse a schedule that gives no probability at t = 1 and 2; ValueError names the setting and the remedy."""
    if isinstance(schedule, str) and schedule not in NAMED and ":" not in schedule:
        raise ValueError(f"{name} must be {', '.join(NAMED)}, a number, or a function's place as module:name, not '{schedule}'")
    for t in (1, 2):
        probability(schedule, t)


def _imported(place: str) -> Callable[[int], float]:
    module, _, name = place.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"no schedule at '{place}': {error}") from None
    assert callable(function)
    return function  # type: ignore[no-any-return]
