"""Several tunings in one process, at once or one within another: each evaluates its own function."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fedbo

SPACE = {"x": (0.0, 1.0)}
HERE: dict[str, Any] = {"timing": {"clock": "virtual"}, "evaluation": {"resources": []}, "hosting": {"kind": "inline"}}

PROGRAM = """
import sys, fedbo
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

def tuned(number):
    out = Path(sys.argv[1]) / str(number)
    result = fedbo.tune(lambda c: number, {"x": (0.0, 1.0)}, algorithm="random", initial=1, iterations=1, out=out)
    return set(result.trials().to_pandas()["value"])

with ThreadPoolExecutor(2) as threads:
    print(list(threads.map(tuned, (1.0, 2.0))))
"""


def values(function: Callable[..., Any], out: Path) -> set[float]:
    """Return the values that a tuning of a function has observed."""
    result = fedbo.tune(function, SPACE, algorithm="random", initial=2, iterations=1, out=out, study=HERE)
    return set(result.trials().to_pandas()["value"])


def constant(number: float) -> Callable[[Any], float]:
    """Return a function of the same name and source as all others."""

    def objective(configuration: Any) -> float:
        return number

    return objective


@pytest.mark.usefixtures("undrawn")
def test_tunings_at_once_evaluate_their_own_functions(tmp_path: Path) -> None:
    functions = {1.0: lambda c: 1.0, 2.0: lambda c: 2.0, 3.0: constant(3.0), 4.0: constant(4.0)}
    with ThreadPoolExecutor(len(functions)) as threads:
        found = threads.map(lambda number: values(functions[number], tmp_path / f"{number}"), functions)
        assert list(found) == [{number} for number in functions]


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
def test_tunings_at_once_start_one_ray_which_ends_with_the_last(tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=600)
    assert ended.stdout == "[{1.0}, {2.0}]\n", ended.stderr


@pytest.mark.usefixtures("undrawn")
def test_a_tuning_within_an_evaluation_leaves_the_outer_function_alone(tmp_path: Path) -> None:
    def outer(configuration: Any) -> float:
        (best,) = values(constant(5.0), tmp_path / f"{configuration['x']}")
        return best + 1.0

    def objective(configuration: Any) -> float:  # of the same name as the inner one
        return outer(configuration)

    assert values(objective, tmp_path / "outer") == {6.0}


@pytest.mark.usefixtures("undrawn")
def test_a_finished_tuning_does_not_go_on_with_another_function_of_the_same_name(tmp_path: Path) -> None:
    values(constant(1.0), tmp_path / "one")
    values(constant(2.0), tmp_path / "two")
    with pytest.raises(fedbo.DirectoryError, match="passed in Python; call fedbo.tune again with more iterations and resume"):
        fedbo.resume(tmp_path / "one", overrides=["budget.iterations=2"])
