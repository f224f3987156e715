"""The promise of studies on a cluster whose parts are killed: the bytes of one process, or a told error that a resume mends.

python -m tests.random_studies.chaos.raylet_kills [--studies 100] [--first 0] [--limit 240]

Each study runs on three raylets by the command line. While it does, parts that its seed draws are killed by SIGKILL: a process
of agents or of the coordinator, a raylet with its object store, a whole node, the control store (GCS), the whole head, the
command itself. A lost node is replaced, and a lost head by another cluster, on which the study is resumed. Afterwards nothing
may be left of it within a minute: no process, no folder of sockets, no file beside its results. Ray takes its own time to
place and to lose things, so a seed draws the same kills, and not the same moments of the study.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import fedbo
from fedbo.study.study import load_study
from tests.random_studies.carrying_out import LEGAL_NAMES, differences, tables
from tests.random_studies.chaos.raylets import QUIET, Raylets, kill
from tests.random_studies.studies import draw_study

KINDS = ("host", "coordinator", "raylet", "node", "control store", "head", "command")
HOSTINGS = ({"kind": "packed", "workers": 3}, {"kind": "dedicated"}, {"kind": "inline", "workers": 2})
RESUMES = 8
LEFT = 60.0  # seconds in which all has to be gone
ROOT = Path(__file__).resolve().parents[3]
# The head counts as lost after three quarters of this time.
SOON = {"RAY_gcs_rpc_server_reconnect_timeout_s": "20"}
OURS = ("ray::Host", "ray::Coordinator", "ray::Dispatcher", "ray::evaluate", "ray::_host_facts")
STOPS = {"control store": "gcs_server", "host": "ray::HostActor", "coordinator": "ray::Coordinator"}


@dataclass
class Told:
    """What became of one study.

    - `kills`: what was killed; `waits`: for each kill, the seconds until the study wrote something again, or ended.
    - `resumes`: how often it was resumed; `errors`: what was told before that; `broken`: what it broke.
    """

    kills: list[str] = field(default_factory=list)
    waits: list[tuple[str, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    resumes: int = 0


class Chaos:
    """Three raylets, made anew when their head is lost."""

    def __init__(self) -> None:
        self._cluster: Raylets | None = None
        self.temporary = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))

    @property
    def cluster(self) -> Raylets:
        """Return the cluster, which is whole."""
        if self._cluster is None:
            folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
            around = {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary), "OPENBLAS_NUM_THREADS": "1", **SOON}
            self._cluster = Raylets(folder, 2, around, {})
        return self._cluster

    def drop(self) -> None:
        """End the cluster."""
        if self._cluster is not None:
            self._cluster.close()
            shutil.rmtree(self._cluster.folder, ignore_errors=True)
            self._cluster = None

    def strike(self, kind: str, draws: random.Random, command: subprocess.Popen[str]) -> None:
        """Kill a part."""
        cluster, place = self.cluster, draws.choice([1, 2])
        if kind == "command":
            command.kill()
        elif kind in ("node", "head"):
            cluster.lose(place if kind == "node" else 0)
        elif kind == "raylet":
            cluster.lose(place, "/raylet/raylet ")
        else:
            kill(cluster.folder, STOPS[kind], draws if kind in ("host", "coordinator") else None)
        if kind in ("node", "raylet"):
            if kind == "raylet":
                cluster.lose(place)  # what its death has left
            cluster.join(place)


def tried(seed: int, chaos: Chaos, room: Path, limit: float) -> Told:
    """Carry the study of a seed out alone and under kills, and compare."""
    draws, told = random.Random(seed), Told()
    (room / "files").mkdir()
    study = draw_study(seed, room / "files")[1]
    alone = ""
    try:
        fedbo.run(study, out=room / "alone")
    except fedbo.errors.RunError as error:
        alone = f"{type(error.__cause__).__name__}: {error}"
    hosting = draws.choice(HOSTINGS)
    document = {**study.document(), "hosting": {**hosting, "package": "image", "address": "auto"}, "recovery": {"events": 20}}
    (room / "study.toml").write_text(load_study(document, trust=True).to_toml(), encoding="utf-8")
    plan = [(draws.choice(KINDS), draws.uniform(1.0, 9.0)) for _ in range(draws.choice([1, 1, 2, 3]))]
    said = _carried_out(room, chaos, plan, draws, told, limit)
    if not told.broken:
        if bool(alone) != bool(said):
            told.broken.append(f"ended with {said!r}, alone with {alone!r}")
        elif not alone:
            told.broken += differences(tables(room / "alone"), tables(room / "run"), "there")
    return told


def _carried_out(
    room: Path, chaos: Chaos, plan: list[tuple[str, float]], draws: random.Random, told: Told, limit: float
) -> str:
    """Run the study, with the kills of a plan, and resume it until it has ended; return the error by which it ends."""
    until = time.monotonic() + limit
    for attempt in range(RESUMES):
        run = room / "run"
        begun = (run / "manifest.json").exists()
        if not begun and run.exists():
            shutil.rmtree(run)  # killed before there was anything
        words = ["resume", "run"] if begun else ["run", "study.toml", "--out", "run"]
        told.resumes += begun
        command = _started(room, [*words, "--quiet", "--address", chaos.cluster.address])
        lost = _struck(command, chaos, plan, draws, told, (room, until))
        if lost is None:
            return ""
        said = _said(room)
        _look_for_leftovers(chaos, told)
        if "head" in lost or "control store" in lost:
            chaos.drop()
        if command.returncode == 0:
            return ""
        if command.returncode in (-signal.SIGKILL,) and "command" in lost:
            continue
        line = next((line for line in said.splitlines()[::-1] if line.startswith("error")), said[-600:])
        told.errors.append(f"after {lost}: {line[:300]}")
        if "fedbo resume" not in said and ("evaluations failed" in said or any(name in said for name in LEGAL_NAMES)):
            return line
        if "fedbo resume" not in said and attempt + 1 < RESUMES and (run / "manifest.json").exists():
            told.broken.append(f"after {lost}: is not told how to go on, code {command.returncode}: {said[-500:]!r}")
            return line
    told.broken.append(f"not ended after {RESUMES} resumes: {told.errors[-2:]}")
    return ""


def _started(room: Path, words: list[str]) -> subprocess.Popen[str]:
    around = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT), **SOON}
    log = (room / "said.txt").open("w")
    return subprocess.Popen(
        [sys.executable, "-m", "fedbo", *words], cwd=room, env=around, stdout=log, stderr=log, text=True, start_new_session=True
    )


def _said(room: Path) -> str:
    return (room / "said.txt").read_text(encoding="utf-8", errors="replace")


def _struck(
    command: subprocess.Popen[str],
    chaos: Chaos,
    plan: list[tuple[str, float]],
    draws: random.Random,
    told: Told,
    where: tuple[Path, float],
) -> list[str] | None:
    """Carry the plan out until the command ends; return what was killed, None where it hung."""
    room, until = where
    lost, since, begun, last = list[str](), list[tuple[str, float]](), time.monotonic(), _state(room)
    while command.poll() is None:
        if time.monotonic() > until:
            told.broken.append(f"hangs after {lost}, {plan} to come: {_said(room)[-300:]!r}")
            os.killpg(command.pid, signal.SIGKILL)
            command.wait()
            chaos.drop()
            return None
        if plan and time.monotonic() - begun > plan[0][1]:
            kind, _ = plan.pop(0)
            chaos.strike(kind, draws, command)
            since.append((kind, time.monotonic()))
            lost.append(kind)
            told.kills.append(kind)
            begun, last = time.monotonic(), _state(room)
        if since and time.monotonic() - since[0][1] > 0.5 and (now := _state(room)) != last:
            told.waits += [(kind, time.monotonic() - at) for kind, at in since]
            since, last = [], now
        time.sleep(0.1)
    told.waits += [(kind, time.monotonic() - at) for kind, at in since if command.returncode == 0]
    return lost


def _state(room: Path) -> tuple[tuple[str, int], ...]:
    """Return the files of a run with their sizes."""
    found = list[tuple[str, int]]()
    for path in (room / "run").rglob("*"):
        try:
            found.append((str(path), path.stat().st_size))
        except OSError:
            continue
    return tuple(sorted(found))


def _look_for_leftovers(chaos: Chaos, told: Told) -> None:
    """Note what is still there a minute after a command has ended."""
    until = time.monotonic() + LEFT
    while True:
        left = [words[:60] for words in chaos.cluster.processes().values() if words.startswith(OURS)]
        files = [path.name for path in chaos.temporary.iterdir() if not path.name.startswith(("ray", "tmp"))]
        if not left and not files:
            return
        if time.monotonic() > until:
            told.broken.append(f"left after a minute: {left + files}")
            for path in chaos.temporary.iterdir():
                shutil.rmtree(path, ignore_errors=True)
            chaos.drop()
            return
        time.sleep(0.3)


def main() -> None:
    """Try studies, and print one line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of a study")
    parser.add_argument("--seconds", type=float, default=1e9, help="no study begins after these")
    given = parser.parse_args()
    chaos, broken, waits, kills, begun = Chaos(), 0, list[tuple[str, float]](), Counter[str](), time.monotonic()
    seed = given.first
    try:
        while seed < given.first + given.studies and time.monotonic() - begun < given.seconds:
            start = time.monotonic()
            with tempfile.TemporaryDirectory() as room:
                try:
                    told = tried(seed, chaos, Path(room), given.limit)
                except Exception as error:
                    told = Told(broken=[f"{type(error).__name__}: {error}"])
                    chaos.drop()
            broken, waits = broken + bool(told.broken), waits + told.waits
            kills.update(told.kills)
            words = f"BROKEN: {told.broken}" if told.broken else "the same bytes"
            print(f"seed {seed}: {told.kills}, {told.resumes} resumes, {time.monotonic() - start:.0f} s: {words}", flush=True)
            for line in told.errors:
                print(f"    {line}", flush=True)
            seed += 1
    finally:
        chaos.drop()
        shutil.rmtree(chaos.temporary, ignore_errors=True)
    print(f"{seed - given.first} studies, seeds {given.first} to {seed - 1}: {broken} broken; kills: {dict(kills)}")
    for kind in KINDS:
        some = sorted(wait for each, wait in waits if each == kind)
        if some:
            print(f"  {kind}: {len(some)} waits, median {some[len(some) // 2]:.1f} s, longest {some[-1]:.1f} s")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
