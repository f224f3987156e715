"""The mean of all agents' functions in each cell and replicate: its values, and its maximum."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import DamagedError, seal, unseal
from fedbo.algorithms.streams import Streams
from fedbo.analysis.finished_run import FinishedRun, ResultError, trusted_cells
from fedbo.analysis.grouping import column_of
from fedbo.analysis.indicators import is_plain
from fedbo.objectives.base import Federation
from fedbo.objectives.derived.mean import MeanFunction, Optimum, optimum
from fedbo.settings.errors import warn_caller
from fedbo.study.document import StudyError

if TYPE_CHECKING:
    from fedbo.study.study import Study

Array = npt.NDArray[np.float64]
FILE = "optima.json"


@dataclass(frozen=True)
class ReplicateMean:
    """One replicate's mean function: its largest value, and its values at the points that were evaluated."""

    function: MeanFunction
    best: Optimum
    seen: dict[bytes, float]

    def at(self, x: Array) -> Array:
        """Return the values `(n,)` at points `(n, d)`: from the run if all agents evaluated them, otherwise evaluated now."""
        distinct, place = np.unique(x, axis=0, return_inverse=True)
        known = [self.seen.get(one.tobytes(), np.nan) for one in distinct]
        values = np.array(known, dtype=np.float64)
        if (unknown := np.isnan(values)).any():
            values[unknown] = self.function(distinct[unknown])
        return np.asarray(values[place.reshape(-1)])


class _Optima:
    """The largest values found so far, stored with the run."""

    def __init__(self, result: FinishedRun) -> None:
        self._path, self._found = result.directory / FILE, dict[str, Any]()
        if self._path.is_file():
            try:
                self._found = unseal(self._path)
            except DamagedError as error:
                remedy = f"delete it so that it is computed again: rm {shlex.quote(str(self._path))}"
                raise DamagedError(self._path, error.why, remedy) from None

    def of(self, study: Study, replicate: int, function: MeanFunction) -> Optimum:
        """Return the stored optimum, or find and store it."""
        federation = study.federation()
        about = {**study.objective.model_dump(mode="json", exclude_none=True), "seed": study.study.seed, "replicate": replicate}
        name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        if name not in self._found:
            self._found[name] = {**asdict(optimum(function, federation)), "of": about}
            try:
                atomic.write_text(self._path, seal(self._found, indent=2))
            except OSError as failure:
                told = (
                    f"the largest value of the mean could not be stored at {self._path} ({failure}); it is computed every time"
                )
                warn_caller(told, RuntimeWarning)
        entry = self._found[name]
        return Optimum(entry["value"], tuple(entry["x"]), entry["tolerance"])


def federation_of(result: FinishedRun, study: Study) -> Federation:
    """Return the federation of a run's study; ResultError if it cannot be made, as for a function passed in Python."""
    try:
        return study.federation()
    except StudyError as error:
        name = ".".join(map(str, error.faults[0].path))
        words = f"regret and optima require the objective, whose {name} is not available here; name it as module:function"
        raise ResultError(f"'{result.directory}': {words}") from None


def means(result: FinishedRun, observations: Any) -> dict[tuple[int, int], ReplicateMean]:
    """Return the mean function of each cell and replicate; ResultError if agents do not know it, or have other goals."""
    if not all(is_plain(result.manifest, cell.number) for cell in trusted_cells(result)):
        raise ResultError(
            "with limits or several objectives, there is no regret on the mean of all agents; draw curves instead"
        )
    optima, found = _Optima(result), dict[tuple[int, int], ReplicateMean]()
    for cell in trusted_cells(result):
        own = observations.filter(pc.equal(observations["cell"], cell.number))
        fixed = not federation_of(result, cell.study).random_per_replicate
        for replicate in sorted(set(own["replicate"].to_pylist())):
            if fixed and (cell.number, 0) in found and replicate:
                found[cell.number, replicate] = found[cell.number, 0]
                continue
            rows = own if fixed else own.filter(pc.equal(own["replicate"], replicate))
            try:
                function = _function(cell.study, replicate)
            except TypeError as error:
                raise ResultError(f"regret on the mean of all agents: {error}") from None
            best = optima.of(cell.study, 0 if fixed else replicate, function)
            found[cell.number, replicate] = ReplicateMean(function, best, _seen(cell.study, rows))
    return found


def points_of(rows: Any) -> Array:
    """Return the points `(n, d)` of a table in native units."""
    flat = np.asarray(pc.list_flatten(rows["x"]), dtype=np.float64)
    return flat.reshape(len(rows), -1)


def best_of_mean(result: FinishedRun, cell: int, replicate: int = 0) -> Optimum | None:
    """Return the largest value of the mean in a replicate of a cell; None if agents do not know the mean."""
    study = trusted_cells(result)[cell].study
    try:
        return _Optima(result).of(study, replicate, _function(study, replicate))
    except TypeError:
        return None


def _function(study: Study, replicate: int) -> MeanFunction:
    """Build the objectives of all agents, as the agents themselves did."""
    federation, streams = study.federation(), Streams(study.study.seed, replicate)
    agents = [
        federation.objective(agent, streams.shared("objective"), streams.of(agent).rng("objective"))
        for agent in range(federation.n_agents)
    ]
    return MeanFunction(agents, federation.parameters)


def _seen(study: Study, rows: Any) -> dict[bytes, float]:
    """Return the mean at the points that an agent with all data, or every single agent, has evaluated."""
    if not len(rows):
        return {}
    central = [table.title for table in study.algorithm if table.centralised]
    x, score = points_of(rows), column_of(rows, "score").astype(np.float64)
    good = np.isfinite(score)
    whole = np.isin(column_of(rows, "algorithm").astype(str), central) & good
    seen = {point.tobytes(): float(value) for point, value in zip(x[whole], score[whole], strict=True)}
    parts: dict[bytes, dict[int, float]] = {}
    local = ~whole & good
    for point, agent, value in zip(x[local], column_of(rows, "agent")[local], score[local], strict=True):
        parts.setdefault(point.tobytes(), {})[int(agent)] = float(value)
    count = study.federation().n_agents
    complete = {point: float(np.mean(list(one.values()))) for point, one in parts.items() if len(one) == count}
    return {**complete, **seen}
