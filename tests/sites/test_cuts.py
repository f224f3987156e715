"""Processes that are killed, and a wire that is cut: no report is lost, none counts twice, and work goes on soon."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from far_sites import noted
from hostile import wait_for
from sync_study import SyncStudy

from tests.cluster.laboratory import done, hindrance, laboratory

HERE = Path(__file__).parent
PORT, CUT, KILLS = 7443, 30.0, 200
SOON = 10.0  # seconds; on a machine that has nothing else to do it takes less than two


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _command(what: str, folder: Path, *rest: object) -> list[str]:
    return [sys.executable, str(HERE / "far_sites.py"), what, str(folder), *map(str, rest)]


def _are_counted_once(folder: Path, agents: int, steps: int) -> bool:
    counted = [(line["agent"], line["step"]) for line in noted(folder / "counted.jsonl")]
    return sorted(counted) == [(agent, step) for agent in range(agents) for step in range(1, steps + 1)]


@pytest.mark.long
def test_kills_of_either_side_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    agents, steps, port, draws = 2, 300, _free_port(), random.Random(7)
    study = SyncStudy(tmp_path, agents=agents)
    commands = [_command("serve", tmp_path, study.host, port, agents, steps)]
    commands += [_command("site", tmp_path, study.host, port, agents, agent, 0.05) for agent in range(agents)]
    running = [subprocess.Popen(command) for command in commands]
    try:
        for _ in range(KILLS):
            time.sleep(draws.uniform(0.5, 2.0))
            place = draws.randrange(len(running))
            if running[place].poll() is None:
                running[place].kill()
                running[place].wait()
                running[place] = subprocess.Popen(commands[place])
        for process in running:
            assert process.wait(300.0) == 0
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert _are_counted_once(tmp_path, agents, steps)


@pytest.mark.long
@pytest.mark.skipif(hindrance() is not None, reason=str(hindrance()))
@pytest.mark.parametrize("seconds", [0.2, 20.0])
def test_a_cut_heals_soon_after_its_end(tmp_path: Path, seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    """Cut the wire between two hosts while a site works on short orders, and while its request is held open."""
    steps = 600 if seconds < 1 else 6
    with laboratory(tmp_path, {"PYTHONPATH": str(HERE)}, count=2) as hosts:
        address = hosts.hosts[0].address
        study = tmp_path / "study"
        SyncStudy(study, agents=1, host=address)
        server = hosts.run(0, *_command("serve", study, address, PORT, 1, steps))
        site = hosts.run(1, *_command("site", study, address, PORT, 1, 0, seconds))
        counted = study / "counted.jsonl"
        assert wait_for(lambda: len(noted(counted)) > 0, 60.0 + seconds)
        took = []
        for number in range(3):
            time.sleep(3.0 + 5.0 * number)  # so that the cut meets other moments of a held request
            hosts.cut(1)
            time.sleep(CUT)
            before = len(noted(counted))
            hosts.mend(1)
            mended = time.monotonic()
            assert wait_for(lambda: len(noted(counted)) > before, SOON + seconds)  # noqa: B023
            took.append(noted(counted)[before]["time"] - mended)
        with capsys.disabled():
            print(
                f"\nafter cuts of {CUT:.0f} s with orders of {seconds:g} s the next report counted after",
                *(f"{each:.2f} s" for each in took),
            )
        done(server)
        done(site)
    assert _are_counted_once(study, 1, steps)
    assert max(took) < SOON + seconds
