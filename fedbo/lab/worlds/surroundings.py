"""The random environment of a study: times, network, availability, groups, modes, faults, privacy; and random choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from fedbo.actors.stopping.stoppers import STOPPERS
from fedbo.coordinator.environment.availability import AVAILABILITIES
from fedbo.coordinator.environment.faults import FAULTS, LIES, MESSAGE_FAULTS
from fedbo.coordinator.environment.timing import TIMINGS
from fedbo.coordinator.environment.worker_models import RULES
from fedbo.coordinator.kernel.exchange import MODES

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
    return draws.keep(
        0.7,
        evaluation=draw_durations(draws, 1.0, costs),
        latency=latency,
    ) | draws.keep(
        0.3,
        speed={"factors": factors, **draws.keep(0.3, shares=[1.0, draws.number(0.1, 3.0)])},
        decision={"coefficient": draws.number(0.001, 0.3), "power": draws.number(0.0, 2.0)},
    )


def draw_network(draws: Draws) -> Table:
    """Draw [network]."""
    return draws.keep(
        0.35,
        bandwidth=draws.number(200.0, 20000.0),
        link=draws.number(500.0, 20000.0),
        retry=draws.number(0.1, 3.0),
        attempts=draws.whole(1, 5),
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


def draw_group(draws: Draws, agents: list[int]) -> Table:
    """Draw one [[group]] of some of these agents."""
    table: Table = {"name": "others", "agents": draws.some_of(agents)}
    return table | draws.keep(
        0.4,
        evaluation=draw_durations(draws, draws.one_of(0.3, 3.0)),
        latency=draw_durations(draws, 0.3),
        availability=draw_availability(draws),
        bandwidth=draws.number(300.0, 5000.0),
        leaving=draws.one_of("resumed", "lost"),
        speed={"factors": [draws.number(0.5, 3.0)]},
        decision={"coefficient": 0.05, "power": 1.0},
    )


def draw_exchange(draws: Draws, targets: int, private: bool) -> Table:
    """Draw [exchange]."""
    mode = draws.one_of(*MODES)
    table: Table = {"mode": mode}
    if mode in ("buffered", "first_k"):
        table["k"] = draws.whole(1, targets)
    if mode == "deadline":
        table["length"] = draws.number(0.2, 6.0)
    if mode in ("deadline", "first_k"):
        table |= draws.keep(0.6, late=draws.one_of("drop", "carry"))
    if mode == "first_k":
        table |= draws.keep(0.3, oldest=draws.whole(0, 3))
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
    table |= draws.one_of({"at": draws.number(0.0, 10.0)}, {"event": draws.whole(1, 150)}, {"rate": draws.number(0.01, 0.2)})
    if kind == "crash":
        return table | draws.keep(0.8, restart=draws.number(0.1, 4.0)) | draws.keep(0.7, state="lost")
    table |= draws.keep(0.8, duration=draws.number(0.1, 4.0))
    return table | (draws.keep(0.7, factor=draws.number(1.0, 6.0)) if kind == "slow" else {})


def draw_overlap(draws: Draws) -> Table:
    """Draw settings that make evaluations of one agent overlap in virtual time."""
    return {"parallel": draws.whole(2, 5), **draws.keep(0.3, prefetch=draws.whole(1, 2), wait="all")}


def draw_cluster(draws: Draws, agents: int) -> Table:
    """Draw [cluster]."""
    table: Table = draws.keep(0.7, rule=draws.one_of(*RULES))
    if table.get("rule") == "priority":
        table |= {"priorities": [float(draws.whole(0, 2)) for _ in range(agents)]}
    if draws.chance(0.5):
        return table | {"workers": draws.whole(1, 6)} | draws.keep(0.3, startup=draws.number(0.05, 0.5))
    names = ["fast", "spot"][: draws.whole(1, 2)]
    return table | {"worker": [{"name": name, **_worker(draws, name == "spot")} for name in names]}


def _worker(draws: Draws, may_leave: bool) -> Table:
    table = {"count": draws.whole(1, 3), "cpus": float(draws.whole(2, 4)), "speed": draws.number(0.5, 3.0)}
    table |= draws.keep(0.3, gpus=1.0, memory=1000.0, startup=draws.number(0.05, 0.5))
    return table | (draws.keep(0.4, joins=draws.number(0.1, 3.0), leaves=draws.number(4.0, 20.0)) if may_leave else {})


def draw_preemption(draws: Draws) -> Table:
    """Draw a [[fault]] of workers."""
    table: Table = {"kind": "preemption", **draws.one_of({"at": draws.number(0.1, 8.0)}, {"rate": draws.number(0.01, 0.2)})}
    # One that lasted for good would let evaluations wait until the study is given up.
    return table | {"duration": draws.number(0.1, 3.0)} | draws.keep(0.5, checkpoint=draws.number(0.01, 0.3))


def draw_stopping(draws: Draws, agents: int) -> Table:
    """Draw [stopping], and a suitable objective."""
    objective = {"name": "learning_curves", "agents": agents, "epochs": draws.one_of(2, 9, 30)}
    objective |= draws.keep(0.3, noise=draws.number(0.001, 0.1), cost_spread=draws.number(0.0, 1.0))
    kind = draws.one_of(*STOPPERS)
    if kind == "median":
        stopping = draws.keep(0.5, grace=draws.whole(1, 3), interval=draws.whole(1, 9), others=draws.whole(1, 3))
    else:
        stopping = draws.keep(0.6, reduction=draws.whole(2, 4), variant="promote", checkpoint=draws.number(0.01, 0.5))
    return {"objective": objective, "stopping": {"kind": kind, **stopping}}


def draw_early_end(draws: Draws) -> Table:
    """Draw conditions that end a study before its agents have used their budgets."""
    return draws.keep(0.5, evaluations=draws.whole(1, 40), target=draws.number(-10.0, 3.0))


def draw_privacy(draws: Draws) -> Table:
    """Draw [privacy]."""
    masks = draws.keep(0.5, threshold=draws.number(0.51, 1.0), bits=draws.whole(32, 64), fraction=draws.whole(0, 24))
    most, delta = draws.number(0.05, 5.0), draws.number(1e-5, 0.1)
    terms = draws.keep(0.3, epsilon_max=most, deltas=[delta, delta / 20])
    return terms | draws.keep(0.4, secure_aggregation=masks)


def draw_evaluation(draws: Draws) -> Table:
    """Draw [evaluation] for virtual time."""
    failure = draws.one_of("avoid", "drop", "stop") if draws.chance(0.3) else draws.one_of("avoid", "drop")
    return draws.keep(0.5, retries=draws.whole(0, 2), failure=failure) | draws.keep(0.3, time_limit=draws.number(0.5, 6.0))
