"""Nodes that leave a Ray cluster: how that is known and announced, what moves then, and which nodes labels ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo.execution.hosts as watching
from fedbo.actors import nodes, remote, supervision
from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.nodes import LASTING, nodes_with, spread_over
from fedbo.actors.remote import RemoteHost
from fedbo.actors.storage.evaluations import Query
from fedbo.actors.supervision import HostProcesses
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.runtime import actor
from fedbo.execution.hosts import HostWatch
from fedbo.objectives.typed_spaces.reports import Checkpoint, EvaluationMoved, Report, moved_by
from fedbo.workers import ray_pool

SPOT = {"ray.io/market-type": "spot"}


class Cluster:
    """Two hosts, of which one is a spot machine with a GPU, as Ray tells of them; it keeps which ones are drained."""

    def __init__(self, **leaving: int) -> None:
        self.leaving, self.asked, self.drained = leaving, 0, list[tuple[Any, ...]]()
        self.taken = True, ""

    def nodes(self) -> list[dict[str, Any]]:
        common = {"Alive": True, "Labels": {}}
        return [
            {**common, "NodeID": "a", "NodeManagerHostname": "one", "NodeManagerAddress": "10.0.0.1",
             "Resources": {"CPU": 4.0}},
            {**common, "NodeID": "b", "NodeManagerHostname": "two", "NodeManagerAddress": "10.0.0.2", "Labels": SPOT,
             "Resources": {"CPU": 2.0, "GPU": 1.0}},
            {**common, "NodeID": "c", "NodeManagerHostname": "two", "NodeManagerAddress": "10.0.0.2", "Alive": False,
             "Labels": SPOT, "Resources": {"CPU": 64.0}},
        ]  # fmt: skip

    def get_draining_nodes(self, timeout: float) -> dict[str, int]:
        self.asked += 1
        return self.leaving

    def drain_node(self, *what: Any) -> tuple[bool, str]:
        self.drained.append(what)
        return self.taken


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(nodes, "_gcs", lambda: made)
    monkeypatch.setattr(nodes, "_last", (-nodes._LOOKED_EVERY, {}))
    monkeypatch.setattr(nodes.ray, "nodes", made.nodes)
    monkeypatch.setattr(nodes.ray, "is_initialized", lambda: True)
    return made


def test_the_nodes_that_leave_are_known_with_the_seconds_that_they_have(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(nodes.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(nodes.time, "time", lambda: 50.0)
    assert nodes.leaving() == {}
    cluster.leaving = {"a": 57_000, "b": 0}  # the second one does not say
    clock[0] += 0.5
    assert nodes.leaving() == {} and cluster.asked == 1
    clock[0] += 0.6
    assert nodes.leaving() == {"a": 7.0, "b": 60.0} and cluster.asked == 2


def test_labels_and_resources_ask_for_living_nodes(cluster: Cluster) -> None:
    assert nodes_with({}, {}) == ["a", "b"]
    assert nodes_with({"CPU": 1.0}, SPOT) == nodes_with({"GPU": 0.5}, {}) == ["b"]
    assert nodes_with({"CPU": 3.0}, SPOT) == nodes_with({}, {"zone": "x"}) == []
    assert nodes_with({}, {"ray.io/market-type": "!spot"}) == ["a", "b"]  # Ray judges operators itself


@pytest.mark.parametrize(("host", "expected"), [("two", ["b"]), ("10.0.0.1", ["a"]), ("three", [])])
def test_a_host_is_announced_by_its_name_or_address(cluster: Cluster, host: str, expected: list[str]) -> None:
    said = nodes.announce_leaving(host)
    assert [node for node, *_ in cluster.drained] == expected and said == (
        [] if expected else ["the Ray cluster has no such host"]
    )
    cluster.taken = False, "the node is the head"
    refused = nodes.announce_leaving(host)
    assert refused == (["Ray does not let it leave: the node is the head"] if expected else said)


def test_a_file_of_the_site_announces_a_host_once_and_says_what_comes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    announced = list[str]()

    class Called:
        def __init__(self, function: Any) -> None:
            assert function is watching.announce_leaving

        def remote(self, host: str) -> str:
            announced.append(host)
            return host

    monkeypatch.setattr(watching, "living", dict)
    monkeypatch.setattr(watching, "LOOKED_EVERY", 0.0)
    monkeypatch.setattr(watching.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(watching.ray, "remote", lambda **options: Called)
    monkeypatch.setattr(watching.ray, "wait", lambda calls, timeout: (calls, []))
    monkeypatch.setattr(
        watching.ray, "get", lambda host, timeout: [] if host == "two" else ["the Ray cluster has no such host"]
    )
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    watch = HostWatch(folder, {})
    assert watch.wrong() == [] and announced == []
    (folder / "leave-two").touch()
    (folder.parent / "leave-10.0.0.1").touch()
    assert watch.wrong() == watch.wrong() == [] and sorted(announced) == ["10.0.0.1", "two"]
    assert set(capfd.readouterr().err.splitlines()) == {
        f"{folder.parent / 'leave-10.0.0.1'}: the Ray cluster has no such host",
        f"{folder / 'leave-two'}: its agents move to other hosts",
    }


def test_it_is_said_once_when_no_host_stays(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedbo.execution.hosts.LOOKED_EVERY", 0.0)
    monkeypatch.setattr(nodes, "_LOOKED_EVERY", 0.0)
    watch, said = HostWatch(tmp_path, {}), list[int]()
    for ids in ("a", "abc", "ab", "", "ab"):  # c is no living host
        cluster.leaving = dict.fromkeys(ids, 0)
        assert watch.wrong() == []
        said.append(capfd.readouterr().err.count("every host of the Ray cluster leaves it"))
    assert said == [0, 1, 0, 0, 1]


def test_an_evaluation_moves_at_a_checkpoint_that_is_kept_once_its_node_leaves() -> None:
    kept, leaves = list[Any](), [False]

    def judge(question: Report | Checkpoint) -> str:
        kept.append(question)
        return "go"

    asked = moved_by(judge, lambda: leaves[0])
    assert asked(Checkpoint("first")) == "go"
    leaves[0] = True
    assert asked(Report(1.0, 2.0)) == asked(Checkpoint()) == "go"  # neither a report nor a restart is a place to go on from
    with pytest.raises(EvaluationMoved):
        asked(Checkpoint("second"))
    assert kept[-1] == Checkpoint("second")


class Moving:
    """An objective that says what happens when its evaluation moves."""

    def evaluate(self, x: Any, *rest: Any) -> float:
        raise EvaluationMoved


def test_an_evaluation_that_moves_is_no_failed_one() -> None:
    evaluator = Evaluator(Policy(), real=True)
    evaluator.leaves = lambda: True
    query = Query(0, 0, 0, np.zeros(1))
    with pytest.raises(EvaluationMoved):
        evaluator._judged(Moving(), query, Streams(1))


class Handle:
    """The process of a host on a node, which keeps what was asked of it."""

    def __init__(self, node: str) -> None:
        self.node, self.asked = node, list[str]()

    def __getattr__(self, name: str) -> Any:
        class Method:
            @staticmethod
            def remote(*what: Any) -> str:
                self.asked.append(name)
                return name

        return Method


def test_hosts_on_a_node_that_leaves_end_their_evaluation_and_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "nodes_of", lambda handles: [handle.node for handle in handles])
    monkeypatch.setattr(supervision, "concurrently", lambda method: method)
    killed = list[Any]()
    monkeypatch.setattr(supervision.ray, "kill", killed.append)
    processes = HostProcesses.__new__(HostProcesses)
    spare = processes._spare = Handle("leaves")
    monkeypatch.setattr(processes, "_start_spare", lambda: Handle("stays"), raising=False)
    restarted = list[RemoteHost]()
    monkeypatch.setattr(processes, "restart", restarted.append, raising=False)
    hosts = [RemoteHost(place, Handle(node), (place,), process=1) for place, node in enumerate(["leaves", "stays", "leaves"])]
    hosts[2].process = 0  # killed already, by the study
    hosts[0].calls.append("an evaluation")
    for _ in range(3):
        assert processes.leave({"leaves"}, hosts) == []
    assert [host.handle.asked for host in hosts] == [["halt"], [], []] and [host.leaves for host in hosts] == [
        True,
        False,
        False,
    ]
    assert killed == [spare] and processes._spare.node == "stays"
    hosts[0].calls.clear()
    assert processes.leave({"leaves"}, hosts) == restarted == [hosts[0]]


class Declared:
    """What Ray declares of a class; it keeps the options."""

    def __init__(self) -> None:
        self.given = list[dict[str, Any]]()

    def __call__(self, *declared: Any, **options: Any) -> Any:
        return self if declared else lambda kind: self

    def options(self, **options: Any) -> Any:
        self.given.append(options)
        return self

    def remote(self, *what: Any, **more: Any) -> Handle:
        return Handle("a")


def test_evaluations_go_to_labelled_nodes_and_what_coordinates_to_lasting_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = Declared()
    for module in (remote, actor, ray_pool):
        monkeypatch.setattr(module.ray, "remote", declared)
    remote.start_hosts(1, SPOT)
    actor.start_coordinators(1, 1.0, SPOT)
    assert [options["label_selector"] for options in declared.given] == [SPOT, SPOT]
    declared.given.clear()
    remote.start_hosts(1)
    actor.start_coordinators(1, 0.0)
    ray_pool.start_dispatcher(3)
    assert all(LASTING.items() <= options.items() for options in declared.given) and len(declared.given) == 3
    assert LASTING["label_selector"] == {"ray.io/market-type": "!spot"} and LASTING["fallback_strategy"]  # and else anywhere
    assert "label_selector" not in spread_over({})


def test_labels_that_no_host_has_are_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_pool, "grows", lambda: False)
    ray_pool._check(1, {}, {"num_cpus": 1.0}, SPOT)
    with pytest.raises(
        ValueError, match=r"agent 1: .*\[hosting\] labels \{'zone': 'x'\}: no host of the Ray cluster has these"
    ):
        ray_pool._check(1, {}, {"num_cpus": 1.0}, {"zone": "x"})
    monkeypatch.setattr(ray_pool, "grows", lambda: True)
    ray_pool._check(1, {}, {"num_cpus": 1.0}, {"zone": "x"})  # one may come


def test_evaluations_that_move_are_no_lost_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ray_pool.RayPool.__new__(ray_pool.RayPool)
    pool._calls, pool._halted = {}, lambda: False
    query, answers = Query(0, 0, 0, np.zeros(1)), list[Any]()
    monkeypatch.setattr(pool, "_begin", lambda query, streams, left: pool._calls.update({"call": (query, streams, left)}))
    monkeypatch.setattr(ray_pool.ray, "wait", lambda calls, **options: (calls, []))
    monkeypatch.setattr(ray_pool, "_result", lambda call, query: answers.pop())
    ended = query.failed("it is over")
    answers[:] = [ended, *[None, "moved"] * ray_pool.MACHINE_LOSSES, *["moved"] * 50]
    pool.start(query, Streams(1))
    assert pool.wait() is ended and not answers
    answers[:] = [None] * (ray_pool.MACHINE_LOSSES + 1)
    pool.start(query, Streams(1))
    assert "its machine was lost 20 times" in str(pool.wait())
