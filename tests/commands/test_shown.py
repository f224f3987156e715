"""Whatever a run says of itself, no command lets it act on the terminal; and nothing is written through a link of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import fedbo
from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import seal
from fedbo.cli import main
from fedbo.figures.reports.tables import ShownConsole, console
from fedbo.settings.shown import shown
from fedbo.sites.errors import DocumentError
from fedbo.study.base import _fit

EVIL = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\u2066\x9b31m\r\u2028"
ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
STUDY: dict[str, Any] = {
    "study": {"name": "shown", "description": "plain"},
    "objective": {"name": "branin", "agents": 2},
    "budget": {"iterations": 3},
    "algorithm": [{"name": "fts", "every": 1, "features": 10}],
}
COMMANDS = [
    ["show", "RUN"],
    ["show", "RUN", "--trouble"],
    ["show", "RUN", "--privacy"],
    ["show", "RUN", "--format", "json"],
    ["watch", "RUN", "--once"],
    ["report", "RUN"],
    ["plot", "RUN"],
    ["fit", "RUN"],
    ["replay", "RUN"],
    ["fork", "RUN", "--at", "1"],
    ["twin", "RUN", "--replicates", "2"],
    ["resume", "RUN"],
    ["export", "RUN"],
    ["validate", "RUN/study.toml"],
    ["validate", "RUN/study.toml", "--full"],
    ["worth", "RUN"],
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fedbo.run(STUDY, out=tmp_path_factory.mktemp("shown") / "run").directory


def spoilt(value: Any) -> Any:
    """Return a manifest in which every string, the keys of versions too, is hostile."""
    if isinstance(value, str):
        return value + EVIL
    if isinstance(value, dict):
        return {key: spoilt(item) for key, item in value.items()}
    return [spoilt(item) for item in value] if isinstance(value, list) else value


def hostile(run: Path, how: str) -> None:
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    fixed = {key: manifest[key] for key in ("format", "sha256", "status", "labels", "study_sha256") if key in manifest}
    if how == "manifest":
        (run / "manifest.json").write_text(seal({**spoilt(manifest), **fixed, "files": {}}, indent=2), encoding="utf-8")
    elif how == "status":
        (run / "manifest.json").write_text(seal({**manifest, "status": EVIL, "files": {}}, indent=2), encoding="utf-8")
    else:
        text = (run / "study.toml").read_text(encoding="utf-8")
        evil = json.dumps(EVIL)
        text = text.replace('"plain"', evil) if how == "description" else f"{evil} = 1\n{text}"
        (run / "study.toml").write_text(text, encoding="utf-8")
        (run / "manifest.json").write_text(seal({**manifest, "files": {}}, indent=2), encoding="utf-8")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize(
    "how", [*(pytest.param(how, marks=pytest.mark.long) for how in ("manifest", "status", "key")), "description"]
)
def test_no_command_prints_what_acts_on_a_terminal(
    how: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = ""
    for command in COMMANDS:
        run = shutil.copytree(whole, tmp_path / "run", dirs_exist_ok=True)
        hostile(run, how)
        try:
            main([word.replace("RUN", str(run)) for word in command])
        except (KeyError, IndexError, TypeError, ValueError):  # a forged manifest need not be noticed
            continue
        said = capsys.readouterr()
        assert not ACTING.search(said.out + said.err), (command, ascii(ACTING.search(said.out + said.err)))
        printed += said.out + said.err
    assert "\\u202e" in printed, "the text was never printed"


def test_what_is_escaped_is_what_json_reads_back() -> None:
    assert json.loads(f'"{shown(json.dumps(EVIL, ensure_ascii=False)[1:-1])}"') == EVIL
    assert shown("a\tb\nü→é 漢") == "a\tb\nü→é 漢"


def test_a_terminal_gets_colours_of_fedbo_and_no_codes_of_a_run() -> None:
    from io import StringIO

    from rich.text import Text

    stream = StringIO()
    made = ShownConsole(file=stream, force_terminal=True, color_system="truecolor", markup=False)
    made.print(Text(EVIL, style="red"))
    said = stream.getvalue()
    assert "\x1b[" in said and "\x1b]0" not in said and "\x1b[2J" not in said and "\u202e" not in said
    assert isinstance(console(), Console)


@pytest.mark.parametrize("name", ["a\u202eb", "a\x1bb", "a\nb", "a\tb", "\u2066a", "a\x9b"])
def test_names_hold_nothing_that_acts_on_a_terminal(name: str) -> None:
    with pytest.raises(ValueError, match="contains the control character U"):
        _fit(name)


WRITES = [  # a fork, a twin and replays write into new folders
    ["plot", "RUN"],
    ["report", "RUN"],
    ["export", "RUN"],
    ["fit", "RUN", "--out", "RUN"],
    ["replay", "RUN", "--out", "RUN"],
    ["resume", "RUN"],
]


def test_nothing_is_written_through_a_link_of_a_run(whole: Path, tmp_path: Path, capsys: Any) -> None:
    """Links lie at every name that a command is seen to write, and at those of a run that is resumed."""
    names = {".lock", "overview.png", "curves.png", "timeline.png", "regret.png", "report.html", "optuna.journal", "world.toml"}
    names |= {"durations.parquet", "record.parquet", "noise.key", "fork.png", "privacy.parquet"}
    for command in WRITES:
        seen = shutil.copytree(whole, tmp_path / f"seen-{'-'.join(command[:1])}", dirs_exist_ok=True)
        before = {path.name for path in seen.iterdir()}
        main([word.replace("RUN", str(seen)) for word in command])
        names |= {path.name for path in seen.iterdir() if path.is_file()} - before
    victim = tmp_path / "victim"
    for command in WRITES:
        run = shutil.copytree(whole, tmp_path / "linked")
        for name in names:
            if not (run / name).exists():
                (run / name).symlink_to(victim)
        for there in (False, True):
            victim.unlink(missing_ok=True)
            if there:
                victim.write_text("mine", encoding="utf-8")
            main([word.replace("RUN", str(run)) for word in command])
            assert victim.exists() == there and (not there or victim.read_text(encoding="utf-8") == "mine"), command
        shutil.rmtree(run)
    capsys.readouterr()


def test_logs_and_drafts_are_not_opened_through_links(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (tmp_path / "log").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links|Too many"):
        atomic.open_log(tmp_path / "log")
    assert not victim.exists()


def test_only_its_owner_reads_what_agents_observed(whole: Path, tmp_path: Path) -> None:
    """Folders of runs, forks and ask/tell agents, whatever the umask says; a meeting is shared, and has that of the umask."""
    before = os.umask(0o000)
    try:
        run = fedbo.run(STUDY, out=tmp_path / "new" / "run").directory
        fork = fedbo.fork(run, 1.0, out=tmp_path / "fork").directory
        with fedbo.Agent(tmp_path / "agent", {"x": (0.0, 1.0)}) as agent:
            agent.tell(agent.ask()[0].token, 1.0)
    finally:
        os.umask(before)
    for folder in (run, fork, tmp_path / "agent"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


KEYS = ("name", "status", "study_sha256", "labels", "cells", "metric", "parameters", "versions", "plugins", "code", "seconds")
READERS = [["show", "RUN"], ["watch", "RUN", "--once"], ["report", "RUN"], ["resume", "RUN"], ["replay", "RUN", "--verify"]]


@pytest.mark.parametrize("sealed", [True, False])
def test_another_document_in_place_of_a_manifest_is_damage(
    sealed: bool, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each key in turn is missing or of another type; or it is something else altogether."""
    known = json.loads((whole / "manifest.json").read_text(encoding="utf-8"))
    documents: list[Any] = [{key: value for key, value in known.items() if key != left} for left in KEYS]
    documents += [{**known, key: "x" if key == "seconds" else 3} for key in (*KEYS, "files", "best_values", "complete_runs")]
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    for number, document in enumerate([{"status": 3}, {}, *([] if sealed else [[1], 3, None]), *documents]):
        text = seal(document) if sealed else json.dumps(document)
        (run / "manifest.json").write_text(text, encoding="utf-8")
        for command in READERS if number < 2 else [READERS[number % len(READERS)]]:
            assert main([part.replace("RUN", str(run)) for part in command]) == 2
            said = capsys.readouterr().err
            assert "manifest.json': is damaged (" in said and said.count("\n") == 1, (document, command, said)


def test_a_key_of_a_sweep_that_is_none_is_an_error_of_the_study(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    for key, words in [
        ("algorithm.0.name", "label of an algorithm"),
        ("study.name", "not change results"),
        ("x.y", '[sweep] "x.y" = ["random", "ts"]: no such table; available: agents,'),
    ]:
        text = (whole / "study.toml").read_text(encoding="utf-8")
        (run / "study.toml").write_text(f'{text}\n[sweep]\n"{key}" = ["random", "ts"]\n', encoding="utf-8")
        manifest = json.loads((whole / "manifest.json").read_text(encoding="utf-8"))
        (run / "manifest.json").write_text(seal({**manifest, "files": {}}), encoding="utf-8")
        for command in ["show"], ["show", "--trouble"], ["report"], ["plot", "--kind", "timeline"], ["watch", "--once"]:
            assert main([command[0], str(run), *command[1:]]) == 2
            assert words in (said := capsys.readouterr().err) and said.count("\n") == 1, (key, command, said)


def test_an_error_and_a_report_hold_no_control_characters_of_a_document(whole: Path, tmp_path: Path) -> None:
    """Also in Python, where no command line escapes them."""
    with pytest.raises(fedbo.errors.StudyError, match="no such table") as found:
        fedbo.load_study({**STUDY, EVIL: {EVIL: 1}})
    with pytest.raises(DocumentError) as other:
        raise DocumentError(f"{EVIL}: no such key")
    assert not ACTING.search(str(found.value)) and not ACTING.search(str(other.value))
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    (run / "manifest.json").write_text(seal({**manifest, "versions": {EVIL: EVIL}, "files": {}}), encoding="utf-8")
    assert main(["report", str(run)]) == 0
    assert not ACTING.search((run / "report.html").read_text(encoding="utf-8"))
