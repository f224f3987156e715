"""Where agents live never changes a result: one study, every hosting, the same bytes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.hosts import InlineHosts
from fedbo.actors.remote import HostLost, RayHosts, start_hosts
from fedbo.execution.jobs import runs
from fedbo.settings.trust import admit
from fedbo.study.study import load_study

admit(["sleeping:meet", "sleeping:moody", "sleeping:nowhere"])

STUDY: dict[str, Any] = {
    "study": {"name": "hosting", "seed": 3, "replicates": 2},
    "objective": {"name": "quadratic", "agents": 4},
    "agents": {"targets": [0, 1, 3], "initial": 2, "history": {"algorithm": "random", "observations": 6}},
    "budget": {"iterations": 5},
    "algorithm": [
        {"name": "random"},
        {"name": "ts"},
        {"name": "fts", "every": 1, "p": 0.5, "length_scale": 0.2, "noise": 0.01, "features": 30},
    ],
    "timing": {"evaluation": {"model": "lognormal"}, "latency": {"model": "constant", "mean": 0.1}},
    "availability": {"model": "bernoulli", "probability": 0.2},
}
TABLES = ("observations.parquet", "events.parquet", "histories.parquet")


def _bytes(study: dict[str, Any], tmp_path: Path, mode: str, algorithms: list[Any], **hosting: Any) -> list[bytes]:
    name = "-".join(str(word) for word in hosting.values())
    study = {**study, "algorithm": algorithms, "exchange": {"mode": mode}, "hosting": hosting}
    result = fedbo.run(study, out=tmp_path / f"{mode}-{name}")
    return [(result.directory / table).read_bytes() for table in TABLES]


INLINE = [{"kind": "inline", "workers": workers} for workers in (1, 2, 4)]
PACKED = [{"kind": "packed", "workers": workers} for workers in (1, 2, 4)]
DEDICATED = {"kind": "dedicated"}
SMALL: dict[str, Any] = {  # each host is a process
    **STUDY,
    "study": {"name": "hosting", "seed": 3},
    "objective": {"name": "quadratic", "agents": 3},
    "agents": {**STUDY["agents"], "targets": [0, 2]},
}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "mode", "algorithms", "hostings"),
    [
        pytest.param(SMALL, "immediate", STUDY["algorithm"][2:], [PACKED[1]], id="fts"),
        pytest.param(
            STUDY, "immediate", STUDY["algorithm"], [*INLINE, *PACKED, DEDICATED], id="immediate", marks=pytest.mark.long
        ),
        pytest.param(STUDY, "barrier", STUDY["algorithm"], [PACKED[1]], id="barrier", marks=pytest.mark.long),
    ],
)
def test_every_hosting_gives_the_same_bytes(
    study: dict[str, Any], mode: str, algorithms: list[Any], hostings: Any, tmp_path: Path, ray_session: None
) -> None:
    alone = _bytes(study, tmp_path, mode, algorithms, kind="inline", workers=0)
    for hosting in hostings:
        assert _bytes(study, tmp_path, mode, algorithms, **hosting) == alone, hosting


def test_dedicated_places_agents_as_packed_with_as_many_hosts_as_agents() -> None:
    made = [load_study({**STUDY, "hosting": hosting}) for hosting in (DEDICATED, PACKED[2])]
    dedicated, packed = (runs(study, Path()) for study in made)
    assert [run.hosts for run in dedicated] == [run.hosts for run in packed] == 6 * [4]


@pytest.mark.long
@pytest.mark.ray
def test_a_time_limit_inside_a_step_of_several_points_cuts_every_hosting_alike(tmp_path: Path, ray_session: None) -> None:
    study = {
        **STUDY,
        "study": {"name": "limit", "seed": 3},
        "objective": {"name": "quadratic", "agents": 4},
        "agents": {"initial": 3},
        "budget": {"iterations": 5, "time": 4.0},
        "algorithm": [{"name": "random", "queries": 2}],
    }
    tables = []
    for hosting in ({"kind": "inline"}, {"kind": "packed", "workers": 2}):
        result = fedbo.run({**study, "hosting": hosting}, out=tmp_path / hosting["kind"])
        tables.append((result.directory / "observations.parquet").read_bytes())
        steps = result.observations.group_by(["agent", "step"]).aggregate([("query", "count")]).to_pylist()
        assert steps and all(row["query_count"] == (2 if row["step"] else 3) for row in steps), "half a step was kept"
    assert tables[0] == tables[1]


@pytest.mark.ray
def test_more_workers_than_the_ray_session_has_are_refused_and_not_waited_for(tmp_path: Path, ray_session: None) -> None:
    study = {**STUDY, "hosting": {"kind": "inline", "workers": 64}}
    with pytest.raises(fedbo.errors.RunError, match=r"workers = 64: the Ray cluster has 4 CPUs; set at most 4"):
        fedbo.run(study, out=tmp_path / "many")


def test_the_neighbours_of_an_agent_do_not_change_its_bits() -> None:
    """One agent beside none, beside some, and beside the same in another order."""
    from small_runs import Setting, fts

    from fedbo.actors.host import Host
    from fedbo.actors.task import StepRequest

    task = Setting(fts(), agents=6).task()
    found = []
    for numbers in ([3], [3, 1, 5], [0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]):
        host = Host()
        host.load(task, numbers)
        for step in range(5):
            host.work((), [StepRequest(number, step) for number in numbers])
        host.commit([(3, ())])
        found.append([row for row in host.agents.all_rows() if row.agent == 3])
    assert all(rows == found[0] for rows in found)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
def test_real_time_runs_the_same_core_and_takes_real_seconds(tmp_path: Path, ray_session: None) -> None:
    study = {
        **STUDY,
        "study": {"name": "wall", "seed": 3},
        "timing": {"clock": "wall", "latency": {"model": "constant", "mean": 0.05}},
        "hosting": {"kind": "packed", "workers": 2},
    }
    result = fedbo.run(study, out=tmp_path / "wall")
    table = result.observations
    assert len(table) == 3 * 3 * (2 + 5)
    started, finished = table["started"].to_numpy(), table["finished"].to_numpy()
    assert (finished >= started).all() and finished.max() > 0
    kinds = set(result.events["kind"].to_pylist())
    assert {"started", "finished", "sent", "arrived", "delivered", "absent", "returned", "done"} <= kinds
    events = result.events.to_pandas()
    delays = events[events.kind == "arrived"].time.to_numpy() - events[events.kind == "sent"].time.to_numpy()
    assert np.median(delays) >= 0.05


@pytest.mark.long
@pytest.mark.ray
def test_a_step_that_is_interrupted_and_goes_on_gives_the_same_bytes_in_packed_actors(
    tmp_path: Path, ray_session: None
) -> None:
    """An absence, a hang or a slow-down gives the end of a step another lease than that of the order it was begun with."""
    study: dict[str, Any] = {
        "study": {"name": "interrupted", "seed": 1},
        "objective": {"name": "branin", "agents": 9},
        "budget": {"iterations": 4},
        "algorithm": [{"name": "fts", "every": 1, "features": 12, "own": {"refit": 1000, "features": 12}}],
        "timing": {"evaluation": {"model": "pareto", "mean": 1.0, "alpha": 1.5}},
        "availability": {"model": "markov", "present": 2.0, "absent": 1.0},
        "exchange": {"mode": "buffered", "k": 3},
        "fault": [
            {"kind": "hang", "rate": 0.1},
            {"kind": "slow", "rate": 0.1},
            {"kind": "crash", "rate": 0.05, "restart": 1.0},
        ],
    }
    found = []
    for hosting in ({"kind": "inline"}, {"kind": "packed", "workers": 2}):
        result = fedbo.run({**study, "hosting": hosting}, out=tmp_path / hosting["kind"])
        found.append([(result.directory / table).read_bytes() for table in TABLES[:2]])
    kinds = set(result.events["kind"].to_pylist())
    assert {"absent", "returned", "hung", "slowed", "crashed", "restarted"} <= kinds
    assert found[0] == found[1]


@pytest.mark.long
@pytest.mark.ray
def test_an_order_that_a_later_decision_replaces_is_never_carried_out(ray_session: None) -> None:
    """The first order would take too long; it still waits to be sent when its agent is asked to decide again."""
    from small_runs import Setting

    from fedbo.actors.task import StepRequest
    from fedbo.algorithms.catalog import entry

    task = Setting(entry("random").make(), agents=2, initial=1, policy=Policy(time_limit=1.0)).task()
    with closing(RayHosts(start_hosts(1), task, range(2))) as hosts:
        hosts.submit(StepRequest(0, 0, lease=1, tries=(5.0,)))
        hosts.decide(StepRequest(0, 0, lease=2, restore="before"))
        hosts.submit(StepRequest(1, 0, lease=1))
        assert hosts.result(1).failed == ()
        hosts.submit(StepRequest(0, 0, lease=2))
        assert hosts.result(0).failed == ()


@pytest.mark.long
@pytest.mark.ray
def test_an_idle_host_begins_while_other_agents_of_its_round_are_still_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_session: None
) -> None:
    """What it is sent first is in no order of ends, which changes no report."""
    from small_runs import Setting

    from fedbo.actors.task import StepRequest
    from fedbo.algorithms.catalog import entry

    task = Setting(entry("random").make(), agents=300, initial=1).task()
    inline, actors = InlineHosts(task, range(300)), start_hosts(1)
    for agent in range(300):
        inline.submit(StepRequest(agent, 0, lease=1))
    expected = [inline.result(agent) for agent in range(300)]
    for has_channel in (True, False):
        if not has_channel:  # as on another machine: the name of the folder is too long for a socket
            (long := tmp_path / ("x" * 120)).mkdir()
            monkeypatch.setattr("tempfile.tempdir", str(long))
        with closing(RayHosts(actors, task, range(300))) as packed:
            for agent in range(300):
                packed.submit(StepRequest(agent, 0, lease=1))
            (host,) = packed.remote
            assert (host.channel is not None) == has_channel
            assert len(host.calls) == 1 and 0 < len(host.buffer) < 200
            packed.flush(lambda agents: [-float(agent) for agent in agents])
            assert not host.buffer
            assert [packed.result(agent) for agent in range(300)] == expected


@pytest.mark.ray
def test_a_host_that_is_killed_is_lost_and_not_waited_for(ray_session: None) -> None:
    import ray
    from small_runs import Setting

    from fedbo.actors.task import StepRequest
    from fedbo.algorithms.catalog import entry

    actors = start_hosts(1)
    with closing(RayHosts(actors, Setting(entry("random").make(), agents=2, initial=1).task(), range(2))) as hosts:
        hosts.submit(StepRequest(0, 0, lease=1))
        assert hosts.result(0).queries == 1
        ray.kill(actors[0])
        with pytest.raises(HostLost, match="a host of agents was lost"):
            for lease in count(1):  # the process ends some time after it is told to
                hosts.submit(StepRequest(1, 0, lease=lease))
                hosts.result(1)


@pytest.mark.long
@pytest.mark.ray
def test_evaluations_of_different_hosts_overlap_although_virtual_time_orders_them(ray_session: None) -> None:
    """Each of four evaluations ends once all have begun."""
    from small_runs import Setting

    from fedbo.actors.task import StepRequest
    from fedbo.algorithms.catalog import entry
    from fedbo.objectives.python_function import PythonFunction

    setting = Setting(entry("random").make(), agents=4, initial=1)
    task = setting.task()
    together = PythonFunction(function="sleeping:meet", agents=4, low=(0.0, 0.0), high=(1.0, 1.0))
    actors = start_hosts(4)
    waiting = type(task)(together, task.algorithm, task.problem, task.streams, code=("sleeping:meet",))
    with closing(RayHosts(actors, waiting, range(4))) as hosts:
        for agent in range(4):
            hosts.submit(StepRequest(agent, 0))
        hosts.flush()
        assert [hosts.result(agent).failed for agent in range(4)] == [()] * 4


@pytest.mark.long
@pytest.mark.ray
def test_an_objective_that_raises_ends_the_run_names_the_place_and_loses_nothing(tmp_path: Path, ray_session: None) -> None:
    study = {
        **STUDY,
        "objective": {
            "name": "python_function",
            "function": "sleeping:moody",
            "agents": 3,
            "low": [0.0],
            "high": [1.0],
        },
        "agents": {"initial": 2},
        "study": {"name": "moody", "seed": 3, "replicates": 2},
        "budget": {"iterations": 300},
        "algorithm": [{"name": "random"}],
        "evaluation": {"failure": "stop"},
        "hosting": {"kind": "inline", "workers": 2},
    }
    with pytest.raises(fedbo.errors.RunError, match=r"agent 1 at x = \[.*\]: RuntimeError: not today") as caught:
        fedbo.run(study, out=tmp_path / "moody")
    kept = fedbo.Result.open(caught.value.directory)
    assert kept.manifest["status"] == "failed" and "not today" in kept.manifest["error"]
    assert set(kept.observations["replicate"].to_pylist()) == {0, 1}, "the run beside the one that failed was lost"


def test_an_objective_that_gives_no_finite_number_is_said_to(tmp_path: Path) -> None:
    from small_runs import Setting

    from fedbo.actors.agent import HostedAgent
    from fedbo.actors.task import StepRequest
    from fedbo.algorithms.catalog import entry
    from fedbo.objectives.python_function import PythonFunction

    task = Setting(entry("random").make(), agents=1, policy=Policy(failure="stop")).task()
    nowhere = PythonFunction(function="sleeping:nowhere", agents=1, low=(0.0, 0.0), high=(1.0, 1.0))
    agent = HostedAgent(replace(task, federation=nowhere), 0)
    with pytest.raises(EvaluationError, match="agent 0 at x = .*: the objective returned nan, not a finite number"):
        agent.work(StepRequest(0, 0))
