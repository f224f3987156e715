"""The environment of a run: how long things take, who is there, what the network does, and which faults there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedbo.coordinator.environment.availability import Always, Availability
from fedbo.coordinator.environment.faults import Plan
from fedbo.coordinator.environment.timing import Constant, DecisionTimeModel, SpeedClasses, Timing
from fedbo.coordinator.environment.worker_models import ClusterModel


@dataclass(frozen=True, slots=True)
class AgentModels:
    """The models of one group of agents; without `evaluation`, time is real.

    `speed` gives every agent a lasting factor on its evaluation times, `decision` is how long it takes to decide with t_n
    observations, `bandwidth` that of an agent's own link, in bytes for each unit of time. What becomes of the evaluation at
    hand when an agent leaves is `leaving`: it is "resumed" on its return, or "lost" and begun again.
    """

    evaluation: Timing | None = Constant(1.0)
    speed: SpeedClasses = SpeedClasses((1.0,))
    decision: DecisionTimeModel = DecisionTimeModel()
    latency: Timing = Constant(0.0)
    bandwidth: float | None = None
    availability: Availability = Always()
    leaving: str = "resumed"


@dataclass(frozen=True, slots=True)
class Environment:
    """All models of a run: those `common` to all agents, and those of the `exceptions`, agent by agent.

    `link` is the bandwidth of the coordinator's own link, through which all messages to it pass one after the other. A
    transmission that is lost is repeated after `retry` units of time, until there were `attempts` of them. In the `plan`,
    groups have been replaced by their agents. Where there is a `cluster`, evaluations of all agents queue for its workers.
    """

    common: AgentModels = AgentModels()
    exceptions: Mapping[int, AgentModels] = field(default_factory=dict)
    link: float | None = None
    retry: float = 1.0
    attempts: int = 10
    plan: Plan = ()
    cluster: ClusterModel | None = None

    def of(self, agent: int) -> AgentModels:
        """Give an agent's models."""
        return self.exceptions.get(agent, self.common)

    def groups(self) -> tuple[AgentModels, ...]:
        """List all groups of models."""
        return (self.common, *self.exceptions.values())

    @property
    def is_real_time(self) -> bool:
        """Say whether time is real."""
        return self.common.evaluation is None
