"""The contracts of models of durations and of absences, and of exchange modes: `check_timing` and similar functions."""

from __future__ import annotations

import itertools
import math
import pickle
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import fedbo
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.availability import Availability
from fedbo.coordinator.environment.timing import Timing
from fedbo.testing.contract import is_frozen, need

SEED, DRAWN, ITERATIONS = 20, 200, 5


def check_timing(timing: Timing) -> None:
    """Raise ContractBroken unless durations are finite, at least 0, and the same for the same stream."""
    _check_settings(timing)
    need(isinstance(timing.costs, bool), "costs must be True or False")
    factor = timing.speed(_stream())
    need(math.isfinite(factor) and factor > 0.0, f"an agent's factor must be finite and above 0, not {factor}")
    drawn = timing.draw(_stream(), DRAWN)
    _check_lengths(drawn, "durations")
    need(np.array_equal(timing.draw(_stream(), DRAWN), drawn), "the same stream gives other durations")


def check_availability(availability: Availability) -> None:
    """Raise ContractBroken unless absences are finite, at least 0, changes ascend, and all are the same for the same stream."""
    _check_settings(availability)
    absences = availability.absences(_stream(), DRAWN)
    _check_lengths(absences, "absences")
    need(np.array_equal(availability.absences(_stream(), DRAWN), absences), "the same stream gives other absences")
    changes = list(itertools.islice(availability.changes(0, _stream()), DRAWN))
    need(all(math.isfinite(time) and time >= 0.0 for time in changes), "changes must be at finite times of at least 0")
    need(all(first < second for first, second in itertools.pairwise(changes)), "changes must come one after the other")
    need(list(itertools.islice(availability.changes(0, _stream()), DRAWN)) == changes, "the same stream gives other changes")
    need(not (changes and absences.any()), "an agent is absent before its iterations or as time goes by, not both")


def check_exchange(mode: str, **settings: Any) -> None:
    """Raise ContractBroken unless studies under the named exchange mode end with all evaluations, and the same for one seed.

    The studies have stragglers, absences, lost messages and agents that crash.
    """
    for name, agents in (("fts", 8), ("fts", 5), ("random", 6)):
        what, study = f"a study of {agents} agents with '{name}'", _study(name, agents, {"mode": mode, **settings})
        first = _run_twice(what, study)
        made = Counter(first.observations["agent"].to_pylist())
        short = [agent for agent in range(agents) if made[agent] < ITERATIONS]
        need(not short, f"{what} ends before agents {short} have made their {ITERATIONS} iterations")


def check_selection(name: str, **settings: Any) -> None:
    """Raise ContractBroken unless the named choice of agents keeps the contract of exchange modes, in rounds and by turns."""
    for mode, more in (
        ("barrier", {"share": 0.5}),
        ("deadline", {"share": 0.4, "others": "idle"}),
        ("buffered", {"concurrency": 3}),
    ):
        selection = {"who": name, **more, **({"settings": settings} if settings else {})}
        if "others" not in more:
            check_exchange(mode, selection=selection)
        else:
            _run_twice("a study of 8 agents with 'fts'", _study("fts", 8, {"mode": mode, "selection": selection}))


def _run_twice(what: str, study: dict[str, Any]) -> fedbo.Result:
    """Return the result of a study, after a comparison of two runs."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            first, second = (fedbo.run(study, out=Path(folder) / run) for run in ("first", "second"))
        except fedbo.errors.RunError as error:
            need(False, f"{what} does not end: {error.__cause__ or error}")
        arrivals = [row for row in first.events.to_pylist() if row["kind"] in ("arrived", "late") and row["answer"] is None]
        twice = [key for key, n in Counter((row["agent"], row["step"]) for row in arrivals).items() if n > 1]
        need(not twice, f"{what}: messages (agent, step) {twice[:3]} take effect more than once")
        same = first.observations.equals(second.observations) and first.events.equals(second.events)
        need(same, f"{what} has other tables at its second run; draw from streams and do not read the clock")
        return first


def _study(name: str, agents: int, exchange: dict[str, Any]) -> dict[str, Any]:
    algorithm = {"name": name, "features": 20} if name == "fts" else {"name": name}
    faults = [{"kind": "loss", "probability": 0.1}, {"kind": "crash", "agents": [0], "at": 3.0, "restart": 1.0}]
    return {
        "study": {"name": "contract", "seed": SEED},
        "objective": {"name": "branin", "agents": agents},
        "budget": {"iterations": ITERATIONS},
        "algorithm": [algorithm],
        "timing": {"evaluation": {"model": "pareto"}, "latency": {"model": "exponential", "mean": 0.1}},
        "availability": {"model": "bernoulli", "probability": 0.2},
        "exchange": exchange,
        "fault": faults,
    }


def _check_settings(model: Any) -> None:
    need(is_frozen(model), "settings must be a frozen dataclass")
    need(pickle.loads(pickle.dumps(model)) == model, "settings are others after they were pickled")


def _check_lengths(found: Any, what: str) -> None:
    need(isinstance(found, np.ndarray) and found.shape == (DRAWN,), f"{what} must be an array of the size that was asked for")
    need(bool(np.isfinite(found).all() and (found >= 0.0).all()), f"{what} must be finite and at least 0")


def _stream() -> np.random.Generator:
    return Streams(SEED, owner=0).rng("contract")
