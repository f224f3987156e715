"""What the commands import: each takes some tenths of a second, and tests start hundreds of processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from fedbo.cli import main
given = sys.argv[1:]
for arguments in (given[:1], given[1:]):
    sys.argv = ["fedbo", *arguments]
    try:
        main()
    except SystemExit:
        pass
heavy = {"matplotlib", "numba", "pandas", "pooch", "pyarrow.compute", "ray", "scipy.linalg", "scipy.special", "sklearn"}
sys.exit(", ".join(sorted(heavy & set(sys.modules))) or None)
"""
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "digits.toml")


def test_nothing_heavy_is_imported_before_something_is_computed() -> None:
    """By `fedbo list` and by `fedbo validate`, one after the other in one process."""
    made = subprocess.run([sys.executable, "-c", SCRIPT, "list", "validate", EXAMPLE], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "rgpe" in made.stdout and "evaluations" in made.stdout
