"""Work that spot machines lose with notice and without, on Ray and in virtual time.

python benchmarks/notice.py [--notice 8] [--period 12] [--strikes 5] [--forgetful] [--packed]

A study in real time on three raylets: each `--period` seconds one of the two workers leaves, after `--notice` seconds in which
its node drains (0: without a word), and another one comes. Evaluations take ten epochs of half a second, and go on from
checkpoints unless they are `--forgetful`. Lost are the epochs that were made twice and the begun ones that did not end. Then
the same in virtual time: agents on workers of a [cluster] that are struck as often.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import fedbo
from fedbo.objectives.typed_spaces.spaces import written_space
from tests.random_studies.chaos.raylets import QUIET, raylets

EPOCHS, EPOCH, AGENTS = 10, 0.5, 4
SPOT = {"ray.io/market-type": "spot"}
PLACE: dict[str, Any] = {"address": "auto", "labels": SPOT}
SPACE = written_space({"x": (0.0, 1.0)})
FUNCTION = """
import os, tempfile, time
from pathlib import Path

def note(*words):
    with open(os.environ["EPOCHS"], "a") as file:
        file.write(" ".join(map(str, words)) + chr(10))

def train(config, agent, report, restore):
    done, found = 0, restore() if {remembers} else None
    if found is not None:
        done = int(Path(found).read_text())
    with tempfile.TemporaryDirectory() as mine:
        for epoch in range(done + 1, {epochs} + 1):
            note("begin", agent, repr(config["x"]), epoch, time.time())
            time.sleep({epoch})
            note("end", agent, repr(config["x"]), epoch, time.time())
            Path(mine, "epoch").write_text(str(epoch))
            report(config["x"], epoch, **(dict(checkpoint=Path(mine, "epoch")) if {remembers} else {{}}))
    return config["x"]
"""


class Lost(NamedTuple):
    """What preemptions cost: struck evaluations, seconds of work done twice, and seconds until each struck agent worked on."""

    struck: int
    seconds: float
    waits: list[float]
    evaluations: int


def study(packed: bool) -> dict[str, Any]:
    """Return the study."""
    return {
        "study": {"name": "notice", "seed": 1},
        "objective": {"name": "typed_function", "function": "epochs:train", "space": SPACE, "agents": AGENTS},
        "budget": {"time": 1e6},
        "algorithm": [{"name": "random"}],
        "timing": {"clock": "wall"},
        "hosting": {**({"kind": "packed", "workers": 2} if packed else {"kind": "dedicated"}), "package": "image", **PLACE},
    }


def on_ray(given: argparse.Namespace) -> Lost:
    """Run the study on three raylets, and count."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = FUNCTION.format(epochs=EPOCHS, epoch=EPOCH, remembers=not given.forgetful)
        (folder / "epochs.py").write_text(text, encoding="utf-8")
        paths = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        os.environ["PYTHONPATH"] = paths  # of the study that is checked here too
        sys.path.insert(0, name)
        notes, strikes = folder / "notes", list[float]()
        long = given.strikes * given.period + 15.0
        table = {**study(given.packed), "budget": {"time": long}}
        (folder / "study.toml").write_text(fedbo.load_study(table, trust=True).to_toml(), encoding="utf-8")
        with raylets(2, {"PYTHONPATH": paths, "EPOCHS": str(notes)}, {1: SPOT, 2: SPOT}) as cluster:
            words = ["run", "study.toml", "--out", "run", "--address", cluster.address]
            run = subprocess.Popen([sys.executable, "-m", "fedbo", *words, "--quiet"], cwd=folder, env={**os.environ, **QUIET})
            while not notes.exists() and run.poll() is None:
                time.sleep(0.1)
            for number in range(given.strikes):
                time.sleep(max(0.0, given.period - given.notice))
                place = 1 + number % 2
                if given.notice:
                    cluster.drain(place, given.notice)
                    time.sleep(given.notice)
                strikes.append(time.time())
                cluster.lose(place)
                cluster.join(place)
            code = run.wait(timeout=long + 120)
        if code:
            raise SystemExit(f"the study ended with {code}")
        rows = fedbo.Result.open(folder / "run").observations.to_pylist()
        return counted(notes.read_text(encoding="utf-8").splitlines(), strikes, len(rows))


def counted(lines: list[str], strikes: list[float], evaluations: int) -> Lost:
    """Count epochs that ended more than once, and the begun parts of those that were cut; see how long each agent waited."""
    notes, ended = dict[str, list[tuple[str, str, float]]](), Counter[str]()
    for line in lines:
        what, agent, point, epoch, at = line.split()
        notes.setdefault(agent, []).append((what, f"{point} {epoch}", float(at)))
        ended[f"{agent} {point} {epoch}"] += what == "end"
    lost, waits, struck = EPOCH * sum(count - 1 for count in ended.values() if count), list[float](), 0
    for mine in notes.values():
        for (what, _, at), (_, _, then) in pairwise(line for line in mine if line):
            if what == "begin" and then - at > EPOCH + 0.3 or (what == "end" and then - at > EPOCH):
                waits.append(then - at)
        for (what, key, at), (after, other, then) in pairwise(mine):
            if what == "begin" and (after, other) != ("end", key):
                struck += 1
                cut = next((strike for strike in strikes if at <= strike <= then), at + EPOCH)
                lost += min(cut - at, EPOCH)
    return Lost(struck, lost, sorted(waits), evaluations)


def in_virtual_time(given: argparse.Namespace) -> tuple[int, float]:
    """Return how many evaluations are struck in virtual time, and the units of time that they lose in all."""
    fault = {"kind": "preemption", "workers": "spot", "rate": 1 / (2 * given.period), "duration": 1e-9}
    cluster: dict[str, Any] = {"worker": [{"name": "spot", "count": AGENTS}]}
    if not given.forgetful:
        cluster["checkpoint"] = {"every": EPOCH, "cost": 0.0}
    table = {
        **study(False),
        "objective": {"name": "quadratic", "agents": AGENTS},
        "budget": {"iterations": 2000},
        "timing": {"evaluation": {"model": "constant", "mean": EPOCHS * EPOCH}},
        "cluster": cluster,
        "fault": [{**fault, **({"notice": given.notice} if given.notice else {})}],
    }
    del table["hosting"]
    with tempfile.TemporaryDirectory() as name:
        result = fedbo.run(fedbo.load_study(table), out=Path(name) / "run")
        lost = [row["lost"] for row in result.events.to_pylist() if row["kind"] == "preempted"]
    return len(lost), sum(lost)


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--notice", type=float, default=8.0, help="seconds between the notice and the end of a node")
    parser.add_argument("--period", type=float, default=12.0, help="seconds between two ends")
    parser.add_argument("--strikes", type=int, default=5)
    parser.add_argument("--forgetful", action="store_true", help="evaluations keep no checkpoints")
    parser.add_argument("--packed", action="store_true", help="two agents to a process")
    parser.add_argument("--anywhere", action="store_true", help="coordinator and agents on any node")
    parser.add_argument("--virtual", action="store_true", help="virtual time alone")
    given = parser.parse_args()
    if given.anywhere:
        PLACE.clear()
    struck, units = in_virtual_time(given)
    print(f"virtual time: {struck} evaluations struck, {units / max(struck, 1):.2f} lost of each", flush=True)
    if not given.virtual:
        lost = on_ray(given)
        middle = lost.waits[len(lost.waits) // 2] if lost.waits else 0.0
        print(f"on Ray: {given.strikes} nodes left, {lost.evaluations} evaluations ended, {lost.struck} were cut; ", end="")
        print(f"{lost.seconds:.1f} s of work made twice; {len(lost.waits)} waits, ", end="")
        print(f"median {middle:.1f} s, longest {max(lost.waits, default=0.0):.1f} s")


if __name__ == "__main__":
    main()
