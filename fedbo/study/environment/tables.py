"""Tables of a study file on its environment: timing, network, availability, exchange, groups and faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from fedbo.coordinator.environment.availability import AVAILABILITIES, Availability
from fedbo.coordinator.environment.faults import FAULTS
from fedbo.coordinator.environment.measured import Empirical
from fedbo.coordinator.environment.timing import TIMINGS, DecisionTimeModel, SpeedClasses, Timing
from fedbo.coordinator.exchange import MODES, Exchange
from fedbo.objectives.datasets.data import locate
from fedbo.settings.errors import SettingError
from fedbo.settings.plugins import Catalogue, settings_of
from fedbo.study.agents.tables import HistoryTable
from fedbo.study.document import StudyError
from fedbo.study.kept import kept
from fedbo.study.names import Name
from fedbo.study.settings import names_of
from fedbo.study.tables import Count, Declared, Named, Positive, Table, is_agents

Bandwidth = Annotated[float, Field(gt=0)]
Leaving = Literal["resumed", "lost"]

timings = Catalogue[type[Any]]("timings", TIMINGS, partial(settings_of, Timing))
availabilities = Catalogue[type[Any]]("availabilities", AVAILABILITIES, partial(settings_of, Availability))
exchanges = Catalogue[type[Any]]("exchanges", MODES, partial(settings_of, Exchange))


class TimingModel(Named):
    """A model of durations by name, and its settings."""

    noun = "timing model"
    catalogue = staticmethod(lambda: timings)
    model: str

    @kept
    def make(self) -> Any:
        """Build the model, with named data where they are found; StudyError, DataMissing."""
        made = super().make()
        return _located(made) if isinstance(made, Empirical) and made.data is not None else made

    def resolved(self) -> Self:
        """Show every setting; named data by its name."""
        return self._showing_of(super().make(), names_of(self._look_up()))


def _located(made: Empirical) -> Empirical:
    """Give a model whose named data are a file."""
    assert made.data is not None
    name = f"job_{made.data.removeprefix('pai-')}_norm.csv"
    return replace(made, file=str(locate("pai") / name), data=None, column="batch_time_norm", by="worker")


class DecisionTable(Declared):
    """How long a decision takes, as the history grows."""

    declared = DecisionTimeModel


class SpeedTable(Declared):
    """Classes of speed, to one of which each agent belongs."""

    declared = SpeedClasses


class TimingTable(Table):
    """[timing]: which clock, and how long evaluations, decisions and messages take on the virtual one.

    `devices` is a file with the speed and the bandwidth of each agent's device.
    """

    clock: Literal["virtual", "wall"] = "virtual"
    evaluation: TimingModel = TimingModel.model_construct(model="constant", mean=1.0)
    speed: SpeedTable = SpeedTable.model_construct(factors=[1.0])
    devices: str | None = None
    decision: DecisionTable = DecisionTable()
    latency: TimingModel = TimingModel.model_construct(model="constant", mean=0.0)


class NetworkTable(Table):
    """[network]: bandwidths, and how often a lost transmission is repeated."""

    bandwidth: Bandwidth | None = None
    link: Bandwidth | None = None
    retry: Annotated[float, Field(gt=0)] = 1.0
    attempts: Positive = 10


class AvailabilityModel(Named):
    """A model of absence by name, and its settings."""

    noun = "availability model"
    catalogue = staticmethod(lambda: availabilities)
    model: str


class AvailabilityTable(AvailabilityModel):
    """[availability]: a model of absence, and what happens to the evaluation under way of an agent that leaves."""

    model: str = "always"
    leaving: Leaving = "resumed"


class ExchangeTable(Named):
    """[exchange]: when the coordinator answers, by the name of the mode, and its settings."""

    key = "mode"
    noun = "exchange mode"
    catalogue = staticmethod(lambda: exchanges)
    mode: str = "immediate"


class GroupTable(Table):
    """[[group]]: some agents by a common name, and what differs for them from the study's own.

    They take part from the time `from` on, and until the time `until`. A share may be of those for whom a measure is largest,
    `by` which agents are ordered; it may differ from replicate to replicate, and such a group has no budget and no history.
    """

    model_config = ConfigDict(**{**Table.model_config, "serialize_by_alias": True})
    name: Name
    agents: Any = None
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    by: str | None = None
    evaluation: TimingModel | None = None
    speed: SpeedTable | None = None
    decision: DecisionTable | None = None
    latency: TimingModel | None = None
    bandwidth: Bandwidth | None = None
    availability: AvailabilityModel | None = None
    leaving: Leaving | None = None
    from_: Annotated[float | None, Field(ge=0, alias="from")] = None
    until: Annotated[float, Field(gt=0)] | None = None
    iterations: Positive | None = None
    pulls: Positive | None = None
    initial: Count | None = None
    history: HistoryTable | None = None

    @field_validator("agents", mode="plain", json_schema_input_type=list[int] | None)
    @classmethod
    def _agents(cls, value: Any) -> Any:
        if not is_agents(value):
            raise ValueError("must be a list of agents, such as [0, 1]")
        return tuple(value)

    @model_validator(mode="after")
    def _same_in_every_replicate(self) -> Self:
        if faults := list(self._varying() if self.by is not None else ()):
            raise PydanticCustomError("settings", "invalid settings", {"faults": faults})
        return self

    def _varying(self) -> Iterator[SettingError]:
        if self.agents is not None:
            yield SettingError(("by",), "orders agents of whom a share is taken, and there is a list of agents; leave it out")
        elif self.share is None:
            yield SettingError(("by",), "orders agents of whom a share is taken; give a share, such as share = 0.2")
        for key in ("iterations", "pulls", "initial", "history"):
            if getattr(self, key) is not None:
                remedy = "must be the same in every replicate, and the agents of a group `by` a measure are not; leave it out"
                yield SettingError((key,), remedy)


class FaultTable(Named):
    """[[fault]]: a fault by its kind, with a label for sweeps and overrides."""

    key = "kind"
    noun = "fault"
    catalogue = staticmethod(FAULTS.copy)
    kind: str
    label: Name | None = None

    @kept
    def make(self) -> Any:
        """Build the fault; StudyError when its kind or a setting is wrong."""
        who = self.settings.get("agents", "all")
        if "agents" in names_of(self._look_up()) and not (isinstance(who, str) or is_agents(who)):
            remedy = 'must be "all", the name of a group, or a list of agents, such as [0, 1]'
            raise StudyError.of([SettingError(("agents",), remedy)])
        return super().make()
