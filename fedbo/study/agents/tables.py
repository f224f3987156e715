"""Tables of a study file on its agents: which optimise, what they start with, and their histories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError

from fedbo.settings.errors import SettingError
from fedbo.study.names import Name
from fedbo.study.tables import AlgorithmTable, Count, Positive, Table, is_agents


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
