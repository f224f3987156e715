"""The model of a cluster: its classes of workers, the needs of evaluations, and the rule of its queue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedbo.settings.sums import plain_sum

RULES = ("first_come", "fair_share", "priority")
LOAD = -3  # the owner of the first part of the background load, below the numbers of agents and coordinator


class Resources(NamedTuple):
    """CPUs, GPUs and memory in MiB, which a worker has or an evaluation needs."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: float = 0.0

    def holds(self, other: Resources) -> bool:
        """Check whether these resources are enough for others."""
        return self.cpus >= other.cpus and self.gpus >= other.gpus and self.memory >= other.memory

    def less(self, other: Resources) -> Resources:
        """Return these resources minus others; differences of whole numbers are exact."""
        return Resources(self.cpus - other.cpus, self.gpus - other.gpus, self.memory - other.memory)

    def more(self, other: Resources) -> Resources:
        """Return the sum of these and other resources."""
        return Resources(self.cpus + other.cpus, self.gpus + other.gpus, self.memory + other.memory)


class LoadPart(NamedTuple):
    """A part of a job of a cluster's log: its row there, when it enters the queue, its length at speed 1, and its CPUs."""

    row: int
    submit: float
    length: float
    cpus: float


@dataclass(frozen=True, slots=True)
class WorkerClass:
    """A class of `count` workers, `speed` times as fast as the evaluation times.

    Each has `resources`, which several evaluations may share at once; `startup` is the time before an evaluation begins. They
    join at the time `joins`, and leave for good at the time `leaves`. With `least` only so many are there at first; the others
    start `delay` after the queue needs them, and stop again once they have been idle for the time `idle`.
    """

    name: str
    count: int
    speed: float = 1.0
    resources: Resources = Resources()
    startup: float = 0.0
    joins: float = 0.0
    leaves: float = math.inf
    least: int | None = None
    delay: float = 0.0
    idle: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """A cluster: its classes of workers, the rule of its queue, the needs of each agent's evaluations, and agents' priorities.

    A free worker starts a waiting evaluation that fits: the one that came first ("first_come"), one of the agent that uses
    least of the cluster ("fair_share"), or one of the agent with the highest priority ("priority"). Ties go to the one that
    came first. `needs` has one entry for all agents, or one for each; so has `priorities`. Evaluations save their work after
    `every` units of time at speed 1, which takes `cost` of these units. One that has run for `after` times the `quantile` of
    the durations so far is copied. The parts of `load` wait in the same queue, each with an owner of its own.
    """

    classes: tuple[WorkerClass, ...]
    rule: str = "first_come"
    needs: tuple[Resources, ...] = (Resources(),)
    priorities: tuple[float, ...] = (0.0,)
    every: float = math.inf
    cost: float = 0.0
    after: float = math.inf
    quantile: float = 0.9
    load: tuple[LoadPart, ...] = ()

    def saving(self, work: float) -> float:
        """Return the time at speed 1 in which an evaluation with so much work saves it; its end needs no checkpoint."""
        return max(0, math.ceil(work / self.every) - 1) * self.cost

    def progress(self, time: float) -> tuple[float, float, float]:
        """Return what an evaluation has done after a time at speed 1: its work, the saved part, and when that was saved."""
        if self.every == math.inf:
            return time, 0.0, 0.0
        saves = time // (self.every + self.cost)
        since = saves * (self.every + self.cost)
        return saves * self.every + min(time - since, self.every), saves * self.every, since

    def need(self, agent: int) -> Resources:
        """Return the resources that an evaluation of an agent needs, or a part of the load."""
        if agent < 0:
            return Resources(self.load[LOAD - agent].cpus)
        return self.needs[agent if len(self.needs) > 1 else 0]

    def priority(self, agent: int) -> float:
        """Return the priority of an agent."""
        return 0.0 if agent < 0 else self.priorities[agent if len(self.priorities) > 1 else 0]

    @property
    def total(self) -> Resources:
        """Return all resources of all workers."""
        sums = [plain_sum(one.resources[place] * one.count for one in self.classes) for place in range(3)]
        return Resources(*sums)

    def share(self, need: Resources) -> float:
        """Return the dominant share of a need: its largest share of any resource (Ghodsi et al. 2011)."""
        return max((part / whole for part, whole in zip(need, self.total, strict=True) if whole > 0 and part > 0), default=1.0)
