"""What a command is told whose path is invalid: one line on standard error, and the exit code of wrong input."""

from __future__ import annotations

from pathlib import Path

import pytest
from right_study import RIGHT

from fedbo.cli import main
from fedbo.execution.runner import run_study
from fedbo.study.study import load_study

BELOW, LONG, NUL = "afile/x", "n" * 300, "a\0b"

WRONG: list[tuple[list[str], str]] = [
    (
        ["run", "study.toml", "-q", "--out", BELOW],
        "'afile/x': cannot create a folder there (Not a directory); use another one",
    ),
    (["run", "study.toml", "-q", "--out", LONG], f"'{LONG}': cannot create a folder there (File name too long)"),
    (["run", "study.toml", "-q", "--out", NUL], "embedded null"),
    (["run", "study.toml", "-q", "--out", "/proc/x"], "'/proc/x': cannot create a folder there (No such file or directory)"),
    (["run", "study.toml", "-q", "--out", "afile"], "'afile' exists and is not an empty directory; choose a new one"),
    (["replay", "done", "--out", BELOW], "'afile/x': cannot create a folder there (Not a directory); use another one"),
    (["replay", LONG], f"'{LONG}/manifest.json': cannot be read (File name too long); pass the directory of a run"),
    (["resume", LONG], f"'{LONG}/manifest.json': cannot be read (File name too long); pass the directory of a run"),
    (["show", LONG], f"'{LONG}': cannot be read (File name too long); use another one"),
    (["show", "nowhere"],
     "'nowhere': is not a finished run: it has no manifest.json; pass the directory that fedbo run printed"),
    (["plot", "done", "--out", "afile/x.png"], "'afile/x.png': cannot be written (Not a directory)"),
    (["plot", "done", "--out", "nowhere/x.png"], "'nowhere/x.png': cannot be written (No such file or directory)"),
    (["plot", "done", "--out", f"{LONG}.png"], f"'{LONG}.png': cannot be written (File name too long)"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("paths")
    (made / "study.toml").write_text(RIGHT, encoding="utf-8")
    (made / "afile").touch()
    run_study(load_study(made / "study.toml"), made / "done")
    return made


@pytest.mark.parametrize(("arguments", "line"), WRONG, ids=[" ".join(a)[:40].replace("\0", "0") for a, _ in WRONG])
def test_a_path_that_will_not_do_is_told_in_one_line_and_is_wrong_input(
    arguments: list[str], line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert line in said
    assert len(said.splitlines()) == 1


def test_a_label_that_is_long_in_a_file_s_name_can_be_run(tmp_path: Path) -> None:
    label = "目" * 66
    study = load_study(
        {
            "study": {"name": "long"},
            "objective": {"name": "quadratic", "agents": 2},
            "budget": {"iterations": 1},
            "algorithm": [{"name": "random", "label": label}, {"name": "random", "label": f"{label[:-1]}日"}],
        }
    )
    assert {row.algorithm for row in run_study(study, tmp_path / "run").summary()} == set(study.labels)
