"""Commands that take a directory: each kind of a wrong one is one line with a remedy and exit code 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.cli import main

STUDY: dict[str, Any] = {
    "study": {"name": "small"},
    "objective": {"name": "branin", "agents": 2},
    "agents": {"initial": 1},
    "budget": {"iterations": 1},
    "algorithm": [{"name": "random"}],
}
FILES = {  # by kind of directory: a file that makes it one
    "site": "policy.toml",
    "agent": "log.jsonl",
    "empty": "",
}
COMMANDS = [
    *("show", "plot", "report", "compare", "resume", "watch --once", "replay", "fit", "twin", "why", "why --branch 3", "sent"),
    *("fork --at 1 --set timing.evaluation=2", "export", "export --to perfetto", "run", "validate", "worth", "bench"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a run, a sweep, and directories that are neither."""
    root = tmp_path_factory.mktemp("directories")
    fedbo.run(STUDY, out=root / "run")
    fedbo.run({**STUDY, "sweep": {"agents.initial": [1, 2]}}, out=root / "sweep")
    for kind, name in FILES.items():
        (root / kind).mkdir()
        if name:
            (root / kind / name).write_text("x\n")
    (root / "file").write_text("x\n")
    return root


@pytest.mark.parametrize("kind", [*FILES, "file", "missing"])
def test_a_directory_of_another_kind_is_one_line_with_a_remedy(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for command in COMMANDS:
        name, *options = command.split(maxsplit=1)
        given = options[0].replace("'", "").split(maxsplit=1) if "claim" in command else "".join(options).split()
        assert main([name, kind, *given]) == 2, command
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and kind in said and "; " in said, (command, said)


@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_a_run_in_place_of_an_answer_is_one_line_with_a_remedy(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", str(folder / kind), "--branch", "3"]) == 2
    assert "is not an answer of fedbo why: it has no asked.json; ask first: fedbo why RUN" in capsys.readouterr().err
    (folder / kind / "why").mkdir()
    assert main(["why", str(folder / kind), "--branch", "3"]) == 2
    assert f"pass one of the folders in {folder / kind / 'why'}" in capsys.readouterr().err
