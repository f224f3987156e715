"""The facts that the algorithms of a study may know before the first evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedbo.algorithms.base import Problem, Starting
from fedbo.algorithms.returned import initial
from fedbo.objectives.typed_spaces.typed import lattice_of
from fedbo.study.agents.budgets import common_budget, largest_budget
from fedbo.study.agents.histories import most_observed
from fedbo.study.goals import with_goals
from fedbo.study.kept import kept
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
