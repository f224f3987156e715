"""Runs whose files were damaged on the disk: each goes on to the very bytes of one left alone, or is told in one line."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from killing import SHORT, End, Forks, tables, write_study

from fedbo.actors.storage.sealed import FORMAT
from fedbo.cli import main

LATER = FORMAT + 1


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 4
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": _flipped,
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 3),
    "deleted": lambda path: path.unlink(),
}
# All were tried; those that others stand for are left to the long tests.
SOME = ["flipped", *(pytest.param(name, marks=pytest.mark.long) for name in ("empty", "truncated", "garbage", "deleted"))]
TOLD = ("DamagedError: ", "DirectoryError: ", "ResultError: ", "StudyError: ")


@pytest.fixture(scope="module")
def alone(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study, its finished run `run`, and one that was killed in its second algorithm, `cut off`."""
    folder = tmp_path_factory.mktemp("alone")
    study = write_study(SHORT, folder / "study.toml")
    listed = folder / "operations"
    assert forks("run", study, folder / "run", listed=str(listed)) == End(0, "")
    named = "os.rename /parts/0000-fts-0000/.latest.json"  # FTS comes second
    snapshots = [n for n, line in enumerate(listed.read_text(encoding="utf-8").splitlines(), 1) if line.startswith(named)]
    for number in snapshots[2:-1]:
        shutil.rmtree(folder / "cut off", ignore_errors=True)
        assert forks("run", study, folder / "cut off", before=number + 2).killed
        at = json.loads((folder / "cut off" / "parts" / "0000-fts-0000" / "latest.json").read_text(encoding="utf-8"))
        if at["number"] >= 3 and not at["ended"]:
            return folder
    raise AssertionError("no kill came between the third snapshot and the end")


def of_each_kind(paths: list[Path]) -> list[Path]:
    """Give one of the files whose names differ in numbers only."""
    return [*{re.sub(r"\d+", "0", str(path)): path for path in paths}.values()]


def files_of(directory: Path) -> dict[Path, bytes]:
    return {path.relative_to(directory): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def is_told(said: str, path: Path, directory: Path) -> bool:
    """Say whether one line names a file or, of a list of all there is, its place, and a command that would do."""
    commands = ("fedbo resume", "fedbo run", "fedbo validate", "cp ", "rm ")
    return said.count("\n") == 1 and path.name in said and any(command in said for command in commands)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [None, *(pytest.param(name, marks=pytest.mark.long) for name in DAMAGES)])
def test_a_run_of_which_any_file_is_damaged_ends_with_the_same_bytes_or_names_the_file_and_touches_no_other(
    damage: str | None, forks: Forks, alone: Path, tmp_path: Path
) -> None:
    """One damage to every file; without one, a file of every eleventh kind, by turns flipped and deleted."""
    expected, whole, went_on = tables(alone / "run"), [*files_of(alone / "cut off")], 0
    for number, path in enumerate(whole if damage else of_each_kind(whole)[::11]):
        directory = tmp_path / "run"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(alone / "cut off", directory)
        DAMAGES[damage or ("flipped", "deleted")[number % 2]](directory / path)
        before = files_of(directory)
        end = forks("resume", directory)
        if end.code == 0:
            went_on += 1
            assert tables(directory) == expected, path
            aside = directory / "damaged" / path.parent.name / path.name
            assert not end.said or (end.said.count("\n") == 1 and str(directory / path) in end.said), (path, end)
            assert not aside.exists() or aside.read_bytes() == before[path]
            continue
        assert end.code == 1 and end.said.startswith(TOLD), (path, end)
        assert is_told(end.said, path, directory), (path, end)
        after = files_of(directory)
        after.pop(Path(".lock"), None), before.pop(Path(".lock"), None)
        assert after == before, (path, sorted(set(after) ^ set(before)))
    assert went_on > (5 if damage else 0)


@pytest.mark.slow
@pytest.mark.parametrize("damage", SOME)
def test_a_snapshot_that_is_damaged_costs_nothing_for_the_one_before_it_is_kept(
    damage: str, forks: Forks, alone: Path, tmp_path: Path
) -> None:
    for pattern in ("latest.json", "*.core", "*.agents"):
        directory = tmp_path / pattern.strip("*.")
        shutil.copytree(alone / "cut off", directory)
        folder = directory / "parts" / "0000-fts-0000"
        counts = {"latest.json", *json.loads((folder / "latest.json").read_text(encoding="utf-8"))["files"]}
        # A kill may have come when the next snapshot was written in part: nobody reads that one.
        path = max(path for path in folder.glob(pattern) if path.name in counts)
        DAMAGES[damage](path)
        said = forks("resume", directory)
        assert said.code == 0 and f"'{path}': is damaged (" in said.said, said
        assert "its run continues from " in said.said
        assert tables(directory) == tables(alone / "run")
        assert (directory / "damaged" / folder.name / path.name).exists() == (damage != "deleted")


@pytest.mark.slow
def test_what_is_advised_for_a_damaged_table_gives_the_same_bytes(forks: Forks, alone: Path, tmp_path: Path) -> None:
    import subprocess

    directory = tmp_path / "run of mine"
    shutil.copytree(alone / "cut off", directory)
    path = sorted((directory / "parts").glob("0000-*/events-000001-*.parquet"))[0]
    DAMAGES["flipped"](path)
    advice = forks("resume", directory).said.strip().partition("repeat this run: ")[2]
    move, _, resume = advice.partition(" && ")
    subprocess.run(shlex.split(move), check=True)
    assert shlex.split(resume) == ["fedbo", "resume", str(directory)]
    assert forks("resume", directory) == End(0, "")
    assert tables(directory) == tables(alone / "run")


@pytest.mark.slow
@pytest.mark.parametrize("damage", SOME)
def test_a_finished_run_of_which_any_file_is_damaged_is_shown_or_refused_in_one_line(
    damage: str, alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = [["plot"]] if damage != "flipped" else []  # which takes longer than all else; the long tests draw
    commands = (["show"], *drawn, ["show", "--trouble"], ["replay", "--verify"])
    for path in files_of(alone / "run"):
        directory = tmp_path / "run"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(alone / "run", directory)
        DAMAGES[damage](directory / path)
        for command, *options in commands:
            code = main([command, str(directory), *options])
            said = capsys.readouterr().err
            assert code in ((0, 1, 2) if command == "replay" else (0, 2)), (path, command, said)
            assert code != 2 or said.count("\n") == 1, (path, command, said)
        assert code or damage == "flipped", (path, "its replay")  # a flipped byte need not be one that is read


def test_what_a_later_format_wrote_is_refused_with_the_version_that_wrote_it(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedbo.actors.storage import rows, sealed
    from fedbo.analysis.manifest import read_manifest, write_manifest

    directory = tmp_path / "run"
    shutil.copytree(alone / "run", directory)
    manifest = read_manifest(directory)
    with monkeypatch.context() as later:
        later.setattr(rows, "FORMAT", LATER)
        later.setattr(rows, "fedbo_version", lambda: "9.1")
        rows.write_table(rows.read_table(directory / "events.parquet"), directory / "events.parquet")
    write_manifest(directory, {key: value for key, value in manifest.items() if key != "files"})
    assert main(["show", str(directory)]) == 2
    line = (
        f"'{directory / 'events.parquet'}': has format {LATER}, but this fedbo reads format {FORMAT}; open it with fedbo 9.1\n"
    )
    assert capsys.readouterr().err == line
    with monkeypatch.context() as later:
        later.setattr(sealed, "FORMAT", LATER)
        later.setattr(sealed, "fedbo_version", lambda: "9.1")
        write_manifest(directory, manifest)
    assert main(["show", str(directory)]) == 2
    assert (
        f"manifest.json': has format {LATER}, but this fedbo reads format {FORMAT}; open it with fedbo 9.1"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", ["manifest.json", "events.parquet", "observations.parquet"])
def test_what_a_development_version_wrote_is_refused_with_a_remedy(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import fedbo
    from fedbo.actors.storage import rows, sealed
    from fedbo.analysis.manifest import read_manifest, write_manifest

    directory = tmp_path / "run"
    shutil.copytree(alone / "run", directory)
    manifest = {key: value for key, value in read_manifest(directory).items() if key != "files"}
    with monkeypatch.context() as earlier:
        earlier.setattr(rows, "FORMAT", FORMAT - 1)
        if name != "manifest.json":
            rows.write_table(rows.read_table(directory / name), directory / name)
        else:
            earlier.setattr(sealed, "FORMAT", FORMAT - 1)
        write_manifest(directory, manifest)
    words = f"{name}': has format 2, but this fedbo reads format 3; a development version wrote it: run the study again"
    with pytest.raises(fedbo.errors.FormatError, match=words):
        result = fedbo.Result.open(directory)
        assert result.events and result.observations
