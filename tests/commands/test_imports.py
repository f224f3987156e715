"""What the commands import: each takes some tenths of a second, and tests start hundreds of processes."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from fedbo.commands.errors import FAILURES, WRONG_INPUT, is_failure, is_wrong_input

SCRIPT = """
import sys
from fedbo.cli import main
given = sys.argv[1:]
for arguments in (given[:1], given[1:], ["validate", "nowhere.toml"]):
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
    """By `fedbo list`, by `fedbo validate`, and to say what was wrong, one after the other in one process."""
    made = subprocess.run([sys.executable, "-c", SCRIPT, "list", "validate", EXAMPLE], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "rgpe" in made.stdout and "evaluations" in made.stdout and "nowhere.toml: no such file" in made.stderr


@pytest.mark.parametrize("name", sorted(WRONG_INPUT | FAILURES))
def test_an_error_that_a_command_knows_by_its_name_has_that_name(name: str) -> None:
    module, _, own = name.rpartition(".")
    kind = getattr(import_module(module), own)
    assert f"{kind.__module__}.{kind.__qualname__}" == name
    for one in (kind, type("Derived", (kind,), {})):
        assert (is_wrong_input(one.__new__(one)), is_failure(one.__new__(one))) == (name in WRONG_INPUT, name in FAILURES)
