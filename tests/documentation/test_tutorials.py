"""Every code block of a tutorial is carried out, in order, in a folder of its own; what a page says was printed is compared.

Blocks whose first line is a comment with a file's name are that file; lines of `sh` are commands of `fedbo`, or pytest on a
file that was written before. Printed tables are compared by their words, since digits depend on the machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
import pytest

from fedbo.cli import main

ON_RAY = ("cluster", "several_sites")
APART = ("three_hospitals",)  # several processes at once: tests/sites/test_tutorial.py
TUTORIALS = sorted({block.page for block in pages.blocks() if block.page.startswith("docs/tutorials/")})
# Figures, benchmarks and accountants take some seconds, and have tests of their own.
LONG = ("own_method", "private", "stragglers", "time_limit", "why")
HERE = [
    pytest.param(page, marks=[pytest.mark.long] if Path(page).stem in LONG else [])
    for page in TUTORIALS
    if Path(page).stem not in (*ON_RAY, *APART)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give an empty folder to work in, whose modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def _words(text: str) -> list[str]:
    """Give the words of a text, without lines of tables and with any number as #."""
    return re.findall(r"#|[^\W\d_]+", re.sub(r"[-+]?\d[\d.]*", " # ", text))


def _command(line: str) -> None:
    program, *arguments = shlex.split(line.removeprefix("python -m "), comments=True)
    if program == "pytest":
        _call_tests(Path(arguments[0]))
    else:
        assert program == "fedbo" and main(arguments) == 0, line


def _call_tests(file: Path) -> None:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [value for name, value in vars(module).items() if name.startswith("test_")]
    assert tests
    for test in tests:
        wanted = inspect.signature(test).parameters
        test(*([Path.cwd()] if wanted else []))


def _carry_out(block: pages.Block, known: dict[str, Any]) -> None:
    named = re.match(r"# (\w+\.(?:toml|py))\n", block.text)
    if named:
        Path(named[1]).write_text(block.text, encoding="utf-8")
        importlib.invalidate_caches()
    elif block.language == "python":
        exec(compile(block.text, str(block), "exec"), known)
    else:
        assert block.language == "sh", f"{block}: nothing carries out {block.language}"
        for line in block.text.splitlines():
            _command(line)


def follow(page: str) -> None:
    """Do what a tutorial says."""
    known: dict[str, Any] = {"__name__": "__main__"}  # whose functions are sent to workers as those of a script are
    printed = ""
    for block in pages.blocks():
        if block.page != page or block.marked("example"):  # an example has a test of its own
            continue
        if block.language == "text":
            said, was = _words(block.text), _words(printed)
            assert any(was[n : n + len(said)] == said for n in range(len(was))), f"{block}: printed was\n{printed}"
            continue
        with contextlib.redirect_stdout(io.StringIO()) as caught:
            _carry_out(block, known)
        printed = caught.getvalue()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("page", HERE)
def test_a_tutorial_can_be_followed(page: str, folder: Path) -> None:
    follow(page)


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize("name", ON_RAY)
def test_a_tutorial_that_needs_ray_can_be_followed(name: str, folder: Path, ray_session: None) -> None:
    follow(f"docs/tutorials/{name}.md")


def test_each_tutorial_is_followed() -> None:
    assert {Path(page).stem for page in TUTORIALS} >= {*ON_RAY, *APART}
    assert len(TUTORIALS) == 9
