"""The table [cluster]: workers for which the evaluations of all agents queue, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from fedbo.algorithms.base import Overlapping
from fedbo.coordinator.environment.faults import Preemption
from fedbo.settings.errors import SettingError, unknown
from fedbo.study.base import Name, Positive, RoomTable, Table
from fedbo.workers.job_log import read_load
from fedbo.workers.models import ClusterModel, Resources, WorkerClass

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
    least: Annotated[int, Field(ge=0)] | None = None
    """Workers that are always there; the others follow the queue. Default: all."""
    delay: Amount = 0.0
    """With least: units of time until a worker that the queue needs is there."""
    idle: Amount = 0.0
    """With least: units of time without evaluations after which a worker stops."""

    def make(self) -> WorkerClass:
        """Return the class of workers."""
        resources = Resources(self.cpus, self.gpus, self.memory)
        leaves = math.inf if self.leaves is None else self.leaves
        same = {name: getattr(self, name) for name in ("name", "count", "speed", "startup", "joins", "least", "delay", "idle")}
        return WorkerClass(**same, resources=resources, leaves=leaves)


class CheckpointTable(Table):
    """[cluster] checkpoint: how often an evaluation saves its work, and for how long."""

    every: Annotated[float, Field(gt=0)]
    """Units of time of work at speed 1 between two checkpoints."""
    cost: Amount = 0.0
    """Units of time at speed 1 that a checkpoint takes."""


class CopiesTable(Table):
    """[cluster] copies: when a slow evaluation is copied. The first result counts."""

    after: Annotated[float, Field(gt=0)] = 2.0
    """Quantiles that an evaluation has been on its worker when it is copied."""
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Quantile of the durations on workers so far."""


class BackgroundTable(Table):
    """[cluster] background: the jobs of a log, which queue for the same workers."""

    file: str
    """Log of jobs: .swf, or a table with submit, start, end and cores."""
    unit: Annotated[float, Field(gt=0)] = 1.0
    """Units of the file's times in one unit of time of the study."""
    start: float = 0.0
    """Time of the file at which the study begins."""


class ClusterTable(Table, RoomTable):
    """[cluster]: a number of equal workers, or classes of them, and the rule of their queue."""

    workers: Positive | None = None
    """Equal workers with one CPU each; set this or [[cluster.worker]]."""
    rule: Literal["first_come", "fair_share", "priority"] = "first_come"
    """Order of the queue: first come, least use by its agent, or highest priority."""
    startup: Amount = 0.0
    """Units of time before an evaluation begins on its worker."""
    priorities: Annotated[tuple[float, ...], Field(strict=False)] = ()
    """One number per agent, for `rule = "priority"`. Default: all 0."""
    checkpoint: CheckpointTable | None = None
    """How often evaluations save their work. Default: never."""
    copies: CopiesTable | None = None
    """When slow evaluations are copied. Default: never."""
    background: BackgroundTable | None = None
    """Jobs of a log, which queue for the same workers. Default: none."""
    worker: Annotated[tuple[WorkerTable, ...], Field(strict=False)] = ()
    """Classes of workers."""

    nested = {"worker": WorkerTable, "checkpoint": CheckpointTable, "copies": CopiesTable, "background": BackgroundTable}

    @classmethod
    def combinations(cls, study: Any) -> Iterator[SettingError]:
        """Yield the errors of overlapping evaluations, and those in the combination of a cluster with the rest of its study."""
        yield from _invalid_overlap(study)
        cluster = study.cluster
        if cluster is None:
            return
        yield from _preemptions(study, cluster)
        if study.timing.clock == "wall":
            yield SettingError(("cluster",), 'applies to virtual time only; remove it, or set [timing] clock = "virtual"')
        if cluster.worker and cluster.workers is not None:
            yield SettingError(
                ("cluster", "workers"), "cannot be combined with [[cluster.worker]], which sets counts; set one of them"
            )
        if cluster.worker and cluster.startup:
            yield SettingError(("cluster", "startup"), "applies only to equal workers; set it in each [[cluster.worker]]")
        if not cluster.worker and cluster.workers is None:
            yield SettingError(
                ("cluster",), "has no workers; set workers = 8, or add [[cluster.worker]] with a name and a count"
            )
        names = [one.name for one in cluster.worker]
        for number, one in enumerate(cluster.worker):
            if one.name == "all" or names.index(one.name) < number:
                words = (
                    "is reserved for all workers" if one.name == "all" else "is already the name of another class of workers"
                )
                yield SettingError(("cluster", "worker", number, "name"), f"{words}; choose another name")
            if one.leaves is not None and one.leaves <= one.joins:
                yield SettingError(("cluster", "worker", number, "leaves"), f"must be above joins = {one.joins:g}")
            if one.least is None and (one.delay or one.idle):
                key = "delay" if one.delay else "idle"
                yield SettingError(("cluster", "worker", number, key), "has no effect without least; set least, or remove it")
            if one.least is not None and one.least > one.count:
                yield SettingError(("cluster", "worker", number, "least"), f"must be at most count = {one.count}")
        try:
            cluster.make((), loaded=True)
        except SettingError as error:
            yield SettingError(("cluster", "background", *error.path), error.remedy)
        if cluster.copies is not None and study.stopping is not None:
            yield SettingError(("cluster", "copies"), "cannot be combined with [stopping]; remove one of them")
        yield from _gone(study, cluster)
        yield from _needs(study)
        count = study.federation().n_agents
        if len(cluster.priorities) not in (0, 1, count):
            yield SettingError(("cluster", "priorities"), f"must be one number for each of {count} agents")
        if cluster.priorities and cluster.rule != "priority":
            yield SettingError(("cluster", "priorities"), 'has no effect with this rule; remove it, or set rule = "priority"')

    def classes(self) -> tuple[WorkerClass, ...]:
        """Return the classes of workers."""
        if self.worker:
            return tuple(table.make() for table in self.worker)
        return (WorkerClass("all", self.workers or 1, startup=self.startup),)

    def make(self, resources: tuple[dict[str, float], ...], loaded: bool = False) -> ClusterModel:
        """Return the model, for evaluations that need these resources; the log of its background load is read if `loaded`."""
        needs = tuple(Resources(one.get("CPU", 1.0), one.get("GPU", 0.0), one.get("memory", 0.0)) for one in resources)
        model = ClusterModel(self.classes(), self.rule, needs or (Resources(),), self.priorities or (0.0,))
        settings = [table.model_dump() for table in (self.checkpoint, self.copies) if table is not None]
        if loaded and (background := self.background) is not None:
            most = max(one.resources.cpus for one in model.classes)
            settings += [{"load": read_load(Path(background.file), background.unit, background.start, most)}]
        return replace(model, **{key: value for table in settings for key, value in table.items()})


KNOWN = ("CPU", "GPU", "memory")


def _gone(study: Any, cluster: ClusterTable) -> Iterator[SettingError]:
    """Yield an error if all workers leave before the study can end."""
    ends = [one.leaves for one in cluster.worker if one.leaves is not None and one.leaves > one.joins]
    if not ends or len(ends) < len(cluster.worker):
        return
    last, time = max(ends), study.budget.time
    if time is None or last < time:
        words = f"all workers have left after {last:g}; remove it from one class, or set [budget] time to {last:g} or less"
        yield SettingError(("cluster", "worker", ends.index(last), "leaves"), words)


def _needs(study: Any) -> Iterator[SettingError]:
    """Yield errors for resources that no worker has."""
    resources = study.evaluation.make().resources
    model = study.cluster.make(resources)
    for table in resources:
        for name in table.keys() - set(KNOWN):
            yield SettingError(("evaluation", "resources"), unknown("resource of a simulated worker", name, KNOWN))
    lacking = [need for need in model.needs if not any(one.resources.holds(need) for one in model.classes)]
    if lacking:
        cpus, gpus, memory = lacking[0]
        counts = [(cpus, "CPU"), (gpus, "GPU"), (memory, "MiB of memory")]
        asked = [f"{count:g} {unit}{'s' * (count != 1 and len(unit) == 3)}" for count, unit in counts if count]
        words = f"need {' and '.join(asked)}, but no class of workers has that much"
        yield SettingError(("evaluation", "resources"), f"{words}; lower it, or raise [[cluster.worker]] cpus, gpus, memory")


def _preemptions(study: Any, cluster: ClusterTable) -> Iterator[SettingError]:
    """Yield errors for preemptions of workers that do not exist."""
    known = sorted({"all", *(one.name for one in cluster.classes())})
    for number, table in enumerate(study.fault):
        fault = table.make()
        if isinstance(fault, Preemption) and fault.workers not in known:
            yield SettingError(("fault", number, "workers"), unknown("class of workers", fault.workers, known))


def _invalid_overlap(study: Any) -> Iterator[SettingError]:
    """Yield errors for resources, and for overlapping evaluations in real time with settings that need sequential ones."""
    from fedbo.study.agents.histories import history_sources

    policy = study.evaluation.make()
    if not policy.overlaps:
        return
    key = "parallel" if policy.parallel > 1 else "prefetch" if policy.prefetch else "resources"
    count = study.federation().n_agents
    if len(policy.resources) not in (0, 1, count):
        yield SettingError(("evaluation", "resources"), f"must be one table for all agents, or one table for each of {count}")
    if study.timing.clock != "wall":
        if policy.resources and study.cluster is None:
            yield SettingError(
                ("evaluation", "resources"), 'require workers; add a [cluster], set [timing] clock = "wall", or remove them'
            )
        return
    if study.fault:
        words = 'cannot be combined with a fault plan in real time; remove one of them, or set [timing] clock = "virtual"'
        yield SettingError(("evaluation", key), words)
    if study.budget.pulls:
        yield SettingError(("evaluation", key), "requires a budget of decisions; set [budget] iterations instead of pulls")
    if any(not source.table.warm_start for source in history_sources(study)):
        yield SettingError(("evaluation", key), "cannot be combined with [agents.history]; remove one of them")
    if study.objective.noise:
        yield SettingError(("evaluation", key), "cannot be combined with added noise; remove noise")
    for number, table in enumerate(study.algorithm):
        made = table.make()
        if policy.most_pending > 1 and not (made.queries == 1 and isinstance(made, Overlapping)) or table.centralised:
            alone = f"[evaluation] {key} = {0 if key == 'prefetch' else 1}"
            remedy = f"cannot choose a point while others are pending; set {alone}, or use ts, fts, gp_ei or gp_ucb"
            yield SettingError(("algorithm", number, "name"), remedy)
