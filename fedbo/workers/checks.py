"""Checks of overlapping evaluations: their requirements on the other tables of a study."""

from __future__ import annotations

from collections.abc import Iterator

from fedbo.algorithms.base import Overlapping
from fedbo.settings.errors import SettingError
from fedbo.study.agents.histories import history_sources
from fedbo.study.study_tables import StudyTables


def invalid_overlap(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for resources, and for overlapping evaluations in real time with settings that need sequential ones."""
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
        if policy.most_pending > 1 and not (isinstance(made, Overlapping) and made.queries == 1) or table.centralised:
            alone = f"[evaluation] {key} = {0 if key == 'prefetch' else 1}"
            remedy = f"cannot choose a point while others are pending; set {alone}, or use ts, fts, gp_ei or gp_ucb"
            yield SettingError(("algorithm", number, "name"), remedy)
