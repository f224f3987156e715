"""Tests and benchmarks start a Ray of their own, also on a machine where another Ray runs, or once ran and was killed."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from other_rays import ROOT, another_ray, ray_folder, surroundings

WITHOUT_ADDRESS = re.compile(r"""ray\.init\((?!\s*["'f]|\s*to\.address)""")
ON_RAY = "tests/coordinator/runtime/test_hosting.py::test_an_order_that_a_later_decision_replaces_is_never_carried_out"


def test_no_ray_is_started_without_an_address() -> None:
    """Without one Ray connects to any other cluster that it finds on the machine, or tries to."""
    assert WITHOUT_ADDRESS.search("ray.init(num_cpus=2)") and WITHOUT_ADDRESS.search("ray.init()")
    folders = ("fedbo", "tests", "benchmarks", "docs", "examples")
    files = [path for folder in folders for kind in ("py", "md", "ipynb") for path in (ROOT / folder).rglob(f"*.{kind}")]
    found = [path for path in files if path != Path(__file__) and WITHOUT_ADDRESS.search(path.read_text(encoding="utf-8"))]
    assert len(files) > 500 and found == []


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("lives", [False, True], ids=["killed", "running"])
def test_the_tests_start_where_another_ray(lives: bool) -> None:
    with ray_folder() as folder:
        (folder / "ray").mkdir()
        (folder / "ray" / "ray_current_cluster").write_text("127.0.0.1:1", encoding="utf-8")
        with another_ray(folder) if lives else nullcontext("127.0.0.1:1") as address:
            for more in ({}, {"RAY_ADDRESS": address}):
                command = [sys.executable, "-m", "pytest", "-q", "-m", "", ON_RAY]
                around = surroundings(folder, **more)
                done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, env=around, check=False)
                assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
