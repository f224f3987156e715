"""Tables of a study file on its agents: which optimise, their initial points, also from a file, and their histories.

The file of initial points has columns agent, replicate, point, x1, x2, … in the unit cube.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError

from fedbo.settings.errors import SettingError
from fedbo.study.base import Count, Name, Positive, Table, is_agents
from fedbo.study.tables import AlgorithmTable


class HistoryAlgorithm(AlgorithmTable):
    """The algorithm of a history: a table like [[algorithm]] without a label, for each agent alone."""

    label: None = None
    centralised: None = None

    def resolved(self) -> Self:
        """Return the table with every setting."""
        return self._showing(self._look_up().free())


class HistoryTable(Table):
    """[agents.history]: observations that agents made before the study.

    With an `algorithm` they make `observations` in all of an earlier task, the first `initial` of them uniform. Otherwise
    they come from a `file`, or from an earlier `run`, of the algorithm with this `label` and of one `cell`. `observations`
    then limits them to the first ones of each agent. With `warm_start` they are observations of this very task, and agents
    learn them as their own.
    """

    algorithm: HistoryAlgorithm | None = None
    """Algorithm of an earlier task that each agent solves alone: a name, or a table."""
    file: str | None = None
    """CSV or Parquet file with observations, relative to the study file."""
    run: str | None = None
    """Directory of an earlier run."""
    label: Name | None = None
    """With `run`: label of the algorithm. Default: its only one."""
    cell: Count | None = None
    """With `run`: cell of the sweep. Default: its only one."""
    observations: Positive | None = None
    """Observations of each agent; required with `algorithm`. Default: all."""
    initial: Count | None = None
    """With `algorithm`: uniform points among them. Default: 3."""
    fresh: bool | None = None
    """With `algorithm`: whether each replicate has its own histories. Default: true."""
    warm_start: bool | None = None
    """With `file` or `run`: whether methods learn them as observations of this task."""

    @field_validator("algorithm", mode="before", json_schema_input_type=str | HistoryAlgorithm | None)
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _from_one_source(self) -> Self:
        if faults := list(self._faults()):
            raise PydanticCustomError("settings", "invalid settings", {"faults": faults})
        return self

    def _faults(self) -> Iterator[SettingError]:
        given = [key for key in ("algorithm", "file", "run") if getattr(self, key) is not None]
        if not given:
            yield SettingError(("algorithm",), 'is missing; add algorithm = "ts", a file, or a run')
            return
        first = given[0]
        for key in given[1:]:
            yield SettingError((key,), f"cannot be combined with {first}; set one of them")
        if first == "algorithm" and self.observations is None:
            yield SettingError(("observations",), "is missing; add observations = 50")
        for key, sources in (("initial", "algorithm"), ("fresh", "algorithm"), ("label", "run"), ("cell", "run")):
            if first != sources and getattr(self, key) is not None:
                yield SettingError((key,), f"applies only to a history by {sources}; remove it")
        if first == "algorithm" and self.warm_start:
            yield SettingError(("warm_start",), "applies only to a history by a file or a run, of the same task; remove it")
        if (
            first == "algorithm"
            and self.observations is not None
            and (3 if self.initial is None else self.initial) > self.observations
        ):
            yield SettingError(("initial",), f"must be at most observations = {self.observations}")

    def resolved(self) -> Self:
        """Return the table with the defaults of an earlier task."""
        if self.algorithm is None:
            return self
        initial = 3 if self.initial is None else self.initial
        return self.model_copy(update={"initial": initial, "fresh": self.fresh is not False})


class AgentsTable(Table):
    """[agents]: which agents optimise, and their initial points, checkpoints and histories."""

    targets: Any = "all"
    """Agents that optimise, numbered from 0; others only send what they learned before."""
    initial: Count = 3
    """Uniform points that each target evaluates first, the same for all algorithms."""
    initial_file: str | None = None
    """CSV or Parquet file with initial points, relative to the study file."""
    checkpoint: Positive = 1
    """Steps between two checkpoints, to which a crash may take an agent back."""
    history: HistoryTable | None = None
    """Observations that agents made before the study."""

    @field_validator("targets", mode="plain", json_schema_input_type=Literal["all"] | list[int])
    @classmethod
    def _targets(cls, value: Any) -> Any:
        if value != "all" and not is_agents(value):
            raise ValueError('must be "all" or a list of agents, for example [0, 1]')
        return value if value == "all" else tuple(value)


Points = Mapping[tuple[int, int], npt.NDArray[np.float64]]

_INDICES = ("agent", "replicate", "point")


def read_points(path: Path, dim: int, agents: Iterable[int], replicates: int) -> Points:
    """Read the points `(n, dim)` of each (agent, replicate), ordered by `point`; ValueError for an invalid file.

    Rows of other agents and replicates are skipped. All of the requested ones must have equally many points.
    """
    table = _columns(path, dim)
    indices = np.stack([np.asarray(table[name]) for name in _INDICES], axis=1)
    cube = np.stack([np.asarray(table[f"x{j}"], dtype=np.float64) for j in range(1, dim + 1)], axis=1)
    outside = ~((cube >= 0.0) & (cube <= 1.0)).all(axis=1)
    if outside.any():
        row = int(np.argmax(outside))
        raise ValueError(f"row {row + 1} is at {cube[row].tolist()}; points must be in the unit cube")
    found = {}
    for key in ((agent, replicate) for agent in agents for replicate in range(replicates)):
        rows = np.flatnonzero((indices[:, 0] == key[0]) & (indices[:, 1] == key[1]))
        found[key] = cube[rows[np.argsort(indices[rows, 2], kind="stable")]]
    _complete(found)
    return found


def _columns(path: Path, dim: int) -> Any:
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else pacsv.read_csv(path)
    except FileNotFoundError:
        raise ValueError("no such file; the path is relative to the folder of the study file") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"cannot be read as {path.suffix[1:] or 'CSV'} ({str(error).splitlines()[0]})") from None
    wanted = (*_INDICES, *(f"x{j}" for j in range(1, dim + 1)))
    if set(table.column_names) != set(wanted):
        raise ValueError(f"has columns {', '.join(table.column_names)}; it must have {', '.join(wanted)}")
    for name in wanted:
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or (name not in _INDICES and pa.types.is_floating(kind))):
            raise ValueError(f"column {name} contains {kind}; it must contain {'whole ' * (name in _INDICES)}numbers")
    return table


def _complete(found: Points) -> None:
    first = next(iter(found))
    for (agent, replicate), points in found.items():
        if not len(points):
            raise ValueError(
                f"has no points for agent {agent}, replicate {replicate}; every target needs some in each replicate"
            )
        if len(points) != len(found[first]):
            raise ValueError(
                f"has {len(points)} points for agent {agent}, replicate {replicate}, but {len(found[first])} for agent "
                f"{first[0]}, replicate {first[1]}; give all of them equally many"
            )
