"""The agents of each [[group]] whose members are the same in every replicate."""

from __future__ import annotations

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
