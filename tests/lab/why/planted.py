"""Runs in which one known draw decides the end, in a world with mild luck of every other kind."""

from __future__ import annotations

from typing import Any, NamedTuple

MILD: dict[str, Any] = {
    "study": {"name": "planted", "replicates": 12},
    "objective": {"name": "quadratic", "agents": 3, "spread": 0.1, "noise": 1e-6},
    "budget": {"iterations": 3},
    "algorithm": [{"name": "fts", "every": 1}],
    "timing": {
        "evaluation": {"model": "lognormal", "mean": 1.0, "sigma": 0.1},
        "latency": {"model": "exponential", "mean": 0.02},
    },
    "availability": {"model": "bernoulli", "probability": 0.05, "absence": 0.1},
    "exchange": {"mode": "immediate"},
    "fault": [{"kind": "loss", "probability": 0.05}],
}


class Planted(NamedTuple):
    """A world, the bad end of some of its runs, and the source whose draws decide it."""

    name: str
    cause: str
    end: str
    changes: dict[str, Any]
    fault: dict[str, Any] | None = None
    seed: int = 1

    @property
    def study(self) -> dict[str, Any]:
        """Return the study."""
        fault = [*MILD["fault"], *([self.fault] if self.fault else [])]
        return {**MILD, **self.changes, "study": {**MILD["study"], "seed": self.seed}, "fault": fault}


BARRIER = {"exchange": {"mode": "barrier"}}
HEAVY = {"timing": {"evaluation": {"model": "pareto", "mean": 1.0, "alpha": 1.3}, "latency": MILD["timing"]["latency"]}}
LATE = {"timing": {"evaluation": MILD["timing"]["evaluation"], "latency": {"model": "lognormal", "mean": 0.6, "sigma": 2.5}}}
FEW = {"objective": {**MILD["objective"], "noise": 0.0}, "algorithm": [{"name": "random"}]}
SELECTED = {
    "exchange": {"mode": "barrier", "selection": {"who": "fraction", "share": 0.34, "others": "idle"}},
    "group": [{"name": "slow", "agents": [2], "evaluation": {"model": "lognormal", "mean": 12.0, "sigma": 0.1}}],
    "agents": {"initial": 1},
}
WORLDS = (
    Planted("crash before the first message", "fault crash", "evaluations < 16", {}, {"kind": "crash", "rate": 0.02}),
    Planted("crash with a late return", "fault crash", "end > 15", {}, {"kind": "crash", "rate": 0.03, "restart": 20.0}),
    Planted("crash at a barrier", "fault crash", "end > 15", BARRIER, {"kind": "crash", "rate": 0.01, "restart": 20.0}, 2),
    Planted("heavy evaluation", "durations", "end > 12", HEAVY),
    Planted("heavy evaluation at a barrier", "durations", "end > 14", {**HEAVY, **BARRIER}),
    Planted("agent 1 is last", "durations", "agent 1 last", HEAVY),
    Planted("late message", "latency", "end > 12", {**LATE, **BARRIER}),
    Planted("hang", "fault hang", "end > 15", {}, {"kind": "hang", "rate": 0.02, "duration": 20.0}, 3),
    Planted("slow spell", "fault slow", "end > 12", {}, {"kind": "slow", "rate": 0.02, "duration": 30.0, "factor": 20.0}),
    Planted("delay", "fault delay", "end > 15", BARRIER, {"kind": "delay", "probability": 0.02, "by": 20.0}),
    Planted("detour", "fault reordering", "end > 12", BARRIER, {"kind": "reordering", "probability": 0.03, "by": 30.0}, 4),
    Planted(
        "outage of the coordinator",
        "fault coordinator",
        "end > 15",
        BARRIER,
        {"kind": "coordinator", "rate": 0.03, "duration": 20.0},
    ),
    Planted("partition", "fault partition", "end > 15", BARRIER, {"kind": "partition", "rate": 0.03, "duration": 20.0}),
    Planted("long absence", "absences", "end > 16", {"availability": {"model": "markov", "present": 60.0, "absent": 30.0}}),
    Planted(
        "missed iteration",
        "absences",
        "end > 15",
        {"availability": {"model": "bernoulli", "probability": 0.02, "absence": 20.0}},
    ),
    Planted(
        "bad initial points", "initial points", "best > 0.1", {**FEW, "budget": {"iterations": 1}, "agents": {"initial": 6}}
    ),
    Planted("bad decisions", "decisions", "best > 0.1", {**FEW, "budget": {"iterations": 8}, "agents": {"initial": 1}}),
    Planted("lost messages", "fault loss", "bytes > 31000", {}),
    Planted("slow agent selected", "selection", "end > 30", SELECTED),
    Planted(
        "liar",
        "fault lie",
        "best > 0.1",
        {
            **BARRIER,
            "objective": {**MILD["objective"], "agents": 4, "spread": 0.05},
            "algorithm": [{"name": "fed_prior"}],
            "budget": {"iterations": 1},
        },
        {"kind": "lie", "probability": 0.15, "how": "flattery", "strength": 1000.0},
    ),
)
