"""The random environment of a study: times, availability, groups, modes and faults; and random choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from fedbo.coordinator.environment.availability import AVAILABILITIES
from fedbo.coordinator.environment.faults import FAULTS, LIES, MESSAGE_FAULTS
from fedbo.coordinator.environment.timing import TIMINGS
from fedbo.coordinator.modes import MODES

T = TypeVar("T")
Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Draws:
    """Choices from a generator, in the order of the calls."""

    rng: np.random.Generator

    def chance(self, probability: float, /) -> bool:
        """Return True with this probability."""
        return bool(self.rng.random() < probability)

    def one_of(self, *options: T) -> T:
        """Return one of the options, all equally likely."""
        return options[int(self.rng.integers(len(options)))]

    def some_of(self, options: Sequence[T], least: int = 1) -> list[T]:
        """Return at least `least` of the options, in their order."""
        count = int(self.rng.integers(least, len(options) + 1))
        chosen = self.rng.choice(len(options), size=count, replace=False)
        return [options[place] for place in sorted(chosen.tolist())]

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def number(self, low: float, high: float) -> float:
        """Return a number between two bounds, with two digits; log-uniform if both bounds are positive and far apart."""
        if low > 0 and high / low >= 20:
            value = math.exp(self.rng.uniform(math.log(low), math.log(high)))
        else:
            value = float(self.rng.uniform(low, high))
        return min(max(float(f"{value:.2g}"), low), high)

    def keep(self, probability: float, /, **settings: Any) -> dict[str, Any]:
        """Return a subset of some settings, each kept with this probability; None is never kept."""
        return {name: value for name, value in settings.items() if self.chance(probability) and value is not None}


def draw_durations(draws: Draws, mean: float, costs: bool = False) -> Table:
    """Draw a model of durations with about this mean."""
    model = draws.one_of(*(name for name in TIMINGS if name not in ("empirical", "log_linear") and (name != "cost" or costs)))
    if model == "cost":
        return {"model": "cost", "rate": draws.number(0.3, 3.0)}
    table: Table = {"model": model, "mean": float(f"{mean * draws.number(0.5, 2.0):.2g}")}
    own = {
        "lognormal": {"sigma": draws.number(0.1, 2.0)},
        "pareto": {"alpha": draws.number(1.1, 4.0)},
        "gamma": {"shape": draws.number(0.3, 5.0)},
    }
    table |= own.get(model, {})
    return table if model == "constant" else table | draws.keep(0.4, between=draws.number(0.1, 1.0))


def draw_timing(draws: Draws, costs: bool) -> Table:
    """Draw [timing]."""
    latency = {"model": "constant", "mean": 0.0} if draws.chance(0.2) else draw_durations(draws, draws.one_of(0.05, 0.3, 2.0))
    factors = [1.0, draws.number(1.0, 5.0)]
    return draws.keep(0.7, evaluation=draw_durations(draws, 1.0, costs), latency=latency) | draws.keep(
        0.3,
        speed={"factors": factors, **draws.keep(0.3, shares=[1.0, draws.number(0.1, 3.0)])},
        decision={"coefficient": draws.number(0.001, 0.3), "power": draws.number(0.0, 2.0)},
    )


def draw_availability(draws: Draws) -> Table:
    """Draw a model of availability and its settings, without `leaving`."""
    model = draws.one_of(*(name for name in AVAILABILITIES if name != "trace"))
    if model == "bernoulli":
        return {"model": model, "probability": draws.number(0.05, 0.6), "absence": draws.number(0.2, 4.0)}
    if model == "markov":
        return {"model": model, "present": draws.number(1.5, 12.0), "absent": draws.number(0.2, 5.0)}
    if model == "daily":
        present = draws.number(2.0, 7.0)
        return {"model": model, "day": 8.0, "present": present, "start": draws.number(0.0, 7.9), "zones": draws.whole(1, 4)}
    return {"model": model}


def draw_bandwidth(draws: Draws, low: float, high: float) -> float | Table:
    """Draw the bandwidth of a link, one for both ways or one for each."""
    rate = draws.number(low, high)
    ways: list[float | Table] = [rate, rate, {"up": rate, "down": 4 * rate}, {"down": rate}, {"up": rate}]
    return draws.one_of(*ways)


def draw_group(draws: Draws, agents: list[int]) -> Table:
    """Draw one [[group]] of some of these agents."""
    table: Table = {"name": "others", "agents": draws.some_of(agents)}
    return table | draws.keep(
        0.4,
        evaluation=draw_durations(draws, draws.one_of(0.3, 3.0)),
        latency=draw_durations(draws, 0.3),
        availability=draw_availability(draws),
        bandwidth=draw_bandwidth(draws, 300.0, 5000.0),
        leaving=draws.one_of("resumed", "lost"),
        speed={"factors": [draws.number(0.5, 3.0)]},
        decision={"coefficient": 0.05, "power": 1.0},
    )


def draw_exchange(draws: Draws, targets: int, private: bool) -> Table:
    """Draw [exchange]."""
    mode = draws.one_of(*(mode for mode in MODES if mode != "adaptive"))  # which leaves what a seed draws as it was
    table: Table = {"mode": mode}
    if mode in ("buffered", "first_k"):
        table["k"] = draws.whole(1, targets)
    if mode == "deadline":
        table |= {"length": draws.number(0.2, 6.0), **draws.keep(0.3, minimum=draws.whole(1, targets))}
    if mode in ("deadline", "first_k"):
        table |= draws.keep(0.6, late=draws.one_of("drop", "carry"))
    if mode == "first_k":
        table |= draws.keep(0.3, oldest=draws.whole(0, 3)) | draws.keep(0.3, length=draws.number(0.2, 6.0))
    weight = draws.one_of("constant", "polynomial", "exponential", "hinge")
    staleness: Table = {"weight": weight, **draws.keep(0.3, bound=draws.whole(0, 4))}
    if weight != "constant":
        staleness |= draws.keep(0.5, decay=draws.number(0.1, 2.0))
    if weight == "hinge":
        staleness |= draws.keep(0.5, after=draws.whole(0, 3))
    table |= draws.keep(0.5, staleness=staleness)
    who = draws.one_of("fraction", "poisson", "speed") if mode not in ("buffered", "immediate") else "poisson"
    selection: Table = {"who": who, "share": draws.number(0.1, 1.0)}
    if who != "poisson":
        selection |= draws.keep(0.5, others="idle")
    if who == "speed":
        selection |= draws.keep(0.5, explore=draws.number(0.0, 1.0), penalty=draws.number(0.0, 3.0))
    return table | draws.keep(0.0 if private else 0.3, selection=selection)


def draw_fault(draws: Draws, agents: list[int], groups: list[str]) -> Table:
    """Draw one [[fault]]."""
    kind = draws.one_of(*(kind for kind in FAULTS if kind != "preemption"))
    table: Table = {"kind": kind}
    if kind != "coordinator":
        table |= draws.keep(0.5, agents=draws.one_of(draws.some_of(agents), "all", *groups))
    if FAULTS[kind] in MESSAGE_FAULTS:
        settings = {setting.name for setting in fields(FAULTS[kind])}
        start = draws.number(0.0, 8.0)
        table |= draws.keep(0.6, probability=draws.number(0.02, 1.0)) if "probability" in settings else {}
        table |= draws.one_of({}, {"start": start}, {"start": start, "end": start + draws.number(0.5, 8.0)})
        if kind == "lie":
            table |= draws.keep(0.8, how=draws.one_of(*LIES))
            return table if table.get("how") == "copy" else table | draws.keep(0.4, strength=draws.number(0.1, 20.0))
        if kind == "corruption":
            return table | draws.keep(0.8, how=draws.one_of("bits", "nan", "shape", "replay"))
        table |= draws.keep(0.4, direction=draws.one_of("both", "up", "down")) if "direction" in settings else {}
        return table | (draws.keep(0.6, by=draws.number(0.05, 4.0)) if "by" in settings else {})
    at = draws.number(0.0, 10.0)
    times = at if draws.chance(0.7) else [at, at + draws.number(0.1, 3.0)]
    table |= draws.one_of({"at": times}, {"event": draws.whole(1, 150)}, {"rate": draws.number(0.01, 0.2)})
    lasts = draw_law(draws) if draws.chance(0.3) else draws.number(0.1, 4.0)
    if kind not in ("partition", "coordinator") and ("rate" in table or isinstance(lasts, dict)):
        table |= draws.keep(0.2, together=True)
    key = "restart" if kind == "crash" else "duration"
    if table.get("together") or draws.chance(0.8):
        table[key] = lasts
    if kind == "crash":
        return table | draws.keep(0.7, state="lost")
    return table | (draws.keep(0.7, factor=draws.number(1.0, 6.0)) if kind == "slow" else {})


def draw_law(draws: Draws) -> Table:
    """Draw a law of how long strikes of a fault last."""
    model = draws.one_of("exponential", "lognormal", "gamma", "pareto")
    own = {"lognormal": {"sigma": draws.number(0.1, 1.5)}, "gamma": {"shape": draws.number(0.3, 5.0)}}
    own["pareto"] = {"alpha": draws.number(1.2, 4.0)}
    return {"model": model, "mean": draws.number(0.1, 3.0), **draws.keep(0.7, **own.get(model, {}))}
