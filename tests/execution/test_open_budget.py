"""Studies whose budget has no number of iterations: another bound ends them, exactly as it ends one with more than enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedbo import load_study, run
from fedbo.analysis.cost import estimate_cost
from fedbo.study.document import StudyError

BASE: dict[str, Any] = {
    "study": {"name": "open"},
    "objective": {"name": "quadratic", "agents": 4},
    "algorithm": [{"name": "fts", "features": 10}],
    "timing": {"evaluation": {"model": "lognormal", "mean": 1.0, "sigma": 0.5}, "latency": {"model": "constant", "mean": 0.1}},
}


@pytest.mark.parametrize("bound", [{"time": 6.0}, {"evaluations": 30}, {"cost": 5.0}], ids=lambda bound: next(iter(bound)))
def test_it_ends_as_with_iterations_that_no_agent_makes(bound: dict[str, float], tmp_path: Path) -> None:
    found = []
    for name, more in (("open", {}), ("many", {"iterations": 500})):
        result = run({**BASE, "budget": {**bound, **more}}, out=tmp_path / name)
        found.append((result.observations.to_pylist(), result.events.to_pylist()))
    assert found[0] == found[1]
    assert 12 < len(found[0][0]) < 60


@pytest.mark.parametrize(
    ("budget", "evaluations"),
    [({"time": 50.0}, 4 * (3 + 50)), ({"time": 50.0, "evaluations": 40}, 4 * (3 + 10)), ({"cost": 10.0}, 4 * (3 + 10))],
)
def test_the_estimate_uses_the_smallest_bound(budget: dict[str, float], evaluations: int) -> None:
    study = load_study({**BASE, "timing": {"evaluation": {"model": "constant", "mean": 1.0}}, "budget": budget})
    assert estimate_cost(study).evaluations == evaluations
    assert load_study(study.document()).document() == study.document()


@pytest.mark.parametrize(
    ("algorithm", "line"),
    [
        ("pooled", "computes the size of its messages from the budget; set"),
        ("gp_ts", "has a regulariser of 1 \\+ 2/T; set"),
        ("t_hoo", "has bounds that hold for this number of pulls; set"),
        ("dp_fts_de", "must be at most 100,000 for \\[\\[algorithm\\]\\] 1, which is private"),
    ],
)
def test_a_method_that_needs_the_number_of_iterations_refuses(algorithm: str, line: str) -> None:
    with pytest.raises(StudyError, match=line):
        load_study({**BASE, "algorithm": [{"name": algorithm}], "budget": {"time": 5.0}})


@pytest.mark.parametrize("budget", [{}, {"target": 1.0}])
def test_something_must_end_it(budget: dict[str, float]) -> None:
    with pytest.raises(StudyError, match="iterations: is missing"):
        load_study({**BASE, "budget": budget})
