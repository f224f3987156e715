"""Tabulated federations (surrogate benchmarks): a table of earlier evaluations, and a surface through it for each agent.

They replace slow objectives: an evaluation takes a fraction of a millisecond. Results hold for the surface, whose error `fedbo
tabulate` reports, and not for the objective itself.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from fedbo.objectives.base import Array, Fidelity, Metric, Parameter, require_agent
from fedbo.objectives.space import to_unit
from fedbo.settings.errors import invalid
from fedbo_tables.table import (
    CURVE,
    DESIGN,
    FACTS,
    SAMPLE,
    Nearest,
    PosteriorMean,
    Process,
    TableError,
    complete_facts,
    fit,
    levels,
    points_of,
)

Surface = Nearest | PosteriorMean
_CHECKED = 64  # of the best points: among their values on the surface its largest known one is sought


@dataclass(frozen=True, eq=False)
class TabulatedAgent:
    """One agent's surface; `best_value` is the largest value of it that is known, and no value exceeds it.

    Where the table has a fidelity axis, `levels` are its fidelities and `curve` the surfaces at all of them but the last;
    where it has costs, `log_cost` is the surface of their logarithm.
    """

    surface: Surface
    best_value: float
    parameters: tuple[Parameter, ...] = field(repr=False)
    levels: tuple[int, ...] = ()
    curve: tuple[Surface, ...] = ()
    log_cost: Surface | None = None

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return the surface's value at x `(d,)`; nothing is drawn."""
        return self._at_level(x, len(self.curve))

    def score(self, x: Array) -> float | None:
        """Return None: an observation is already noise-free."""
        return None

    def evaluate_at(self, x: Array, fidelity: int, rng: np.random.Generator) -> float:
        """Return the surface's value at x `(d,)` and a fidelity; between two levels it is linear in the fidelity."""
        place = bisect_left(self.levels, fidelity)
        above = self._at_level(x, place)
        if self.levels[place] == fidelity:
            return above
        low, high = self.levels[place - 1], self.levels[place]
        below = self._at_level(x, place - 1)
        return below + (above - below) * (fidelity - low) / (high - low)

    def score_at(self, x: Array, fidelity: int) -> float | None:
        """Return None: an observation is already noise-free."""
        return None

    def cost(self, x: Array) -> float:
        """Return the cost at x `(d,)` from the surface of its logarithm; 1 for a table without costs."""
        u = to_unit(self.parameters, x)
        return 1.0 if self.log_cost is None else float(np.exp(self.log_cost(u)))

    def _at_level(self, x: Array, place: int) -> float:
        if place == len(self.curve):
            return min(self.surface(to_unit(self.parameters, x)), self.best_value)
        return self.curve[place](to_unit(self.parameters, x))


@dataclass(frozen=True)
class Tabulated:
    """A fast surrogate of another objective, from a table that `fedbo tabulate` made.

    table: the table's folder.
    interpolation: between the points, `"gp"` is the mean of a Gaussian process, kept between the least and the largest
      evaluated value; `"nearest"` is the nearest point's value.
    """

    random_per_replicate: ClassVar[bool] = False

    paths: ClassVar[tuple[str, ...]] = ("table",)  # settings that name files: see `fedbo.study.files`
    table: str
    """Folder of the table, relative to the study file."""
    interpolation: Literal["gp", "nearest"] = "gp"
    """Mean of a Gaussian process, or value of the nearest point."""

    def __post_init__(self) -> None:
        try:
            facts = self._facts()
        except TableError as error:
            raise invalid("table", self.table, str(error)) from None
        absent = [agent for agent in range(facts["n_agents"]) if str(agent) not in facts["agents"]]
        if absent:  # a run builds every agent's objective
            these = ",".join(map(str, absent[:10])) + ("" if len(absent) <= 10 else ",…")
            words = f"it has no evaluations of {len(absent)} agents; tabulate agents {these} into the same folder"
            raise invalid("table", self.table, words)

    @property
    def n_agents(self) -> int:
        """Count the agents of the federation that was tabulated."""
        return int(self._facts()["n_agents"])

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the tabulated federation."""
        return tuple(Parameter(**parameter) for parameter in self._facts()["parameters"])

    @property
    def metric(self) -> Metric:
        """Return the metric of the tabulated federation."""
        return Metric(**self._facts()["metric"])

    @property
    def costly(self) -> bool:
        """Return whether the table has costs."""
        return bool(self._facts().get("costly", False))

    @property
    def fidelity(self) -> Fidelity | None:
        """Return the fidelity axis of the tabulated federation."""
        axis = self._facts().get("fidelity")
        return Fidelity(**axis) if axis else None

    @property
    def described(self) -> str:
        """Return a description with the tabulated federation, the interpolation and the number of points."""
        facts = self._facts()
        counts = sorted({entry["points"] + entry["refine"] for entry in facts["agents"].values()})
        points = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
        return f"tabulated {facts['federation']} ({self.interpolation}, {points} points)"

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> TabulatedAgent:
        """Build one agent's surface; TableError when all evaluations of that agent failed."""
        facts, folder = self._facts(), Path(self.table)
        require_agent(agent, facts["n_agents"])
        entry = facts["agents"][str(agent)]
        points = points_of(folder, facts["points_sha256"]).get(agent)
        if points is None:
            raise TableError(f"agent {agent}: all its evaluations in the table '{folder}' failed; remove this agent")
        surface: Surface
        costs: Surface | None
        if self.interpolation == "nearest":
            surface, best = nearest(points), float(np.max(values(points)))
            costs = surface.through(log_costs(points)) if self.costly else None
        else:
            surface, best = mean(points, _process(entry["gp"])), entry["gp"]["best_value"]
            costs = cost_mean(points, _process(entry["cost"])) if self.costly else None
        chosen = levels(self.fidelity) if self.fidelity else ()
        return TabulatedAgent(
            surface, best, self.parameters, levels=chosen, curve=tuple(map(surface.through, curves(points))), log_cost=costs
        )

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
    """Build the surface of nearest points through successful evaluations of one agent."""
    return Nearest(places(points), values(points))


def mean(points: pa.Table, process: Process) -> PosteriorMean:
    """Make the surface of a process's mean through evaluations of one agent, the design first."""
    return PosteriorMean(process, (places(points), values(points)), _designed(points))


def cost_mean(points: pa.Table, process: Process) -> PosteriorMean:
    """Make the surface of a process's mean through the logarithm of the costs of one agent's evaluations."""
    return PosteriorMean(process, (places(points), log_costs(points)), _designed(points))


def fitted(points: pa.Table) -> dict[str, Any]:
    """Fit a process to evaluations of one agent; return it as stored in a table's facts, with its largest known value."""
    u, y = places(points), values(points)
    process = _fitted(points, y)
    surface = PosteriorMean(process, (u, y), _designed(points))
    best = max(surface(u[place]) for place in np.argsort(-y, kind="stable")[:_CHECKED])
    return {**asdict(process), "length_scales": list(process.length_scales), "best_value": best}


def fitted_cost(points: pa.Table) -> dict[str, Any]:
    """Fit a process to the logarithm of the costs of one agent's evaluations; return it as stored in a table's facts."""
    process = _fitted(points, log_costs(points))
    return {**asdict(process), "length_scales": list(process.length_scales)}


def _fitted(points: pa.Table, y: Array) -> Process:
    chosen = sample(len(y), _designed(points))
    return fit(places(points)[chosen], y[chosen])


def _process(entry: Mapping[str, Any]) -> Process:
    return Process(tuple(entry["length_scales"]), entry["noise"], entry["mean"])


def sample(count: int, designed: int) -> list[int]:
    """Return the points of a sample: the first of the design, which cover the cube, and the first of the refinement."""
    return [*range(min(designed, SAMPLE[0])), *range(designed, min(count, designed + SAMPLE[1]))]


def left_out(points: pa.Table, surface: Surface) -> float:
    """Return the root mean square of a surface's leave-one-out errors, over a sample of points."""
    y, designed = values(points), _designed(points)
    if len(y) < 2:
        return float("nan")
    errors = [surface.without(place) - y[place] for place in sample(len(y), designed)]
    return float(np.sqrt(np.mean(np.square(errors))))


def places(points: pa.Table) -> Array:
    """Return the points `(n, d)` in the unit cube."""
    flat = points["u"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat.reshape(len(points), -1), dtype=np.float64)


def values(points: pa.Table) -> Array:
    """Return the values `(n,)`, to be maximised."""
    return np.asarray(points["value"].to_numpy(), dtype=np.float64)


def log_costs(points: pa.Table) -> Array:
    """Return the logarithms `(n,)` of the costs."""
    return np.log(np.asarray(points["cost"].to_numpy(), dtype=np.float64))


def curves(points: pa.Table) -> Array:
    """Return the values `(levels - 1, n)` at all levels of the fidelity axis but the last; empty without such an axis."""
    if CURVE.name not in points.column_names:
        return np.empty((0, len(points)))
    flat = points[CURVE.name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat.reshape(len(points), -1).T, dtype=np.float64)


def _designed(points: pa.Table) -> int:
    return int(np.sum(points["origin"].to_numpy() == DESIGN))
