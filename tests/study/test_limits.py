"""How large a study may be: immense numbers are refused, or taken, without anything of their size being made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedbo.study.limits import RUNS, machine_memory, needed
from fedbo.study.study import StudyError, load_study

STUDY = {
    "study": {"name": "large"},
    "objective": {"name": "quadratic", "agents": 4},
    "budget": {"iterations": 5},
    "algorithm": [{"name": "random"}],
}


@pytest.mark.slow
@pytest.mark.parametrize("stride", [797, pytest.param(1, marks=pytest.mark.long)])
def test_every_number_of_a_study_may_be_immense_and_costs_no_memory(stride: int) -> None:
    """Every value in every place, or some of these."""
    script = Path(__file__).with_name("immense.py")
    done = subprocess.run([sys.executable, str(script), str(stride)], capture_output=True, text=True, timeout=1200, check=True)
    *wrong, count = done.stdout.splitlines()
    assert wrong == []
    assert int(count) > 1500 / stride


def test_a_study_that_this_machine_cannot_hold_is_refused_with_what_it_asks_for() -> None:
    iterations = machine_memory() // 200
    with pytest.raises(StudyError, match=r"needs at least [\d,]+ GiB of memory, but this machine has \d+ GiB; lower it"):
        load_study({**STUDY, "budget": {"iterations": min(iterations, 10**9)}})


def test_a_million_agents_are_not_refused_by_their_number() -> None:
    study = load_study({**STUDY, "objective": {"name": "quadratic", "agents": 1_000_000}, "agents": {"targets": [0]}})
    assert needed(study) == 200 * 8 + 1000 * 1_000_000


def test_cells_are_counted_before_they_are_made() -> None:
    sweep = {f"timing.speed.factors{n}": list(range(1000)) for n in range(6)}
    with pytest.raises(StudyError, match=r"has 1,000,000,000,000,000,000 cells; use fewer values"):
        load_study({**STUDY, "sweep": sweep})
    assert RUNS >= 10_000
