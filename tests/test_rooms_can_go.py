"""Rooms that can go: nothing outside a room imports it, and without its folder all else works and writes the same bytes."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedbo.settings.rooms import rooms
from tests.test_size import LINES

ROOT = Path(__file__).resolve().parents[1]
STUDY = """
study.name = "two"
objective = {name = "quadratic", agents = 3}
budget.iterations = 4
exchange.mode = "immediate"
timing = {latency = {model = "constant", mean = 0.1}}
algorithm = [{name = "random"}, {name = "fts", every = 1}]
"""
# An editable installation would give modules of a deleted room from the working tree, so its finder is taken out.
IMPORT_ALL = """
import importlib, pkgutil, sys
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in repr(one)]
import fedbo
assert [*fedbo.__path__] == [sys.argv[1] + "/fedbo"], fedbo.__path__
for each in pkgutil.walk_packages(fedbo.__path__, "fedbo."):
    if each.name.rpartition(".")[2] == "__main__" or ".examples" in each.name or ".templates" in each.name:
        continue
    try:
        importlib.import_module(each.name)
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] == "fedbo":  # all others are optional libraries
            raise
for public in (fedbo, fedbo.errors):
    for name in public.__all__:
        getattr(public, name)
"""
COMMAND = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in repr(one)]
from fedbo.cli import main
sys.exit(main(sys.argv[1:]))
"""


def _gone(name: str) -> set[str]:
    """Name the rooms that go with one: those that need it."""
    gone = {name}
    while more := {each for each, room in rooms().items() if gone & {*room.needs}} - gone:
        gone |= more
    return gone


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def arrows(root: Path) -> list[str]:
    """List the imports of a room by a module outside of it, unless that is of a room that needs it."""
    found = []
    for path in sorted((root / "fedbo").rglob("*.py")):
        place = path.relative_to(root / "fedbo").as_posix()
        text = path.read_text(encoding="utf-8")
        near = [room for room in rooms() if f"fedbo.{room.replace('/', '.')}" in text]
        for name in _imported(text) if near else ():
            for room in near:
                inside = name.startswith(f"fedbo.{room.replace('/', '.')}.")
                if inside and not any(place.startswith(f"{one}/") for one in _gone(room)):
                    found.append(f"{place} imports {name}")
    return found


def test_nothing_outside_a_room_imports_it() -> None:
    assert arrows(ROOT) == []


def test_an_import_of_a_room_is_seen_also_within_a_function(tmp_path: Path) -> None:
    (tmp_path / "fedbo" / "lab" / "fork").mkdir(parents=True)
    (tmp_path / "fedbo" / "planted.py").write_text("def f():\n    from fedbo.sites.keys import PublicKey\n", encoding="utf-8")
    (tmp_path / "fedbo" / "lab" / "fork" / "planted.py").write_text("import fedbo.lab.why.why\n", encoding="utf-8")
    assert [line.split(" ")[0] for line in arrows(tmp_path)] == ["lab/fork/planted.py", "planted.py"]


def test_a_room_counts_as_deleted_without_a_room_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbo.settings.rooms._folders", lambda: iter(["lab/why", "lab/twins"]))
    assert [*rooms.__wrapped__()] == ["lab/twins"]  # whys need forks


@pytest.mark.parametrize("name", rooms())
def test_a_room_says_what_it_is_for_and_has_tests_and_a_budget(name: str) -> None:
    room = rooms()[name]
    assert room.sentence.endswith(".") and name in LINES and {*room.needs} <= {*rooms()}
    assert all((ROOT / "tests" / place).exists() for place in room.tests)
    places = [*(each.function for each in room.commands.values()), *room.names.values()]
    places += [
        *room.functions.values(),
        *room.analyses.values(),
        *room.schemas.values(),
        *room.tables.values(),
        *room.errors,
        *room.sections.values(),
        *(place for each in room.answers for place in (each.read, each.resume)),
    ]
    assert all(place.startswith(f"fedbo.{name.replace('/', '.')}.") for place in places), "declares what is not in the room"


def _copy(root: Path, to: Path, without: set[str]) -> Path:
    """Copy a package without some of its folders, with the compiled routines, which take a minute to make."""
    shutil.copytree(root / "fedbo", to / "fedbo")
    for room in without:
        shutil.rmtree(to / "fedbo" / room)
    return to


def _python(copy: Path, code: str, *words: str, ends_with: int = 0) -> str:
    around = {**os.environ, "PYTHONPATH": str(copy)}
    made = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=copy, env=around, capture_output=True, text=True, check=False
    )
    assert made.returncode == ends_with, made.stderr[-3000:]
    return made.stderr if ends_with else made.stdout


def _told(copy: Path) -> tuple[str, dict[str, str]]:
    """Return what a package lists, and the digests of the tables of a study that it runs."""
    (copy / "two.toml").write_text(STUDY, encoding="utf-8")
    _python(copy, COMMAND, "run", "two.toml", "--out", "run", "--quiet")
    tables = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((copy / "run").glob("*.parquet"))}
    return _python(copy, COMMAND, "--help"), tables


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, str]]:
    copy = _copy(ROOT, tmp_path_factory.mktemp("whole"), set())
    return copy, *_told(copy)


@pytest.mark.long
@pytest.mark.parametrize("name", rooms())
def test_all_else_works_without_a_room_and_writes_the_same_bytes(
    name: str, tmp_path: Path, whole: tuple[Path, str, dict[str, str]]
) -> None:
    package, help_before, tables_before = whole
    gone = _gone(name)
    copy = _copy(package, tmp_path, gone)
    _python(copy, IMPORT_ALL, str(copy))
    _python(copy, COMMAND, "list")
    shown, tables = _told(copy)
    assert _commands(help_before) - _commands(shown) == {command for room in gone for command in rooms()[room].commands}
    assert tables == tables_before and len(tables) > 1
    _python(copy, COMMAND, "show", str(package / "run"))
    for key in (key for room in gone for key in rooms()[room].tables):
        (copy / "asks.toml").write_text(f"{STUDY}{key}.asks = true\n", encoding="utf-8")
        told = _python(copy, COMMAND, "validate", "asks.toml", ends_with=2)
        assert f"[{key}]: needs a part of fedbo that is not installed here" in told


def _commands(shown: str) -> set[str]:
    return set(re.findall(r"^  ([a-z]+) ", shown, re.MULTILINE))


@pytest.mark.long
def test_a_package_that_lacks_more_than_a_room_is_found(tmp_path: Path) -> None:
    copy = _copy(ROOT, tmp_path, {"study/environment"})
    with pytest.raises(AssertionError, match="No module named 'fedbo.study.environment'"):
        _python(copy, IMPORT_ALL, str(copy))
