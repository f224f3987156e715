"""What the commands import: each takes some tenths of a second, and tests start hundreds of processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from fedbo.cli import main
sys.argv = ["fedbo", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
heavy = {"matplotlib", "numba", "pandas", "pooch", "pyarrow.compute", "ray", "scipy.linalg", "scipy.special", "sklearn"}
sys.exit(", ".join(sorted(heavy & set(sys.modules))) or None)
"""
EXAMPLE = str(Path(__file__).parents[3] / "examples" / "digits.toml")


@pytest.mark.parametrize("arguments", [("list",), ("validate", EXAMPLE)], ids=lambda words: words[0])
def test_nothing_heavy_is_imported_before_something_is_computed(arguments: tuple[str, ...]) -> None:
    made = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert made.stdout
