"""The plug-in as a whole: fedbo finds its command, names and objective, and says without it who has them; wrong calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import fedbo
from fedbo.cli import main
from fedbo.commands.arguments import OK, WRONG_INPUT
from fedbo.objectives.catalog import catalogue
from fedbo.settings import plugins, rooms
from fedbo.testing.objective_contract import check_federation
from fedbo.testing.plugin_contract import check_plugin, plugins_of
from fedbo_tables.table import TableError
from fedbo_tables.tabulated import Tabulated
from plugins.conftest import forget

PAGE = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
STUDY = """
study = { name = "twin" }
objective = { name = "tabulated", table = "branin.table" }
budget = { iterations = 2 }
algorithm = [{ name = "random" }]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY.replace("tabulated", "branin").replace(', table = "branin.table"', ""))
    (tmp_path / "afile").touch()
    return tmp_path


def test_the_plug_in_keeps_the_contracts_of_fedbo(folder: Path) -> None:
    room, objective = sorted(plugins_of("fedbo-tables"), key=lambda each: each.group, reverse=True)
    check_plugin(room)
    fedbo.tabulate("branin", overrides=["agents=3"], points=32, refine=8, out="branin.table")
    made = catalogue()[objective.name](table="branin.table")
    check_federation(made)
    adapter: TypeAdapter[Tabulated] = TypeAdapter(Tabulated)
    assert adapter.validate_python(adapter.dump_python(made, mode="json")) == made


def test_help_lists_its_command_and_fedbo_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == OK
    assert re.search("^  tabulate +Evaluate a slow objective once", capsys.readouterr().out, re.MULTILINE)
    assert "tabulate" in dir(fedbo) and fedbo.errors.TableError is TableError


def test_the_python_of_the_page_runs_and_a_study_names_the_plug_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(block, {})
    assert "nearest" in capsys.readouterr().out
    (folder / "twin.toml").write_text(STUDY, encoding="utf-8")
    assert main(["run", "twin.toml", "--out", "run", "-q"]) == OK
    out = capsys.readouterr().out
    assert "On tabulated branin (gp, 80 points), a twin." in " ".join(out.split())
    assert fedbo.Result.open("run").manifest["plugins"] == {"objectives.tabulated": "fedbo-tables 0.1.0"}
    assert main(["validate", "twin.toml", "--format", "json"]) == OK
    assert "tabulated branin (gp, 80 points) may replace the objective itself" in capsys.readouterr().out


def test_without_the_plug_in_each_error_names_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "twin.toml").write_text(STUDY, encoding="utf-8")
    monkeypatch.setattr(rooms, "_are_declared", lambda: False)
    monkeypatch.setattr(plugins, "declared", cache(dict))
    forget()
    for what, arguments in (("command", ["tabulate", "branin"]), ("objective", ["validate", "twin.toml"])):
        assert main(arguments) == WRONG_INPUT
        said = capsys.readouterr().err
        assert f"{what} 'tabulate" in said and "is in the plug-in fedbo-tables, which is not installed" in said
    with pytest.raises(AttributeError, match="attribute 'tabulate' is in the plug-in fedbo-tables"):
        fedbo.tabulate("branin")
    monkeypatch.undo()
    forget()


def wrong_calls() -> Iterator[tuple[str, dict[str, Any]]]:
    for value in (5, None, "", b"x", ["a"], {}):
        yield "objective", {"objective": value}
    for name in ("points", "refine", "replicate", "workers", "seed"):
        for value in ("3", 2.5, -1, True):
            yield name, {name: value}
    for agents in ("3", [True], 5):
        yield "agents", {"agents": agents}


@pytest.mark.parametrize(("argument", "given"), list(wrong_calls()))
def test_a_wrong_argument_is_one_line_with_its_name_before_anything_starts(
    argument: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fedbo.errors.ArgumentError) as raised:
        fedbo.tabulate(**{"objective": "branin", **given})
    (line,) = str(raised.value).splitlines()
    assert line.startswith(argument) and ": " in line and "--" not in line and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["study.toml", "--out", "afile/x"], "'afile/x': cannot create a folder there (Not a directory); use another one"),
        (["study.toml", "--out", "n" * 300], f"'{'n' * 300}': cannot create a folder there (File name too long)"),
        (["n" * 300], f"no objective '{'n' * 300}'"),
    ],
)
def test_a_path_that_will_not_do_is_told_in_one_line(
    arguments: list[str], line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tabulate", *arguments]) == WRONG_INPUT
    said = capsys.readouterr().err
    assert line in said and len(said.splitlines()) == 1
