"""What is kept, and said, of a study whose run would never end."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbo.analysis.manifest import read_manifest
from fedbo.cli import main
from fedbo.coordinator import endless

ENDLESS = """
[study]
name = "endless"
[objective]
name = "quadratic"
agents = 3
[budget]
iterations = 3
[agents]
targets = [0, 1]
initial = 1
[[algorithm]]
name = "random"
[[fault]]
kind = "crash"
agents = [1]
rate = 20.0
restart = 0.1
"""


def test_a_study_that_would_never_end_fails_in_one_line_and_keeps_what_was_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(endless, "STARTS", 1000)
    Path("study.toml").write_text(ENDLESS, encoding="utf-8")
    assert main(["run", "study.toml", "-q", "--out", "run"]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "the run would never end: agent 1 has restarted step 0" in said
    assert "fault 'crash'" in said and "[budget] time" in said
    manifest = read_manifest(Path("run"))
    assert manifest["status"] == "failed"
    assert "the run would never end: agent 1" in manifest["error"]
    assert main(["show", "run"]) == 0
    assert "random" in capsys.readouterr().out
    assert main(["resume", "run", "-q"]) == 1
    assert "the run would never end: agent 1 has restarted step 0" in capsys.readouterr().err


def test_validate_warns_of_it_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(ENDLESS, encoding="utf-8")
    assert main(["validate", "study.toml"]) == 0
    assert "warning: 20 crashes are expected per evaluation of mean length 1, so" in capsys.readouterr().err
    assert main(["validate", "study.toml", "--set", "fault.crash.rate=2.0"]) == 0
    assert capsys.readouterr().err == ""
