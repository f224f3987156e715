"""The tables of `fedbo show` in the formats of other programs, and on narrow terminals."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest
from rich.cells import cell_len
from synthetic_run import document, write_run

from fedbo.analysis.comparison import target_of
from fedbo.analysis.result import Result
from fedbo.cli import OK, WRONG_INPUT, main
from fedbo.figures.reports.disruptions import disruptions_table, tables_of
from fedbo.figures.reports.tables import ShownConsole, amount

VIEWS = ("", "--trouble", "--trouble --agents", "--best", "--trials")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return str(write_run(folder, document(agents=3, iterations=3), troubled=True))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == OK
    return capsys.readouterr().out


@pytest.mark.parametrize("view", VIEWS)
def test_csv_has_every_digit_of_every_row(capsys: pytest.CaptureFixture[str], run: str, view: str) -> None:
    result = Result.open(run)
    frame = pd.read_csv(io.StringIO(printed(capsys, "show", run, *view.split(), "--format", "csv")))
    counts = {"": 2, "--trouble": 2, "--trouble --agents": 6, "--best": 2 * 3 * 4, "--trials": len(result.observations)}
    assert len(frame) == counts[view]
    if not view:
        assert frame.final_mean.tolist() == [row.final.mean for row in result.summary()]


@pytest.mark.parametrize("view", [*VIEWS[:2], *(pytest.param(view, marks=pytest.mark.long) for view in VIEWS[2:])])
def test_latex_and_markdown_have_what_is_printed(capsys: pytest.CaptureFixture[str], run: str, view: str) -> None:
    forms = ("text", "latex", "markdown")
    text, tex, marked = (printed(capsys, "show", run, *view.split(), "--format", form) for form in forms)
    ends = tex.count(r"\end{tabular}") + tex.count(r"\end{longtable}")
    assert tex.count(r"\bottomrule") == ends == marked.count("\n| --- |") > 0
    for line in marked.splitlines():
        if line.startswith("|") and "| --- |" not in line:
            for cell in line.strip("|").split(" | "):
                assert cell.strip() in " ".join(text.split())


def test_a_view_that_is_asked_for_twice_is_refused(capsys: pytest.CaptureFixture[str], run: str) -> None:
    assert main(["show", run, "--best", "--trials"]) == WRONG_INPUT
    assert "--best and --trials cannot be combined; set one of them" in capsys.readouterr().err
    assert main(["show", run, "--agents"]) == WRONG_INPUT
    assert "--agents: requires --trouble" in capsys.readouterr().err


def test_json_has_the_configurations_and_the_trials(capsys: pytest.CaptureFixture[str], run: str) -> None:
    facts = json.loads(printed(capsys, "show", run, "--best", "--format", "json"))
    assert len(facts["configurations"]) == 24 and facts["configurations"][3]["agent"] is None
    rows = json.loads(printed(capsys, "show", run, "--trials", "--format", "json"))["trials"]
    assert len(rows) == len(Result.open(run).observations) and rows[0]["C"] > 0


@pytest.mark.parametrize("width", [40, 112, *(pytest.param(width, marks=pytest.mark.long) for width in (60, 80, 160))])
def test_no_terminal_is_too_narrow_for_a_column(run: str, width: int) -> None:
    result = Result.open(run)
    written = io.StringIO()
    console = ShownConsole(file=written, width=width, force_terminal=True, color_system=None, highlight=False)
    console.print(tables_of(result, None, target_of(result, None)))
    console.print(disruptions_table(result, agents=True))
    lines = written.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= width and "…" not in written.getvalue()
    words = written.getvalue()
    for heading in ("at half", "time", "evaluations", "sent/agent", "answers/agent", "forgotten", "lost to", "bytes down"):
        assert heading in words
    for row in result.summary():
        assert str(row.final) in words and str(row.half) in words and f"{row.duration:.4g}" in words
        assert not row.bytes_down or amount(row.bytes_down) in words


def test_what_is_no_terminal_gets_whole_lines(capsys: pytest.CaptureFixture[str], run: str) -> None:
    (head,) = [line for line in printed(capsys, "show", run, "--trouble").splitlines() if line.startswith(" algorithm")]
    assert head.split()[-1] == "forgotten"


def test_a_cell_with_a_pipe_stays_one_cell(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    study = document(agents=2, iterations=2, replicates=1)
    study["algorithm"][0]["label"] = "a|b, =c"
    folder = str(write_run(tmp_path / "run", study))
    rows = list(csv.reader(printed(capsys, "show", folder, "--format", "csv").splitlines()))
    assert rows[1][1] == "a|b, =c" and len({len(row) for row in rows}) == 1
    assert "| a\\|b, =c |" in printed(capsys, "show", folder, "--format", "markdown")
