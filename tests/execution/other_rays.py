"""Ray clusters that are none of fedbo's, with their files in a folder of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def ray_folder() -> Iterator[Path]:
    """Make a folder for Ray's files, with a short name, since the paths of its sockets have at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def surroundings(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process whose Ray keeps its files in a folder."""
    return {**os.environ, "RAY_TMPDIR": str(folder), "RAY_worker_niceness": "0", **more}


@contextmanager
def another_ray(folder: Path, cpus: int = 1, **more: str) -> Iterator[str]:
    """Start the head of a cluster without a token, and return its address."""
    options = ("--head", "--port=0", f"--num-cpus={cpus}", "--include-dashboard=false", "--disable-usage-stats")
    environment = surroundings(folder, RAY_AUTH_MODE="disabled", **more)
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=300, env=environment)
        yield (folder / "ray" / "ray_current_cluster").read_text(encoding="utf-8")
    finally:
        kill(folder)


def kill(folder: Path, name: str = "") -> None:
    """Kill the processes of the cluster in a folder, whose command has this name in it; `ray stop` ends all on a machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                if f"{folder}/ray" in words and name in words:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue
