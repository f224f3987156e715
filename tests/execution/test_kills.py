"""A study that is killed at any instant, again and again, ends with the very bytes of one that was left alone."""

from __future__ import annotations

import math
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from killing import TROUBLED, End, Forks, begin_or_go_on, environment, gone, marked, tables, write_study

TINY: dict[str, Any] = {
    **TROUBLED,
    "study": {"name": "tiny", "seed": 2},
    "objective": {**TROUBLED["objective"], "agents": 3},
    "agents": {**TROUBLED["agents"], "targets": [0, 1]},
    "budget": {"iterations": 3},
    "algorithm": TROUBLED["algorithm"][1:],
    "recovery": {"events": 25},
}
OWN_RAY = {"kind": "packed", "workers": 2}


def has_ended(end: End) -> bool:
    """Say whether a study has ended, now or before."""
    return end.code == 0 or "has ended" in end.said


def kind_of(operation: str) -> str:
    """Give the kind of a file operation: for renamings, by which a file appears whole, also the kind of the file."""
    event, _, path = operation.partition(" ")
    name, draft = re.subn(r"\.\d+\.part$", "", path)
    return f"{event} {Path(name).suffix}" if event == "os.rename" else f"{event} {draft}"


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_kill_before_any_one_of_all_file_operations_loses_nothing(every: bool, forks: Forks, tmp_path: Path) -> None:
    """Each process is killed just before its n-th operation, for every n or some kinds of them; the next before one of its own.

    Of the operations of one kind the middle one stands for all.
    """
    study, operations = write_study(TINY, tmp_path / "study.toml"), tmp_path / "operations"
    assert forks("run", study, tmp_path / "alone", listed=str(operations)).code == 0
    expected = tables(tmp_path / "alone")
    kinds: dict[str, list[int]] = {}
    for number, line in enumerate(operations.read_text(encoding="utf-8").splitlines(), 1):
        kinds.setdefault(kind_of(line), []).append(number)
    chosen = [number for some in kinds.values() for number in (some if every else [some[len(some) // 2]])]
    assert len(kinds) >= 10 and sum(map(len, kinds.values())) > 50
    for number in sorted(chosen)[:: 1 if every else 29]:
        directory = tmp_path / f"run-{number}"
        assert forks("run", study, directory, before=number).killed
        again = begin_or_go_on(forks, study, directory, before=1 + number * 7 % 53)
        last = begin_or_go_on(forks, study, directory) if again.killed else again
        assert has_ended(last), (number, last)
        assert tables(directory) == expected, number
        left = sorted(path.name for path in directory.iterdir() if path.name.startswith(".") or path.name == "parts")
        assert not left or last.code, f"{left} was left behind"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "most", "name"), [(4, 0.3, "short"), pytest.param(100, 0.5, "undisturbed", marks=pytest.mark.long)]
)
def test_many_kills_at_random_instants_leave_the_same_bytes(
    count: int, most: float, name: str, forks: Forks, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    study, expected = request.getfixturevalue(name)
    rng, kills, stories = random.Random(1), 0, 0
    while kills < count:
        directory, stories, instants = tmp_path / f"story-{stories}", stories + 1, [rng.uniform(0.0, most)]
        end = begin_or_go_on(forks, study, directory, after=instants[-1])
        while end.killed:
            kills += 1
            instants.append(rng.uniform(0.0, most) if kills < count else math.inf)
            end = begin_or_go_on(forks, study, directory, after=instants[-1] if kills < count else None)
        assert has_ended(end), (end, instants)
        assert tables(directory) == expected, f"killed after these seconds: {instants}"


def _command(study: Path, directory: Path, *sets: str) -> list[str]:
    command = [sys.executable, "-m", "fedbo.cli"]
    settings = [word for each in sets for word in ("--set", each)]
    if (directory / "manifest.json").exists():
        return [*command, "resume", str(directory), "--quiet", *settings]
    return [*command, "run", str(study), "--out", str(directory), "--quiet", *settings]


def _killed_after(command: list[str], seconds: float | None, mark: str) -> End:
    """Start the real command in a session of its own, and kill its whole process group."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment(FEDBO_TEST_MARK=mark),
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
    return End(process.returncode, said.decode())


@pytest.mark.long
@pytest.mark.parametrize("count", [5])
def test_kills_of_the_real_command_leave_the_same_bytes(
    count: int, undisturbed: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    study, expected = undisturbed
    rng, kills, stories = random.Random(2), 0, 0
    while kills < count:
        directory, stories, instants = tmp_path / f"story-{stories}", stories + 1, list[float | None]()
        end = End(-9, "")
        while end.killed:
            instants.append(rng.uniform(0.2, 4.0) if kills < count else None)
            end = _killed_after(_command(study, directory), instants[-1], uuid.uuid4().hex)
            kills += end.killed
        assert has_ended(end), (end, instants)
        assert tables(directory) == expected, f"killed after these seconds: {instants}"


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("moments", [(6.0,), (3.0, 9.0)])
def test_agents_in_ray_actors_die_with_their_study_and_it_ends_with_the_same_bytes(
    moments: tuple[float, ...], undisturbed: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    """Each run starts a Ray of its own, of which nothing may be left after the kill."""
    study, expected = undisturbed
    directory = tmp_path / "run"
    for seconds in moments:
        mark = uuid.uuid4().hex
        end = _killed_after(_command(study, directory, "hosting.kind=packed", "hosting.workers=2"), seconds, mark)
        assert end.killed or has_ended(end)
        assert gone(mark), f"{len(marked(mark))} processes were left"
    end = _killed_after(_command(study, directory), None, "")
    assert has_ended(end) and tables(directory) == expected, end


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a Ray cluster that lives on when drivers die."""
    from ray.cluster_utils import Cluster

    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_AUTH_MODE", os.environ.get("RAY_AUTH_MODE", "disabled"))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    yield made.address
    made.shutdown()


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
def test_kills_of_drivers_on_a_cluster_that_lives_on_leave_the_same_bytes(
    undisturbed: tuple[Path, dict[str, bytes]], tmp_path: Path, cluster: str
) -> None:
    """What the dead driver had started lives on for a moment beside those who go on; whatever it still writes is not used."""
    study, expected = undisturbed
    hosting = ("hosting.kind=packed", "hosting.workers=2", f'hosting.address="{cluster}"', "hosting.package=image")
    directory, rng, kills, begun = tmp_path / "run", random.Random(4), 0, time.monotonic()
    end = End(-9, "")
    while end.killed:
        seconds = rng.uniform(1.0, 7.0) if kills < 8 else None
        end = _killed_after(_command(study, directory, *hosting), seconds, "")
        kills += end.killed
    assert has_ended(end) and tables(directory) == expected, end
    assert kills >= 4, f"{kills} kills in {time.monotonic() - begun:.0f} s"


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("deaths", [1, 3])
def test_after_the_death_of_a_host_the_agents_go_on_from_the_last_snapshot(
    deaths: int, undisturbed: tuple[Path, dict[str, bytes]], tmp_path: Path, ray_session: None
) -> None:
    import threading

    import fedbo

    study, expected = undisturbed
    directory, killed = tmp_path / "run", list[int]()

    def kill() -> None:
        for _ in range(deaths):
            found = hosts_of(directory, begun=len(killed))
            if found:
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])

    killer = threading.Thread(target=kill)
    killer.start()
    sets = ["hosting.kind=packed", "hosting.workers=2", "recovery.events=40"]
    result = fedbo.run(study, overrides=sets, out=directory)
    killer.join()
    assert tables(result.directory) == expected
    assert killed


def hosts_of(directory: Path, begun: int) -> list[int]:
    """Wait for the next snapshot of a run, and give the processes of its hosts: those that write its evaluation logs."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        logs = {int(path.name.split("-")[2]) for path in directory.glob("parts/*/log-00000[1-9]-*.jsonl")}
        living = [pid for pid in sorted(logs) if "ray::Host" in _title(pid)]
        if living:
            return living[begun % len(living) :]
        if (directory / "manifest.json").exists() and "complete" in (directory / "manifest.json").read_text()[:200]:
            return []
        time.sleep(0.02)
    return []


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
