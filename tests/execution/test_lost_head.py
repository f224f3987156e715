"""A cluster whose head dies ends a run with the words by which it goes on elsewhere, and not with the whole process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from other_rays import another_ray, kill, ray_folder, surroundings

import fedbo
from fedbo.execution.head import Head, HeadLostError
from fedbo.study.study import StudyError, load_study

STUDY = """
[study]
name = "headless"
[objective]
name = "python_function"
function = "naps:nap"
names = ["x"]
low = [0.0]
high = [1.0]
agents = 2
[budget]
iterations = 30
[[algorithm]]
name = "random"
[hosting]
kind = "packed"
[recovery]
seconds = 0.5
"""
NAPS = "import time\ndef nap(x, agent):\n    time.sleep({seconds})\n    return float(x[0])\n"
SCRIPT = """
import sys, fedbo
try:
    fedbo.run("study.toml", out="run", overrides=["hosting.address=" + sys.argv[1]], progress=True)
except fedbo.errors.RunError as error:
    print("caught", error)
"""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
def test_when_the_head_dies_python_goes_on_and_is_told_how_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("study.toml").write_text(STUDY, encoding="utf-8")
    Path("naps.py").write_text(NAPS.format(seconds=0.5), encoding="utf-8")
    paths = {"PYTHONPATH": f"{tmp_path}:{Path(fedbo.__file__).parents[1]}"}
    with ray_folder() as folder, another_ray(folder, 2, **paths) as address:
        around = surroundings(folder, RAY_AUTH_MODE="disabled", RAY_gcs_rpc_server_reconnect_timeout_s="40", **paths)
        command = [sys.executable, "-c", SCRIPT, address]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=around)
        until = time.monotonic() + 300
        while not any(tmp_path.glob("run/parts/*/latest.json")) and time.monotonic() < until and run.poll() is None:
            time.sleep(0.1)
        kill(folder, "gcs_server")
        said, noted = run.communicate(timeout=300)
    assert f"connecting to the Ray cluster at '{address}' …" in noted
    assert run.returncode == 0 and said.startswith(f"caught the head of the Ray cluster at {address} has not answered"), noted
    assert f"continue with: fedbo resume {tmp_path / 'run'}" in said and "local" in said
    Path("naps.py").write_text(NAPS.format(seconds=0.0), encoding="utf-8")
    resumed = fedbo.resume("run", overrides=["hosting.address=local", "hosting.kind=inline", "hosting.workers=0"])
    alone = fedbo.run("study.toml", out="alone", overrides=["hosting.kind=inline"])
    assert resumed.observations.equals(alone.observations)


def test_a_head_that_answers_again_in_time_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        head = Head(address)
        for now in (10.0, 100.0, 1000.0):  # noqa: B007, which the clock above reads
            head.check()
    for now in (1001.0, 1010.0, 1044.0):  # noqa: B007, which the clock above reads
        head.check()
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        now = 1046.0
        head.check()
    now = 1090.0
    head.check()
    now = 1092.0
    with pytest.raises(HeadLostError, match=f"head of the Ray cluster at {address} has not answered for 46 s; give a new"):
        head.check()
    Head("").check()


ON_CLUSTER = {"kind": "packed", "workers": 2, "address": "10.0.0.1:6379", "labels": {"zone": "x"}}
WITHOUT = (
    ["hosting.kind=inline", "hosting.workers=0"],
    ["hosting.address=local"],
    ["hosting.address=local", "hosting.kind=inline"],
    ["hosting.address=local", "hosting.kind=dedicated"],
    ["hosting={kind='inline'}"],
)


@pytest.mark.parametrize("overrides", WITHOUT, ids=" ".join)
def test_a_study_of_a_cluster_goes_on_without_it(overrides: list[str]) -> None:
    alone = _on_cluster(overrides).hosting
    assert (alone.address, alone.labels) == (None, {})


def test_a_study_of_a_cluster_goes_on_elsewhere_in_it() -> None:
    kept = _on_cluster(["hosting.kind=dedicated"]).hosting
    assert (kept.kind, kept.workers, kept.address, kept.labels) == ("dedicated", None, "10.0.0.1:6379", {"zone": "x"})
    assert _on_cluster(["hosting.workers=3"]).hosting.address == "10.0.0.1:6379"


def test_an_address_that_is_given_with_a_hosting_without_ray_is_refused() -> None:
    with pytest.raises(StudyError, match=r"\[hosting\] address = 'auto': has no effect: inline hosting without workers"):
        _on_cluster(["hosting.kind=inline", "hosting.workers=0", "hosting.address=auto"])
    with pytest.raises(StudyError, match=r"\[hosting\] address = '': must not be empty; write local, auto, HOST:PORT"):
        _on_cluster(['hosting.address=""'])


def _on_cluster(overrides: list[str]) -> fedbo.Study:
    document = {"study": {"name": "s"}, "objective": {"name": "quadratic"}, "budget": {"iterations": 1}}
    return load_study({**document, "algorithm": [{"name": "random"}], "hosting": ON_CLUSTER}, overrides)
