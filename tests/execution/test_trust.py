"""Nothing that is mailed runs code: without `--trust` no command imports what the study of another person's run names."""

from __future__ import annotations

import ast
import importlib
import itertools
import os
import random
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import fedbo
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.cli import app, main
from fedbo.settings import trust
from fedbo.study.document import to_toml

ROOT = Path(__file__).resolve().parents[2]
SEED = int(os.environ.get("FEDBO_TEST_SEED", "20"))

STUDY: dict[str, Any] = {
    "study": {"name": "mailed", "seed": 2, "description": "a note: nothing to import"},
    "objective": {"name": "branin", "agents": 2},
    "agents": {"initial": 2, "history": {"algorithm": "random", "observations": 3}},
    "budget": {"iterations": 3},
    "algorithm": [{"name": "fts", "every": 1, "p": 0.5, "length_scale": 0.2, "noise": 0.01, "features": 10}],
    "timing": {"evaluation": {"model": "constant", "mean": 1.0}},
    "group": [{"name": "slow", "agents": [1], "speed": {"factors": [2.0]}}],
    "cluster": {"worker": [{"name": "node", "count": 2}]},
}

# Every command: what it is given when it reads a run, or None where it carries a study out or reads none.
READS: dict[str, list[list[str]] | None] = {
    "validate": [["RUN/study.toml"], ["RUN/study.toml", "--time"]],
    "show": [
        ["RUN", *words] for words in ([], ["--trouble"], ["--privacy"], ["--regret"], ["--printed"], ["--format", "json"])
    ],
    "plot": [
        ["RUN", "--kind", kind, "--out", "OUT/figure.png"]
        for kind in ("overview", "curves", "regret", "timeline", "trouble", "privacy", "optima", "sweep")
    ],
    "report": [["RUN", "--out", "OUT/report.html"]],
    "compare": [["RUN", "RUN"]],
    "export": [["RUN", "--out", "OUT/journal"]],
    "watch": [["RUN", "--once"]],
    "replay": [["RUN", "--verify"], ["RUN", "--out", "OUT/replay"]],
    "fork": [
        ["RUN", when, "1", "--out", "OUT/fork", "--set", "timing.decision.coefficient=0.5"] for when in ("--at", "--every")
    ],
    "worth": [["RUN"]],
    "fit": [["RUN", "--out", "OUT/world"]],
    "twin": [["RUN", "--replicates", "2"], ["RUN", "--replicates", "2", "--set", "budget.iterations=2"]],
    "why": [["RUN", "--end", "end > 0", "--budget", "8", "--out", "OUT/why"]],
    "run": None,
    "resume": None,
    "bench": None,
    "submit": None,
    "job": None,
    **dict.fromkeys(("privacy", "new", "examples", "doctor", "schema", "list", "data"), None),
    **dict.fromkeys(("serve", "join", "site", "approve", "preflight", "revoke", "sent", "demo"), None),
}

Put = Callable[[dict[str, Any], str], None]


def at(*path: str | int, value: Callable[[str], Any] = str) -> Put:
    """Return a function that writes the place of code at a path of a document, in some form."""

    def put(document: dict[str, Any], place: str) -> None:
        table: Any = document
        for key in path[:-1]:
            table = table.setdefault(key, {}) if isinstance(table, dict) else table[key]
        table[path[-1]] = value(place)

    return put


def swept(key: str, value: Callable[[str], Any] = str, first: tuple[Any, ...] = ()) -> Put:
    return at("sweep", key, value=lambda place: [*first, value(place)])


def function(key: str) -> Put:
    """Return a function that makes the objective one of Python, of which one setting names the code."""

    def put(document: dict[str, Any], place: str) -> None:
        plain = {"name": "python_function", "function": "math:fsum", "agents": 2, "low": [0.0], "high": [1.0]}
        document["objective"] = {**plain, key: place}

    return put


WHERE: dict[str, Put] = {
    "an algorithm": at("algorithm", 0, "name"),
    "a schedule": at("algorithm", 0, "p"),
    "an objective": at("objective", "name"),
    "a function": function("function"),
    "a cost": function("cost"),
    "an exchange": at("exchange", "mode"),
    "a duration": at("timing", "evaluation", "model"),
    "a latency": at("timing", "latency", value=lambda place: {"model": place}),
    "an availability": at("availability", "model"),
    "a group's duration": at("group", 0, "evaluation", value=lambda place: {"model": place}),
    "a group's latency": at("group", 0, "latency", value=lambda place: {"model": place}),
    "a group's availability": at("group", 0, "availability", value=lambda place: {"model": place}),
    "an earlier task": at("agents", "history", "algorithm"),
    "an earlier task's table": at("agents", "history", "algorithm", value=lambda place: {"name": place}),
    "an earlier task's schedule": at("agents", "history", "algorithm", value=lambda place: {"name": "fts", "p": place}),
    "a group's earlier task": at(
        "group", 0, "history", value=lambda place: {"algorithm": {"name": "fts", "p": place}, "observations": 3}
    ),
    "swept algorithms": swept("algorithm.fts.name"),
    "swept schedules": swept("algorithm.fts.p", first=(0.5,)),
    "swept objectives": swept("objective.name", first=("branin",)),
    "swept tables of objectives": swept("objective", lambda place: {"name": place}, ({"name": "branin", "agents": 2},)),
    "swept modes": swept("exchange.mode", first=("immediate",)),
    "swept exchanges": swept("exchange", lambda place: {"mode": place}, ({"mode": "immediate"},)),
    "swept durations": swept("timing.evaluation", lambda place: {"model": place}, ({"model": "constant"},)),
    "swept latencies": swept("timing.latency", lambda place: {"model": place}),
    "swept availabilities": swept("availability", lambda place: {"model": place}),
    "swept models": swept("availability.model"),
    "swept group durations": swept("group.slow.evaluation", lambda place: {"model": place}),
    "swept histories": swept("agents.history", lambda place: {"algorithm": place, "observations": 3}),
}
FORMS: dict[str, str] = {  # of a module NAME in a folder RUN; NAME.py also lies in the folders that the places name
    "file": "NAME.py:E",
    "whole path": "RUN/NAME.py:E",
    "module": "NAME:E",
    "link": "link/NAME.py:E",
    "our module as a folder": "fedbo.testing.contract:/NAME.py:E",
    "in our module": "fedbo.testing.contract:E:NAME.py:E",
    "our module in a folder": "./fedbo.testing.contract/NAME.py:E",
    "beneath our module": "fedbo.testing.contract.NAME:E",
}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fedbo.run(STUDY, out=tmp_path_factory.mktemp("whole") / "run").directory


NUMBERS = itertools.count()  # of modules: Python would not import a second one of the same name


class Mailed:
    """Runs as they arrive by mail, each with a module of its own beside it that leaves a mark when it is imported."""

    def __init__(self, whole: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._whole, self._folder, self._patch = whole, folder, monkeypatch

    def make(self, put: Put, form: str) -> Path:
        """Return a new run whose study names code; it lies in the present folder, and among those of imports."""
        number = next(NUMBERS)
        run = shutil.copytree(self._whole, self._folder / f"mail-{number}" / "run")
        name = f"evil_{os.getpid()}_{number}"
        code = "from pathlib import Path\nPath(__file__).with_name('MARK').touch()\nE = lambda *_: 0.5\n"
        (run / f"{name}.py").write_text(code, encoding="utf-8")
        (run / "link").symlink_to(run)
        for folder in ("fedbo.testing.contract:", "fedbo.testing.contract"):
            (run / folder).mkdir()
            (run / folder / f"{name}.py").write_text(code, encoding="utf-8")
        (run / f"fedbo.testing.contract:E:{name}.py").write_text(code, encoding="utf-8")
        document: Any = tomllib.loads((run / "study.toml").read_text(encoding="utf-8"))
        put(document, FORMS[form].replace("NAME", name).replace("RUN", str(run)))
        (run / "study.toml").write_text(to_toml(document), encoding="utf-8")
        write_manifest(run, {**read_manifest(run), "files": {}})  # whoever forges a study can forge its sum
        self._patch.chdir(run)
        self._patch.setattr(sys, "path", [str(run), *(path for path in sys.path if "mail-" not in path)])
        importlib.invalidate_caches()
        return run


def marked(run: Path) -> bool:
    return bool([*run.parent.rglob("MARK")])


def carry_out(command: str, words: list[str], run: Path, *more: str) -> int:
    """Run a command on a run; give its exit code."""
    out = run.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    given = [word.replace("RUN", str(run)).replace("OUT", str(out)) for word in words]
    quiet = ["--quiet"] if command in ("fork", "why", "worth") else []
    return main([command, *given, *quiet, *more])


@pytest.fixture
def mailed(whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailed]:
    monkeypatch.setattr(trust, "_admitted", set())
    yield Mailed(whole_run, tmp_path, monkeypatch)


def test_every_command_is_known_to_these_tests() -> None:
    """A new command is added to READS, so that nobody forgets what it does with a run of another person."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(commands) == set(READS)


def check(mailed: Mailed, where: str, form: str, commands: list[tuple[str, list[str]]], capsys: Any) -> None:
    run = mailed.make(WHERE[where], form)
    for command, words in commands:
        try:
            code = carry_out(command, words, run)
        except (IndexError, KeyError):  # the tables are of a study without this sweep, which nobody promises to notice
            code = 1
        said = capsys.readouterr().err
        assert not marked(run), f"{command} {words}: ran the code of {where} ({form})"
        assert code in (0, 1, 2) and "Traceback" not in said, (command, words, where, said)


ALL = [(command, words) for command, given in READS.items() for words in given or ()]
BUILDS = [("validate", READS["validate"][0]), ("replay", READS["replay"][0])]  # type: ignore[index]


@pytest.mark.parametrize(
    "where", [pytest.param(where, marks=[pytest.mark.long] * (number % 6 > 0)) for number, where in enumerate(WHERE)]
)
def test_a_mailed_run_runs_nothing(where: str, mailed: Mailed, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever its study names: the commands that build it, in each form, and some of the others, drawn with SEED."""
    drawn = random.Random(f"{SEED} {where}")
    for form in FORMS:
        run = mailed.make(WHERE[where], form)
        code = carry_out("validate", ["RUN/study.toml"], run)
        said = capsys.readouterr().err
        assert not marked(run) and code == 2, (form, said)
        assert "names Python code (" in said and "evil_" in said and said.count("\n") == 1, (form, said)
    check(mailed, where, drawn.choice([*FORMS]), [BUILDS[1], *drawn.sample(ALL, 2)], capsys)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", WHERE)
def test_no_command_runs_what_is_mailed(where: str, form: str, mailed: Mailed, capsys: pytest.CaptureFixture[str]) -> None:
    check(mailed, where, form, ALL, capsys)


def test_no_place_is_taken_for_another_one(mailed: Mailed) -> None:
    """Whatever separators stand in it: no module is imported but those that were admitted, not even one of fedbo."""
    mailed.make(WHERE["a schedule"], "module")
    Path("evil.py").write_text("raise AssertionError('imported')\n", encoding="utf-8")
    drawn, parts = (
        random.Random(f"{SEED} places"),
        ("fedbo.testing.contract", "evil", ".py", ":", ".", "/", "..", "\\", " ", "\0"),
    )
    for _ in range(300):
        place = "".join(drawn.choices(parts, k=drawn.randint(1, 7))) + drawn.choice((":E", ":flat", ""))
        for files in (True, False):
            with pytest.raises(trust.UntrustedError, match="names Python code"):
                trust.module_at(place, files)


@pytest.mark.parametrize("where", ["a schedule", "an exchange", "a function", "swept durations"])
def test_with_trust_the_code_runs(where: str, mailed: Mailed) -> None:
    """So the mark would have been left."""
    run = mailed.make(WHERE[where], "module")
    carry_out("validate", ["RUN/study.toml"], run, "--trust")
    assert marked(run)


def test_trust_is_of_places_not_of_the_process(mailed: Mailed, capsys: pytest.CaptureFixture[str]) -> None:
    """After somebody's own study another person's run is refused all the same, in the same process."""
    mine = mailed.make(WHERE["a schedule"], "module")
    assert carry_out("validate", ["RUN/study.toml"], mine, "--trust") == 0
    other = mailed.make(WHERE["a schedule"], "module")
    assert carry_out("replay", ["RUN", "--verify"], other) == 2 and not marked(other)


@pytest.mark.parametrize(
    "words", [pytest.param(words, marks=[pytest.mark.long] * (number > 0)) for number, words in enumerate(READS["fork"] or ())]
)
def test_a_fork_is_refused_for_its_code_and_not_for_its_arguments(
    words: list[str], whole_run: Path, mailed: Mailed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole_run, tmp_path / "honest")
    assert carry_out("fork", words, tmp_path / "honest") == 0
    capsys.readouterr()
    assert carry_out("fork", words, mailed.make(WHERE["a schedule"], "module")) == 2
    assert "names Python code (" in capsys.readouterr().err


IMPORTING = ("import_module", "import_own", "__import__", "exec", "exec_module", "run_path", "run_module")


def test_only_these_files_import_what_is_not_written_in_them() -> None:
    """`module_at` is the one place where code that a study names is imported; all else imports modules known by name."""
    found = set()
    for file in (ROOT / "fedbo").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if not any(name in text for name in IMPORTING):  # most files need not be parsed
            continue
        for node in ast.walk(ast.parse(text)):
            name = getattr(getattr(node, "func", None), "attr", getattr(getattr(node, "func", None), "id", None))
            if isinstance(node, ast.Call) and name in IMPORTING:
                if not isinstance(node.args[0], ast.Constant):
                    found.add(str(file.relative_to(ROOT)))
    assert found == {
        "fedbo/settings/own_modules.py",  # for these two:
        "fedbo/settings/trust.py",
        "fedbo/settings/plugins.py",  # entry points of what is installed
        "fedbo/settings/rooms.py",  # functions of our own rooms
        "fedbo/settings/declared.py",  # our own packages
        "fedbo/actors/storage/record_types.py",  # modules of this package
        "fedbo/objectives/datasets/data.py",  # data sets of our own folders
        "fedbo/callbacks.py",  # libraries that callbacks need
    }


def test_the_remedy_of_a_damaged_file_does_not_run_the_code_of_another_person(
    mailed: Mailed, capsys: pytest.CaptureFixture[str]
) -> None:
    for put, words in (
        (WHERE["an exchange"], "the study names Python code; read"),
        (lambda document, place: None, "fedbo run "),
    ):
        run = mailed.make(put, "module")
        (run / "observations.parquet").write_bytes(b"nothing")
        assert main(["show", str(run)]) == 2
        assert words in capsys.readouterr().err
