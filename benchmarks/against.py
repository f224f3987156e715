"""Ratios of speed between this working tree and an earlier revision, on the same small models in turn.

The revision is installed from git into a temporary folder, with the libraries of this environment. The measures are: events
per second of the event loop with a free objective, and of SimPy on the same model; agent-iterations per second of FTS with
all agents optimising, as in `benchmarks/scale.py`; decisions per second with 20 observations; agent-iterations per second of
TS and FTS, fits included, with the robust surrogate and by default; snapshots per second. Old and new take turns in separate
processes, so that other load on the machine affects both.

    python benchmarks/against.py [REVISION] [--pairs 5] [--quick]

By default REVISION is the last tag, or without tags the parent of the newest merge.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LEAST = 0.9  # a ratio below this is warned of
Measured = dict[str, float]


def scale_study(agents: int, iterations: int) -> dict[str, Any]:
    """Describe FTS in its most general setting: everybody takes part, and nothing is fitted."""
    algorithm = {"name": "fts", "every": 1, "relay": "one", "query": "draw", "kernel": "se", "features": 100}
    return {
        "study": {"name": "scale", "seed": 1},
        "objective": {"name": "quadratic", "agents": agents},
        "budget": {"iterations": iterations},
        "algorithm": [{**algorithm, "own": {"surrogate": "features", "features": 100, "length_scale": 0.2}}],
        "timing": {"evaluation": {"model": "lognormal"}, "latency": {"model": "constant", "mean": 0.1}},
        "exchange": {"mode": "immediate"},
    }


def _first(*places: str) -> Any:
    """Import the first of several `module:name` that there is, since a module may have been renamed between revisions."""
    for place in places:
        module, name = place.split(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"none of {', '.join(places)} is there")


def _run(document: dict[str, Any], events: int | None) -> tuple[float, Any]:
    """Carry out the only run of a study, with a snapshot after so many events or none; give seconds and how it ended."""
    jobs = _first("fedbo.execution.jobs:runs")
    coordinator = _first("fedbo.coordinator.runtime.actor:Coordinator")
    with tempfile.TemporaryDirectory() as folder:
        (run,) = jobs(_first("fedbo:load_study")(document), Path(folder))
        begun = time.process_time()
        ended = coordinator().run(replace(run, events=events, seconds=1e9))
        return time.process_time() - begun, ended


def loop(agents: int, iterations: int, repeats: int = 3) -> Measured:
    """Give events per second of the event loop and of SimPy, by `engine.py` of the same revision: the best of some."""
    engine = importlib.import_module("engine")
    ours, theirs = 0.0, 0.0
    for _ in range(repeats):
        seconds, events, _ = engine.with_fedbo(agents, iterations)
        other, expected, _ = engine.with_simpy(agents, iterations)
        ours, theirs = max(ours, events / seconds), max(theirs, expected / other)
    return {f"event loop, {agents} agents": ours, f"SimPy, {agents} agents": theirs}


def scale(agents: int, iterations: int) -> Measured:
    """Give agent-iterations per second, with messages and tables, and snapshots per second."""
    _run(scale_study(2, 1), None)  # imports, and what is computed once
    seconds, _ = _run(scale_study(agents, iterations), None)
    events = max(1, 3 * agents * iterations // 4)
    _, ended = _run(scale_study(agents, iterations), events)
    taken = max(1, ended.events // events)
    return {f"FTS, {agents} agents": agents * iterations / seconds, "snapshots": taken / ended.kept}


def decisions(repeats: int) -> Measured:
    """Give decisions per second with 20 observations, for each method that runs alone or by one message of each."""
    found: Measured = {}
    for name in ("ts", "fts", "gp_ei"):
        document: dict[str, Any] = {
            "study": {"name": "decision", "seed": 1},
            "objective": {"name": "branin", "agents": 4},
            "agents": {"initial": 20},
            "budget": {"iterations": 1},
            "algorithm": [{"name": name, "every": 1} if name == "fts" else {"name": name}],
        }
        _run(document, None)  # imports, and what is computed once
        found[f"{name}, n = 20"] = 4 / median(_run(document, None)[0] for _ in range(repeats))
    return found


def fitted(iterations: int, repeats: int) -> Measured:
    """Give agent-iterations per second of ten agents whose hyperparameters are fitted, the best of some.

    By default a fit tries more than it once did, so there is also the surrogate that was the default once, in its coordinates.
    """
    found: Measured = {}
    robust = {"surrogate": "robust", "coordinates": "arcsine"}
    methods: list[tuple[str, dict[str, Any]]] = [
        ("ts, robust", {"name": "ts", **robust}),
        ("fts, robust", {"name": "fts", "own": robust}),
        ("ts by default", {"name": "ts"}),
        ("fts by default", {"name": "fts"}),
    ]
    for name, method in methods:
        document: dict[str, Any] = {
            "study": {"name": "fitted", "seed": 1},
            "objective": {"name": "branin", "agents": 10},
            "budget": {"iterations": iterations},
            "algorithm": [method],
            "timing": {"evaluation": {"model": "lognormal"}},
            "exchange": {"mode": "immediate"},
        }
        found[name] = 10 * iterations / min(_run(document, None)[0] for _ in range(repeats))
    return found


def measure(quick: bool) -> Measured:
    """Measure all in this process."""
    events = 10_000 if quick else 50_000
    parts: list[Callable[[], Measured]] = [
        lambda: loop(100, events // 100),
        lambda: loop(1000, events // 1000),
        lambda: scale(100, 5 if quick else 20),
        lambda: decisions(3 if quick else 10),
        lambda: fitted(50, 2 if quick else 4),
    ]
    found: Measured = {}
    for part in parts:
        try:
            found |= part()
        except Exception as error:  # what one revision lacks is left out of the table, and said
            print(f"left out: {type(error).__name__}: {error}", file=sys.stderr)
    return found


def installed(revision: str | None, folder: Path) -> Path:
    """Install a revision, or the working tree, and its model of the event loop into a folder that can be imported from."""
    source, target = folder / "source", folder / "installed"
    source.mkdir(parents=True)
    if revision is None:
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout
        packed = ["tar", "-c", "--null", "--ignore-failed-read", "-T", "-"]
        archive = subprocess.run(packed, cwd=ROOT, check=True, input=files, capture_output=True).stdout
    else:
        archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    for each in (source, *sorted(found.parent for found in (source / "plugins").glob("*/pyproject.toml"))):
        subprocess.run([sys.executable, "-m", "pip", "install", *options, str(each)], check=True)
    shutil.copy(source / "benchmarks" / "engine.py", target)
    shutil.copy(__file__, target)
    return target


# An editable install is found by a finder of its own, which must not stand before the folder.
_IN_PROCESS = """
import json, sys
sys.meta_path = [one for one in sys.meta_path if "__editable__" not in str(getattr(one, "__module__", ""))]
sys.path.insert(0, sys.argv[1])
import fedbo
assert fedbo.__file__.startswith(sys.argv[1]), fedbo.__file__
sys.path.insert(1, sys.argv[2])
import importlib
print(json.dumps(importlib.import_module(sys.argv[3]).measure(*json.loads(sys.argv[4]))))
"""


def in_process(target: Path, module: str, *arguments: Any) -> Any:
    """Give what `measure` of a benchmark gives for what is installed in a folder, in a process of its own.

    CalledProcessError with its words on standard error.
    """
    surroundings = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _IN_PROCESS, str(target), str(Path(__file__).parent), module, json.dumps(arguments)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=surroundings, cwd=target)
    return json.loads(told.stdout.splitlines()[-1])


def default_revision() -> str:
    """Give the last tag, else the first parent of the newest merge, else the parent of this commit."""
    for command in (["describe", "--tags", "--abbrev=0"], ["log", "--merges", "-1", "--format=%H^"], ["rev-parse", "HEAD^"]):
        told = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
        if told.returncode == 0 and told.stdout.strip():
            return told.stdout.strip()
    raise SystemExit("there is no earlier revision; name one")


def table(old: list[Measured], new: list[Measured]) -> tuple[list[str], list[str]]:
    """Write a line for each measure, medians and the ratio of pairs, and a warning for each that fell."""
    lines = [
        f"{'per second':<26} {'old':>10} {'new':>10} {'new/old':>8}   {'least to most':<14} {'old/SimPy':>9} {'new/SimPy':>9}"
    ]
    warnings = []
    for name in [name for name in new[0] if all(name in found for found in old + new)]:
        before, after = median(found[name] for found in old), median(found[name] for found in new)
        ratios = [b[name] / a[name] for a, b in zip(old, new, strict=True)]
        line = f"{name:<26} {before:>10,.0f} {after:>10,.0f} {median(ratios):>8.2f}   {min(ratios):.2f} to {max(ratios):<6.2f}"
        peer = name.replace("event loop", "SimPy")
        if peer != name:
            line += "".join(f"{median(f[name] / f[peer] for f in runs):>10.2f}" for runs in (old, new))
        if median(ratios) < LEAST and not name.startswith("SimPy"):
            warnings.append(f"slower: {name} has {median(ratios):.2f} of its speed at the old revision")
        lines.append(line)
    return lines, warnings


def main() -> None:
    """Measure both in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="use smaller models, for a first look within two minutes")
    given = parser.parse_args()
    revision = given.revision or default_revision()
    described = subprocess.run(["git", "log", "-1", "--format=%h %s", revision], cwd=ROOT, check=True, capture_output=True)
    print(f"old: {described.stdout.decode().strip()}\nnew: the working tree, {given.pairs} pairs, processor time", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        before, now = installed(revision, Path(folder) / "old"), installed(None, Path(folder) / "new")
        old, new = [], []
        for number in range(given.pairs):
            order = [(before, old), (now, new)]
            for target, found in order if number % 2 == 0 else reversed(order):
                found.append(in_process(target, "against", given.quick))
    lines, warnings = table(old, new)
    print(*lines, *warnings, sep="\n")


if __name__ == "__main__":
    main()
