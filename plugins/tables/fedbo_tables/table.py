"""A table of evaluations on disk, written by `fedbo tabulate`, and the surfaces through its points in the unit cube.

The folder holds `table.json`, a description of the table, and `points.parquet` with every evaluation. Only a complete table
with its original points is accepted. A surface is the nearest point's value, or a Gaussian process's mean.

The process has a Matérn-5/2 kernel with a length scale for each axis (Rasmussen and Williams 2006, eq. 4.17). Its
hyperparameters maximise the marginal likelihood on a sample. Its mean at a point is conditioned on the nearby points alone
(Vecchia 1988), so that it costs the same for any number of points.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy

from fedbo.objectives.base import Array, Fidelity
from fedbo.settings.errors import FedboError
from fedbo.settings.shown import quoted

FACTS, POINTS_FILE = "table.json", "points.parquet"
DESIGN, REFINE = "design", "refine"
_OF_CONTENT = ("federation", "settings", "seed", "replicate", "parameters", "metric", "n_agents", "agents", "points_sha256")
_OF_SOME = ("costly", "fidelity")  # only what reports costs, or has a fidelity axis
_LEVELS = 32  # fidelities at most


def _column(name: str, kind: Any, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


_VECTOR = pa.list_(pa.field("item", pa.float64(), nullable=False))

# One evaluation: number `index` of its origin; `value` is to be maximised, and NaN where there is an `error`.
POINTS = pa.schema(
    [
        _column("agent", pa.int32()),
        _column("origin", pa.string()),
        _column("index", pa.int32()),
        _column("x", _VECTOR),
        _column("u", _VECTOR),
        _column("value", pa.float64()),
        _column("error", pa.string(), nullable=True),
    ]
)
# Where the objective reports costs, and where it has a fidelity axis: the values at all its levels but the last.
COST, CURVE = _column("cost", pa.float64(), nullable=True), pa.field("curve", _VECTOR)


def levels(axis: Fidelity) -> tuple[int, ...]:
    """List the fidelities of a table: all, or 32 of more, evenly on a logarithmic scale and with both ends."""
    every = np.arange(axis.smallest, axis.largest + 1) if axis.largest - axis.smallest < _LEVELS else None
    chosen = np.geomspace(axis.smallest, axis.largest, _LEVELS).round() if every is None else every
    return tuple(int(one) for one in np.unique(chosen))


class TableError(FedboError, ValueError):
    """A folder that holds no table, or one that cannot be used as asked."""


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the contents of `table.json`; TableError when it is missing or cannot be read."""
    path = folder / FACTS
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise TableError(f"'{folder}': contains no table: it has no {FACTS}; create one with: fedbo tabulate NAME") from None
    except ValueError as error:
        raise TableError(f"'{path}': is damaged ({error}); create the table again in another folder") from None
    if not isinstance(found, dict) or not {*_OF_CONTENT, "status"} <= set(found):
        raise TableError(f"'{path}': is not the description of a table; pass the folder that fedbo tabulate created")
    return found


def complete_facts(folder: Path) -> dict[str, Any]:
    """Return the contents of `table.json` of a complete table; else TableError."""
    facts = read_facts(folder)
    if facts["status"] != "complete":
        remedy = f"continue with: fedbo tabulate {facts['federation']} --out {quoted(folder)}, with the same options"
        raise TableError(f"'{folder}': is not complete ({facts['status']}); {remedy}")
    return facts


def read_points(folder: Path, sha256: str) -> pa.Table:
    """Read the evaluations, in the order of agents, origins and numbers; TableError when they are not those written."""
    path = folder / POINTS_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TableError(f"'{folder}': lacks {POINTS_FILE}; create the table again in another folder") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise TableError(f"'{path}': is damaged; create the table again in another folder")
    return read_rows(data)


def read_rows(data: bytes) -> pa.Table:
    """Read evaluations from the bytes of a file: the columns `POINTS`, and costs and curves where it has them."""
    held = pq.read_schema(pa.BufferReader(data)).names
    schema = pa.schema([*POINTS, *(one for one in (COST, CURVE) if one.name in held)])
    return pq.read_table(pa.BufferReader(data), schema=schema)


@lru_cache(maxsize=8)
def points_of(folder: Path, sha256: str) -> dict[int, pa.Table]:
    """Return the successful evaluations, agent by agent; read once for each process and content."""
    table = read_points(folder, sha256)
    table = table.filter(table["error"].is_null())
    agents = table["agent"].to_numpy()
    return {int(agent): table.filter(pa.array(agents == agent)) for agent in sorted(set(agents.tolist()))}


def fingerprint(folder: Path) -> str:
    """Return a SHA-256 of a complete table's content, independent of its place and of its run times; TableError."""
    facts = complete_facts(folder)
    content = {key: facts[key] for key in (*_OF_CONTENT, *_OF_SOME) if key in facts}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


SAMPLE = (256, 64)  # of the design and of the refinement: what hyperparameters are fitted on
ABOUT = (32, 8)  # of the design and of the refinement: what the mean at a point is conditioned on
# Where hyperparameters are sought; noise as a share of the variance. A larger amplitude would only lengthen the scales, until
# rounding spoils what could be had from points that lie close together.
LENGTHS, AMPLITUDES, NOISES = (5e-3, 5.0), (1e-2, 10.0), (1e-10, 1.0)


@dataclass(frozen=True, slots=True)
class Process:
    """The hyperparameters of a Gaussian process: a length scale for each axis, the noise's share of the variance, the mean."""

    length_scales: tuple[float, ...]
    noise: float
    mean: float


def fit(u: Array, y: Array) -> Process:
    """Fit a process to points `(n, d)` and values `(n,)`; always the same one for the same points."""
    from sklearn.exceptions import ConvergenceWarning  # not imported where nothing is fitted: it takes half a second
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    mean, spread = float(y.mean()), float(y.std())
    if len(y) < 3 or spread == 0.0:
        return Process((1.0,) * u.shape[1], NOISES[0], mean)
    lengths = Matern(np.full(u.shape[1], 0.3), LENGTHS, nu=2.5)
    kernel = ConstantKernel(1.0, AMPLITUDES) * lengths + WhiteKernel(1e-3, (1e-10, 10.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a value at its bound will do
        found: Any = GaussianProcessRegressor(kernel).fit(u, (y - mean) / spread).kernel_
    noise = found.k2.noise_level / found.k1.k1.constant_value
    scales = np.atleast_1d(found.k1.k2.length_scale)
    return Process(tuple(float(scale) for scale in scales), float(np.clip(noise, *NOISES)), mean)


class Nearest:
    """The value of the nearest point; ties are decided by the tree."""

    def __init__(self, u: Array, y: Array) -> None:
        self._y, self._tree = y, scipy.spatial.cKDTree(u)

    def __call__(self, u: Array) -> float:
        """Return the value at u `(d,)`."""
        return float(self._y[self._tree.query(u)[1]])

    def through(self, y: Array) -> Nearest:
        """Return the surface of other values `(n,)` at the same points."""
        other = copy(self)
        other._y = y
        return other

    def without(self, place: int) -> float:
        """Return the value at a point, as if it had not been evaluated."""
        _, near = self._tree.query(self._tree.data[place], min(2, len(self._y)))
        others = [one for one in np.atleast_1d(near) if one != place]
        return float(self._y[others[0]]) if others else float("nan")


class PosteriorMean:
    """The posterior mean of a process, cut off below `low` and above `high`.

    The first `designed` points are a design that covers the cube; the others were evaluated near the best value. Neighbours
    come from both, because a cluster of the latter alone has no information about its surroundings.
    """

    def __init__(self, process: Process, points: tuple[Array, Array], designed: int) -> None:
        u, y = points
        self._process, self._scales = process, np.array(process.length_scales)
        self._z, self._gap, self._designed = u / self._scales, y - process.mean, designed
        starts = ((0, self._z[:designed]), (designed, self._z[designed:]))
        self._trees = [
            (start, scipy.spatial.cKDTree(z), most) for (start, z), most in zip(starts, ABOUT, strict=True) if len(z)
        ]
        self.low, self.high = float(y.min()), float(y.max())

    def __call__(self, u: Array) -> float:
        """Return the mean at u `(d,)`."""
        return self._at(u / self._scales, None)

    def through(self, y: Array) -> PosteriorMean:
        """Return the mean of a process with the same length scales and noise through other values `(n,)` at the same points."""
        other = copy(self)
        other._process = replace(self._process, mean=float(y.mean()))
        other._gap = y - other._process.mean
        other.low, other.high = float(y.min()), float(y.max())
        return other

    def without(self, place: int) -> float:
        """Return the mean at a point, as if it had not been evaluated."""
        return self._at(self._z[place], place)

    def _at(self, z: Array, left_out: int | None) -> float:
        near, distance = self._about(z, 0 if left_out is None else 1)
        if left_out is not None:
            near, distance = near[near != left_out], distance[near != left_out]
        gaps = self._z[near][:, None, :] - self._z[near][None, :, :]
        among = _matern(np.sqrt(np.einsum("abd,abd->ab", gaps, gaps)))
        among.flat[:: len(near) + 1] += self._process.noise
        _, weights, failed = scipy.linalg.lapack.dposv(among, self._gap[near])
        if failed:
            raise np.linalg.LinAlgError(
                f"the points about {z * self._scales} are too close to each other relative to their noise"
            )
        mean = self._process.mean + float(_matern(distance) @ weights)
        return min(max(mean, self.low), self.high)

    def _about(self, z: Array, more: int) -> tuple[npt.NDArray[np.intp], Array]:
        """List the neighbours of a point, with their distances in length scales."""
        near, far = [], []
        for start, tree, most in self._trees:
            distance, place = tree.query(z, min(most + more, tree.n))
            near.append(np.atleast_1d(place) + start)
            far.append(np.atleast_1d(distance))
        return np.concatenate(near), np.concatenate(far)


def _matern(distance: Array) -> Array:
    scaled = np.sqrt(5.0) * distance
    kernel: Array = (1.0 + scaled + scaled * scaled / 3.0) * np.exp(-scaled)
    return kernel
