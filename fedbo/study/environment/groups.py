"""The agents of each [[group]] whose members are the same in every replicate, and budgets, which groups may set."""

from __future__ import annotations

from fedbo.actors.task import AgentBudget
from fedbo.study.environment.tables import GroupTable
from fedbo.study.study_tables import StudyTables


def members(study: StudyTables) -> dict[str, tuple[int, ...]]:
    """Return the agents, ascending, of each group whose members are the same in every replicate.

    A group with a share takes the last round(share * n) agents that are in no list and in no earlier share.
    """
    return placed(study)[0]


def placed(study: StudyTables) -> tuple[dict[str, tuple[int, ...]], list[int]]:
    """Return the agents of groups without a measure, and the remaining agents."""
    count = study.federation().n_agents
    listed = {agent for table in study.group for agent in table.agents or ()}
    left = [agent for agent in range(count) if agent not in listed]
    found: dict[str, tuple[int, ...]] = {}
    for table in study.group:
        if table.share is None:
            found[table.name] = tuple(sorted(table.agents or ()))
        elif table.by is None:
            first = max(0, len(left) - share_of(table.share, count))
            found[table.name], left = tuple(left[first:]), left[:first]
    return found, left


def share_of(share: float, count: int) -> int:
    """Return the number of agents in a share of `count`."""
    return round(share * count)


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
