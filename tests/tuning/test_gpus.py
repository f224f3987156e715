"""Evaluations that reserve GPUs: a process for each, which leaves nothing on the GPU; and on a real one, if there is any."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fedbo

HERE = Path(__file__).parent
# Tunes in a process of its own, since that of the tests has a Ray without a GPU.
SCRIPT = """
import sys
sys.path.insert(0, {here!r})
import ray
import fedbo, gpu_functions
if {claimed!r}:
    seen = {{"env_vars": {{"PYTHONPATH": {path!r}}}}}
    ray.init("local", num_cpus=4, num_gpus={claimed!r}, include_dashboard=False, runtime_env=seen)
fedbo.tune(gpu_functions.{name}, {space!r}, {agents!r}, mode="min", out={out!r}, resume=True, **{more!r})
"""


@cache
def missing() -> str:
    """Return why no test can use a GPU here, or nothing."""
    try:
        import torch
    except ImportError:
        return "needs PyTorch: pip install torch"
    return "" if torch.cuda.is_available() else "needs an NVIDIA GPU"


@pytest.fixture
def gpu() -> None:
    """Skip a test where there is no GPU."""
    if missing():
        pytest.skip(missing())


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which the functions note what they saw."""
    path = tmp_path / "notes.jsonl"
    monkeypatch.setenv("FEDBO_GPU_NOTES", str(path))
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def script(name: str, out: Path, space: dict[str, Any], agents: int = 1, claimed: int | None = None, **more: Any) -> str:
    path = os.pathsep.join([str(HERE), *(entry for entry in sys.path if entry)])
    return SCRIPT.format(
        here=str(HERE), claimed=claimed, path=path, name=name, space=space, agents=agents, out=str(out), more=more
    )


def tuned(name: str, out: Path, space: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Tune a function of `gpu_functions` in another process and return the rows of its observations."""
    code = script(name, out, space, **more)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    rows: list[dict[str, Any]] = fedbo.Result.open(out).observations.to_pylist()
    return rows


SPACE: dict[str, Any] = {"rate": (1e-3, 1.0, "log"), "width": [8, 16, 32]}


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_each_evaluation_on_a_gpu_has_a_process_of_its_own(tmp_path: Path, notes: Path, share: float) -> None:
    """With a GPU that Ray only believes in. Without `GPU`, processes evaluate again and again."""
    more: dict[str, Any] = {"claimed": 1, "iterations": 4, "algorithm": "random"}
    tuned("process", tmp_path / "gpu", SPACE, resources={"GPU": share, "CPU": 0.5}, **more)
    on_gpu = lines(notes)
    assert len({line["pid"] for line in on_gpu}) == len(on_gpu) == 7
    assert {line["visible"] for line in on_gpu} == {"0"}
    notes.unlink()
    tuned("process", tmp_path / "cpu", SPACE, resources={"CPU": 0.5}, **more)
    assert len({line["pid"] for line in lines(notes)}) < 7


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_sites_train_at_once_on_shares_of_a_gpu(tmp_path: Path, notes: Path) -> None:
    """Four of two sites at a time, no more; losses are those of the same training outside fedbo."""
    rows = tuned("training", tmp_path / "run", SPACE, agents=2, iterations=6, parallel=3, resources={"GPU": 0.25, "CPU": 0.5})
    seen = lines(notes)
    assert len(rows) == len(seen) == 2 * 9 and {line["device"] for line in seen} == {"cuda:0"}
    at_once = [sum(other["begun"] <= line["begun"] < other["ended"] for other in seen) for line in seen]
    assert 2 <= max(at_once) <= 4
    import gpu_functions

    best = fedbo.Result.open(tmp_path / "run").best(each="agent")
    assert len(best) == 2
    for found in best:
        assert gpu_functions.training(found["configuration"], found["agent"]) == pytest.approx(
            found["value"], rel=0.05, abs=1e-4
        )
    values = [trial["value"] for trial in fedbo.Result.open(tmp_path / "run").trials().to_arrow().to_pylist()]
    assert min(values) < 0.01 < max(values)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_what_an_evaluation_allocates_is_free_for_the_next_one(tmp_path: Path, notes: Path) -> None:
    """Three sites, a whole GPU each, of whose memory two could not hold six tenths each at a time."""
    rows = tuned(
        "greedy", tmp_path / "run", SPACE, agents=3, iterations=3, algorithm="random", resources={"GPU": 1.0, "CPU": 0.5}
    )
    assert [row["error"] for row in rows] == [None] * 18
    assert min(line["free"] for line in lines(notes)) > 0.9


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_an_error_on_the_gpu_fails_one_evaluation_and_no_other(tmp_path: Path) -> None:
    words = {"assertion": "device-side assert", "memory": "out of memory", "crash": "process", "hang": "took longer than"}
    cases = ["fine", "assertion", "fine", "memory", "fine", "crash", "fine", "hang", "fine"]
    enqueue = [{"case": case, "seed": number} for number, case in enumerate(cases)]
    more: dict[str, Any] = {"iterations": 1, "parallel": 2, "algorithm": "random", "failure": "drop", "time_limit": 20.0}
    space = {"case": ["fine", *words], "seed": (0, 10_000)}
    tuned("faulty", tmp_path / "run", space, enqueue=enqueue, resources={"GPU": 0.5, "CPU": 0.5}, **more)
    trials = fedbo.Result.open(tmp_path / "run").trials().to_arrow().to_pylist()
    assert sorted(cases) == sorted(trial["case"] for trial in trials if trial["seed"] < len(cases))
    for trial in trials:
        assert (trial["error"] is None) == (trial["case"] == "fine"), trial
        assert trial["error"] is None or words[trial["case"]] in trial["error"]


def used() -> int:
    """Return the bytes in use on the GPU, whoever uses them."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(total - free)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("limited", [False, True])
def test_a_killed_driver_leaves_nothing_on_the_gpu_and_its_study_goes_on(tmp_path: Path, notes: Path, limited: bool) -> None:
    before = used()
    more = {"time_limit": 60.0} if limited else {}
    code = script(
        "long", tmp_path / "run", SPACE, agents=2, iterations=1, algorithm="random", resources={"GPU": 0.5, "CPU": 0.5}, **more
    )
    driver = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    until = time.monotonic() + 180
    while len(lines(notes)) < 4 and time.monotonic() < until:
        time.sleep(0.05)
    assert used() - before > 2**30, "an evaluation is under way"
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    since = time.monotonic()
    while used() - before > 2**28 and time.monotonic() < since + 60:
        time.sleep(0.1)
    freed = time.monotonic() - since
    print(f"free again after {freed:.1f} s")
    assert freed < 20
    assert subprocess.run([sys.executable, "-c", code], timeout=400).returncode == 0
    rows = fedbo.Result.open(tmp_path / "run").observations.to_pylist()
    assert len(rows) == 2 * 4 and not any(row["error"] for row in rows)
