"""What the arrays of a message say to a reader who knows the method, its settings and what agents share, but no private draw.

The reader knows each array by its name: points, weights on shared features, sums of features, or values at design points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy

from fedbo.algorithms.bandits.arms import grid
from fedbo.algorithms.bandits.fn_ucb import inward
from fedbo.algorithms.bandits.neural import jacobian
from fedbo.algorithms.base import Array, Payload
from fedbo.algorithms.components.coordinates import from_coordinates, to_coordinates
from fedbo.algorithms.learned_prior.prior_space import common_points
from fedbo.surrogates.features import phi
from fedbo_leak.listening import Letter
from fedbo_leak.watched import WatchedRun

COORDINATOR, AGENT, READER = "coordinator", "agent", "reader"
VIEWS = {
    COORDINATOR: "a curious coordinator",
    AGENT: "another agent",
    READER: "a reader of all that agents receive",
}
Rows = Callable[[Array], Array]  # the features (n, M) of points (n, d) of the cube


class AtPoints(NamedTuple):
    """Numbers `(k,)` at points `(k, d)`."""

    points: Array
    numbers: Array


@dataclass(frozen=True)
class Reading:
    """What one message says, after a step of its sender or in a round.

    - `said`: points that stand in it `(k, d)`, with their values, or NaN where it has none.
    - `place`: a point that is said to be good `(d,)`, though nobody need have evaluated it.
    - `weights`: a function on the cube, by its weights `(M,)` on shared features.
    - `sums`: the sum of the outer products of features over observations `(M, M)`; `moment` that of features times values.
    - `shape`, `certainty`: a function, and how well it is known, at design points.
    - `numbers`: all its numbers in a row.
    """

    step: int
    numbers: Array
    said: AtPoints | None = None
    place: Array | None = None
    weights: Array | None = None
    sums: Array | None = None
    moment: Array | None = None
    shape: AtPoints | None = None
    certainty: AtPoints | None = None

    def surface(self, rows: Rows | None) -> Callable[[Array], Array] | None:
        """Return the function that the message describes, of points `(n, d)`; None where it describes none."""
        if self.shape is not None:
            return smooth(self.shape)
        if rows is None:
            return None
        weights = self.weights
        if weights is None and self.sums is not None and self.moment is not None:
            weights = scipy.linalg.solve(self.sums + 0.01 * np.eye(len(self.sums)), self.moment, assume_a="pos")
        return None if weights is None else lambda x: rows(x) @ weights


@dataclass(frozen=True, eq=False)
class Evidence:
    """The messages that an adversary has of one agent, the victim, in the order of time."""

    run: WatchedRun
    view: str
    victim: int
    readings: tuple[Reading, ...]

    @cached_property
    def rows(self) -> Rows | None:
        """Return the shared features; None where the method has none."""
        return shared_rows(self.run)

    @cached_property
    def surface(self) -> Callable[[Array], Array] | None:
        """Return the mean of the functions in the newest half of the messages, each in its own standard units."""
        values = self._functions
        return None if values is None else lambda x: np.mean(values(x), axis=0)

    @cached_property
    def cautious(self) -> Callable[[Array], Array] | None:
        """Return that mean less twice the standard deviation: draws differ where the agent has not looked."""
        values = self._functions
        return None if values is None else lambda x: np.mean(values(x), axis=0) - 2.0 * np.std(values(x), axis=0)

    @cached_property
    def _functions(self) -> Callable[[Array], Array] | None:
        """Return the functions in the newest half of the messages in standard units, `(k, n)` at points `(n, d)`."""
        newest = self.readings[len(self.readings) // 2 :]
        found = [each for reading in newest if (each := reading.surface(self.rows))]
        if not found:
            return None
        spread = [float(np.std(one(points_of_cube(256, self.run.problem.dim)))) or 1.0 for one in found]
        return lambda x: np.array([one(x) / scale for one, scale in zip(found, spread, strict=True)])


def evidence_of(run: WatchedRun, view: str, victim: int) -> Evidence:
    """Return what an adversary with a view knows of an agent; another agent is the next one by number."""
    if view == COORDINATOR:
        letters = [(letter, letter.payload) for letter in run.heard.up if letter.agent == victim]
    else:
        other = (victim + 1) % run.problem.n_agents
        letters = [
            (letter, own)
            for letter in _once(run.heard.down)
            if (letter.agent == other if view == AGENT else letter.agent != victim)
            and (own := part_of(run, letter, victim)) is not None
        ]
    readings = [read(run, letter.step, payload) for letter, payload in letters]
    return Evidence(run, view, victim, tuple(sorted(readings, key=lambda reading: reading.step)))


def _once(letters: list[Letter]) -> list[Letter]:
    """Leave out answers that an agent has received before."""
    found: dict[tuple[int, bytes], Letter] = {}
    for letter in letters:
        found.setdefault((letter.agent, b"".join(array.tobytes() for array in letter.payload.values())), letter)
    return [*found.values()]


def part_of(run: WatchedRun, letter: Letter, victim: int) -> Payload | None:
    """Return the part of an answer that is about an agent; all of it where it names nobody, None where it is about others."""
    payload, count = letter.payload, run.problem.n_agents
    if "sender" in payload:
        return payload if int(payload["sender"][0]) == victim else None
    if "weight" in payload and len(payload["weight"]) == count and not payload["weight"][victim]:
        return None
    up, regions = run.algorithm.upload(run.problem) or {}, getattr(run.algorithm, "regions", 1)
    found: dict[str, Any] = {}
    for name, array in payload.items():
        alike = name in up and array.ndim == len(up[name].shape) + 1
        is_list = alike and None in (run.algorithm.download(run.problem) or {})[name].shape[:1]
        rows = {count: victim, regions: victim % regions}
        found[name] = array[rows[len(array)]] if alike and not is_list and len(array) in rows else array
    return found


def read(run: WatchedRun, step: int, payload: Payload) -> Reading:
    """Read one message."""
    numbers = np.concatenate([np.ravel(array).astype(np.float64) for array in payload.values()])
    reading = Reading(step, np.nan_to_num(numbers), said=_said(run, payload), place=_place(run, payload))
    if {"gram", "precision", "inverse"} & payload.keys():
        return replace(reading, **_sums(run, payload))
    if "omega" in payload:
        return replace(reading, weights=payload["omega"])
    design = _design(run, payload)
    return replace(reading, **design)


def _sums(run: WatchedRun, payload: Payload) -> dict[str, Any]:
    if "inverse" in payload:
        noise = run.algorithm.noise  # type: ignore[attr-defined]
        sums = np.linalg.inv(payload["inverse"]) - noise * np.eye(len(payload["inverse"]))
        return {"sums": sums, "weights": payload["nu"]}
    return {"sums": payload["gram" if "gram" in payload else "precision"], "moment": payload["moment"]}


def _design(run: WatchedRun, payload: Payload) -> dict[str, Any]:
    """Read values at the design points of a learned prior."""
    name = next((name for name in ("values", "shape", "mean") if name in payload), None)
    size = getattr(run.algorithm, "design_size", None)
    if name is None or size is None or np.ndim(payload[name]) != 1 or len(payload[name]) < (count := size(run.problem)):
        return {}
    points = common_points(run.algorithm.points, run.problem.dim, run.problem.lattice)  # type: ignore[attr-defined]
    certainty = payload.get("certainty")
    return {
        "shape": AtPoints(points, payload[name][:count]),
        "certainty": None if certainty is None else AtPoints(points, certainty[:count]),
    }


def _place(run: WatchedRun, payload: Payload) -> Array | None:
    """Return the common point that a vote is for, or the middle of a good region."""
    dim = run.problem.dim
    if "vote" in payload:
        points = common_points(run.algorithm.points, dim, run.problem.lattice)  # type: ignore[attr-defined]
        return np.asarray(points[round(float(payload["vote"][0]))])
    return payload["mean"] if "mean" in payload and payload["mean"].shape == (dim,) else None


def _said(run: WatchedRun, payload: Payload) -> AtPoints | None:
    """Return the points that stand in a message, or follow from the number of an arm or a node."""
    dim = run.problem.dim
    if "pulls" in payload and "mean" in payload:
        pulled = payload["pulls"] > 0
        return AtPoints(grid(dim, run.algorithm.arms)[pulled], payload["mean"][pulled])  # type: ignore[attr-defined]
    if "means" in payload and "phase" in payload:
        return _nodes(run, payload)
    name = next((name for name in ("x", "use", "centre") if name in payload), None)
    if name is None:
        return None
    points = np.reshape(payload[name], (-1, dim)).copy()
    if name in ("use", "centre") or "dual" in payload:
        points = _from_native(run, points)
    values = np.ravel(payload["y"]) if "y" in payload else payload.get("value")
    there = np.isfinite(points).all(axis=1)
    if "y" in payload and isinstance(own := getattr(run.algorithm, "coordinates", None), str):
        points[there] = from_coordinates(points[there], own)
    return _at(points[there], None if values is None or len(values) != len(points) else np.asarray(values)[there])


def _at(points: Array, values: Array | None = None) -> AtPoints:
    return AtPoints(points, np.full(len(points), np.nan) if values is None else values)


def _from_native(run: WatchedRun, points: Array) -> Array:
    low = np.asarray(getattr(run.algorithm, "low", ()) or 0.0)
    high = np.asarray(getattr(run.algorithm, "high", ()) or 1.0)
    return np.asarray(np.clip((points - low) / (high - low), 0.0, 1.0))


def _nodes(run: WatchedRun, payload: Payload) -> AtPoints | None:
    """Return the points of a tree's open nodes, which the settings or an answer tell, with their means."""
    rule, phase = run.algorithm.rule(run.problem), int(payload["phase"][0])  # type: ignore[attr-defined]
    open_nodes = {1: rule.start()}
    for letter in run.heard.down:
        number, depth, _ = letter.payload["phase"].tolist()
        open_nodes[number] = (depth, letter.payload["nodes"])
    depth, nodes = open_nodes[phase]
    told = np.isfinite(payload["means"])
    return AtPoints(rule.partition.points(depth, nodes, run.streams.of(0))[told], payload["means"][told])


class SharedRows:
    """The features `(n, M)` of points `(n, d)` on a basis that all agents share; those of read-only points are kept."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._known = rows, dict[int, tuple[Array, Array]]()

    def __call__(self, x: Array) -> Array:
        if x.flags.writeable:
            return self._rows(x)
        if id(x) not in self._known:
            self._known[id(x)] = x, self._rows(x)
        return self._known[id(x)][1]


@lru_cache(maxsize=32)
def _rows(algorithm: Any, problem: Any, streams: Any) -> Rows | None:
    state = algorithm.agent_init(replace(problem, agent=0, history_x=None, history_y=None), streams.of(0))
    if (initial := getattr(state, "initial", None)) is not None and "precision" in algorithm.upload(problem):
        return SharedRows(lambda x: jacobian(initial, inward(x)))
    shared = algorithm.shared(streams.of(0), problem.dim) if hasattr(algorithm, "shared") else getattr(state, "features", None)
    own = getattr(algorithm, "own", None)
    if shared is None:
        return None
    return SharedRows(lambda x: phi(shared, to_coordinates(x, getattr(own, "coordinates", "plain"))))


def shared_rows(run: WatchedRun) -> Rows | None:
    """Return the features that all agents of a run share, as a function of points."""
    algorithm: Any = run.algorithm
    return _rows(algorithm, run.problem, run.streams)


@lru_cache(maxsize=8)
def _interpolation(points: bytes, dim: int) -> SharedRows:
    """Return the numbers `(n, k)` by which those at k design points are weighted at other points, so that a smooth function
    goes through them."""
    design = np.frombuffer(points).reshape(-1, dim)
    scale = 0.3 * np.sqrt(dim)

    def kernel(x: Array) -> Array:
        return np.asarray(np.exp(-((x[:, None] - design) ** 2).sum(axis=2) / (2 * scale**2)))

    inverse = np.linalg.inv(kernel(design) + 1e-6 * np.eye(len(design)))
    return SharedRows(lambda x: kernel(x) @ inverse)


def smooth(at: AtPoints) -> Callable[[Array], Array]:
    """Return a smooth function through numbers at points."""
    rows = _interpolation(np.ascontiguousarray(at.points).tobytes(), at.points.shape[1])
    middle = float(at.numbers.mean())
    return lambda x: np.asarray(middle + rows(x) @ (at.numbers - middle))


@lru_cache(maxsize=32)
def points_of_cube(count: int, dim: int) -> Array:
    """Return `count` points of the cube, a power of two, spread evenly (scrambled Sobol)."""
    points: Array = scipy.stats.qmc.Sobol(dim, rng=np.random.default_rng(7)).random(count)
    points.flags.writeable = False
    return points
