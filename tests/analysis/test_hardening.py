"""Files that are handed on: no formula in a table, no script but our own in a report, no end of rows, no file unchecked."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import shlex
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_run import document, write_run

from fedbo.actors.storage import rows
from fedbo.actors.storage.rows import TooLargeError, read_table
from fedbo.analysis.records.text_table import TextTable
from fedbo.analysis.result import Result
from fedbo.cli import main
from fedbo.figures.page.page import render_page
from fedbo.objectives.datasets import data
from fedbo.objectives.datasets.inventory import DataFile
from fedbo.settings.shown import quoted


@pytest.mark.parametrize(
    ("cell", "kept"),
    [("=1+1", False), ("@SUM(A1)", False), ("+cmd|' /C calc'!A0", False), ("-x", False), ("\t=1", False)]
    + [(number, True) for number in ("-1.5", "+2", "-inf", "1e-5", "ts", "1.0 [0.5, 2.0]")],
)
def test_a_cell_that_a_spreadsheet_would_run_is_text(cell: str, kept: bool) -> None:
    table = TextTable("t", "caption", (cell, "b"), [(cell, "c")])
    written = [row[0] for row in csv.reader(table.csv().splitlines())]
    assert written == [cell if kept else f"'{cell}"] * 2


def test_no_script_but_our_own_runs_in_a_report(tmp_path: Path) -> None:
    text = render_page([Result.open(write_run(tmp_path / "run", document(agents=2, iterations=2)))])
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', text)
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert not re.search(r"<[^>]* on[a-z]+=", text)


def test_a_small_file_with_rows_without_end_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"a": pa.array([0] * 10**6, pa.int64())}), path)
    monkeypatch.setattr(rows, "_LEAST_WIDTH", 2**30)
    with pytest.raises(TooLargeError, match="has 1,000,000 rows of 1 columns, .* GiB in memory, more than half"):
        read_table(path)


def test_an_archive_unpacks_to_no_more_than_its_file_has(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("member", bytes(10**7))
    file = DataFile("small", 1000, "0" * 64, "http://example.org/archive.zip", "member")
    assert data._unpacked(tmp_path / "archive.zip", file, tmp_path).stat().st_size == 1001


@pytest.mark.parametrize("name", ["histories", "privacy_agents"])
def test_a_replay_checks_the_sums_of_what_it_does_not_compare(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import fedbo

    study = {
        "study": {"name": "whole"},
        "objective": {"name": "branin", "agents": 4},
        "agents": {"initial": 2, "history": {"algorithm": "random", "observations": 3}},
        "budget": {"iterations": 2},
        "exchange": {"mode": "barrier"},
        "algorithm": [{"name": "dp_fts", "features": 10}],
    }
    run = fedbo.run(study, out=tmp_path / "run").directory
    path = run / f"{name}.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert main(["replay", str(run), "--verify"]) != 0
    assert f"{name}" in "".join(capsys.readouterr())


def test_the_commands_of_remedies_can_be_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "a; rm -rf $(x) 'y'", document(agents=2, iterations=2), status="interrupted")
    assert main(["replay", str(run)]) == 2
    said = capsys.readouterr().err.strip()
    assert shlex.split(said.rpartition("fedbo resume ")[2]) == [str(run)] and quoted(run) in said
