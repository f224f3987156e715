"""Kills a study with every trouble at random instants, resumes it until it ends, and compares it with an undisturbed run.

The study, and the process that forks each attempt (a real one; only the imports are saved), are those of `tests/execution`.
With `--command` every attempt is the command `fedbo` itself, started anew and killed with its process group; with `--packed 2`
its agents live in Ray actors. Kills are drawn uniformly over the first `--within` seconds of an attempt.

    python benchmarks/kills.py [--kills 500] [--seed 1] [--within 0.6] [--command] [--packed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "execution"))

from killing import TROUBLED, End, Forks, begin_or_go_on, environment, tables, write_study

Attempt = Callable[[Path, Path, float | None], End]


def forked(forks: Forks) -> Attempt:
    """Give the way to run or to resume in a fork."""

    def attempt(study: Path, directory: Path, after: float | None) -> End:
        return begin_or_go_on(forks, study, directory, after=after)

    return attempt


def commanded(packed: int) -> Attempt:
    """Give the way to run or to resume by the command itself."""
    hosting = ["--set", "hosting.kind=packed", "--set", f"hosting.workers={packed}"] if packed else []

    def attempt(study: Path, directory: Path, after: float | None) -> End:
        begun = (directory / "manifest.json").exists()
        words = ["resume", str(directory)] if begun else ["run", str(study), "--out", str(directory)]
        command = [sys.executable, "-m", "fedbo.cli", *words, "--quiet", *hosting]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": environment()}
        process = subprocess.Popen(command, start_new_session=True, text=True, **pipes)  # type: ignore[call-overload]
        try:
            said, _ = process.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
        return End(process.returncode, said)

    return attempt


def stage(directory: Path) -> str:
    """Say how far a study had come when it was killed."""
    if not (directory / "manifest.json").exists():
        return "before its manifest"
    if json.loads((directory / "manifest.json").read_text())["status"] == "complete":
        return "after its end"
    found = [json.loads(path.read_text()) for path in directory.glob("parts/*/latest.json")]
    if not found:
        return "before the first snapshot"
    return "while its tables are put together" if sum(each["ended"] for each in found) == 4 else "in its runs"


def main() -> None:
    """Kill, resume, compare, and print where the kills fell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=0.6, help="seconds")
    parser.add_argument("--command", action="store_true")
    parser.add_argument("--packed", type=int, default=0, help="Ray actors that share the agents")
    given = parser.parse_args()
    forks, rng = Forks(), random.Random(given.seed)
    attempt = commanded(given.packed) if given.command or given.packed else forked(forks)
    stages: Counter[str] = Counter()
    same, different, begun = 0, list[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        study = write_study(TROUBLED, Path(folder) / "study.toml")
        alone = forks("run", study, Path(folder) / "alone")
        assert alone.code == 0, alone.said
        expected = tables(Path(folder) / "alone")
        while sum(stages.values()) < given.kills:
            directory = Path(folder) / f"story-{same + len(different)}"
            end = End(-signal.SIGKILL, "")
            while end.killed:
                more = sum(stages.values()) < given.kills
                end = attempt(study, directory, rng.uniform(0.0, given.within) if more else None)
                if end.killed:
                    stages[stage(directory)] += 1
            if tables(directory) == expected and (end.code == 0 or "has ended" in end.said):
                same += 1
            else:
                different.append(end.said.strip() or "other bytes")
    forks.close()
    for name, count in stages.most_common():
        print(f"{count:5}  killed {name}")
    print(f"{sum(stages.values()):5}  kills of {same + len(different)} studies in {time.monotonic() - begun:.0f} s")
    print(f"{same:5}  studies ended with the bytes of the undisturbed one, {len(different)} did not")
    for words in different:
        print(f"       {words}")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
