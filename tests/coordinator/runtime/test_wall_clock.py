"""Real time on live processes: whatever dies, no observation that was reported is lost or doubled, and a replay agrees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from living import AGENTS, ITERATIONS, STUDY, descendants, hosts, kinds, observed, run_killing, watching, whole

import fedbo

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def run(directory: Path, *faults: dict[str, Any], **changes: Any) -> fedbo.Result:
    return fedbo.run({**STUDY, "fault": list(faults), **changes}, out=directory)


def pids(directory: Path) -> set[int]:
    return {int(path.name.split("-")[2]) for path in directory.glob("parts/*/log-*.jsonl")}


@pytest.mark.parametrize("down", [False, pytest.param(True, marks=pytest.mark.long)], ids=["agents", "coordinator too"])
def test_one_run_survives_all_planned_faults_and_a_kill_and_its_replay_agrees(
    down: bool, tmp_path: Path, ray_session: None
) -> None:
    """Faults strike at the numbers of events, and the kill comes after so many evaluations: a busy machine changes nothing.

    Where the coordinator goes down, it and all agents begin again in new processes, which takes as long as the rest.
    """
    faults = [
        {"kind": "slow", "agents": [1], "event": 10, "duration": 1.0, "factor": 3.0},
        {"kind": "hang", "agents": [0], "event": 20, "duration": 0.5},
        {"kind": "partition", "agents": [2], "event": 25, "duration": 0.1},  # over before the agent is done, however busy
        {"kind": "crash", "agents": [1], "event": 30, "restart": 0.2, "state": "lost"},
        *([{"kind": "coordinator", "event": 45, "duration": 0.2}] if down else []),
    ]
    directory, before = tmp_path / "run", {*descendants(os.getpid(), "ray::Coordinator")}
    with (
        watching(lambda: descendants(os.getpid(), "ray::Coordinator")) as coordinators,
        watching(lambda: pids(directory)) as agents,
    ):
        killed = run_killing(directory, lambda: hosts(directory), 20, fault=faults, agents={"initial": 2, "checkpoint": 20})
    result = whole(directory)
    told = {"slowed", "recovered", "hung", "woke", "cut", "joined", *(("down", "up") if down else ())}
    assert told <= {*kinds(result)}
    assert killed and "crashed" in kinds(result), "nothing was killed"  # the planned crash may have met whom the kill meets
    assert len(coordinators - before) == 1 + down, "the coordinator's process did not change where it had to, or did elsewhere"
    assert len(agents) > AGENTS, "no agent's process changed"


@pytest.mark.long
def test_a_planned_crash_ends_a_real_process_and_another_goes_on(tmp_path: Path, ray_session: None) -> None:
    with watching(lambda: pids(tmp_path / "run")) as seen:
        crash = {"kind": "crash", "agents": [1], "event": 30, "restart": 0.3}
        run(tmp_path / "run", crash, exchange={"mode": "barrier"})  # in step, so that the agent has begun by then
    result = whole(tmp_path / "run")
    assert len(seen) == AGENTS + 1, "the agent's process did not change"
    assert kinds(result).count("crashed") == kinds(result).count("restarted") == 1
    events = result.events.to_pandas()
    crashed, again = (events[events.kind == kind].time.iloc[0] for kind in ("crashed", "restarted"))
    assert again - crashed == pytest.approx(0.3, abs=0.15)


@pytest.mark.long
def test_a_crash_that_loses_the_state_keeps_what_was_observed(tmp_path: Path, ray_session: None) -> None:
    """A barrier keeps the agents in step, so the event is in the third round on a busy machine too."""
    crash = {"kind": "crash", "agents": [1], "event": 30, "restart": 0.2, "state": "lost"}
    run(tmp_path / "run", crash, agents={"initial": 2, "checkpoint": 20}, exchange={"mode": "barrier"})
    rows = [row for row in whole(tmp_path / "run").observations.to_pylist() if row["agent"] == 1]
    assert [row for row in rows if "forgotten" in (row["error"] or "")], "nothing was forgotten"


@pytest.mark.long
def test_hang_slowness_partition_and_loss_act_on_live_processes(tmp_path: Path, ray_session: None) -> None:
    faults = [
        {"kind": "hang", "agents": [0], "at": 0.45, "duration": 1.2},
        {"kind": "slow", "agents": [1], "at": 0.3, "duration": 1.5, "factor": 4.0},
        {"kind": "partition", "agents": [2], "at": 0.3, "duration": 0.5},
        {"kind": "loss", "probability": 0.2},
    ]
    run(tmp_path / "run", *faults)
    result = whole(tmp_path / "run")
    assert {"hung", "woke", "slowed", "recovered", "cut", "joined", "lost"} <= {*kinds(result)}
    parts = {agent: part for agent, part in result.observations.to_pandas().groupby("agent")}
    lengths = {agent: (part.finished - part.started).to_numpy() for agent, part in parts.items()}
    # A hang may find the agent in an evaluation, which then ends late, or between two, and then the next one begins late.
    assert np.diff(np.sort(parts[0].finished.to_numpy())).max() > 1.0
    assert lengths[1].max() > 0.35 > np.median(lengths[2])


@pytest.mark.long
def test_a_coordinator_that_is_restarted_loses_nothing_but_what_is_under_way(tmp_path: Path, ray_session: None) -> None:
    before = {*descendants(os.getpid(), "ray::Coordinator")}
    with watching(lambda: descendants(os.getpid(), "ray::Coordinator")) as seen:
        run(tmp_path / "run", {"kind": "coordinator", "at": 0.6, "duration": 0.3})
    result = whole(tmp_path / "run")
    assert kinds(result).count("down") == kinds(result).count("up") == 1
    assert len(seen - before) == 2, "the coordinator's process did not change"


@pytest.mark.long
@pytest.mark.parametrize("count", [7, 12, 20])
def test_the_death_of_an_agents_process_costs_time_and_nothing_else(count: int, tmp_path: Path, ray_session: None) -> None:
    run_killing(tmp_path / "run", lambda: hosts(tmp_path / "run"), count)
    assert "crashed" in kinds(whole(tmp_path / "run"))


@pytest.mark.long
def test_the_death_of_a_process_of_several_agents_costs_nothing_else(tmp_path: Path, ray_session: None) -> None:
    run_killing(tmp_path / "run", lambda: hosts(tmp_path / "run"), hosting={"kind": "packed", "workers": 2})
    assert "crashed" in kinds(whole(tmp_path / "run"))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["immediate", "barrier"])
def test_the_death_of_the_coordinator_leaves_no_trace_but_time(mode: str, tmp_path: Path, ray_session: None) -> None:
    """What it had heard it had written down before, so that even its log goes on without a gap."""
    run_killing(tmp_path / "run", lambda: descendants(os.getpid(), "ray::Coordinator"), exchange={"mode": mode})
    result = whole(tmp_path / "run")
    assert "crashed" not in kinds(result) and "discarded" not in kinds(result)


@pytest.mark.long
def test_the_death_of_the_process_that_submits_evaluations_costs_nothing_else(tmp_path: Path, ray_session: None) -> None:
    """What it had submitted dies with it, and is submitted again by another."""
    evaluation = {"parallel": 2}
    killed = run_killing(tmp_path / "run", lambda: descendants(os.getpid(), "ray::Dispatcher"), evaluation=evaluation)
    rows = fedbo.Result.open(tmp_path / "run").observations.to_pylist()
    expected = [(a, s, q) for a in range(AGENTS) for s in range(ITERATIONS + 1) for q in range(2 if s == 0 else 1)]
    assert sorted((row["agent"], row["step"], row["query"]) for row in rows) == expected
    assert len(killed) == 1 and not any(row["error"] for row in rows)
    from fedbo.execution.replay import replay

    assert replay(tmp_path / "run", verify=True, trust=True).same


@pytest.mark.long
@pytest.mark.parametrize("hosting", ["dedicated", "packed"])
def test_the_death_of_an_evaluation_is_a_failed_evaluation(hosting: str, tmp_path: Path, ray_session: None) -> None:
    evaluation = {"time_limit": 30.0, "retries": 0}
    killed = run_killing(
        tmp_path / "run",
        lambda: descendants(os.getpid(), "fedbo.actors.evaluation.isolated"),
        evaluation=evaluation,
        hosting={"kind": hosting},
    )
    result = fedbo.Result.open(tmp_path / "run")
    errors = [row["error"] for row in result.observations.to_pylist() if row["error"]]
    assert len(killed) == (AGENTS if hosting == "dedicated" else 2)
    # A process that was killed between two evaluations is replaced, and nothing has failed.
    assert len(errors) <= 1 and all("the evaluation's process ended with code -9" in error for error in errors)
    from fedbo.execution.replay import replay

    assert replay(tmp_path / "run", verify=True, trust=True).same


@pytest.mark.long
@pytest.mark.parametrize("mode", ["immediate", "barrier"])
def test_a_time_limit_of_the_budget_cuts_a_run_where_its_replay_is_cut(mode: str, tmp_path: Path, ray_session: None) -> None:
    from fedbo.execution.replay import replay

    run(tmp_path / "run", budget={"iterations": 100, "time": 1.5}, exchange={"mode": mode})
    result = fedbo.Result.open(tmp_path / "run")
    told = sorted((row["agent"], row["step"]) for row in result.events.to_pylist() if row["kind"] == "finished")
    assert told == sorted({(row["agent"], row["step"]) for row in result.observations.to_pylist()})
    assert replay(tmp_path / "run", verify=True, trust=True).same


@pytest.mark.long
def test_an_agent_that_leaves_in_a_step_begins_it_again_and_its_replay_agrees(tmp_path: Path, ray_session: None) -> None:
    availability = {"model": "markov", "present": 0.5, "absent": 0.2, "leaving": "lost"}
    run(tmp_path / "run", availability=availability)
    assert "discarded" in kinds(whole(tmp_path / "run"))


# In a Ray of their own: the death of a driver, and of a node.


def command(directory: Path, *more: str) -> list[str]:
    word = "resume" if (directory / "manifest.json").exists() else "run"
    places = [str(directory)] if word == "resume" else [str(directory.parent / "study.toml"), "--out", str(directory)]
    return [sys.executable, "-m", "fedbo.cli", word, *places, "--quiet", *more]


def start(directory: Path, *more: str) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(path for path in sys.path if path)
    (directory.parent / "study.toml").write_text(fedbo.load_study(STUDY).to_toml())
    return subprocess.Popen(
        command(directory, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def wait_for(directory: Path, count: int, seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while observed(directory) < count:
        assert time.monotonic() < until, "the run does not go on"
        time.sleep(0.01)


@pytest.mark.long
@pytest.mark.parametrize("counts", [(12,), (8, 20)])
def test_the_death_of_the_driver_loses_nothing_that_was_reported(counts: tuple[int, ...], tmp_path: Path) -> None:
    directory = tmp_path / "run"
    for count in counts:
        driver = start(directory)
        wait_for(directory, count)
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()
    said, _ = start(directory).communicate(timeout=120)
    assert "crashed" not in kinds(whole(directory)), said


@pytest.mark.long
def test_an_interruption_keeps_what_was_observed_and_the_run_goes_on(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    driver = start(directory)
    wait_for(directory, 10)
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate(timeout=240)
    assert driver.returncode == 130 and b"continue with: fedbo resume" in said, said
    kept = fedbo.Result.open(directory).observations
    assert 6 <= len(kept) < AGENTS * (ITERATIONS + 2)
    said, _ = start(directory).communicate(timeout=120)
    rows = {(row["agent"], row["step"], row["query"]): row for row in whole(directory).observations.to_pylist()}
    assert all(rows[row["agent"], row["step"], row["query"]] == row for row in kept.to_pylist()), said


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, list[Any]]]:
    """A Ray cluster of a head and two other nodes, which can be taken away."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("RAY_AUTH_MODE", os.environ.get("RAY_AUTH_MODE", "disabled"))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield made, [made.add_node(num_cpus=1) for _ in range(2)]
    made.shutdown()


def on(node: Any, word: str) -> list[int]:
    """List the processes of one node of a cluster that have a word in their titles."""
    return descendants(node.all_processes["raylet"][0].process.pid, word)


def apart(directory: Path, others: list[Any]) -> list[Any]:
    """List the nodes on which there are agents of a run and no coordinator."""
    agents = {*hosts(directory)}
    return [node for node in others if agents & {*on(node, "ray::Host")} and not on(node, "ray::Coordinator")]


@pytest.mark.long
def test_the_death_of_a_node_takes_agents_with_it_that_go_on_elsewhere(tmp_path: Path, nodes: tuple[Any, list[Any]]) -> None:
    """Ray draws a node for each actor that needs no CPU, so that it may take some runs until one of them can lose a node."""
    cluster, others = nodes
    for number in range(8):  # false alarm once in 10^5 times: a run has an agent apart with a probability of 0.79
        directory = tmp_path / f"run-{number}"
        driver = start(directory, "--address", cluster.address, "--set", "hosting.package=image")
        wait_for(directory, 10)
        if inhabited := apart(directory, others):
            break
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()
    cluster.remove_node(inhabited[0], allow_graceful=False)
    said, _ = driver.communicate(timeout=180)
    assert driver.returncode == 0, said
    assert "crashed" in kinds(whole(directory))
