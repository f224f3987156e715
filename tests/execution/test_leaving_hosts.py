"""Hosts of a real cluster of raylets that leave with notice: nothing is made twice, and the user is told what moves."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.study.study import load_study
from tests.random_studies.chaos.raylets import raylets

ROOT = Path(__file__).parents[2]
TRAINS = """
import os, tempfile, time
from pathlib import Path

def train(config, agent, report, restore):
    found = restore()
    done = 0 if found is None else int(Path(found).read_text())
    with tempfile.TemporaryDirectory() as mine:
        for epoch in range(done + 1, 7):
            time.sleep(0.3)
            with open(os.environ["EPOCHS"], "a") as file:
                file.write(f"{config['x']!r} {epoch} {os.environ['RAYLETS_NODE']}" + chr(10))
            Path(mine, "epoch").write_text(str(epoch))
            report(config["x"], epoch, checkpoint=Path(mine, "epoch"))
    return config["x"]
"""


def wait_until(true: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)


def study_in(folder: Path, hosting: dict[str, object]) -> None:
    """Write a study of one agent that trains, and the empty file of its notes."""
    (folder / "moving_trains.py").write_text(TRAINS, encoding="utf-8")
    (folder / "notes").touch()
    study = {
        "study": {"name": "moving"},
        "objective": {
            "name": "typed_function",
            "function": "moving_trains:train",
            "space": written_space({"x": (0.0, 1.0)}),
            "agents": 1,
        },
        "budget": {"iterations": 1},
        "algorithm": [{"name": "random"}],
        "timing": {"clock": "wall"},
        "hosting": {"kind": "dedicated", **hosting},
    }
    with pytest.MonkeyPatch.context() as here:
        here.syspath_prepend(folder)
        (folder / "study.toml").write_text(load_study(study, trust=True).to_toml(), encoding="utf-8")


def made_once(folder: Path) -> list[str]:
    """Check that each epoch was made once, and in order; return where each was made."""
    made = [line.split() for line in (folder / "notes").read_text(encoding="utf-8").splitlines()]
    points = list(dict.fromkeys(point for point, _, _ in made))
    assert [(point, int(epoch)) for point, epoch, _ in made] == [(point, epoch) for point in points for epoch in range(1, 7)]
    return [place for _, _, place in made]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
def test_an_agent_moves_at_a_checkpoint_from_a_host_that_leaves_and_makes_nothing_twice(tmp_path: Path) -> None:
    """The agent is at home on spot nodes; the file names the node where it works, and another file names none."""
    notes, spot = tmp_path / "notes", {"ray.io/market-type": "spot"}
    study_in(tmp_path, {"package": "image", "address": "auto", "labels": spot})
    around = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "EPOCHS": str(notes)}
    with raylets(2, around, {1: spot, 2: spot}) as cluster:
        words = ["run", "study.toml", "--out", "run", "--quiet", "--address", cluster.address]
        run = subprocess.Popen(
            [sys.executable, "-m", "fedbo", *words], cwd=tmp_path, env=cluster.around, stderr=subprocess.PIPE, text=True
        )
        wait_until(lambda: len(notes.read_text().splitlines()) >= 2 or run.poll() is not None)
        began = notes.read_text().split()[2]
        (tmp_path / "run" / f"leave-{cluster.id_of(began)}").touch()
        (tmp_path / "run" / "leave-nobody").touch()
        _, said = run.communicate(timeout=100)
    assert run.returncode == 0, said
    assert made_once(tmp_path)[-1] != began and "its agents move to other hosts" in said
    assert "leave-nobody: the Ray cluster has no such host" in said
