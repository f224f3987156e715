"""The problem of a study: facts that algorithms may know before the first evaluation, and the goals that [[metric]] sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedbo.algorithms.base import Algorithm, Problem, Starting
from fedbo.algorithms.returned import initial
from fedbo.objectives.goals import AgentGoals, Goal, Goals, Limit
from fedbo.objectives.typed_spaces.typed import lattice_of
from fedbo.study.agents.histories import most_observed
from fedbo.study.base import kept
from fedbo.study.environment.groups import common_budget, largest_budget, members
from fedbo.study.limits import STEPS
from fedbo.study.study_tables import StudyTables
from fedbo.study.tables import AlgorithmTable


@kept
def problem(study: StudyTables) -> Problem:
    """Return the problem that every algorithm may know before the first evaluation."""
    federation, budget = study.federation(), largest_budget(study)
    known = Problem(
        dim=len(federation.parameters),
        n_agents=federation.n_agents,
        targets=study.targets,
        initial=budget.initial,
        iterations=budget.iterations,
        history=most_observed(study),
        pulls=budget.pulls,
        rounds=study.exchange.make().is_synchronous,
        lattice=lattice_of(federation),
    )
    return with_goals(study, known)


def problem_of(study: StudyTables, table: AlgorithmTable) -> Problem:
    """Return the problem that one algorithm may know: it may be a single agent, or start without initial points."""
    algorithm, known = table.make(), problem(study)
    if table.centralised:
        known = replace(known, n_agents=1, targets=(0,), history=0, **common_budget(study)._asdict())
    if isinstance(algorithm, Starting):
        some = np.full((max(1, known.initial), known.dim), 0.5)
        if not len(initial(algorithm, replace(known, agent=known.targets[0]), some)):
            known = replace(known, initial=0)
    return known


OF_GROUP = ("at_most", "at_least", "weights")


@kept
def goals(study: StudyTables) -> Goals | None:
    """Return the objectives and limits of agents without their own; None without [[metric]]."""
    if not study.metric:
        return None
    own = study.federation().metric
    chosen = [table for table in study.metric if table.mode is not None]
    objectives = [Goal(each.name, 1 if each.mode == "max" else -1, each.reference, each.weight or 1.0) for each in chosen]
    limits = [
        Limit(table.name, table.at_most, table.at_least)
        for table in study.metric
        if table.at_most is not None or table.at_least is not None
    ]
    return Goals(tuple(objectives) or (Goal(own.name, own.sign),), tuple(limits), own)


@kept
def own_goals(study: StudyTables) -> Mapping[int, Goals]:
    """Return the goals of the agents whose group has its own limits or weights."""
    common, tables = goals(study), [table for table in study.group if has_own(table)]
    if common is None or not tables:
        return {}
    groups = members(study)
    return {agent: goals_of_group(common, table) for table in tables for agent in groups[table.name]}


def agent_goals(study: StudyTables) -> AgentGoals | None:
    """Return the goals of all agents; None without [[metric]]."""
    common = goals(study)
    return None if common is None else AgentGoals(common, own_goals(study))


def has_own(table: Any) -> bool:
    return any(getattr(table, key) for key in OF_GROUP)


def goals_of_group(common: Goals, table: Any) -> Goals:
    """Return goals with the numbers of a group in place of the study's."""
    high, low, weights = (getattr(table, key) or {} for key in OF_GROUP)
    limits = [Limit(one.name, high.get(one.name, one.at_most), low.get(one.name, one.at_least)) for one in common.limits]
    objectives = [replace(one, weight=weights.get(one.name, one.weight)) for one in common.objectives]
    return replace(common, objectives=tuple(objectives), limits=tuple(limits))


def with_goals(study: StudyTables, known: Problem) -> Problem:
    """Return a problem with the number of objectives and bounds of a study."""
    found = goals(study)
    if found is None:
        return known
    known = replace(known, objectives=len(found.objectives), constraints=found.constraints)
    return replace(known, references=found.references, weights=found.weights) if found.several else known


def bare_problem(study: StudyTables) -> Problem:
    """Return the part of the problem that a mechanism may depend on, which excludes budgets and histories."""
    return Problem(len(study.federation().parameters), study.federation().n_agents, study.targets, 0, 1)


def sends_once(study: StudyTables, algorithm: Algorithm) -> bool:
    """Return whether an algorithm sends before the start, and never again."""
    steps = range(1, min(study.budget.decisions, STEPS) + 1)
    return algorithm.sends(0) and not any(map(algorithm.sends, steps))
