"""Untidy worlds that are right: complete, repeatable, swept, and made agent by agent."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedbo.actors.evaluation.policy import Policy
from fedbo.analysis.cost import estimate_cost
from fedbo.coordinator.environment.availability import Always, Markov
from fedbo.coordinator.environment.environment import AgentModels, Environment
from fedbo.coordinator.environment.faults import FAULTS, Crash, Loss, NetworkPartition, Restart
from fedbo.coordinator.environment.timing import Constant, DecisionTimeModel, Exponential, Pareto, SpeedClasses
from fedbo.coordinator.kernel.exchange import FirstK, Immediate
from fedbo.coordinator.selection import Selection
from fedbo.coordinator.staleness import Staleness
from fedbo.execution.jobs import learnings, runs
from fedbo.study.document import to_toml
from fedbo.study.environment.groups import members
from fedbo.study.environment.models import environment_of
from fedbo.study.listing import groups
from fedbo.study.study import Study, load_study


def tables(**changes: Any) -> dict[str, Any]:
    return {
        "study": {"name": "untidy"},
        "objective": {"name": "quadratic", "agents": 10},
        "budget": {"iterations": 5, "time": 50.0},
        "algorithm": [{"name": "fts"}],
        **changes,
    }


FULL = tables(
    agents={"targets": [0, 1, 2, 3, 7, 8, 9], "checkpoint": 3},
    timing={
        "evaluation": {"model": "exponential", "mean": 2.0},
        "speed": {"factors": [1.0, 4.0], "shares": [0.75, 0.25]},
        "decision": {"coefficient": 0.01, "power": 2},
    },
    network={"bandwidth": 1e6, "link": 5e6, "retry": 0.5, "attempts": 3},
    availability={"model": "markov", "present": 20.0, "leaving": "lost"},
    group=[
        {"name": "slow", "agents": [3, 1], "evaluation": {"model": "pareto", "mean": 8.0}, "leaving": "resumed"},
        {"name": "far", "share": 0.3, "latency": {"model": "constant", "mean": 2.0}, "bandwidth": 1e3},
        {"name": "always", "share": 0.2, "availability": {"model": "always"}, "speed": {"factors": [1.0]}},
    ],
    exchange={
        "mode": "first_k",
        "k": 3,
        "late": "carry",
        "staleness": {"weight": "polynomial", "bound": 4},
        "selection": {"who": "speed", "share": 0.5},
    },
    evaluation={"retries": 2, "failure": "stop", "time_limit": 20.0},
    fault=[
        {"kind": "crash", "agents": "slow", "rate": 0.05, "restart": 2.0, "state": "lost"},
        {"kind": "crash", "agents": [5, 2], "at": 3.0},
        {"kind": "loss", "label": "bad line", "agents": "far", "direction": "up"},
        {"kind": "coordinator", "event": 100},
    ],
    recovery={"seconds": 5.0, "events": 1000},
)


def again(study: Study) -> Study:
    return load_study(tomllib.loads(study.to_toml()))


def test_a_resolved_study_shows_the_defaults_of_its_world() -> None:
    later = {"age": 0.3, "tiers": 5, "settings": {}}
    shown = load_study(tables(fault=[{"kind": "delay"}])).document()
    assert shown["timing"]["speed"] == {"factors": [1.0], "shares": []}
    assert shown["timing"]["decision"] == {"coefficient": 0.0, "power": 3.0}
    assert shown["network"] == {"retry": 1.0, "attempts": 10}
    assert shown["availability"] == {"model": "always", "leaving": "resumed"}
    assert shown["exchange"] == {
        "mode": "immediate",
        "staleness": {"weight": "constant", "decay": 0.5, "after": 0},
        "selection": {"who": "all", "share": 1.0, "explore": 0.1, "penalty": 2.0, "others": "work", **later},
    }
    assert shown["evaluation"] == {
        "retries": 0,
        "failure": "avoid",
        "parallel": 1,
        "prefetch": 0,
        "resources": [],
        "wait": "any",
    }
    assert shown["fault"] == [
        {"kind": "delay", "label": "delay", "agents": "all", "probability": 0.1, "start": 0.0, "direction": "both", "by": 1.0}
    ]
    assert shown["recovery"] == {"seconds": 60.0}
    assert "group" not in shown


def test_a_study_that_says_nothing_of_the_world_has_the_tidy_one() -> None:
    study = load_study(tables())
    assert environment_of(study) == Environment() == Environment(common=AgentModels(evaluation=Constant(1.0)))
    assert study.exchange.make() == Immediate(Staleness(), Selection())
    assert study.evaluation.make() == Policy()


@pytest.mark.parametrize(
    ("share", "selection", "k"),
    [
        (0.3, {}, 3),
        (0.04, {}, 1),
        (0.8, {"who": "fraction", "share": 0.5}, 4),
        (0.5, {"who": "poisson", "share": 0.4}, 2),
    ],
)
def test_a_share_of_the_agents_becomes_a_number_of_messages(share: float, selection: dict[str, Any], k: int) -> None:
    exchange = {"mode": "first_k", "k": share, "selection": selection}
    study = load_study(tables(exchange=exchange))
    assert study.document()["exchange"]["k"] == k
    assert study.exchange.make() == load_study(tables(exchange={**exchange, "k": k})).exchange.make()


def test_each_cell_of_a_sweep_counts_its_own_agents() -> None:
    some = load_study(tables(exchange={"mode": "buffered", "k": 0.3}, sweep={"objective.agents": [10, 20]}))
    assert some.document()["exchange"]["k"] == 0.3
    assert [cell.study.exchange.make().k for cell in again(some).cells()] == [3, 6]
    swept = load_study(tables(exchange={"mode": "buffered"}, sweep={"exchange.k": [0.1, 0.5, 3]}))
    assert [cell.study.exchange.make().k for cell in swept.cells()] == [1, 5, 3]
    turns = {"mode": "buffered", "k": 0.25, "selection": {"concurrency": 8}}
    assert load_study(tables(exchange=turns)).exchange.make().k == 2


def test_a_resolved_world_reads_as_itself() -> None:
    study = load_study(FULL)
    assert again(study) == study
    assert again(study).digest() == study.digest()
    assert environment_of(again(study)) == environment_of(study)
    assert again(study).exchange.make() == FirstK(3, "carry", Staleness("polynomial", bound=4), Selection("speed", 0.5))
    assert study.evaluation.make() == Policy(2, "stop", 20.0)


def test_groups_are_lists_or_shares_of_the_agents_that_no_list_names() -> None:
    assert members(load_study(FULL)) == {"slow": (1, 3), "far": (7, 8, 9), "always": (5, 6)}
    every = tables(group=[{"name": "all of them", "share": 1.0}])
    assert members(load_study(every)) == {"all of them": tuple(range(10))}


def test_an_agent_has_the_models_of_the_study_but_for_what_its_group_says() -> None:
    world = environment_of(load_study(FULL))
    common = AgentModels(
        evaluation=Exponential(2.0),
        speed=SpeedClasses((1.0, 4.0), (0.75, 0.25)),
        decision=DecisionTimeModel(0.01, 2.0),
        bandwidth=1e6,
        availability=Markov(20.0),
        leaving="lost",
    )
    assert world.of(0) == world.common == common
    assert world.of(1).evaluation == Pareto(8.0) and world.of(1).leaving == "resumed" and world.of(1).bandwidth == 1e6
    assert world.of(9).latency == Constant(2.0) and world.of(9).bandwidth == 1e3 and world.of(9).evaluation == Exponential(2.0)
    assert world.of(5).availability == Always() and world.of(5).speed == SpeedClasses((1.0,)) and world.of(5).leaving == "lost"
    assert (world.link, world.retry, world.attempts) == (5e6, 0.5, 3)


def test_the_plan_names_agents_and_no_groups() -> None:
    assert environment_of(load_study(FULL)).plan == (
        Crash((1, 3), rate=0.05, restart=2.0, state="lost"),
        Crash((2, 5), at=3.0),
        Loss((7, 8, 9), direction="up"),
        Restart(event=100),
    )
    everybody = environment_of(load_study(tables(fault=[{"kind": "partition", "at": 1.0}])))
    assert everybody.plan == (NetworkPartition(tuple(range(10)), at=1.0),)


def test_in_real_time_evaluations_have_no_model_and_all_else_has() -> None:
    wall = tables(
        timing={"clock": "wall", "latency": {"model": "gamma"}},
        network={"link": 100.0},
        hosting={"kind": "dedicated"},
        evaluation={"memory_limit": 200},
        group=[{"name": "far", "agents": [1], "latency": {"model": "constant", "mean": 2.0}}],
        fault=[{"kind": "crash", "at": 3.0}, {"kind": "loss"}],
    )
    environment = environment_of(load_study(wall))
    assert environment.is_real_time and environment.of(1).evaluation is None
    assert again(load_study(wall)) == load_study(wall)


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_can_be_named_in_a_study_and_comes_back_from_its_file_the_same(kind: str) -> None:
    when = {"rate": 0.1} if hasattr(FAULTS[kind], "rate") else {}
    cluster = {"cluster": {"workers": 2}} if kind == "preemption" else {}
    study = load_study(tables(fault=[{"kind": kind, **when}], **cluster))
    assert study.fault[0].make() == FAULTS[kind](**when) == again(study).fault[0].make()


def test_faults_are_called_by_their_kind_or_by_a_label_in_sweeps_and_overrides() -> None:
    study = load_study(
        {**FULL, "sweep": {"fault.crash.rate": [0.0, 0.1], "fault.bad line.probability": [0.0, 1.0]}},
        ["fault.crash 2.at=4", "fault.coordinator.duration = 3"],
    )
    assert [fault.label for fault in study.fault] == ["crash", "crash 2", "bad line", "coordinator"]
    plans = [environment_of(cell.study).plan for cell in again(study).cells()]
    assert [(plan[0], plan[2]) for plan in plans] == [
        (Crash((1, 3), rate=rate, restart=2.0, state="lost"), Loss((7, 8, 9), probability, direction="up"))
        for rate in (0.0, 0.1)
        for probability in (0.0, 1.0)
    ]
    assert {plan[1:4:2] for plan in plans} == {(Crash((2, 5), at=4.0), Restart(event=100, duration=3.0))}


def test_groups_are_called_by_their_name_in_sweeps_and_overrides() -> None:
    sweep = {"group.slow.evaluation.mean": [1.0, 16.0], "group.far.share": [0.1, 0.3], "exchange.staleness.weight": ["hinge"]}
    study = load_study({**FULL, "sweep": sweep}, ["group.slow.leaving=lost"])
    found = [cell.study for cell in again(study).cells()]
    assert [environment_of(one).of(3).evaluation for one in found] == [Pareto(m) for m in (1.0, 1.0, 16.0, 16.0)]
    assert [members(one)["far"] for one in found] == [(9,), (7, 8, 9)] * 2
    assert {one.exchange.make().staleness for one in found} == {Staleness("hinge", bound=4)}
    assert {environment_of(one).of(3).leaving for one in found} == {"lost"}


def test_sweeping_a_kind_does_not_carry_the_defaults_of_one_fault_over_to_the_other() -> None:
    swept = tables(
        fault=[{"kind": "hang", "rate": 0.1}],
        group=[{"name": "slow", "agents": [1], "evaluation": {"model": "constant"}}],
        sweep={"fault.hang.kind": ["hang", "slow", "coordinator"], "group.slow.evaluation.model": ["constant", "gamma"]},
    )
    study = load_study(swept)
    for resolved in (study, again(study)):
        assert [cell.study.fault[0].make().kind for cell in resolved.cells()[::2]] == ["hang", "slow", "coordinator"]
        assert {cell.study.fault[0].label for cell in resolved.cells()} == {"hang"}


def test_the_digest_is_of_the_world_too_but_not_of_how_often_it_is_saved() -> None:
    digest = load_study(FULL).digest()
    assert digest == load_study({**FULL, "recovery": {"seconds": 1.0}}).digest()
    for key in ("group", "exchange", "evaluation", "fault", "network"):
        rest = {name: table for name, table in FULL.items() if name not in (key, "fault" if key == "group" else key)}
        assert load_study(rest).digest() != digest
    assert load_study(FULL, ["agents.checkpoint=4"]).digest() != digest


def test_a_trace_stands_beside_the_study_and_is_part_of_its_digest(tmp_path: Path) -> None:
    path, trace, other = tmp_path / "study.toml", tmp_path / "trace.csv", tmp_path / "other.csv"
    slow = {"name": "slow", "agents": [1], "availability": {"model": "trace", "file": "other.csv"}}
    sweep = {"availability.file": ["trace.csv", "other.csv"]}
    study = tables(availability={"model": "trace", "file": "trace.csv"}, group=[slow], sweep=sweep)
    path.write_text(to_toml(study), encoding="utf-8")
    trace.write_text("agent,start,end\n0,0,4\n", encoding="utf-8")
    other.write_text("agent,start,end\n1,2,6\n", encoding="utf-8")
    first = load_study(path)
    worlds = [environment_of(cell.study) for cell in first.cells()]
    assert [world.common.availability.file for world in worlds] == [str(trace), str(other)]  # type: ignore[attr-defined]
    assert {world.of(1).availability.file for world in worlds} == {str(other)}  # type: ignore[attr-defined]
    digests = {first.digest()}
    for changed in (trace, other):
        changed.write_text("agent,start,end\n3,1,2\n", encoding="utf-8")
        digests.add(load_study(path).digest())
    assert len(digests) == 3
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in (path, trace, other):
        (moved / file.name).write_bytes(file.read_bytes())
    assert load_study(moved / path.name).digest() == load_study(path).digest()


def test_an_estimate_counts_only_the_messages_that_are_asked_for() -> None:
    every = estimate_cost(load_study(tables()))
    half = estimate_cost(load_study(tables(exchange={"selection": {"who": "poisson", "share": 0.5}})))
    assert half.messages_up == every.messages_up // 2 and half.bytes_up == every.bytes_up // 2
    assert half.evaluations == every.evaluations


def test_an_estimate_knows_that_idle_agents_evaluate_nothing() -> None:
    selection = {"who": "fraction", "share": 0.5, "others": "idle"}
    every = estimate_cost(load_study(tables(exchange={"mode": "barrier"})))
    half = estimate_cost(load_study(tables(exchange={"mode": "barrier", "selection": selection})))
    assert 0.4 * every.evaluations < half.evaluations < 0.7 * every.evaluations
    assert half.messages_up == every.messages_up // 2


def test_whatever_a_world_is_made_of_is_listed_with_its_settings() -> None:
    listed = groups()
    assert [item.name for item in listed["faults"]] == list(FAULTS)
    loss = next(item for item in listed["faults"] if item.name == "loss")
    assert loss.summary == "Transmissions are lost." and loss.settings["probability"] == "0.1"
    tables_of = {item.name: item.settings for item in listed["tables"]}
    assert tables_of["evaluation"]["failure"] == "'avoid'" and tables_of["exchange.staleness"]["decay"] == "0.5"
    assert next(item for item in listed["exchange"]).settings["staleness"].startswith('{weight = "constant"')


def test_every_run_has_its_world_its_policy_and_its_end(tmp_path: Path) -> None:
    study = load_study({**FULL, "sweep": {"budget.time": [20.0, 40.0], "agents.checkpoint": [2]}})
    jobs = runs(study, tmp_path)
    assert [(job.until, job.seconds, job.events) for job in jobs] == [(20.0, 5.0, 1000), (40.0, 5.0, 1000)]
    assert {(job.task.policy, job.task.checkpoint) for job in jobs} == {(Policy(2, "stop", 20.0), 2)}
    assert all(job.environment == environment_of(study) for job in jobs)


def test_histories_are_learned_under_the_policy_of_their_cell(tmp_path: Path) -> None:
    sweep = {"evaluation.retries": [0, 1], "network.attempts": [1, 2]}
    study = load_study(tables(agents={"history": {"algorithm": "random", "observations": 4}}, sweep=sweep))
    jobs = learnings(study, tmp_path)
    assert sorted(retries for _, retries in {(job.folder, job.task.policy.retries) for job in jobs}) == [0, 1]
    assert {job.folder for job in jobs} == {run.task.history.folder for run in runs(study, tmp_path)}
