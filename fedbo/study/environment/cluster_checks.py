"""Checks of [cluster]: its workers, the resources that evaluations need, and preemptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedbo.coordinator.environment.faults import Preemption
from fedbo.settings.errors import SettingError, unknown
from fedbo.study.study_tables import StudyTables

if TYPE_CHECKING:
    from fedbo.study.environment.cluster_table import ClusterTable

KNOWN = ("CPU", "GPU", "memory")


def cluster_combinations(study: StudyTables) -> Iterator[SettingError]:
    """Yield the errors in the combination of a cluster with the rest of its study."""
    yield from _preemptions(study)
    cluster = study.cluster
    if cluster is None:
        return
    if study.timing.clock == "wall":
        yield SettingError(("cluster",), 'applies to virtual time only; remove it, or set [timing] clock = "virtual"')
    if cluster.worker and cluster.workers is not None:
        yield SettingError(
            ("cluster", "workers"), "cannot be combined with [[cluster.worker]], which sets counts; set one of them"
        )
    if cluster.worker and cluster.startup:
        yield SettingError(("cluster", "startup"), "applies only to equal workers; set it in each [[cluster.worker]]")
    if not cluster.worker and cluster.workers is None:
        yield SettingError(("cluster",), "has no workers; set workers = 8, or add [[cluster.worker]] with a name and a count")
    names = [one.name for one in cluster.worker]
    for number, one in enumerate(cluster.worker):
        if one.name == "all" or names.index(one.name) < number:
            words = "is reserved for all workers" if one.name == "all" else "is already the name of another class of workers"
            yield SettingError(("cluster", "worker", number, "name"), f"{words}; choose another name")
        if one.leaves is not None and one.leaves <= one.joins:
            yield SettingError(("cluster", "worker", number, "leaves"), f"must be above joins = {one.joins:g}")
    yield from _gone(study, cluster)
    yield from _needs(study)
    count = study.federation().n_agents
    if len(cluster.priorities) not in (0, 1, count):
        yield SettingError(("cluster", "priorities"), f"must be one number for each of {count} agents")
    if cluster.priorities and cluster.rule != "priority":
        yield SettingError(("cluster", "priorities"), 'has no effect with this rule; remove it, or set rule = "priority"')


def _gone(study: StudyTables, cluster: ClusterTable) -> Iterator[SettingError]:
    """Yield an error if all workers leave before the study can end."""
    ends = [one.leaves for one in cluster.worker if one.leaves is not None and one.leaves > one.joins]
    if not ends or len(ends) < len(cluster.worker):
        return
    last, time = max(ends), study.budget.time
    if time is None or last < time:
        words = f"all workers have left after {last:g}; remove it from one class, or set [budget] time to {last:g} or less"
        yield SettingError(("cluster", "worker", ends.index(last), "leaves"), words)


def _needs(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for resources that no worker has."""
    assert study.cluster is not None
    resources, count = study.evaluation.make().resources, study.federation().n_agents
    if len(resources) not in (0, 1, count):
        yield SettingError(("evaluation", "resources"), f"must be one table for all agents, or one table for each of {count}")
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


def _preemptions(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for preemptions of workers that do not exist."""
    classes = () if study.cluster is None else study.cluster.classes()
    for number, table in enumerate(study.fault):
        fault = table.make()
        if not isinstance(fault, Preemption):
            continue
        if study.cluster is None:
            yield SettingError(
                ("fault", number, "kind"),
                "affects the workers of a [cluster], but this study has none; add a [cluster], or remove the fault",
            )
        elif fault.workers not in ("all", *(one.name for one in classes)):
            known = sorted({"all", *(one.name for one in classes)})
            yield SettingError(("fault", number, "workers"), unknown("class of workers", fault.workers, known))
