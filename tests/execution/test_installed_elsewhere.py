"""The tables of a study do not depend on the folder in which fedbo is installed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedbo

PROGRAM = """
import sys
import fedbo
assert fedbo.__file__.startswith(sys.argv[1]), fedbo.__file__
study = {
    "study": {"name": "elsewhere"},
    "objective": {"name": "python_function", "function": "failing:sometimes", "low": [0.0], "high": [1.0], "agents": 2},
    "agents": {"initial": 3},
    "budget": {"iterations": 2},
    "algorithm": [{"name": "random"}],
}
fedbo.run(study, out=sys.argv[2])
"""
FAILING = """
import numpy as np

def sometimes(x):
    if x[0] < 0.5:
        np.linalg.cholesky(-np.eye(2))
    return "no number" if x[0] < 0.75 else float(x[0])
"""


@pytest.mark.long
def test_tables_are_the_same_from_another_folder(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    found = []
    for name in ("one", "another/and-deeper"):
        home = tmp_path / name
        shutil.copytree(Path(fedbo.__file__).parent, home / "fedbo", ignore=shutil.ignore_patterns("__pycache__"))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(home), str(tmp_path)])}
        out = home / "run"
        subprocess.run([sys.executable, "-S", "-c", SITE + PROGRAM, str(home), str(out)], env=env, check=True, cwd=tmp_path)
        tables = sorted(path for path in out.glob("*.parquet"))
        found.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tables})
        assert "observations.parquet" in found[-1]
    assert found[0] == found[1]


# The editable install puts a finder before the path: without it, the copy alone is found.
SITE = f"import sys\nsys.path.extend({[path for path in sys.path if 'site-packages' in path]!r})\n"
