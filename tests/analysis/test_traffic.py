"""What was transmitted and what arrived: bytes both ways, and why messages were lost, agent by agent."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.analysis import curves, trouble, trouble_by_agent
from fedbo.analysis.grouping import bytes_of, sent_down, sent_up
from fedbo.analysis.result import Result
from fedbo.lab.twins.measurements import Measurements, _messages


def study(*faults: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a study of two methods in lock-step, of which one sends."""
    return {
        "study": {"name": "traffic", "seed": 3},
        "objective": {"name": "quadratic", "agents": 3},
        "budget": {"iterations": 6},
        "algorithm": [{"name": "random"}, {"name": "fts", "every": 1, "label": "fts"}],
        "exchange": {"mode": "barrier"},
        "timing": {"evaluation": {"model": "exponential", "mean": 1.0}, "latency": {"model": "constant", "mean": 0.05}},
        "fault": list(faults),
        **more,
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Run it without faults, with answers that are all lost, and with losses on both ways."""
    folder = tmp_path_factory.mktemp("traffic")
    faults: dict[str, list[dict[str, Any]]] = {
        "plain": [],
        "deaf": [{"kind": "loss", "probability": 1.0, "direction": "down"}],
        "lossy": [
            {"kind": "loss", "label": "bad line", "agents": [1], "probability": 0.5},
            {"kind": "partition", "agents": [2], "at": 8.0, "duration": 6.0},
            {"kind": "coordinator", "at": 1.0, "duration": 4.0},
        ],
    }
    return {name: fedbo.run(study(*given, network={"attempts": 1}), out=folder / name) for name, given in faults.items()}


def moved(result: Result) -> float:
    """Return where the axis of bytes ends."""
    return max(float(curve.x[-1]) for curve in curves(result, "bytes"))


def test_an_answer_that_is_lost_costs_what_one_that_arrives_costs(runs: dict[str, Result]) -> None:
    plain, deaf = runs["plain"].summary()[1], runs["deaf"].summary()[1]
    assert deaf.bytes_down == plain.bytes_down > 0 and deaf.bytes_up == plain.bytes_up > 0
    assert moved(runs["deaf"]) == pytest.approx(moved(runs["plain"]))
    assert trouble(runs["deaf"])[1].bytes_delivered == 0
    row = trouble(runs["plain"])[1]
    assert row.bytes_down == row.bytes_delivered and row.bytes_up == row.bytes_arrived


@pytest.mark.parametrize("name", ["plain", "deaf", "lossy"])
def test_every_table_and_the_axis_charge_the_same_bytes(runs: dict[str, Result], name: str) -> None:
    result = runs[name]
    events = result.events.to_pylist()
    up = sum(one["bytes"] for one in events if one["kind"] == "sent")
    answers = [one for one in events if one["kind"] in ("delivered", "missed") or one["direction"] == "down"]
    down = sum(one["bytes"] or 0 for one in answers)
    assert (up, down) == tuple(map(bytes_of, (sent_up(result.events), sent_down(result.events))))
    row, summary = trouble(result)[1], result.summary()[1]
    assert (row.bytes_up, row.bytes_down) == (up, down)
    assert (3 * summary.bytes_up, 3 * summary.bytes_down) == (pytest.approx(up), pytest.approx(down))
    last = max(trace.finished[-1] for trace in result.traces if trace.algorithm == "fts")
    before = sum(one["bytes"] or 0 for one in events if one["time"] < last and (one["kind"] == "sent" or one in answers))
    assert moved(result) == pytest.approx(before / 3)


def test_losses_have_their_causes_and_their_agents(runs: dict[str, Result]) -> None:
    result = runs["lossy"]
    causes = Counter((one["reason"], one["fault"]) for one in result.events.to_pylist() if one["kind"] == "lost")
    row = trouble(result)[1]
    assert row.lost_to == {
        "bad line": causes["fault", 0],
        "coordinator down": causes["coordinator_down", None],
        "partition": causes["partition", None],
    }
    assert all(row.lost_to.values()) and sum(row.lost_to.values()) == row.lost + row.answers_lost
    own = [one for one in trouble_by_agent(result) if one.algorithm == "fts"]
    assert [set(one.lost_to) & {"bad line", "partition"} for one in own] == [set(), {"bad line"}, {"partition"}]
    for name in ("sent", "lost", "late", "stale", "answers", "answers_lost", "bytes_up", "bytes_down"):
        assert sum(getattr(one, name) for one in own) == getattr(row, name)
    for state in ("evaluating", "queueing", "waiting", "away", "down"):
        assert np.mean([getattr(one, state) for one in own]) == pytest.approx(getattr(row, state))


def test_time_in_the_queue_for_workers_is_no_work(tmp_path: Path) -> None:
    shared = {
        "cluster": {"worker": [{"name": "only", "count": 1}]},
        "timing": {"evaluation": {"model": "exponential", "mean": 1.0}},
    }
    alone, _ = trouble(fedbo.run(study(**shared, algorithm=[{"name": "random"}, {"name": "ts"}]), out=tmp_path / "run"))
    assert alone.queueing > 0 and alone.utilisation < 0.5
    assert alone.evaluating / (alone.evaluating + alone.queueing + alone.waiting) == pytest.approx(alone.utilisation)


@pytest.mark.long
def test_the_loss_that_is_fitted_to_a_run_is_that_of_its_fault(tmp_path: Path) -> None:
    losing = study({"kind": "loss", "probability": 0.5}, budget={"iterations": 60}, network={"attempts": 1})
    run = fedbo.run({**losing, "algorithm": [losing["algorithm"][1]]}, out=tmp_path / "run")
    into = Measurements()
    _messages(into, run.events)
    assert into.lost / into.sent == pytest.approx(0.5, abs=0.08), "answers that were lost were transmitted, too"
