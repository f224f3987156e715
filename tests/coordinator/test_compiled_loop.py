"""The list of modules that may be compiled, and with what a compiled event loop is compared."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def compiled() -> tuple[str, ...]:
    """Read the list from setup.py, which cannot be imported without building the package."""
    body = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body
    (value,) = [line.value for line in body if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "COMPILED"]
    return tuple(ast.literal_eval(value))


def test_every_module_that_may_be_compiled_is_there() -> None:
    assert [name for name in compiled() if not (ROOT / "fedbo" / "coordinator" / f"{name}.py").is_file()] == []


def test_no_module_that_may_be_compiled_has_a_class_that_mypyc_cannot_compile() -> None:
    for name in compiled():
        tree = ast.parse((ROOT / "fedbo" / "coordinator" / f"{name}.py").read_text(encoding="utf-8"))
        bases = {ast.unparse(base) for part in ast.walk(tree) if isinstance(part, ast.ClassDef) for base in part.bases}
        assert bases <= {"NamedTuple"}, f"{name}: errors and protocols belong to modules that are not compiled"


@pytest.mark.parametrize("revision", [None, "HEAD"])
def test_a_compiled_working_tree_is_compared_with_a_revision_that_is_not_compiled(
    revision: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[bool] = []

    def run(command: list[str], env: Any = os.environ, **_: Any) -> SimpleNamespace:
        built.extend("FEDBO_COMPILE" in env for part in command if part == "install")
        return SimpleNamespace(stdout=b"")

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import against

    monkeypatch.setenv("FEDBO_COMPILE", "1")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(shutil, "copy", lambda *_: None)
    against.installed(revision, tmp_path)
    assert built == [revision is None]
