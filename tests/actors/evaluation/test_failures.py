"""Whatever an objective does instead of returning a number is a failed evaluation, the same one under every hosting."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import exiting
import numpy as np
import pyarrow.parquet as pq
import pytest

import fedbo
from fedbo.actors.evaluation.evaluate import LONGEST, failure_text
from fedbo.actors.evaluation.isolated import Isolated
from fedbo.algorithms.streams import Streams
from fedbo.objectives.python_function import PythonFunction
from fedbo.settings.own_code import ExitError, ends_process, exits_as_errors

HOSTINGS: list[Any] = [
    {},
    pytest.param({"hosting": {"kind": "packed", "workers": 2}}, marks=[pytest.mark.ray, pytest.mark.slow, pytest.mark.long]),
    pytest.param({"hosting": {"kind": "inline", "workers": 2}}, marks=pytest.mark.long),
    pytest.param({"hosting": {"kind": "dedicated"}}, marks=pytest.mark.long),
    pytest.param({"hosting": {"kind": "dedicated"}, "timing": {"clock": "wall"}}, marks=pytest.mark.long),
    pytest.param(
        {"hosting": {"kind": "dedicated"}, "timing": {"clock": "wall"}, "evaluation": {"time_limit": 60.0}},
        marks=pytest.mark.long,
    ),
    pytest.param(
        {"hosting": {"kind": "dedicated"}, "timing": {"clock": "wall"}, "evaluation": {"parallel": 2}}, marks=pytest.mark.long
    ),
]
# The others cost half a minute each.
FIRST: list[Any] = [{}, *(pytest.param(*each.values, marks=pytest.mark.long) for each in HOSTINGS[1:])]


def study(function: str, **tables: Any) -> dict[str, Any]:
    return {
        "study": {"name": "ends"},
        "objective": {"name": "python_function", "function": f"exiting:{function}", "low": [0.0], "high": [1.0], "agents": 2},
        "agents": {"initial": 1},
        "budget": {"iterations": 1},
        "algorithm": [{"name": "random"}],
        **tables,
    }


def all_failed(document: dict[str, Any], out: Path, **options: Any) -> fedbo.Result:
    """Run a study in which every evaluation fails, which is an error, and return what it left."""
    with pytest.raises(fedbo.errors.RunError, match=r"^(\d+) of \1 evaluations failed"):
        fedbo.run(document, out=out, **options)
    return fedbo.Result.open(out)


def rows(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(directory / "observations.parquet").to_pylist()
    return found


@pytest.mark.parametrize("function", exiting.FAILING, ids=lambda function: function.__name__)
def test_every_way_not_to_return_a_number_is_a_failed_evaluation(function: Any, tmp_path: Path) -> None:
    result = all_failed(study(function.__name__), tmp_path / "run")
    assert result.manifest["status"] == "complete" and [row["error"] is None for row in rows(tmp_path / "run")] == [False] * 4


@pytest.mark.parametrize("hosting", HOSTINGS)
def test_an_objective_that_calls_exit_fails_under_every_hosting(
    hosting: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if hosting:
        request.getfixturevalue("ray_session")
    all_failed(study("exit_zero", **hosting), tmp_path / "run")
    errors = [row["error"] for row in rows(tmp_path / "run")]
    assert len(errors) == 4 and all("SystemExit: sys.exit(0) was called" in error for error in errors)


def test_ctrl_c_and_the_exit_of_a_signal_handler_end_the_run() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # an evaluation in real time leaves another one in its process
    try:
        for function, kind in ((exiting.interrupted, KeyboardInterrupt), (exiting.terminated, SystemExit)):
            with pytest.raises(kind) as ended:
                exits_as_errors(function)(None)
            assert ends_process(ended.value)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    with pytest.raises(ExitError, match=r"exiting.py, line \d+, in exit_zero called sys.exit\(0\)"):
        exits_as_errors(exiting.exit_zero)(None)


@pytest.mark.parametrize("hosting", FIRST)
def test_a_keyboard_interrupt_that_an_objective_raises_itself_is_a_failed_evaluation(
    hosting: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if hosting:
        request.getfixturevalue("ray_session")
    all_failed(study("interrupted", **hosting), tmp_path / "run")
    errors = [row["error"] for row in rows(tmp_path / "run")]
    assert len(errors) == 4 and all("KeyboardInterrupt" in error for error in errors)


def test_a_process_of_its_own_survives_an_objective_that_calls_exit() -> None:
    isolated = Isolated(30.0, None)
    process = None
    try:
        for function in (exiting.exit_three, exiting.generator_exit):
            federation = PythonFunction(function, (0.0,), (1.0,))
            objective = federation.objective(0, np.random.default_rng(0), np.random.default_rng(0))
            isolated._sent.clear()
            with pytest.raises((SystemExit, GeneratorExit)):
                isolated.evaluate(0, objective, np.array([0.5]), Streams(0))
            assert process in (None, isolated._process)
            process = isolated._process
    finally:
        isolated.close()


def test_a_traceback_has_the_users_frames_without_folders() -> None:
    with pytest.raises(ValueError, match="second") as raised:
        exiting.chain(None)
    said = failure_text(raised.value)
    assert said.startswith("ValueError: second\n") and 'File "exiting.py", line' in said and "in exit_three" in said
    assert os.sep + "exiting.py" not in said and "fedbo" not in said


def test_an_error_with_a_library_s_data_in_it_keeps_its_beginning_and_where_it_was_raised() -> None:
    try:
        raise ValueError("first " + 3_000_000 * "x")
    except ValueError as error:
        words = failure_text(error)
    assert words.startswith("ValueError: first xxx") and words.endswith("x\n") and len(words) < LONGEST + 60
    assert re.search(r"x\n\.\.\. 5,98\d,\d{3} characters are left out \.\.\.\nx", words)


class Unreadable:
    def __repr__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("error", [SystemExit(Unreadable()), SyntaxError("no line", ("file.py", 1, 1, 5))])
def test_an_error_that_cannot_be_shown_is_a_failed_evaluation(error: BaseException) -> None:
    words = failure_text(error)
    assert words.startswith(f"{type(error).__name__}: ")
    assert "cannot be read" in words


def test_a_callback_that_calls_exit_is_dropped_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = all_failed(study("exit_zero"), tmp_path / "run", callbacks=[exiting.Quitter()])
    assert result.manifest["status"] == "complete" and "Quitter" in capfd.readouterr().err


@pytest.mark.long
def test_a_script_that_is_imported_as_a_function_and_exits_is_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nsys.exit(0)\n")
    lines = '[study]\nname = "s"\n[objective]\nname = "python_function"\nfunction = "script:f"\nlow = [0.0]\nhigh = [1.0]\n'
    (tmp_path / "s.toml").write_text(lines + '[budget]\niterations = 1\n[[algorithm]]\nname = "random"\n')
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "fedbo", "run", "s.toml"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert ran.returncode == 2 and "script.py, line 2, in <module> called sys.exit(0)" in ran.stderr


@pytest.mark.long
def test_runs_leave_no_files_open(tmp_path: Path) -> None:
    """Each of these takes long enough for its log of evaluations to be written, and ends in another way."""
    open_files = Path("/proc/self/fd")
    if not open_files.exists():
        pytest.skip("the system does not list open files")
    slow = {"name": "python_function", "function": "exiting:slow", "low": [0.0], "high": [1.0], "agents": 2}
    budgets = (
        {"iterations": 4},
        {"iterations": 9, "time": 3.5},
        {"iterations": 9, "evaluations": 6},
        {"iterations": 9, "target": 0.0},
    )
    counts = []
    for number, budget in enumerate((*budgets, *budgets)):
        tables = {"objective": slow, "budget": budget, "availability": {"model": "markov"}}
        fedbo.run(study("", **tables), out=tmp_path / str(number))
        counts.append(len(list(open_files.iterdir())))
    assert counts[3] == counts[-1], f"open files after each run: {counts}"
