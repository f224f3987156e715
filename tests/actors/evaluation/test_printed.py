"""What evaluations print is kept with them under every hosting, and is never part of an answer in JSON."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import exiting
import numpy as np
import pytest
from test_failures import FIRST, study

import fedbo
from fedbo.actors.evaluation import contained
from fedbo.actors.evaluation.isolated import Isolated
from fedbo.algorithms.streams import Streams
from fedbo.analysis import failures
from fedbo.cli import main
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.python_function import PythonFunction


def expected(result: fedbo.Result) -> list[tuple[int, int, str]]:
    """Return agent, step and the line that its evaluation printed, of each observation."""
    rows = result.observations.select(["agent", "step", "x"]).to_pylist()
    return sorted((row["agent"], row["step"], f"agent {row['agent']} tries {row['x'][0]:.3f}\n") for row in rows)


def kept(result: fedbo.Result) -> list[tuple[int, int, str]]:
    return sorted((row["agent"], row["step"], row["text"]) for row in result.printed.to_pylist())


@pytest.mark.parametrize("hosting", FIRST)
def test_what_evaluations_print_is_kept_with_them_also_where_they_fail(
    hosting: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if hosting:
        request.getfixturevalue("ray_session")
    before = os.getcwd()
    result = fedbo.run(study("prints", **hosting), out=tmp_path / "run")
    assert kept(result) == expected(result) and len(kept(result)) == 4 and 0 < failures(result)[0] < 4
    assert os.getcwd() == before


def test_an_extension_keeps_what_was_printed_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = fedbo.run(study("prints"), out=tmp_path / "run").directory
    longer = fedbo.resume(directory, overrides=["budget.iterations=3"])
    assert kept(longer) == expected(longer) and len(kept(longer)) == 8
    capsys.readouterr()
    assert main(["show", str(directory), "--printed"]) == 0
    shown = capsys.readouterr().out
    assert "random, replicate 0, agent 1, step 3, evaluation 3, x1=0." in shown
    assert all(text in shown for _, _, text in kept(longer))


def test_a_run_in_which_nothing_is_printed_has_no_table_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(fedbo.errors.RunError, match="4 of 4 evaluations failed"):
        fedbo.run(study("immense"), out=tmp_path / "run")
    result = fedbo.Result.open(tmp_path / "run")
    assert len(result.printed) == 0 and not (result.directory / "printed.parquet").exists()
    assert main(["show", str(result.directory), "--printed"]) == 0 and "no evaluation printed" in capsys.readouterr().out


def test_a_process_of_its_own_sends_what_is_printed_before_it_dies(capsys: pytest.CaptureFixture[str]) -> None:
    isolated = Isolated(30.0, None)
    try:
        objective = PythonFunction(exiting.dies, (0.0,), (1.0,)).objective(0, *[np.random.default_rng(0)] * 2)
        with pytest.raises(RuntimeError, match="ended with code 7"):
            isolated.evaluate(0, objective, np.array([0.5]), Streams(0))
    finally:
        isolated.close()
    assert capsys.readouterr().out == "begun"


@pytest.mark.parametrize("isolate", [False, True])
def test_both_standard_streams_are_kept_and_programs_that_an_objective_starts_are_not(
    isolate: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = fedbo.run(study("warns", hosting={"isolate": isolate}), out=tmp_path / "run")
    assert {row["text"] for row in result.printed.to_pylist()} == {"to output\nto error\n"} and len(result.printed) == 4
    said = capsys.readouterr()
    assert said.out.count("to output") == said.err.count("to error") == 4, "each is passed on to its own stream"


def test_a_module_that_prints_as_it_is_imported_disturbs_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talkative.py").write_text("print('imported')\ndef f(x):\n    return float(x[0])\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("talkative").f
    isolated = Isolated(30.0, None)
    try:
        objective = PythonFunction(function, (0.0,), (1.0,)).objective(0, *[np.random.default_rng(0)] * 2)
        assert isolated.evaluate(0, objective, np.array([0.5]), Streams(0)) == Outcome(0.5)
    finally:
        isolated.close()
    assert capsys.readouterr().out == 2 * "imported\n"


def test_no_more_is_kept_than_a_user_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contained, "LONGEST", 10)
    with contained.Contained() as text:
        for _ in range(3):
            print("12345")
    assert text.text == "12345\n1234\n… and 8 more characters"


@pytest.mark.long
def test_an_answer_in_json_is_alone_on_standard_output(tmp_path: Path) -> None:
    file = Path(exiting.__file__)
    tables = (
        f'[study]\nname = "s"\n[objective]\nname = "python_function"\nfunction = "{file}:prints"\nlow = [0.0]\nhigh = [1.0]\n'
    )
    (tmp_path / "s.toml").write_text(tables + '[budget]\niterations = 1\n[[algorithm]]\nname = "random"\n')
    command = [sys.executable, "-m", "fedbo", "run", "s.toml", "--format", "json", "--quiet", "--callback", f"{file}:Talking"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert json.loads(ran.stdout)["status"] == "complete"
    for said in ("agent 0 tries", "a program of it", "a callback prints"):
        assert said in ran.stderr
