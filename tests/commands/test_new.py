"""`fedbo new`, `fedbo examples` and `fedbo doctor`: what is written works as it stands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedbo.cli import main
from fedbo.commands.new import example_folder
from fedbo.objectives.python_function import load
from fedbo.objectives.sites import AtThisSite
from fedbo.settings.trust import admit
from fedbo.study.study import load_study


def _said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    printed = capsys.readouterr()
    return printed.out if code == 0 else printed.err


def test_a_command_to_copy_quotes_a_folder_with_spaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "my studies" / "digits.toml"
    assert _said(capsys, "examples", "digits", "--folder", str(copy.parent)) == f"{copy}\nnext: fedbo run '{copy}'\n"


@pytest.mark.long
@pytest.mark.parametrize("command", ["examples digits", "new study first"])
def test_a_file_for_which_there_is_no_room_is_not_begun(command: str, tmp_path: Path) -> None:
    limited = f"ulimit -f 0; '{sys.executable}' -m fedbo {command}"
    ran = subprocess.run(["sh", "-c", limited], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 1 and ran.stderr.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.long
def test_new_files_pass_their_own_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("objective", "algorithm"):
        said = _said(capsys, "new", kind, f"my_{kind}", "--folder", str(tmp_path)).splitlines()
        assert [Path(line).name for line in said[:-1]] == [f"my_{kind}.py", f"my_{kind}.toml", f"test_my_{kind}.py"]
        assert said[-1] == f"next: python -m pytest test_my_{kind}.py, then fedbo run my_{kind}.toml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-W", "error", "."]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0 and "4 passed" in told.stdout, told.stdout + told.stderr


def test_a_new_study_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _said(capsys, "new", "study", "first-one", "--folder", str(tmp_path / "deeper"))
    study = load_study(tmp_path / "deeper" / "first-one.toml")
    assert study.study.name == "first-one" and study.labels == ("random", "fts")


def test_a_new_study_at_sites_is_valid_and_so_is_its_objective(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = _said(capsys, "new", "sites", "vaccine_trial", "--folder", str(tmp_path)).splitlines()
    assert [Path(line).name for line in said[:-1]] == ["vaccine_trial.toml", "vaccine_trial.py"]
    study = load_study(tmp_path / "vaccine_trial.toml")
    assert study.federation().n_agents == 3 and study.labels == ("fts",)
    monkeypatch.setattr(sys, "path", [*sys.path])
    place = f"{tmp_path / 'vaccine_trial.py'}:response"
    admit((place,))
    own = AtThisSite(study.federation(), load(place)).objective(0, np.random.default_rng(0), np.random.default_rng(0))
    sys.modules["vaccine_trial"].SECONDS = 0.0  # type: ignore[attr-defined]
    assert own.evaluate(np.array([60.0, 21.0]), np.random.default_rng(0)) == pytest.approx(1.0, abs=0.1)


@pytest.mark.long
def test_a_new_package_declares_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_said(capsys, "new", "plugin", "my_plug", "--folder", str(tmp_path), "--format", "json"))
    assert all(Path(path).is_file() for path in found["files"])
    # What an installation would do: the package on the path, with its entry points.
    info = tmp_path / "my_plug" / "my_plug-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plug\nVersion: 0.1.0\n")
    import tomllib

    declared = tomllib.loads((tmp_path / "my_plug" / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {place}\n" for key, place in names.items()) for group, names in declared.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path / "my_plug")!r})
import pytest
from fedbo.cli import main
sys.exit(pytest.main(sys.argv[1:]) or main(["validate", {str(tmp_path / "my_plug" / "study.toml")!r}, "--full"]))
"""
    command = [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", "--noconftest", "--rootdir", str(tmp_path)]
    told = subprocess.run([*command, str(tmp_path / "my_plug")], capture_output=True, text=True)
    assert told.returncode == 0 and "2 passed" in told.stdout, told.stdout + told.stderr
    assert "[budget]" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("new", "algorithm", "My-Thing"), "'My-Thing' is not a valid module name; use lower-case letters, digits and '_'"),
        (("new", "objective", "class"), "'class' is not a valid module name"),
        (("new", "algorithm", "random"), "'random' is the name of a module of Python, which it would replace; use another"),
        (("new", "algorithm", "fts"), "'fts' is the name of a method or an objective of the catalogue"),
        (("new", "objective", "branin"), "'branin' is the name of a method or an objective of the catalogue"),
        (("new", "algorithm", "conftest"), "'conftest' is the name of a file of pytest, which it would replace"),
        (("new", "objective", "test_mine"), "'test_mine' is the name of a file of pytest"),
        (("new", "plugin", "sitecustomize"), "'sitecustomize' is the name of a module of Python"),
        (("new", "plugin", "numpy"), "'numpy' is the name of an installed package"),
        (("new", "plugin", "fedbo"), "'fedbo' is the name of an installed package"),
        (("new", "study", "a/b"), "'a/b' is not a valid file name"),
        (("new", "house", "x"), "'house' is not one of 'study', 'objective', 'algorithm', 'plugin', 'sites'"),
        (("examples", "digit"), "no example 'digit'; did you mean 'digits'?"),
    ],
)
def test_wrong_names_are_refused(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in _said(capsys, *arguments, code=2)


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.toml").write_text("kept")
    assert "mine.toml' already exists" in _said(capsys, "new", "algorithm", "mine", "--folder", str(tmp_path), code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
    (tmp_path / "digits.toml").write_text("kept")
    assert "digits.toml' already exists" in _said(capsys, "examples", "digits", "--folder", str(tmp_path), code=2)


def test_examples_are_listed_and_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(_said(capsys, "examples", "--format", "json"))["examples"]
    assert {row["name"] for row in listed} == {path.stem for path in example_folder().glob("*.toml")}
    assert all(row["description"] for row in listed), [row["name"] for row in listed if not row["description"]]
    said = _said(capsys, "examples", "digits", "--folder", str(tmp_path))
    assert said == f"{tmp_path / 'digits.toml'}\nnext: fedbo run {tmp_path / 'digits.toml'}\n"
    assert (tmp_path / "digits.toml").read_bytes() == (example_folder() / "digits.toml").read_bytes()


def test_the_doctor_says_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["what"]: row for row in json.loads(_said(capsys, "doctor", "--format", "json"))["findings"]}
    assert found["packages"]["state"] == found["python"]["state"] == found["plug-ins"]["state"] == "ok"
    assert {"fedbo", "cores", "disk", "compiled arithmetic", "extra torch", "data landmine"} <= set(found)
    assert all(row["remedy"] for row in found.values() if row["state"] != "ok")
    assert not any("fedbo[" in row["remedy"] for row in found.values()), "the package is in no registry"


def test_the_doctor_fails_where_a_package_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "fedbo.commands.doctor.requirements", lambda: ["nowhere-at-all>=2", "numpy>=1000", "nowhere-else>=1; extra == 'x'"]
    )
    assert main(["doctor", "--format", "json"]) == 1
    found = {row["what"]: row for row in json.loads(capsys.readouterr().out)["findings"]}
    assert found["packages"]["state"] == "broken"
    assert found["packages"]["remedy"] == "pip install 'nowhere-at-all>=2' 'numpy>=1000'"
    assert found["extra x"]["remedy"] == "optional: pip install 'nowhere-else>=1'"


def test_the_doctor_misses_what_the_extra_of_a_package_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"numpy": ["nowhere-at-all>=2; extra == 'grid'", "nowhere-else; extra == 'other'"]}
    monkeypatch.setattr("fedbo.commands.doctor.requires", parts.get)
    monkeypatch.setattr("fedbo.commands.doctor.requirements", lambda: ["numpy[other]", "numpy[grid]>=1; extra == 'x'", "numpy"])
    assert main(["doctor", "--format", "json"]) == 1
    found = {row["what"]: row for row in json.loads(capsys.readouterr().out)["findings"]}
    assert found["packages"]["remedy"] == "pip install 'numpy[other]'"
    assert (found["extra x"]["state"], found["extra x"]["found"]) == ("missing", "numpy[grid]>=1")


def test_a_listed_table_of_settings_keeps_its_bracket(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {
        item["name"]: item["settings"]
        for item in json.loads(_said(capsys, "list", "algorithms", "--format", "json"))["algorithms"]
    }
    assert settings["fts"]["aggregation"] == '{rule = "mean", …}'


def test_the_package_is_a_command() -> None:
    told = subprocess.run([sys.executable, "-m", "fedbo", "--version"], capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.startswith("fedbo ")


@pytest.mark.long
def test_a_shell_can_complete_the_commands() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "from fedbo.cli import main; main()"],
        env={"PATH": "/usr/bin:/bin", "_FEDBO_COMPLETE": "complete_bash", "COMP_WORDS": "fedbo va", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
    )
    assert told.stdout.split() == ["validate"], told.stderr
