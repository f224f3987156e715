"""The plug-in as a whole: fedbo finds its room with command, names, answers and help, and says without it who has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedbo
from fedbo.cli import main
from fedbo.commands.arguments import OK, WRONG_INPUT
from fedbo.settings import plugins, rooms
from fedbo.testing.plugin_contract import check_plugin, plugins_of
from plugins.conftest import forget

PAGE = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_plug_in_keeps_the_contract_of_fedbo() -> None:
    (plugin,) = plugins_of("fedbo-hunt")
    assert plugin.group == "rooms"
    check_plugin(plugin)


def test_help_lists_its_command_and_fedbo_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == OK
    assert re.search("^  hunt +Find the smallest world in which a claim fails.$", capsys.readouterr().out, re.MULTILINE)
    assert {"hunt", "Hunt"} <= {*dir(fedbo)} and fedbo.hunt.__module__ == "fedbo_hunt.hunt"


def test_the_python_of_the_page_runs_and_its_answer_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(block.replace("worlds=8", "worlds=2"), {})  # which takes a third as long
    capsys.readouterr()
    assert main(["show", "runs/slow", "--format", "json"]) == OK
    assert json.loads(capsys.readouterr().out)["claim"] == "end of random is at most 8"
    assert main(["plot", "runs/slow", "--out", "hunt.pdf"]) == OK and (tmp_path / "hunt.pdf").is_file()


def test_a_wrong_directory_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hunt", str(tmp_path / "none.toml"), "--claim", "random ends"]) == WRONG_INPUT
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_files_of_other_packages_that_cannot_be_read_as_text_stop_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd-1.0.dist-info").mkdir()
    (tmp_path / "odd-1.0.dist-info" / "entry_points.txt").write_bytes(b"[\xff\xfe]\n")
    monkeypatch.setattr("sys.path", [str(tmp_path), str(tmp_path / "none")])
    assert not rooms._are_declared()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take the entry points of all plug-ins away."""
    monkeypatch.setattr(rooms, "_are_declared", lambda: False)
    monkeypatch.setattr(plugins, "GROUPS", ())
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.mark.usefixtures("elsewhere")
def test_without_the_plug_in_the_errors_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hunt", "first.toml"]) == WRONG_INPUT
    assert "command 'hunt' is in the plug-in fedbo-hunt, which is not installed; install it" in capsys.readouterr().err
    with pytest.raises(AttributeError, match="attribute 'Hunt' is in the plug-in fedbo-hunt, which is not installed"):
        _ = fedbo.Hunt
    assert main(["hnt"]) == WRONG_INPUT
    assert "No such command 'hnt'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("five", "ROOM = 5", "it is 5, and a Room of fedbo.settings.rooms would do"),
        ("disk", "raise OSError('no disk')", "OSError: no disk"),
    ],
)
def test_a_room_that_cannot_be_used_is_left_out_and_listed(
    name: str, text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"room_of_{name}.py").write_text(text, encoding="utf-8")
    info = tmp_path / "broken_room-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-room\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[fedbo.rooms]\nbroken = room_of_{name}:ROOM\n", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        forget()
        assert "broken" not in rooms.rooms() and "hunt" in rooms.rooms()
        assert main(["list", "timing"]) == OK
        assert f"the plug-in 'broken' of broken-room 1.0 cannot be used: {words}" in capsys.readouterr().err
    forget()
