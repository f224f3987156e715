"""Tables of a study file on its environment: timing, network, availability, exchange, groups and faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, PlainValidator, field_validator, model_validator
from pydantic_core import PydanticCustomError

from fedbo.coordinator.detection import Detection
from fedbo.coordinator.environment.availability import AVAILABILITIES, Availability
from fedbo.coordinator.environment.faults import FAULTS
from fedbo.coordinator.environment.measured import Empirical
from fedbo.coordinator.environment.timing import TIMINGS, DecisionTimeModel, SpeedClasses, Timing
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.coordinator.modes import MODES
from fedbo.objectives.datasets.data import locate
from fedbo.settings.errors import SettingError
from fedbo.settings.plugins import Catalogue, settings_of
from fedbo.study.agents.tables import HistoryTable
from fedbo.study.base import Count, Declared, Name, Named, Positive, Table, is_agents, kept
from fedbo.study.document import StudyError
from fedbo.study.metric_table import Numbers
from fedbo.study.settings import names_of

Rate = Annotated[float, Field(gt=0)]


def _of_ways(value: Any) -> Any:
    """Return a bandwidth, one number or one for each way; ValueError with the remedy otherwise."""
    ways = value if isinstance(value, dict) else {"up": value}
    rates = [float(rate) if type(rate) in (int, float) else 0.0 for rate in ways.values()]
    if not ways or not {*ways} <= {"up", "down"} or not all(0 < rate < inf for rate in rates):
        raise ValueError("must be a number above 0, or one for each way, for example { up = 1e5, down = 1e6 }")
    return dict(zip(ways, rates, strict=True)) if isinstance(value, dict) else rates[0]


Bandwidth = Annotated[Any, PlainValidator(_of_ways, json_schema_input_type=Rate | dict[Literal["up", "down"], Rate])]
Leaving = Literal["resumed", "lost"]

timings = Catalogue[type[Any]]("timings", TIMINGS, partial(settings_of, Timing))
availabilities = Catalogue[type[Any]]("availabilities", AVAILABILITIES, partial(settings_of, Availability))
exchanges = Catalogue[type[Any]]("exchanges", MODES, partial(settings_of, Exchange))


class TimingModel(Named):
    """A model of durations by name, and its settings."""

    noun = "timing model"
    catalogue = staticmethod(lambda: timings)
    model: str
    """Name of a model of durations."""

    @kept
    def make(self) -> Any:
        """Return the model, with named data located; StudyError for invalid settings, DataMissingError for missing data."""
        made = super().make()
        return _located(made) if isinstance(made, Empirical) and made.data is not None else made

    def resolved(self) -> Self:
        """Return the table with every setting; named data are shown by name."""
        return self._showing_of(super().make(), names_of(self._look_up()))


def _located(made: Empirical) -> Empirical:
    """Return a model whose named data are replaced by their file."""
    assert made.data is not None
    name = f"job_{made.data.removeprefix('pai-')}_norm.csv"
    return replace(made, file=str(locate("pai") / name), data=None, column="batch_time_norm", by="worker")


class DecisionTable(Declared):
    """The duration of a decision as a function of the history's length."""

    declared = DecisionTimeModel


class SpeedTable(Declared):
    """Classes of speed; each agent belongs to one."""

    declared = SpeedClasses


class TimingTable(Table):
    """[timing]: the clock, and the durations of evaluations, decisions and messages in virtual time.

    `devices` is a file with the speed and the bandwidth of each agent's device.
    """

    clock: Literal["virtual", "wall"] = "virtual"
    """Virtual time, or real seconds (dedicated or packed hosting only)."""
    unit: Annotated[str, Field(min_length=1, max_length=30)] | None = None
    """Name of the unit of virtual time, such as "min", in figures and tables."""
    evaluation: TimingModel = TimingModel.model_construct(model="constant", mean=1.0)
    """Duration of an evaluation."""
    speed: SpeedTable = SpeedTable.model_construct(factors=[1.0])
    """Classes of speed; an agent's factor multiplies its evaluation times."""
    devices: str | None = None
    """JSON file with the speed and bandwidth of each agent's device (FedScale's format)."""
    decision: DecisionTable = DecisionTable()
    """Duration of a decision, before its evaluations."""
    latency: TimingModel = TimingModel.model_construct(model="constant", mean=0.0)
    """Duration of a message, drawn anew for each way."""

    @property
    def in_words(self) -> str:
        """Return what times are, with their unit if it has a name."""
        return "wall-clock seconds" if self.clock == "wall" else f"virtual time{f' [{self.unit}]' if self.unit else ''}"


class NetworkTable(Table):
    """[network]: bandwidths, and how often a lost transmission is repeated."""

    bandwidth: Bandwidth | None = None
    """Bytes per unit of time on an agent's link, or for each way. Default: unlimited."""
    link: Rate | None = None
    """Bytes per unit of time on the coordinator's link. Default: unlimited."""
    retry: Annotated[float, Field(gt=0)] = 1.0
    """Units of time after which a lost transmission is repeated."""
    attempts: Positive = 10
    """Transmissions of one message before it is given up."""


class AvailabilityModel(Named):
    """A model of absence by name, and its settings."""

    noun = "availability model"
    catalogue = staticmethod(lambda: availabilities)
    model: str
    """Name of a model of presence and absence."""


class AvailabilityTable(AvailabilityModel):
    """[availability]: a model of absence, and what happens to a running evaluation of an agent that leaves."""

    model: str = "always"
    """Name of a model of presence and absence."""
    leaving: Leaving = "resumed"
    """Whether an interrupted step is resumed on return, or begun again."""


class ExchangeTable(Named):
    """[exchange]: the mode that determines when the coordinator answers, by name, and its settings."""

    key = "mode"
    noun = "exchange mode"
    catalogue = staticmethod(lambda: exchanges)
    mode: str = "immediate"
    """Name of an exchange mode. Default: barrier where an algorithm needs rounds."""

    @property
    def share(self) -> float | None:
        """Return a `k` that is a share of the agents, None where it is a number of messages; StudyError if it is neither."""
        k = self.settings.get("k")
        if type(k) is int or getattr(MODES.get(self.mode), "k", None) is None or "k" not in self.settings:
            return None
        if not (isinstance(k, float) and 0 < k < 1):
            remedy = "must be a whole number of messages, at least 1, or a share of the agents between 0 and 1"
            raise StudyError.of([SettingError(("k",), remedy)])
        return k

    def counted(self, agents: int) -> Self:
        """Return the table with a number of messages in place of a share of so many `agents`, or of those asked at once."""
        if self.share is None:
            return self
        selection = self.make().selection
        asked = selection.concurrency or max(1, round(selection.share * agents))
        return self.model_copy(update={"k": max(1, round(self.share * asked))})

    @kept
    def make(self) -> Any:
        """Return the mode. A share, which only a study with a sweep keeps for its cells, counts as one message."""
        return super().make() if self.share is None else self.model_copy(update={"k": 1}).make()

    def resolved(self) -> Self:
        """Return the table with every setting; a share that is left stays one."""
        return super().resolved() if self.share is None else self._showing(names_of(self._look_up()), k=self.share)


class DetectionTable(Declared):
    """[detection]: heartbeats, by which the coordinator learns that agents are silent. Default: it knows of crashes at once."""

    declared = Detection


class GroupTable(Table):
    """[[group]]: a named group of agents, and the settings that differ for them from the study's.

    They take part from time `from` until time `until`. A `share` may consist of the agents with the largest values of a measure
    `by`. It may then differ between replicates, so such a group has no budget, no history and no limits.
    """

    model_config = ConfigDict(**{**Table.model_config, "serialize_by_alias": True})
    name: Name
    """Unique name, by which faults and sweeps find the group."""
    agents: Any = None
    """Numbers of its agents; set this or `share`."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of all agents; the last ones that no other group lists."""
    by: str | None = None
    """Measure by which a share is ordered: number, difficulty, distance, data, history, or a parameter."""
    evaluation: TimingModel | None = None
    """As in [timing]."""
    speed: SpeedTable | None = None
    """As in [timing]: `speed = { factors = [4.0] }` makes evaluations four times longer."""
    decision: DecisionTable | None = None
    """As in [timing]."""
    latency: TimingModel | None = None
    """As in [timing]."""
    bandwidth: Bandwidth | None = None
    """As in [network]."""
    availability: AvailabilityModel | None = None
    """Model of presence and absence with its settings."""
    leaving: Leaving | None = None
    """As in [availability]."""
    from_: Annotated[float | None, Field(ge=0, alias="from")] = None
    """Time at which its agents join."""
    until: Annotated[float, Field(gt=0)] | None = None
    """Time at which its agents leave for good."""
    iterations: Positive | None = None
    """As in [budget]."""
    pulls: Positive | None = None
    """As in [budget]."""
    initial: Count | None = None
    """As in [agents]."""
    history: HistoryTable | None = None
    """As in [agents.history]."""
    at_most: Numbers | None = None
    """Upper limits by metric, in place of those in [[metric]]."""
    at_least: Numbers | None = None
    """Lower limits by metric, in place of those in [[metric]]."""
    weights: dict[str, Annotated[float, Field(gt=0)]] | None = None
    """Weights by objective, in place of those in [[metric]]."""

    @field_validator("agents", mode="plain", json_schema_input_type=list[int] | None)
    @classmethod
    def _agents(cls, value: Any) -> Any:
        if not is_agents(value):
            raise ValueError("must be a list of agents, for example [0, 1]")
        return tuple(value)

    @model_validator(mode="after")
    def _same_in_every_replicate(self) -> Self:
        if faults := list(self._varying() if self.by is not None else ()):
            raise PydanticCustomError("settings", "invalid settings", {"faults": faults})
        return self

    def _varying(self) -> Iterator[SettingError]:
        if self.agents is not None:
            yield SettingError(("by",), "orders agents to take a share of them, but agents are listed; remove it")
        elif self.share is None:
            yield SettingError(("by",), "orders agents to take a share of them; set a share, for example share = 0.2")
        # Members of such a group may differ between replicates, but budgets, histories and limits are set once for the study.
        for key in ("iterations", "pulls", "initial", "history", "at_most", "at_least", "weights"):
            if getattr(self, key) is not None:
                remedy = "must be the same in every replicate, but the agents of a group `by` a measure differ; remove it"
                yield SettingError((key,), remedy)


class FaultTable(Named):
    """[[fault]]: a fault by its kind, with a label for sweeps and overrides."""

    key = "kind"
    noun = "fault"
    catalogue = staticmethod(FAULTS.copy)
    kind: str
    """Name of a fault."""
    label: Name | None = None
    """Name in sweeps and `--set`. Default: the kind, numbered from the second one."""

    @kept
    def make(self) -> Any:
        """Return the fault; StudyError when its kind or a setting is invalid."""
        who = self.settings.get("agents", "all")
        if "agents" in names_of(self._look_up()) and not (isinstance(who, str) or is_agents(who)):
            remedy = 'must be "all", the name of a group, or a list of agents, for example [0, 1]'
            raise StudyError.of([SettingError(("agents",), remedy)])
        return super().make()
