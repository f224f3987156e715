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


def test_an_agent_serves_threads_and_gives_each_client_its_own_token(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, fedbo.Terms("ts", initial=20)) as agent:

        def work(number: int) -> list[str]:
            (one,) = agent.ask(1, client=f"w{number}")
            anybody = agent.ask(1)[0] if number % 2 else one
            assert agent.pending(f"w{number}") == [one] and agent.given(one.token) == one
            assert agent.tell(one.token, one.configuration["x"])
            assert agent.best() is not None and "values" in repr(agent) and not agent.exhausted
            agent.add({"x": 0.5, "y": 0.5}, 0.0, name=f"w{number}")
            return list({one.token, anybody.token})

        with ThreadPoolExecutor(6) as threads:
            tokens = [token for found in threads.map(work, range(24)) for token in found]
    assert len(tokens) == len(set(tokens)) == 24 + 12
    with fedbo.Agent(tmp_path, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, fedbo.Terms("ts", initial=20)) as again:
        assert len(again.pending()) == 12


UNCLOSED = """
import sys, fedbo
agent = fedbo.Agent(sys.argv[1], {"x": (0.0, 1.0)}, fedbo.Terms("random"))
agent.ask()
"""


def test_python_ends_without_a_word_where_an_agent_is_not_closed(tmp_path: Path) -> None:
    program = [sys.executable, "-c", UNCLOSED, str(tmp_path / "agent")]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert not (tmp_path / "agent" / ".lock").exists()
