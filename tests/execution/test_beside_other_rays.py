"""Tests and benchmarks start a Ray of their own, also on a machine where another Ray runs, or once ran and was killed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_ADDRESS = re.compile(r"""ray\.init\((?!\s*["'f]|\s*to\.address)""")
ON_RAY = "tests/coordinator/runtime/test_hosting.py::test_an_order_that_a_later_decision_replaces_is_never_carried_out"


def test_no_ray_is_started_without_an_address() -> None:
    """Without one Ray connects to any other cluster that it finds on the machine, or tries to."""
    assert WITHOUT_ADDRESS.search("ray.init(num_cpus=2)") and WITHOUT_ADDRESS.search("ray.init()")
    folders = ("fedbo", "tests", "benchmarks", "docs", "examples")
    files = [path for folder in folders for kind in ("py", "md", "ipynb") for path in (ROOT / folder).rglob(f"*.{kind}")]
    found = [path for path in files if path != Path(__file__) and WITHOUT_ADDRESS.search(path.read_text(encoding="utf-8"))]
    assert len(files) > 500 and found == []


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for Ray's files, with a short name, since the paths of its sockets have at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def beside(place: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "RAY_TMPDIR": str(place), "RAY_worker_niceness": "0", **more}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, env=surroundings)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("lives", [False, True], ids=["killed", "running"])
def test_the_tests_start_where_another_ray(lives: bool, place: Path) -> None:
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    address = "127.0.0.1:1"
    if lives:
        options = ("--head", "--port=0", "--num-cpus=1", "--include-dashboard=false", "--disable-usage-stats")
        started = beside(place, *ray, "start", *options, RAY_AUTH_MODE="disabled")
        assert started.returncode == 0, started.stderr
        address = (place / "ray" / "ray_current_cluster").read_text(encoding="utf-8")
    else:
        (place / "ray").mkdir()
        (place / "ray" / "ray_current_cluster").write_text(address, encoding="utf-8")
    try:
        for more in ({}, {"RAY_ADDRESS": address}):
            done = beside(place, sys.executable, "-m", "pytest", "-q", "-m", "", ON_RAY, **more)
            assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    finally:
        if lives:
            _end(place)


def _end(place: Path) -> None:
    """End the processes of the cluster whose files are in this folder, and no other's: `ray stop` ends all of the machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                if f"{place}/ray" in words:
                    os.kill(int(entry.name), 9)
            except OSError:
                continue
