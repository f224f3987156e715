"""The check of a declaration: what the cheap attacks find of a method must be no more than its `reveals` says."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbo.study.document import StudyError
from fedbo.study.study import load_study
from fedbo.testing.contract import ContractBroken
from fedbo_leak.leak import method_row, view_of
from fedbo_leak.measuring import CHEAP, measure
from fedbo_leak.result import MethodRow
from fedbo_leak.watched import watch

AGENTS, RUNS, SEED = 4, 6, 3


def declared_and_measured(algorithm: str | Mapping[str, Any], agents: int = AGENTS, runs: int = RUNS) -> MethodRow:
    """Attack a method, given as its name or as a table of `[[algorithm]]`, in small studies of unlike bowls."""
    table = {"name": algorithm} if isinstance(algorithm, str) else dict(algorithm)
    document: dict[str, Any] = {
        "study": {"name": "declaration", "seed": SEED, "replicates": runs},
        "objective": {"name": "quadratic", "agents": agents, "spread": 1.0},
        "algorithm": [table],
    }
    try:
        study = load_study({**document, "budget": {"iterations": 5}, "agents": {"initial": 2}}, trust=True)
    except StudyError:  # a method may need a budget of evaluations
        study = load_study({**document, "budget": {"pulls": 30}}, trust=True)
    with tempfile.TemporaryDirectory(prefix="fedbo-leak-") as place:
        heard = [run for run in watch(study, Path(place)) if run.agents]
    (label,) = study.labels
    return method_row(label, heard, measure(label, heard, (view_of(heard[0].algorithm),), CHEAP))


def check_declaration(algorithm: str | Mapping[str, Any]) -> None:
    """Check that a method betrays no more than it declares; ContractBroken otherwise.

    A test of a package calls it beside `fedbo.testing.algorithm_contract`. What it misses a stronger attack may find.
    """
    found = declared_and_measured(algorithm)
    if not found.is_honest:
        words = f"it declares reveals = '{found.declared}', but attacks find '{found.measured}'"
        raise ContractBroken(f"{found.algorithm}: {words}; declare what it reveals, or send less")
