"""Studies that stop early: verdicts and promotions by brute force, times, budgets, crashes, kills, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killing import End, Forks

import fedbo
from fedbo.lab.fork.fork import fork_run
from fedbo.lab.fork.trunk import ForkPoint
from fedbo.study.study import StudyError, load_study
from tests.random_studies.carrying_out import tables
from tests.random_studies.invariants import violations

STOPPERS: list[dict[str, Any]] = [
    {"kind": "asha"},
    {"kind": "asha", "variant": "promote", "checkpoint": 0.25},
    {"kind": "hyperband", "reduction": 2},
    {"kind": "hyperband", "variant": "promote"},
    {"kind": "median", "interval": 3, "others": 2},
]


def study(stopping: dict[str, Any] | None, **tables: Any) -> dict[str, Any]:
    made = {
        "study": {"name": "early", "seed": 3},
        "objective": {"name": "learning_curves", "agents": 2, "noise": 0.01},
        "budget": {"iterations": 25},
        "algorithm": [{"name": "random"}],
        "timing": {"evaluation": {"model": "exponential"}},
    }
    return made | tables | ({} if stopping is None else {"stopping": stopping})


def rows_of(directory: Path) -> list[dict[str, Any]]:
    return [row for row in pq.read_table(directory / "observations.parquet").to_pylist() if row["agent"] == 0]


@pytest.mark.parametrize("stopping", STOPPERS, ids=lambda one: " ".join(map(str, one.values())))
def test_verdicts_and_promotions_are_those_of_a_brute_force_replay_of_the_log(stopping: dict[str, Any], tmp_path: Path) -> None:
    loaded = load_study(study(stopping, evaluation={"parallel": 3}))
    fedbo.run(loaded, out=tmp_path / "run")
    assert violations(loaded, tmp_path / "run") == []
    rows, events = rows_of(tmp_path / "run"), pq.read_table(tmp_path / "run" / "events.parquet").to_pylist()
    assert {row["stopped"] for row in rows} >= {None, "paused" if "variant" in stopping else "stopped"}
    assert ("variant" in stopping) == any(event["kind"] == "promoted" for event in events)


def test_the_replay_finds_a_verdict_and_a_promotion_that_do_not_follow(tmp_path: Path) -> None:
    for stopping, kind, old, new in ((STOPPERS[0], "rung", "stop", "go"), (STOPPERS[1], "promoted", None, None)):
        loaded, directory = load_study(study(stopping)), tmp_path / kind
        fedbo.run(loaded, out=directory)
        events = pq.read_table(directory / "events.parquet")
        lines = events.to_pylist()
        place = next(place for place, line in enumerate(lines) if line["kind"] == kind and line["verdict"] == old)
        if new is None:
            lines[place]["kind"] = "done"
        else:
            lines[place]["verdict"] = new
        pq.write_table(pa.Table.from_pylist(lines, events.schema), directory / "events.parquet")
        assert any("stopping_early" in words for words in violations(loaded, directory))


def test_segments_take_the_part_of_the_time_that_they_are_of_the_fidelity_and_a_checkpoint_comes_on_top(tmp_path: Path) -> None:
    whole = {}
    for name, stopping in (("whole", None), ("stop", STOPPERS[0]), ("promote", STOPPERS[1])):
        fedbo.run(study(stopping), out=tmp_path / name)
        since: dict[tuple[int, int], int] = {}
        for row in sorted(rows_of(tmp_path / name), key=lambda row: row["t_n"]):
            key, length = (row["step"], row["query"]), row["finished"] - row["started"]
            if stopping is None:
                whole[key] = length
                continue
            begun = since.get(key, 0)
            more = stopping.get("checkpoint", 0.0) if begun else 0.0
            assert length == pytest.approx(whole[key] * (row["fidelity"] - begun) / 27 + more)
            since[key] = row["fidelity"]
        assert stopping is None or {1, 3, 9} <= set(since.values())


def test_what_a_time_limit_cuts_off_is_recorded_at_the_last_rung_that_it_reached(tmp_path: Path) -> None:
    """Rungs 1, 3, 9 and 27 of evaluations that take 1, and are cut off at 0.5; those of another length at any rung."""
    constant = {"evaluation": {"model": "constant", "mean": 1.0}}
    fedbo.run(study(STOPPERS[0], timing=constant, evaluation={"time_limit": 0.5}), out=tmp_path / "cut")
    cut = [row for row in rows_of(tmp_path / "cut") if row["error"] is not None]
    assert cut and all((row["fidelity"], len(row["rungs"])) == (9, 3) for row in cut)
    events = pq.read_table(tmp_path / "cut" / "events.parquet").to_pylist()
    assert {event["verdict"] for event in events if event["kind"] == "rung"} == {"go", "stop", "failed"}
    assert all(event["fidelity"] == 9 for event in events if event["kind"] == "rung" and event["verdict"] == "failed")
    for number, stopping in enumerate(STOPPERS):
        loaded = load_study(study(stopping, evaluation={"time_limit": 0.3, "parallel": 2}))
        fedbo.run(loaded, out=tmp_path / f"{number}")
        assert violations(loaded, tmp_path / f"{number}") == []


@pytest.mark.long
def test_an_evaluation_that_goes_on_to_its_end_has_the_value_that_it_has_without_a_stopper(tmp_path: Path) -> None:
    fedbo.run(study(None), out=tmp_path / "whole")
    fedbo.run(study({"kind": "median", "others": 100}), out=tmp_path / "never")
    columns = ["agent", "step", "query", "value", "score", "started", "finished", "t_n"]
    before, after = (pq.read_table(tmp_path / name / "observations.parquet").select(columns) for name in ("whole", "never"))
    assert before.drop(["started", "finished"]) == after.drop(["started", "finished"])
    assert before["finished"].to_pylist() == pytest.approx(after["finished"].to_pylist())


@pytest.mark.parametrize("state", [pytest.param("kept", marks=pytest.mark.long), "lost"])
def test_what_a_crash_interrupts_begins_again_at_its_last_rung(state: str, tmp_path: Path) -> None:
    fault = [{"kind": "crash", "rate": 0.3, "restart": 0.5, "state": state}]
    algorithm = [{"name": "ts", "surrogate": "features", "features": 12, "refit": 1000}]
    for stopping in STOPPERS[1:3]:
        made = study(stopping, fault=fault, algorithm=algorithm, evaluation={"parallel": 2}, agents={"checkpoint": 3})
        loaded = load_study(made)
        fedbo.run(loaded, out=tmp_path / stopping["kind"])
        assert violations(loaded, tmp_path / stopping["kind"]) == []
        assert "started" in {
            event["kind"] for event in pq.read_table(tmp_path / stopping["kind"] / "events.parquet").to_pylist()
        }


def test_evaluations_stop_on_the_workers_of_a_cluster_and_go_on_there_without_starting_again(tmp_path: Path) -> None:
    cluster = {"workers": 2, "startup": 0.5}
    fault = [{"kind": "preemption", "rate": 0.1, "duration": 0.3, "checkpoint": 0.1}]
    loaded = load_study(study(STOPPERS[0], cluster=cluster, fault=fault, evaluation={"parallel": 2, "time_limit": 2.0}))
    fedbo.run(loaded, out=tmp_path / "run")
    assert violations(loaded, tmp_path / "run") == []
    loaded = load_study(study(STOPPERS[0], cluster=cluster, timing={}))
    fedbo.run(loaded, out=tmp_path / "plain")
    ends = [row["finished"] - row["started"] for row in rows_of(tmp_path / "plain") if row["stopped"] is None]
    assert ends == pytest.approx([1.5] * len(ends))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("stopping", STOPPERS[1:3])
def test_a_run_that_is_killed_and_resumed_has_the_same_bytes(stopping: dict[str, Any], tmp_path: Path, forks: Forks) -> None:
    made = study(stopping, evaluation={"parallel": 2}, recovery={"events": 20})
    (tmp_path / "early.toml").write_text(load_study(made).to_toml(), encoding="utf-8")
    fedbo.run(made, out=tmp_path / "whole")
    assert forks("run", tmp_path / "early.toml", tmp_path / "killed", before=40).killed
    assert forks("resume", tmp_path / "killed") == End(0, "")
    assert tables(tmp_path / "killed") == tables(tmp_path / "whole")


@pytest.mark.parametrize("stopping", STOPPERS[:3])
def test_a_fork_with_nothing_changed_has_the_same_bytes(stopping: dict[str, Any], tmp_path: Path) -> None:
    fedbo.run(study(stopping, budget={"iterations": 12}), out=tmp_path / "whole")
    fork_run(tmp_path / "whole", [ForkPoint(event=15)], (), tmp_path / "fork")
    assert tables(tmp_path / "fork" / "branch-0001") == tables(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": {"name": "branin"}}, "requires objectives with a fidelity axis, but 'branin' has none"),
        ({"stopping": {"kind": "asah"}}, "no stopper 'asah'; did you mean 'asha'"),
        ({"stopping": {"kind": "asha", "smallest": 27}}, "must be at least 1 and below 27, the epochs of the objectives"),
        ({"stopping": {"kind": "median", "grace": 30}}, "must be at least 1 and below 27"),
        ({"stopping": {"kind": "asha", "reduction": 1}}, "must be at least 2"),
        ({"stopping": {"kind": "asha", "variant": "pause"}}, "promote"),
        ({"stopping": {"kind": "median", "compare": "quantiles"}}, "compare = 'quantiles': no such key"),
        ({"algorithm": [{"name": "fed_pne"}], "budget": {"pulls": 30}}, "cannot receive points one by one"),
        ({"algorithm": [{"name": "random", "centralised": True}]}, "evaluates a mean, which cannot stop early"),
        ({"timing": {"clock": "wall"}, "hosting": {"kind": "packed"}}, "requires evaluations that report, in real time"),
        (
            {"objective": {"name": "learning_curves", "epochs": 10**6}, "stopping": {"kind": "median"}},
            "makes more than 10,000 rungs",
        ),
    ],
)
def test_what_does_not_go_with_stopping_early_is_refused_in_a_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError) as error:
        load_study(study({"kind": "asha"}) | changes)
    assert message in str(error.value)
    assert any(message in line for line in str(error.value).splitlines())


def test_the_laws_know_that_nothing_is_promoted_once_the_cost_is_spent(tmp_path: Path) -> None:
    """They refuse the tables of a run with one cost as those of a study with a smaller or larger one."""
    budget = {"iterations": 25, "cost": 2.0}
    tables = study(STOPPERS[1], budget=budget, evaluation={"parallel": 3}, timing={"evaluation": {"model": "constant"}})
    fedbo.run(tables, out=tmp_path / "run")
    assert violations(load_study(tables), tmp_path / "run") == []
    for cost, words in ((1.0, "of the cost"), (10.0, "did not promote")):
        other = load_study({**tables, "budget": {**budget, "cost": cost}})
        found = [found for found in violations(other, tmp_path / "run") if "stopping_early" in found]
        assert any(words in one for one in found)
