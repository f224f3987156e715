"""The method that `fedbo new algorithm` writes is as small as the pages say, and takes part in a study as it stands."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pages
import pytest

import fedbo
import fedbo.algorithms
from fedbo.algorithms import catalog
from fedbo.testing.algorithm_contract import check_algorithm

SHOWN = (pages.ROOT / "fedbo/templates/algorithm.py.jinja").read_text(encoding="utf-8").replace("{{ title }}", "SharedStep")
SHOWN += '\nALGORITHMS = {"shared_step": Entry(SharedStep, summary="Bayesian optimisation with hints")}\n'
SHOWN = SHOWN.replace(
    "from fedbo.algorithms.streams", "from fedbo.algorithms.catalog import Entry\nfrom fedbo.algorithms.streams"
)
STUDY = {
    "study": {"name": "own"},
    "objective": {"name": "quadratic", "agents": 3},
    "budget": {"iterations": 4},
    "algorithm": [{"name": "random"}, {"name": "shared_step", "beta": 1.5}],
}


def test_the_example_has_less_than_fifty_lines_of_code() -> None:
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(SHOWN)):
        words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (words or isinstance(node, (ast.Import, ast.ImportFrom))):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    assert sum(bool(line.strip()) for number, line in enumerate(SHOWN.splitlines(), 1) if number not in left_out) < 50


def test_the_example_runs_in_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared_step.py").write_text(SHOWN, encoding="utf-8")
    monkeypatch.setattr(fedbo.algorithms, "__path__", [*fedbo.algorithms.__path__, str(tmp_path)])
    catalog.algorithms.cache_clear()
    catalog.catalogue.cache_clear()
    try:
        result = fedbo.run(STUDY, out=tmp_path / "run")
        assert [row.algorithm for row in result.summary()] == ["random", "shared_step"]
        assert result.observations.num_rows == 2 * 3 * (3 + 4)
    finally:
        catalog.algorithms.cache_clear()
        catalog.catalogue.cache_clear()
        sys.modules.pop("fedbo.algorithms.shared_step", None)


def test_the_example_keeps_to_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared_step_shown.py").write_text(SHOWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    check_algorithm(importlib.import_module("shared_step_shown").SharedStep())
