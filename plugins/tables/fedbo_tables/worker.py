"""The worker of a tabulation: one process that evaluates chunks of an agent's points and writes them as parts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy

from fedbo.actors.evaluation.evaluate import evaluate, failure_text
from fedbo.actors.pool_worker import PoolWorker, as_job
from fedbo.actors.storage.rows import write_table
from fedbo.actors.threads import blas_threads
from fedbo.algorithms.streams import Streams
from fedbo.analysis.grouping import starts
from fedbo.objectives.base import Array, Federation, Objective, cost_of, fidelity_of, reports_costs
from fedbo.objectives.space import from_unit
from fedbo.settings.own_code import ends_process
from fedbo.settings.trust import admit_same
from fedbo.study.paths import DirectoryError
from fedbo_tables.table import COST, CURVE, DESIGN, POINTS, POINTS_FILE, Process, levels, read_rows
from fedbo_tables.tabulated import fitted, fitted_cost, left_out, mean, nearest, places, values

BLOCK = 8  # steps that set out from the same knowledge
_PARENTS = 2
_WIDEST, _HALVINGS = 0.25, 12  # steps of 0.25 to 0.00006 of the cube, whatever scale the surface has on an axis


class DesignHistory(NamedTuple):
    """The evaluations before a step: points `(n, d)` of the unit cube, values `(n,)`; NaN where one failed."""

    u: Array
    value: Array


def sobol(seed: int, dim: int, count: int) -> Array:
    """Return the first `count` points `(count, dim)` of the scrambled Sobol sequence of a seed; more points keep the first."""
    if count == 0:
        return np.empty((0, dim))
    chosen = int(Streams(seed).rng("tabulated design").integers(2**63))
    sequence = scipy.stats.qmc.Sobol(dim, scramble=True, seed=chosen)
    # A power of two is what the sequence is balanced for, and what SciPy does not warn of.
    points: npt.NDArray[np.float64] = sequence.random_base2(math.ceil(math.log2(count)))[:count]
    return np.ascontiguousarray(points)


def step(index: int, seen: DesignHistory, streams: Streams) -> Array:
    """Return step number `index` of a refinement, a point `(d,)`: a normal step from one of the best points in `seen`.

    `seen` has all evaluations before the step's block, so the requested number of steps changes no point. The step's size on
    each axis is drawn from wide to narrow, evenly in its logarithm; a step that leaves the cube is reflected. `streams` are the
    agent's at this number.
    """
    rng = streams.rng("refinement")
    known = np.flatnonzero(~np.isnan(seen.value))
    if not len(known):
        return rng.random((seen.u.shape[1],))
    best = known[np.argsort(-seen.value[known], kind="stable")[:_PARENTS]]
    parent = seen.u[best[index % len(best)]]
    size = _WIDEST * 0.5 ** (_HALVINGS * rng.random(len(parent)))
    return _reflected(parent + size * rng.standard_normal(len(parent)))


def _reflected(u: Array) -> Array:
    return np.asarray(np.clip(1.0 - np.abs(1.0 - np.mod(u, 2.0)), 0.0, 1.0))


_KEY = ("agent", "origin", "index")
_SECONDS = 10.0  # of work at most between two parts: what a kill can lose


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The plan that all processes of a tabulation share: its folder, the federation, and the key of its streams.

    `code` holds the places of Python code that its processes may import, with the hashes of that code.
    """

    folder: Path
    federation: Federation
    seed: int
    replicate: int
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> Path:
        """Return the folder of the parts."""
        return self.folder / "parts"

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the table: those of costs and curves only if the federation has them."""
        costs = [COST] if reports_costs(self.federation) else []
        return pa.schema([*POINTS, *costs, *([CURVE] if fidelity_of(self.federation) else [])])


class TableJob(NamedTuple):
    """A job: the evaluations from `first` up to `stop` (excluded) of an agent's design or refinement, or its surface's fit."""

    kind: Literal["design", "refine", "fit"]
    agent: int
    first: int = 0
    stop: int = 0


class JobResult(NamedTuple):
    """The result of a job: the number of evaluations, the best value among them, or the fitted surface."""

    agent: int
    made: int
    best: float | None = None
    surface: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """An evaluation of a table: the values of its columns."""

    agent: int
    origin: str
    index: int
    x: list[float]
    u: list[float]
    value: float
    error: str | None
    cost: float | None = None
    curve: list[float] | None = None


class Tabulator(PoolWorker):
    """Evaluates objectives of a federation; the result of a job depends only on the job and the folder's contents."""

    def __init__(self, plan: TablePlan) -> None:
        blas_threads().limit(limits=1)
        admit_same(plan.code)
        self._plan, self._stopped = plan, False
        self._dim = len(plan.federation.parameters)
        self._built: tuple[int, Objective] | None = None
        self._design = np.empty((0, self._dim))
        axis = fidelity_of(plan.federation)
        self._costly, self._levels = reports_costs(plan.federation), () if axis is None else levels(axis)

    def stop(self) -> None:
        """End the present job after its present evaluation; may be called from another thread."""
        self._stopped = True

    @as_job
    def work(self, job: TableJob, stopped: Callable[[], bool] | None = None) -> JobResult:
        """Run a job and write its parts; an agent without points in the table gets no surface."""
        if job.kind == "fit":
            return JobResult(job.agent, 0, surface=_surface(self._plan, job.agent))
        count, best = 0, None
        for rows in self._parts(job, stopped or (lambda: self._stopped)):
            first, last = rows[0].index, rows[-1].index
            name = f"agent-{job.agent:05d}-{job.kind}-{first:08d}-{last + 1:08d}.parquet"
            columns = [pa.array([getattr(row, one.name) for row in rows], one.type) for one in self._plan.schema]
            write_table(pa.Table.from_arrays(columns, schema=self._plan.schema), self._plan.parts / name)
            count += len(rows)
            best = max([*(row.value for row in rows if row.error is None), *([] if best is None else [best])], default=None)
        return JobResult(job.agent, count, best)

    def _parts(self, job: TableJob, stopped: Callable[[], bool]) -> Iterator[list[TableRow]]:
        """Yield the job's rows, in batches of a few seconds."""
        rows, made, began = list[TableRow](), list[TableRow](), time.monotonic()
        for index, u in self._points(job, made):
            rows.append(self._row(job, index, u))
            made.append(rows[-1])
            ending = stopped()
            if ending or time.monotonic() - began > _SECONDS:
                yield rows
                rows, began = [], time.monotonic()
            if ending:
                return
        if rows:
            yield rows

    def _points(self, job: TableJob, made: Sequence[TableRow]) -> Iterator[tuple[int, Array]]:
        """Yield the job's points with their numbers; points of a refinement depend on the rows `made` so far."""
        if job.kind == DESIGN:
            if len(self._design) < job.stop:
                self._design = sobol(self._plan.seed, self._dim, job.stop)
            yield from ((index, self._design[index]) for index in range(job.first, job.stop))
            return
        before = rows_of(self._plan.folder, job.agent)
        early = (before["origin"].to_numpy() == DESIGN) | (before["index"].to_numpy() < job.first)
        before = before.filter(pa.array(early))  # what comes later is found again
        for index in range(job.first, job.stop):
            if index == job.first or index % BLOCK == 0:
                seen = _seen(before, made, index - index % BLOCK)
            yield index, step(index, seen, self._streams(job, index))

    def _streams(self, job: TableJob, index: int) -> Streams:
        return Streams(self._plan.seed, self._plan.replicate, job.agent, index, f"tabulated {job.kind} ")

    def _row(self, job: TableJob, index: int, u: Array) -> TableRow:
        x = from_unit(self._plan.federation.parameters, u)
        error: str | None = None
        try:
            curve, cost = self._evaluated(job, index, x)
        except BaseException as failure:  # what goes wrong is a row of its own
            if ends_process(failure):
                raise
            curve, cost, error = [float("nan")], None, failure_text(failure).splitlines()[0]
        else:
            if (wrong := next((value for value in curve if not np.isfinite(value)), None)) is not None:
                error = f"the objective returned {wrong}, not a finite number"
        value = float("nan") if error else curve[-1]
        return TableRow(
            job.agent,
            job.kind,
            index,
            x=x.tolist(),
            u=u.tolist(),
            value=value,
            error=error,
            cost=cost,
            curve=None if error else curve[:-1],
        )

    def _evaluated(self, job: TableJob, index: int, x: Array) -> tuple[list[float], float | None]:
        """Return the noise-free values at all levels of the fidelity axis, and the cost if it is reported."""
        objective, streams = self._objective(job.agent), self._streams(job, index)
        cost = cost_of(objective, x) if self._costly else None
        curve = [evaluate(objective, x, streams, fidelity=level).score for level in self._levels[:-1]]
        return [*curve, evaluate(objective, x, streams).score], cost

    def _objective(self, agent: int) -> Objective:
        """Build an agent's objective, as a study with this seed and replicate would."""
        if self._built is None or self._built[0] != agent:
            streams = Streams(self._plan.seed, self._plan.replicate)
            own = streams.of(agent).rng("objective")
            self._built = agent, self._plan.federation.objective(agent, streams.shared("objective"), own)
        return self._built[1]


def rows_of(folder: Path, agent: int | None = None) -> pa.Table:
    """Read all present rows of a table, of one agent or of all, each evaluation once, by agent, origin and number.

    Raises:
        DirectoryError: a file is damaged.
    """
    pattern = "agent-*.parquet" if agent is None else f"agent-{agent:05d}-*.parquet"
    paths = [path for path in [folder / POINTS_FILE] if path.exists()] + sorted((folder / "parts").glob(pattern))
    tables = [_read(path, agent) for path in paths]
    whole = pa.concat_tables([POINTS.empty_table(), *tables], promote_options="default").sort_by(
        [(name, "ascending") for name in _KEY]
    )
    first = starts(*(whole[name].to_numpy() for name in _KEY))
    return whole.filter(pa.array(first)).combine_chunks()


def _read(path: Path, agent: int | None) -> pa.Table:
    try:
        table = read_rows(path.read_bytes())
    except (pa.ArrowException, OSError) as error:
        words = f"'{path}': is damaged ({str(error).splitlines()[0]}); delete it and repeat the command"
        raise DirectoryError(words) from None
    return table if agent is None else table.filter(pa.array(table["agent"].to_numpy() == agent))


def _seen(before: pa.Table, made: Sequence[TableRow], block: int) -> DesignHistory:
    """Return the evaluations that the steps of a block may use: the design, and the refinement before the block."""
    early = (before["origin"].to_numpy() == DESIGN) | (before["index"].to_numpy() < block)
    u, value = places(before)[early], values(before)[early]
    since = [row for row in made if row.index < block]
    if since:
        u = np.vstack([u, [row.u for row in since]])
        value = np.append(value, [row.value for row in since])
    return DesignHistory(u, value)


def _surface(plan: TablePlan, agent: int) -> dict[str, Any] | None:
    """Fit an agent's Gaussian process, and compute the errors of both surfaces at held-out points."""
    points = rows_of(plan.folder, agent)
    points = points.filter(points["error"].is_null())
    if not len(points):
        return None
    process = fitted(points)
    through = Process(tuple(process["length_scales"]), process["noise"], process["mean"])
    errors = {"nearest": left_out(points, nearest(points)), "gp": left_out(points, mean(points, through))}
    costs = {"cost": fitted_cost(points)} if "cost" in points.column_names else {}
    return costs | {"gp": process, "left_out": {name: error if np.isfinite(error) else None for name, error in errors.items()}}
