"""Checks of the histories of a study's agents, and of the budgets of groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedbo.algorithms.base import Overlapping
from fedbo.settings.errors import SettingError
from fedbo.study.agents.histories import HistorySource, history_sources, observed
from fedbo.study.environment.groups import has_own, members
from fedbo.study.study_tables import StudyTables


def group_budgets(study: StudyTables) -> Iterator[SettingError]:
    """Yield errors for group budgets that do not match the study's, have no effect, or never start."""
    counted, other = ("pulls", "iterations") if study.budget.pulls else ("iterations", "pulls")
    groups = members(study) if any(map(has_own, study.group)) else {}
    for number, table in enumerate(study.group):
        loc = ("group", number)
        if getattr(table, other) is not None:
            yield SettingError((*loc, other), f"does not match [budget]; set {counted}")
        if table.initial is not None and study.agents.initial_file is not None:
            yield SettingError((*loc, "initial"), "cannot be combined with initial_file, which contains the points; remove it")
        if has_own(table) and not set(groups[table.name]) & set(study.targets):
            yield SettingError(
                loc, "has a budget, but none of its agents optimises; remove it, or list some of its agents as targets"
            )
        yield from _span(study, table, number)


def _span(study: StudyTables, table: Any, number: int) -> Iterator[SettingError]:
    end = study.budget.time
    if table.until is not None and table.until <= (table.from_ or 0.0):
        yield SettingError(("group", number, "until"), f"must be above from = {table.from_:g}")
    if end is not None and table.from_ is not None and table.from_ >= end:
        yield SettingError(("group", number, "from"), f"must be before the study's end; [budget] time = {end:g}")


def history_combinations(study: StudyTables) -> Iterator[SettingError]:
    """Yield the errors in the histories of a study whose agents and groups are valid."""
    for source in history_sources(study):
        table = source.table
        if table.algorithm is None:
            yield from _given(study, source)
            yield from _warm(study, source)
        elif table.fresh is False and study.study.replicates > 1 and study.federation().random_per_replicate:
            name = study.objective.name
            yield SettingError((*source.loc, "fresh"), f"'{name}' draws new functions for every replicate; set fresh = true")


def _warm(study: StudyTables, source: HistorySource) -> Iterator[SettingError]:
    """Yield errors for algorithms that cannot learn points that they did not choose."""
    for number, algorithm in enumerate(study.algorithm if source.table.warm_start else ()):
        if not isinstance(made := algorithm.make(), Overlapping) or made.queries != 1:
            remedy = "cannot start from observations that it did not choose; use ts, fts, gp_ei or gp_ucb"
            yield SettingError(("algorithm", number, "name"), remedy)


def _given(study: StudyTables, source: HistorySource) -> Iterator[SettingError]:
    """Yield the error of a file or an earlier run, if there is one."""
    for replicate in range(study.study.replicates):
        try:
            observed(study, source, replicate)
        except SettingError as error:
            yield SettingError((*source.loc, *error.path), error.remedy)
            return
