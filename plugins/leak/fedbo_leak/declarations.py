"""The check of a declaration: what the cheap attacks find of a method must be no more than its `reveals` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedbo.algorithms.base import Algorithm, Problem
from fedbo.objectives.functions import Quadratic
from fedbo.settings.trust import admit, places_in
from fedbo.study.tables import AlgorithmTable
from fedbo.testing.algorithm_contract import counts_pulls
from fedbo.testing.contract import ContractBroken
from fedbo_leak.leak import method_row, view_of
from fedbo_leak.lockstep import values_of, watch_lockstep
from fedbo_leak.measuring import CHEAP, measure
from fedbo_leak.result import MethodRow

AGENTS, RUNS = 4, 6
INITIAL, DECISIONS, PULLS = 2, 5, 30


def declared_and_measured(algorithm: Algorithm | str | Mapping[str, Any], agents: int = AGENTS, runs: int = RUNS) -> MethodRow:
    """Attack a method in short lock-step runs with unlike bowls."""
    made = algorithm if isinstance(algorithm, Algorithm) else _made(algorithm)
    bowls = Quadratic(agents=agents, spread=1.0)
    problem = Problem(bowls.dimensions, agents, tuple(range(agents)), INITIAL, DECISIONS)
    if counts_pulls(made):
        problem = replace(problem, initial=0, pulls=PULLS)
    heard = [watch_lockstep(made, problem, values_of(bowls, seed), seed, bowls) for seed in range(runs)]
    label = type(made).__name__
    return method_row(label, heard, measure(label, heard, (view_of(made),), CHEAP))


def _made(algorithm: str | Mapping[str, Any]) -> Algorithm:
    table = {"name": algorithm} if isinstance(algorithm, str) else dict(algorithm)
    admit(places_in(table))
    return AlgorithmTable(**table).make()


def check_declaration(algorithm: Algorithm | str | Mapping[str, Any]) -> None:
    """Check that a method betrays no more than it declares; ContractBroken otherwise.

    It takes a method, its name, its place, or a table of `[[algorithm]]`. What it misses a stronger attack may find. fedbo's
    contract of algorithms calls it where this plug-in is installed.
    """
    found = declared_and_measured(algorithm)
    if not found.is_honest:
        words = f"it declares reveals = '{found.declared}', but attacks find '{found.measured}'"
        raise ContractBroken(f"{found.algorithm}: {words}; declare what it reveals, or send less")
