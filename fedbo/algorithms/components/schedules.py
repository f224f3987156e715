"""Schedules, functions of t = 1, 2, ...

They set p_t, the probability with which an agent follows its surrogate in iteration t; the temperature of release t; and how
much an acquisition explores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fedbo.settings.errors import SettingError
from fedbo.settings.trust import module_at

Schedule = float | str | Callable[[int], float]

NAMED: dict[str, Callable[[int], float]] = {
    "1-1/sqrt(t)": lambda t: 1 - 1 / math.sqrt(max(t, 2)),
    "1-1/t": lambda t: 1 - 1 / max(t, 2),
    "1-1/t^2": lambda t: 1 - 1 / max(t, 2) ** 2,
}
FROM_ZERO: dict[str, Callable[[int], float]] = {
    "1-1/sqrt(t) from 0": lambda t: 1 - 1 / math.sqrt(t),
    "1-1/t from 0": lambda t: 1 - 1 / t,
}
PROBABILITIES = {**NAMED, **FROM_ZERO}


def _paper(t: int) -> float:
    """Return 1 for ten releases, and then let 1/T fall linearly over 30: from 1 at t = 11 to 0 at t = 40.

    This is the schedule of the authors of Dai et al. 2021 (`create_partitions.py`): ten exponents 16, then linspace(16, 1, 30),
    then 1.
    """
    return 1.0 if t <= 11 else 29 / (40 - t) if t < 40 else math.inf


TEMPERATURES: dict[str, Callable[[int], float]] = {"paper": _paper}


AMOUNTS: dict[str, Callable[[int], float]] = {
    "2*0.9^t": lambda t: 2 * 0.9**t,
    "2*0.8^t": lambda t: 2 * 0.8**t,
    "2/sqrt(t)": lambda t: 2 / math.sqrt(t),
    "1/t": lambda t: 1 / t,
    "sqrt(2 log(t^2 pi^2 / 0.6))": lambda t: math.sqrt(2 * math.log(t * t * math.pi**2 / 0.6)),
}


def probability(schedule: Schedule, t: int) -> float:
    """Return p_t; SettingError when it is no probability.

    A schedule is a constant, one of `PROBABILITIES`, a function of t, or the place of such a function, `package.module:name`.
    For those of `NAMED` p_1 = p_2, as in the experiments of Dai et al. 2020, section 5. For those of `FROM_ZERO` p_1 = 0, as in
    the experiments of Dai et al. 2021.
    """
    p = _value(schedule, t, PROBABILITIES)
    if not 0 <= p <= 1:
        raise SettingError("p", f"must be a schedule of probabilities; p_{t} = {p} is not in [0, 1]")
    return p


def temperature(schedule: Schedule, t: int) -> float:
    """Return the temperature of release t, above 0 and perhaps infinite; SettingError when it is none.

    A schedule is a constant, one of `TEMPERATURES`, a function of t, or the place of such a function.
    """
    value = _value(schedule, t, TEMPERATURES)
    if not value > 0:
        raise SettingError("temperature", f"must be a schedule of numbers above 0; the number of release {t} is {value}")
    return value


def amount(schedule: Schedule, t: int, name: str) -> float:
    """Return a finite number of at least 0, for example kappa_t or epsilon_t; SettingError names the setting.

    A schedule is a constant, one of `AMOUNTS`, a function of t, or the place of such a function.
    """
    value = _value(schedule, t, AMOUNTS)
    if not 0 <= value < math.inf:
        raise SettingError(name, f"must be a schedule of numbers of at least 0; the number of iteration {t} is {value}")
    return value


def check_amount(schedule: Schedule, name: str) -> None:
    """Check that a schedule returns an amount at t = 1 and 2; SettingError names the setting and the remedy."""
    _check(schedule, name, AMOUNTS, lambda given, t: amount(given, t, name))


def check_probability(schedule: Schedule, name: str) -> None:
    """Check that a schedule returns a probability at t = 1 and 2; SettingError names the setting and the remedy."""
    _check(schedule, name, PROBABILITIES, probability)


def check_probabilities(schedule: Schedule, iterations: int) -> None:
    """Check that a schedule returns a probability in every iteration; SettingError names the iteration.

    Numbers and the schedules of `PROBABILITIES` are checked once, not in each of a million iterations.
    """
    of_others = callable(schedule) or (isinstance(schedule, str) and schedule not in PROBABILITIES)
    for t in range(1, iterations + 1 if of_others else min(iterations, 1) + 1):
        probability(schedule, t)


def check_temperature(schedule: Schedule, name: str) -> None:
    """Check that a schedule returns a temperature at t = 1 and 2; SettingError names the setting and the remedy."""
    _check(schedule, name, TEMPERATURES, temperature)


def _check(
    schedule: Schedule, name: str, named: Mapping[str, Callable[[int], float]], value: Callable[[Schedule, int], float]
) -> None:
    if isinstance(schedule, str) and schedule not in named and ":" not in schedule:
        raise SettingError(name, f"must be {', '.join(named)}, a number, or a function as module:name", f"'{schedule}'")
    for t in (1, 2):
        value(schedule, t)


def _value(schedule: Schedule, t: int, named: Mapping[str, Callable[[int], float]]) -> float:
    if isinstance(schedule, str):
        return float((named[schedule] if schedule in named else _imported(schedule))(t))
    return float(schedule(t) if callable(schedule) else schedule)


def _imported(place: str) -> Callable[[int], float]:
    try:
        function = getattr(module_at(place), place.rpartition(":")[2])
    except (ImportError, AttributeError) as error:
        raise ValueError(f"no schedule at '{place}': {error}") from None
    assert callable(function)
    return function  # type: ignore[no-any-return]
