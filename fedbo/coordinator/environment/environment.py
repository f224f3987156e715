"""The environment of a run: durations, presence, the network, and faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedbo.coordinator.environment.availability import Always, Availability
from fedbo.coordinator.environment.faults import Plan
from fedbo.coordinator.environment.timing import Constant, DecisionTimeModel, SpeedClasses, Timing


class Ways(NamedTuple):
    """The bandwidths of a link to the coordinator and from it; None is unlimited."""

    up: float | None = None
    down: float | None = None


@dataclass(frozen=True, slots=True)
class AgentModels:
    """The models of one group of agents; without `evaluation`, time is real.

    - `speed`: a lasting factor on every agent's evaluation times.
    - `decision`: the time of a decision with t_n observations.
    - `bandwidth`: that of an agent's own link, in bytes for each unit of time, each way.
    - `leaving`: an evaluation is "resumed" on its agent's return, or "lost" and started again.
    """

    evaluation: Timing | None = Constant(1.0)
    speed: SpeedClasses = SpeedClasses((1.0,))
    decision: DecisionTimeModel = DecisionTimeModel()
    latency: Timing = Constant(0.0)
    bandwidth: float | Ways | None = None
    availability: Availability = Always()
    leaving: str = "resumed"

    def rate(self, way: str) -> float | None:
        """Return the bandwidth of an agent's link `up` or `down`; None if unlimited."""
        return getattr(self.bandwidth, way) if isinstance(self.bandwidth, Ways) else self.bandwidth


@dataclass(frozen=True, slots=True)
class Environment:
    """All models of a run: those `common` to all agents, and the `exceptions` of some agents.

    - `link`: the bandwidth of the coordinator's own link, which carries all messages to it one after the other.
    - `retry`, `attempts`: a lost transmission is repeated after `retry` units of time, until there were `attempts` of them.
    - `plan`: the faults, with groups replaced by their agents.
    - `cluster`: the `ClusterModel` of the workers that evaluations of all agents queue for, if any.
    - `detection`: the `Detection` by heartbeats, if any.
    - `idle_rows`: whether absences and faults of idle agents are in the log.
    """

    common: AgentModels = AgentModels()
    exceptions: Mapping[int, AgentModels] = field(default_factory=dict)
    link: float | None = None
    retry: float = 1.0
    attempts: int = 10
    plan: Plan = ()
    cluster: Any = None
    idle_rows: bool = False
    detection: Any = None

    def of(self, agent: int) -> AgentModels:
        """Return an agent's models."""
        return self.exceptions.get(agent, self.common)

    def groups(self) -> tuple[AgentModels, ...]:
        """List all groups of models."""
        return (self.common, *self.exceptions.values())

    @property
    def is_real_time(self) -> bool:
        """Check whether time is real."""
        return self.common.evaluation is None
