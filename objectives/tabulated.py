"""Tabulated federations (surrogate benchmarks): a table of evaluations made before, and a surface through it for each agent.

It stands in for objectives that are slow: an evaluation takes a fraction of a millisecond. What is found on it is found on the
surface, whose error `fedbo tabulate` states, and not on the objective itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from fedbo.objectives.base import Array, Metric, Parameter, Refused, require_agent
from fedbo.objectives.space import to_unit
from fedbo.objectives.tables.surfaces import SAMPLE, Nearest, PosteriorMean, Process, fit
from fedbo.objectives.tables.table import DESIGN, FACTS, TableError, complete_facts, points_of

Surface = Nearest | PosteriorMean
_CHECKED = 64  # of the best points: among their values on the surface its largest known one is sought


@dataclass(frozen=True, eq=False)
class TabulatedAgent:
    """One agent's surface; `best_value` is the largest value of it that is known, and no value exceeds it."""

    surface: Surface
    best_value: float
    parameters: tuple[Parameter, ...] = field(repr=False)

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Give the surface's value at x `(d,)`; nothing is drawn."""
        return min(self.surface(to_unit(self.parameters, x)), self.best_value)

    def score(self, x: Array) -> float | None:
        """Give None: an observation is already noise-free."""
        return None


@dataclass(frozen=True)
class Tabulated:
    """A tabulated federation, from a table that `fedbo tabulate` made: much faster, and only as true as the table is dense.

    `table` is the table's folder. `interpolation` is what it is between the points: `"gp"` the mean of a Gaussian process,
    never above the largest nor below the least value that was evaluated, or `"nearest"`, the nearest point's value.
    """

    random_per_replicate: ClassVar[bool] = False

    paths: ClassVar[tuple[str, ...]] = ("table",)  # settings that name files: see `fedbo.study.files`
    table: str
    interpolation: Literal["gp", "nearest"] = "gp"

    def __post_init__(self) -> None:
        try:
            self._facts()
        except TableError as error:
            raise Refused("table", self.table, str(error)) from None

    @property
    def n_agents(self) -> int:
        """Count the agents of the federation that was tabulated."""
        return int(self._facts()["n_agents"])

    @property
    def absent(self) -> tuple[int, ...]:
        """List the agents that the table does not have."""
        facts = self._facts()
        return tuple(agent for agent in range(facts["n_agents"]) if str(agent) not in facts["agents"])

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Give the parameters of the federation that was tabulated."""
        return tuple(Parameter(**parameter) for parameter in self._facts()["parameters"])

    @property
    def metric(self) -> Metric:
        """Give the metric of the federation that was tabulated."""
        return Metric(**self._facts()["metric"])

    @property
    def described(self) -> str:
        """Say which federation was tabulated, how and how densely."""
        facts = self._facts()
        counts = sorted({entry["points"] + entry["refine"] for entry in facts["agents"].values()})
        points = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
        return f"tabulated {facts['federation']} ({self.interpolation}, {points} points)"

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> TabulatedAgent:
        """Build one agent's surface; TableError when the table has nothing of that agent."""
        facts, folder = self._facts(), Path(self.table)
        require_agent(agent, facts["n_agents"])
        entry = facts["agents"].get(str(agent))
        if entry is None:
            have = ", ".join(facts["agents"])
            remedy = f"it has agents {have}; add it with: fedbo tabulate {facts['federation']} --agents {agent} --out {folder}"
            raise TableError(f"agent {agent}: is not in the table '{folder}'; {remedy}, and what else was given")
        points = points_of(folder, facts["points_sha256"]).get(agent)
        if points is None:
            raise TableError(f"agent {agent}: all its evaluations in the table '{folder}' failed; leave this agent out")
        if self.interpolation == "nearest":
            return TabulatedAgent(nearest(points), float(np.max(values(points))), self.parameters)
        process = Process(tuple(entry["gp"]["length_scales"]), entry["gp"]["noise"], entry["gp"]["mean"])
        return TabulatedAgent(mean(points, process), entry["gp"]["best_value"], self.parameters)

    def _facts(self) -> dict[str, Any]:
        folder = Path(self.table)
        try:
            state = os.stat(folder / FACTS)
        except OSError:
            return complete_facts(folder)  # which says what is amiss
        return _facts_of(folder, (state.st_mtime_ns, state.st_size, state.st_ino))


@lru_cache(maxsize=16)
def _facts_of(folder: Path, state: tuple[int, ...]) -> dict[str, Any]:
    return complete_facts(folder)


def nearest(points: pa.Table) -> Nearest:
    """Make the surface of nearest points through evaluations of one agent, none of which failed."""
    return Nearest(places(points), values(points))


def mean(points: pa.Table, process: Process) -> PosteriorMean:
    """Make the surface of a process's mean through evaluations of one agent, the design first."""
    return PosteriorMean(process, (places(points), values(points)), _designed(points))


def fitted(points: pa.Table) -> dict[str, Any]:
    """Fit a process to evaluations of one agent, and give it as a table's facts hold it: with its largest value known."""
    u, y, designed = places(points), values(points), _designed(points)
    chosen = sample(len(y), designed)
    process = fit(u[chosen], y[chosen])
    surface = PosteriorMean(process, (u, y), designed)
    best = max(surface(u[place]) for place in np.argsort(-y, kind="stable")[:_CHECKED])
    scales = list(process.length_scales)
    return {"length_scales": scales, "noise": process.noise, "mean": process.mean, "best_value": best}


def sample(count: int, designed: int) -> list[int]:
    """List the points that stand for all: the first of the design, which cover the cube, and the first of the refinement."""
    return [*range(min(designed, SAMPLE[0])), *range(designed, min(count, designed + SAMPLE[1]))]


def left_out(points: pa.Table, surface: Surface) -> float:
    """Give the root mean square error of a surface at points as if they had not been evaluated, over a sample of them."""
    y, designed = values(points), _designed(points)
    if len(y) < 2:
        return float("nan")
    errors = [surface.without(place) - y[place] for place in sample(len(y), designed)]
    return float(np.sqrt(np.mean(np.square(errors))))


def places(points: pa.Table) -> Array:
    """Give the points `(n, d)` in the unit cube."""
    flat = points["u"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat.reshape(len(points), -1), dtype=np.float64)


def values(points: pa.Table) -> Array:
    """Give the values `(n,)`, to be maximised."""
    return np.asarray(points["value"].to_numpy(), dtype=np.float64)


def _designed(points: pa.Table) -> int:
    return int(np.sum(points["origin"].to_numpy() == DESIGN))


FEDERATIONS = {"tabulated": Tabulated}
