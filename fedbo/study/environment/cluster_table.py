"""The table [cluster]: workers for which the evaluations of all agents queue, in virtual time."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from fedbo.coordinator.environment.worker_models import ClusterModel, Resources, WorkerClass
from fedbo.study.base import Name, Positive, Table

Amount = Annotated[float, Field(ge=0)]


class WorkerTable(Table):
    """[[cluster.worker]]: a class of workers: their number, speed and resources, and when they are present."""

    name: Name
    """Name by which faults and sweeps find the class."""
    count: Positive = 1
    """Number of workers of this class."""
    speed: Annotated[float, Field(gt=0)] = 1.0
    """Divisor of evaluation times."""
    cpus: Amount = 1.0
    """CPUs of a worker."""
    gpus: Amount = 0.0
    """GPUs of a worker."""
    memory: Amount = 0.0
    """Memory of a worker [MiB]."""
    startup: Amount = 0.0
    """Units of time before an evaluation begins on its worker."""
    joins: Amount = 0.0
    """Time at which the workers join."""
    leaves: Annotated[float, Field(gt=0)] | None = None
    """Time at which the workers leave for good."""

    def make(self) -> WorkerClass:
        """Return the class of workers."""
        resources = Resources(self.cpus, self.gpus, self.memory)
        leaves = math.inf if self.leaves is None else self.leaves
        return WorkerClass(
            self.name, self.count, self.speed, resources=resources, startup=self.startup, joins=self.joins, leaves=leaves
        )


class ClusterTable(Table):
    """[cluster]: a number of equal workers, or classes of them, and the rule of their queue."""

    workers: Positive | None = None
    """Equal workers with one CPU each; set this or [[cluster.worker]]."""
    rule: Literal["first_come", "fair_share", "priority"] = "first_come"
    """Order of the queue: first come, least use by its agent, or highest priority."""
    startup: Amount = 0.0
    """Units of time before an evaluation begins on its worker."""
    priorities: Annotated[tuple[float, ...], Field(strict=False)] = ()
    """One number per agent, for `rule = "priority"`. Default: all 0."""
    worker: Annotated[tuple[WorkerTable, ...], Field(strict=False)] = ()
    """Classes of workers."""

    def classes(self) -> tuple[WorkerClass, ...]:
        """Return the classes of workers."""
        if self.worker:
            return tuple(table.make() for table in self.worker)
        return (WorkerClass("all", self.workers or 1, startup=self.startup),)

    def make(self, resources: tuple[dict[str, float], ...]) -> ClusterModel:
        """Return the model, for evaluations that need these resources."""
        needs = tuple(Resources(one.get("CPU", 1.0), one.get("GPU", 0.0), one.get("memory", 0.0)) for one in resources)
        return ClusterModel(self.classes(), self.rule, needs or (Resources(),), self.priorities or (0.0,))
