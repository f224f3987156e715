"""The small algorithm of the documentation is as small as it is called, and takes part in a study as it stands."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pages
import pytest

from fedbo.testing.algorithm_contract import check_algorithm

SHOWN = next(block.text for block in pages.blocks("python") if block.page == "docs/algorithms/index.md")
STUDY = """
import fedbo.algorithms
fedbo.algorithms.__path__.append("methods")
import fedbo
study = {
    "study": {"name": "own"},
    "objective": {"name": "quadratic", "agents": 3},
    "budget": {"iterations": 4},
    "algorithm": [{"name": "random"}, {"name": "shared_step", "length": 0.1}],
}
result = fedbo.run(study, out="run")
print([row.algorithm for row in result.summary()], result.observations.num_rows)
"""


def test_the_example_has_less_than_forty_lines_of_code() -> None:
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(SHOWN)):
        words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (words or isinstance(node, (ast.Import, ast.ImportFrom))):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    assert sum(bool(line.strip()) for number, line in enumerate(SHOWN.splitlines(), 1) if number not in left_out) < 40


def test_the_example_runs_in_a_study(tmp_path: Path) -> None:
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "shared_step.py").write_text(SHOWN, encoding="utf-8")
    told = subprocess.run([sys.executable, "-c", STUDY], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr[-2000:]
    assert told.stdout.split("]")[0] == "['random', 'shared_step'"
    assert int(told.stdout.split("]")[1]) == 2 * 3 * (3 + 4)


def test_the_example_keeps_to_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared_step_shown.py").write_text(SHOWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    check_algorithm(importlib.import_module("shared_step_shown").SharedStep())
