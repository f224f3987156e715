"""Tables of a study file on its environment: timing, network, availability, exchange, groups, faults and a cluster."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from fedbo.coordinator.environment.availability import AVAILABILITIES
from fedbo.coordinator.environment.faults import FAULTS
from fedbo.coordinator.environment.timing import TIMINGS, DecisionTimeModel, SpeedClasses
from fedbo.coordinator.environment.worker_models import ClusterModel, Resources, WorkerClass
from fedbo.coordinator.exchange import MODES
from fedbo.study.invalid import InvalidSetting, InvalidSettings
from fedbo.study.names import Name
from fedbo.study.settings import names_of
from fedbo.study.tables import Declared, Named, Positive, Table, is_agents

Bandwidth = Annotated[float, Field(gt=0)]
Leaving = Literal["resumed", "lost"]
Amount = Annotated[float, Field(ge=0)]


class TimingModel(Named):
    """A model of durations by name, and its settings."""

    noun = "timing model"
    catalogue = staticmethod(TIMINGS.copy)
    model: str


class DecisionTable(Declared):
    """How long a decision takes, as the history grows."""

    declared = DecisionTimeModel


class SpeedTable(Declared):
    """Classes of speed, to one of which each agent belongs."""

    declared = SpeedClasses


class TimingTable(Table):
    """[timing]: which clock, and how long evaluations, decisions and messages take on the virtual one."""

    clock: Literal["virtual", "wall"] = "virtual"
    evaluation: TimingModel = TimingModel.model_construct(model="constant", mean=1.0)
    speed: SpeedTable = SpeedTable.model_construct(factors=[1.0])
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
    catalogue = staticmethod(AVAILABILITIES.copy)
    model: str


class AvailabilityTable(AvailabilityModel):
    """[availability]: a model of absence, and what happens to the evaluation under way of an agent that leaves."""

    model: str = "always"
    leaving: Leaving = "resumed"


class ExchangeTable(Named):
    """[exchange]: when the coordinator answers, by the name of the mode, and its settings."""

    key = "mode"
    noun = "exchange mode"
    catalogue = staticmethod(MODES.copy)
    mode: str = "immediate"


class GroupTable(Table):
    """[[group]]: some agents by a common name, and what differs for them from the study's own."""

    name: Name
    agents: Any = None
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    evaluation: TimingModel | None = None
    speed: SpeedTable | None = None
    decision: DecisionTable | None = None
    latency: TimingModel | None = None
    bandwidth: Bandwidth | None = None
    availability: AvailabilityModel | None = None
    leaving: Leaving | None = None

    @field_validator("agents", mode="plain")
    @classmethod
    def _agents(cls, value: Any) -> Any:
        if not is_agents(value):
            raise ValueError("must be a list of agents, such as [0, 1]")
        return tuple(value)


class FaultTable(Named):
    """[[fault]]: a fault by its kind, with a label for sweeps and overrides."""

    key = "kind"
    noun = "fault"
    catalogue = staticmethod(FAULTS.copy)
    kind: str
    label: Name | None = None

    def make(self) -> Any:
        """Build the fault; InvalidSettings when its kind or a setting is wrong."""
        who = self.settings.get("agents", "all")
        if "agents" in names_of(self._look_up()) and not (isinstance(who, str) or is_agents(who)):
            remedy = 'must be "all", the name of a group, or a list of agents, such as [0, 1]'
            raise InvalidSettings([InvalidSetting(("agents",), remedy)])
        return super().make()


class WorkerTable(Table):
    """[[cluster.worker]]: a class of workers: their number, speed and resources, and when they are there."""

    name: Name
    count: Positive = 1
    speed: Annotated[float, Field(gt=0)] = 1.0
    cpus: Amount = 1.0
    gpus: Amount = 0.0
    memory: Amount = 0.0
    startup: Amount = 0.0
    joins: Amount = 0.0
    leaves: Annotated[float, Field(gt=0)] | None = None

    def make(self) -> WorkerClass:
        """Build the class."""
        resources = Resources(self.cpus, self.gpus, self.memory)
        leaves = math.inf if self.leaves is None else self.leaves
        return WorkerClass(self.name, self.count, self.speed, resources, self.startup, self.joins, leaves)


class ClusterTable(Table):
    """[cluster]: so many equal workers, or classes of them, and the rule of the queue for them."""

    workers: Positive | None = None
    rule: Literal["first_come", "fair_share", "priority"] = "first_come"
    startup: Amount = 0.0
    priorities: Annotated[tuple[float, ...], Field(strict=False)] = ()
    worker: Annotated[tuple[WorkerTable, ...], Field(strict=False)] = ()

    def classes(self) -> tuple[WorkerClass, ...]:
        """List the classes of workers."""
        if self.worker:
            return tuple(table.make() for table in self.worker)
        return (WorkerClass("all", self.workers or 1, startup=self.startup),)

    def make(self, resources: tuple[dict[str, float], ...]) -> ClusterModel:
        """Build the model, for evaluations that need these resources."""
        needs = tuple(Resources(one.get("CPU", 1.0), one.get("GPU", 0.0), one.get("memory", 0.0)) for one in resources)
        return ClusterModel(self.classes(), self.rule, needs or (Resources(),), self.priorities or (0.0,))
