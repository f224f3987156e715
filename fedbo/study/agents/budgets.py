"""The budgets of a study's agents, where some groups have separate budgets."""

from __future__ import annotations

from fedbo.actors.task import AgentBudget
from fedbo.study.environment.groups import members
from fedbo.study.environment.tables import GroupTable
from fedbo.study.study_tables import StudyTables

KEYS = ("iterations", "pulls", "initial")


def common_budget(study: StudyTables) -> AgentBudget:
    """Return the budget of all agents whose group sets none."""
    return AgentBudget(study.agents.initial, study.budget.decisions, study.budget.pulls or 0)


def budgets_of(study: StudyTables) -> dict[int, AgentBudget]:
    """Return the budget of each target if any group sets one; an empty dictionary if all are equal."""
    tables = [table for table in study.group if has_own(table)]
    if not tables:
        return {}
    groups, given = members(study), study.targets
    targets = given if isinstance(given, range) else frozenset(given)
    found = dict.fromkeys(given, common_budget(study))
    for table in tables:
        found |= dict.fromkeys((agent for agent in groups[table.name] if agent in targets), budget_of(study, table))
    return found


def budget_of(study: StudyTables, table: GroupTable) -> AgentBudget:
    """Return the budget of a group's agents."""
    initial, iterations, pulls = common_budget(study)
    decisions = table.iterations or table.pulls or iterations
    return AgentBudget(initial if table.initial is None else table.initial, decisions, table.pulls or pulls)


def has_own(table: GroupTable) -> bool:
    """Return whether a group sets a budget."""
    return any(getattr(table, key) is not None for key in KEYS)


def largest_budget(study: StudyTables) -> AgentBudget:
    """Return the largest value of each part of a budget over all targets."""
    found = set(budgets_of(study).values()) or {common_budget(study)}
    return AgentBudget(*(max(column) for column in zip(*found, strict=True)))
