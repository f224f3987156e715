"""The list of modules that may be compiled, and checkpoints of what is compiled."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def compiled() -> tuple[str, ...]:
    """Read the list from setup.py, which cannot be imported without building the package."""
    body = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8")).body
    (value,) = [line.value for line in body if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "COMPILED"]
    return tuple(ast.literal_eval(value))


def test_every_module_that_may_be_compiled_is_there() -> None:
    assert [name for name in compiled() if not (ROOT / "coordinator" / f"{name}.py").is_file()] == []


def test_no_module_that_may_be_compiled_has_a_class_that_mypyc_cannot_compile() -> None:
    for name in compiled():
        tree = ast.parse((ROOT / "coordinator" / f"{name}.py").read_text(encoding="utf-8"))
        bases = {ast.unparse(base) for part in ast.walk(tree) if isinstance(part, ast.ClassDef) for base in part.bases}
        assert bases <= {"NamedTuple"}, f"{name}: errors and protocols belong to modules that are not compiled"
