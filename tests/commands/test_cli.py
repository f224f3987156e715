"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import document, write_run

from fedbo.cli import FAILED, INTERRUPTED, OK, WRONG_INPUT, main
from fedbo.settings.interrupts import FIRST
from fedbo.study.document import to_toml
from fedbo.study.study import load_study

STUDY: dict[str, Any] = {
    "study": {"name": "tiny", "replicates": 2},
    "objective": {"name": "quadratic", "agents": 3},
    "budget": {"iterations": 2},
    "algorithm": [{"name": "random"}, {"name": "random", "label": "two", "queries": 2}],
}


@pytest.fixture
def study(tmp_path: Path) -> str:
    path = tmp_path / "study.toml"
    path.write_text(to_toml(STUDY), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def old_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_run(tmp_path_factory.mktemp("runs") / "old", document()))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = OK) -> str:
    assert main(arguments) == code
    return capsys.readouterr().out


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = WRONG_INPUT) -> str:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == "" and err.endswith("\n") and err.count("\n") == 1
    return err.rstrip()


def test_run_prints_a_summary_with_errors_and_differences_and_where_everything_is(
    capsys: pytest.CaptureFixture[str], study: str, tmp_path: Path
) -> None:
    shown = printed(capsys, "run", study, "--out", str(tmp_path / "run"), "--quiet")
    assert "±" in shown and "minus random [95 %]" in shown
    assert f"results: {tmp_path / 'run'}\nfigure:  {tmp_path / 'run' / 'overview.png'}\n" in shown
    assert (tmp_path / "run" / "overview.png").stat().st_size > 10_000


@pytest.mark.usefixtures("undrawn")
def test_run_with_format_json_prints_one_object_and_nothing_else(
    capsys: pytest.CaptureFixture[str], study: str, tmp_path: Path
) -> None:
    facts = json.loads(printed(capsys, "run", study, "--out", str(tmp_path / "run"), "--format", "json"))
    assert facts["status"] == "complete" and facts["directory"] == str(tmp_path / "run")
    assert [row["algorithm"] for row in facts["summary"]] == ["random", "two"]
    assert [row["evaluations"] for row in facts["summary"]] == [3 * (3 + 2), 3 * (3 + 4)]
    assert facts == {
        **json.loads(printed(capsys, "show", facts["directory"], "--format", "json")),
        "figures": facts["figures"],
        "report": str(tmp_path / "run" / "report.html"),
    }


@pytest.mark.usefixtures("undrawn")
def test_run_takes_overrides_and_refuses_a_directory_that_is_not_empty(
    capsys: pytest.CaptureFixture[str], study: str, tmp_path: Path
) -> None:
    arguments = ("run", study, "--set", "budget.iterations=1", "--set", "study.replicates=1", "--out", str(tmp_path))
    assert "is not an empty directory; choose a new one" in complaint(capsys, *arguments, "--quiet")
    folder = str(tmp_path / "run")
    shown = printed(capsys, *arguments[:-1], folder, "--quiet", "--workers", "0", "--format", "json")
    assert json.loads(shown)["summary"][0]["evaluations"] == 3 * 4


@pytest.mark.long
def test_a_swept_study_has_a_figure_and_rows_for_each_cell(
    capsys: pytest.CaptureFixture[str], study: str, tmp_path: Path
) -> None:
    swept = ("--set", "sweep.objective.spread=[0.0, 0.5]", "--quiet", "--out", str(tmp_path / "run"))
    shown = printed(capsys, "run", study, *swept)
    assert "objective.spread = 0.0" in shown and "objective.spread = 0.5" in shown
    assert {path.name for path in (tmp_path / "run").glob("*.png")} == {"sweep.png"}


def test_a_failing_objective_ends_the_run_with_one_line_and_its_own_code(
    capsys: pytest.CaptureFixture[str], study: str, tmp_path: Path
) -> None:
    line = complaint(
        capsys, "run", study, "--quiet", "--out", str(tmp_path / "run"),
        "--set", "objective={name = 'python_function', function = 'math:fsum', low = [0.0], high = [1.0], agents = 1}",
        "--set", "algorithm=[{name = 'random'}]", "--set", "objective.function='operator:index'",
        "--set", "evaluation.failure=stop", code=FAILED,
    )  # fmt: skip
    assert "agent 0" in line


@pytest.mark.usefixtures("undrawn")
def test_failing_evaluations_are_counted_and_named_and_a_study_of_nothing_else_has_failed(
    capsys: pytest.CaptureFixture[str], study: str, tmp_path: Path
) -> None:
    objective = "{name = 'python_function', function = 'operator:index', low = [0.0], high = [1.0], agents = 1}"
    chosen = ["--set", f"objective={objective}", "--set", "algorithm=[{name = 'random'}]"]
    assert main(["run", study, "--quiet", "--out", str(tmp_path / "run"), *chosen]) == FAILED
    words = r"10 of 10 evaluations failed; first error: agent 0 at x1=[\d.]+: TypeError: [^\n]*"
    assert re.fullmatch(f"{words}\n", capsys.readouterr().err)
    assert main(["show", str(tmp_path / "run")]) == OK
    assert re.fullmatch(f"{words}\n", capsys.readouterr().err), "who looks later sees it too"
    facts = json.loads(printed(capsys, "show", str(tmp_path / "run"), "--format", "json"))
    assert (facts["status"], facts["evaluations"], facts["failed_evaluations"]) == ("complete", 10, 10)


def test_ctrl_c_keeps_what_was_done_and_says_where(study: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "fedbo.cli", "run", study, "--quiet", "--format", "json", "--out", str(folder)]
    process = subprocess.Popen(
        [*command, "--set", "budget.iterations=1000000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONWARNINGS": "error"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background of a shell ignore it
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        # Before that there are no results; how long it takes after the manifest depends on the machine.
        while not list(folder.glob("parts/*/latest.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    line = f"interrupted; partial results are in {folder}; continue with: fedbo resume {folder}\n"
    # Before it, where the run needs longer to end or its routines are not compiled yet.
    before = [told for told in err.removesuffix(line).splitlines(keepends=True) if not told.startswith("fedbo: compiling ")]
    assert err.endswith(line) and before in ([], [FIRST])
    assert process.returncode == INTERRUPTED
    assert json.loads(out) == {"status": "interrupted", "directory": str(folder)}
    assert main(["show", str(folder)]) == OK


def test_validate_prints_an_estimate_or_the_resolved_study(
    capsys: pytest.CaptureFixture[str], study: str, tmp_path: Path
) -> None:
    shown = printed(capsys, "validate", study)
    assert 'mode = "immediate"' not in shown and shown.rstrip().endswith("see --format json for all assumptions")
    (tmp_path / "full.toml").write_text(printed(capsys, "validate", study, "--full"))
    assert load_study(tmp_path / "full.toml").digest() == load_study(study).digest()
    facts = json.loads(printed(capsys, "validate", study, "--format", "json", "--set", "hosting.kind=dedicated"))
    assert facts["estimate"]["evaluations"] == 2 * (15 + 21)
    assert facts["estimate"]["actors"] == 1 + 3 and facts["estimate"]["bytes_up"] == 0
    assert facts["study"]["timing"]["clock"] == "virtual"


def test_the_estimate_counts_declared_messages_and_histories(capsys: pytest.CaptureFixture[str], study: str) -> None:
    sets = ("algorithm=[{name = 'fts', features = 10, every = 0}]", "exchange.mode=barrier", "agents.targets=[0]",
            "agents.history={algorithm = 'random', observations = 7}")  # fmt: skip
    arguments = [part for text in sets for part in ("--set", text)]
    cost = json.loads(printed(capsys, "validate", study, "--format", "json", *arguments))["estimate"]
    assert cost["evaluations"] == 2 * (3 + 2) + 2 * 3 * 7
    assert cost["messages_up"] == 2 * 3  # two replicates, one message of each agent before the start
    assert cost["bytes_up"] == 2 * 3 * 10 * 8


def test_show_and_plot_read_what_an_earlier_run_left(capsys: pytest.CaptureFixture[str], old_run: str, tmp_path: Path) -> None:
    shown = printed(capsys, "show", old_run, "--baseline", "Together")
    assert "minus Together [95 %]" in shown and "se and intervals over 3 replicates" in shown
    figure = tmp_path / "figure.svg"
    assert printed(capsys, "plot", old_run, "--kind", "timeline", "--out", str(figure)) == f"{figure}\n"
    assert figure.read_text(encoding="utf-8").startswith("<?xml")


def test_list_says_what_a_study_can_name(capsys: pytest.CaptureFixture[str]) -> None:
    everything = json.loads(printed(capsys, "list", "--format", "json"))
    assert {
        "algorithms",
        "objectives",
        "timing",
        "availability",
        "exchange",
        "selection",
        "faults",
        "tables",
        "stopping",
        "suites",
    } == set(everything)
    assert {"name": "random", "summary": "uniform random search, without communication", "settings": {"queries": "1"},
            "presets": [], "ranges": {"queries": "at least 1"}, "reveals": "nothing",
            "meanings": {"queries": "Points of a decision."}} in everything["algorithms"]  # fmt: skip
    timing = printed(capsys, "list", "timing")
    assert "lognormal" in timing and "at least 0 and finite" in " ".join(timing.split())
    assert "landmine" in printed(capsys, "data", "list")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["validate", "nope.toml"], "nope.toml: no such file; pass the path of a study file"),
        (["run"], "Missing argument 'STUDY'; see fedbo run --help"),
        (["rnu"], "No such command 'rnu'"),
        (["run", "x.toml", "--sett", "a=1"], "No such option: --sett"),
        (["show", "nowhere"], "'nowhere': is not a finished run: it has no manifest.json"),
        (["plot", "nowhere"], "'nowhere': is not a finished run: it has no manifest.json"),
        (["list", "algorithm"], "no group 'algorithm'; did you mean 'algorithms'?"),
        (["validate", "x.toml", "--format", "xml"], "Invalid value for '--format'"),
    ],
)
def test_wrong_input_is_one_line_on_standard_error_and_code_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert line in complaint(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("run s.toml --workers a", "'--workers': 'a' must be a whole number"),
        ("run s.toml --workers -1", "'--workers': '-1' must be at least 0"),
        ("run s.toml --format xml", "'--format': 'xml' is not one of 'text', 'json'"),
        ("plot run --width a", "'--width': 'a' must be a number"),
    ],
)
def test_a_value_of_another_kind_is_told_in_plain_words(arguments: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = arguments.split()
    assert complaint(capsys, *command) == f"Invalid value for {words}; see fedbo {command[0]} --help"


def test_a_wrong_baseline_figure_or_cell_is_wrong_input(capsys: pytest.CaptureFixture[str], old_run: str) -> None:
    assert "no algorithm 'X'" in complaint(capsys, "show", old_run, "--baseline", "X")
    assert "no figure 'pie'" in complaint(capsys, "plot", old_run, "--kind", "pie")
    assert "no figure ''" in complaint(capsys, "plot", old_run, "--kind", "")
    assert "--algorithms '': names nothing" in complaint(capsys, "plot", old_run, "--algorithms", "")
    assert "no observations in cell 9" in complaint(capsys, "plot", old_run, "--cell", "9")


def test_help_documents_the_exit_codes_and_comes_at_once() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    shown = subprocess.run([sys.executable, "-m", "fedbo.cli", "--help"], capture_output=True, text=True, check=True)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 1.0  # 0.2 s of processor where nothing else runs
    for word in ("Exit codes", "0 all went well", "2 wrong input", "130 interrupted", "validate", "plot"):
        assert word in " ".join(shown.stdout.split())


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--version").startswith("fedbo 0.")


@pytest.mark.long
def test_a_command_that_is_interrupted_before_anything_has_begun_says_so_and_gives_130(tmp_path: Path) -> None:
    """It waits for a study file that somebody has only opened."""
    pipe = tmp_path / "study.toml"
    os.mkfifo(pipe)
    code = "import signal, sys; signal.signal(2, signal.default_int_handler); from fedbo.cli import main; sys.exit(main())"
    told = subprocess.Popen([sys.executable, "-c", code, "validate", str(pipe)], stderr=subprocess.PIPE, text=True)
    with pipe.open("w"):
        told.send_signal(signal.SIGINT)
        _, said = told.communicate(timeout=60)
    assert (told.returncode, said) == (INTERRUPTED, "interrupted\n")
