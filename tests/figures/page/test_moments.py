"""A run at every moment, against a plain reading of its events."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from synthetic_run import document, write_run

from fedbo.analysis.finished_run import fault_names
from fedbo.analysis.grouping import one_run
from fedbo.analysis.result import Result
from fedbo.analysis.schemas import EVENTS
from fedbo.coordinator.logged.kinds import KINDS
from fedbo.execution.runner import run_study
from fedbo.figures.page.moments import SENTENCES, RunMoments, moments_of
from fedbo.study.study import load_study

LOSSY: dict[str, Any] = {
    "study": {"name": "lossy", "seed": 3},
    "objective": {"name": "quadratic", "agents": 5},
    "agents": {"initial": 2},
    "budget": {"iterations": 8},
    "algorithm": [{"name": "fts", "own": {"surrogate": "features"}, "features": 10}],
    "timing": {
        "evaluation": {"model": "pareto", "mean": 1.0, "alpha": 1.5},
        "latency": {"model": "exponential", "mean": 0.3},
    },
    "network": {"attempts": 3},
    "fault": [
        {"kind": "loss", "label": "bad link", "probability": 0.15},
        {"kind": "crash", "agents": [2], "at": 6.0, "restart": 2.0},
        {"kind": "hang", "agents": [3], "at": 5.0, "duration": 1.5},
        {"kind": "crash", "agents": [4], "at": 15.0},
    ],
}
MODES: list[dict[str, Any]] = [
    {"mode": "barrier"},
    {"mode": "deadline", "length": 1.5, "late": "carry"},
    {"mode": "first_k", "k": 3},
    {"mode": "immediate"},
]


def moments(result: Result, label: str) -> tuple[RunMoments, list[dict[str, Any]]]:
    """Give the first run of an algorithm, with its events as dicts."""
    events = one_run(result.events, 0, label, 0)
    traces = [one for one in result.traces if (one.cell, one.algorithm, one.replicate) == (0, label, 0)]
    return moments_of(events, traces, result.metric(0), fault_names(result.study)), events.to_pylist()


@pytest.fixture(scope="module", params=MODES, ids=lambda mode: str(mode["mode"]))
def lossy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunMoments, list[dict[str, Any]]]:
    study = load_study({**LOSSY, "exchange": request.param})
    return moments(run_study(study, tmp_path_factory.mktemp("lossy") / "run"), "fts")


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunMoments, list[dict[str, Any]]]:
    return moments(Result.open(write_run(tmp_path_factory.mktemp("runs") / "run", document(), troubled=True)), "Together")


def plainly(rows: list[dict[str, Any]], agent: int, when: float) -> tuple[str, int | None]:
    """Say what an agent does right after a time, and in which step, from its events until then, one by one."""
    busy, away, down, hung, over, step = False, 0, 0, 0, "", None
    for row in rows:
        if row["agent"] != agent or row["time"] > when or over:
            continue
        kind = row["kind"]
        busy = {"started": True, "finished": False, "crashed": False, "done": False}.get(kind, busy)
        away += {"absent": 1, "returned": -1}.get(kind, 0)
        down += {"crashed": 1, "restarted": -1}.get(kind, 0)
        hung += {"hung": 1, "woke": -1}.get(kind, 0)
        step = row["step"] if kind == "started" else step
        over = "done" if kind == "done" else "lost" if kind == "crashed" and row["permanent"] else ""
    doing = over or ("crashed" if down else "hanging" if hung else "away" if away else "evaluating" if busy else "waiting")
    return doing, step if doing == "evaluating" else None


def check_lives(found: RunMoments, rows: list[dict[str, Any]]) -> None:
    times = np.unique([0.0, *(row["time"] for row in rows)])
    middles = [*(times[:-1] + times[1:]) / 2, times[-1] + 1]
    for agent in found.agents:
        own = found.lives[agent]
        for when in middles:
            assert [(one.doing, one.step) for one in own if one.time <= when][-1] == plainly(rows, agent, when), (agent, when)


def test_what_agents_do_is_what_their_events_say(lossy: Any, troubled: Any) -> None:
    check_lives(*lossy)
    check_lives(*troubled)


def test_one_step_may_follow_another_without_a_pause(tmp_path: Path) -> None:
    study = load_study({**LOSSY, "algorithm": [{"name": "random"}], "fault": [], "network": {}})
    found, rows = moments(run_study(study, tmp_path / "run"), "random")
    check_lives(found, rows)
    assert [one.step for one in found.lives[0]] == [*range(9), None]


def test_in_a_run_that_has_not_ended_agents_do_something_after_their_last_event(lossy: Any) -> None:
    _, rows = lossy
    half = rows[: len(rows) // 2]
    check_lives(moments_of(pa.Table.from_pylist(half, schema=EVENTS), (), None), half)


def test_every_transmission_has_the_end_that_the_log_tells(lossy: Any) -> None:
    found, rows = lossy
    kinds = Counter((row["kind"], row["answer"] is None) for row in rows)
    up = [one for one in found.transmissions if one.up]
    assert len(up) == kinds["sent", True]
    fates = Counter(one.fate for one in up)
    assert fates["arrived"] == kinds["arrived", True] and fates["late"] == kinds["late", True]
    assert fates["lost"] == kinds["lost", True] > 0
    down = Counter(one.fate for one in found.transmissions if not one.up)
    assert down["arrived"] == kinds["delivered", False]
    assert {one.why for one in found.transmissions if one.fate == "lost"} <= {"bad link", "agent ended"}
    for one in found.transmissions:
        assert one.end is None or one.begin <= one.end


def test_of_two_transmissions_at_once_the_first_arrives_first() -> None:
    key = {"cell": 0, "algorithm": "fts", "replicate": 0, "agent": 0, "step": 1}
    told = [(0.0, "sent"), (1.0, "sent"), (1.5, "arrived"), (2.0, "rejected"), (3.0, "sent"), (4.0, "sent"), (4.0, "lost")]
    rows = [{**key, "time": time, "kind": kind, "sequence": number} for number, (time, kind) in enumerate(told)]
    found = moments_of(pa.Table.from_pylist(rows, schema=EVENTS), (), None).transmissions
    assert [(one.begin, one.end, one.fate) for one in found] == [
        (0.0, 1.5, "arrived"), (1.0, 2.0, "refused"), (3.0, None, "not arrived"), (4.0, 4.0, "lost")
    ]  # fmt: skip


def test_an_answer_leaves_when_its_round_closes(lossy: Any) -> None:
    found, rows = lossy
    closed = {row["round"]: row["time"] for row in rows if row["kind"] == "round"}
    arrivals = [(row["agent"], row["time"]) for row in rows if row["kind"] == "arrived"]
    first = {(one.agent, one.number): one.begin for one in reversed(found.transmissions) if not one.up}
    assert first
    for (agent, number), begin in first.items():
        assert begin == closed[number] if closed else (agent, begin) in arrivals


def test_the_event_that_closes_a_round_is_named(lossy: Any) -> None:
    found, rows = lossy
    assert len(found.rounds) == sum(row["kind"] == "round" for row in rows)
    opened = 0.0
    for one in found.rounds:
        arrived = sorted(row["time"] for row in rows if row["kind"] == "arrived" and opened < row["time"] <= one.time)
        if one.kind == "arrived":
            assert arrived[-1] == one.time and one.before == (arrived[-2] if len(arrived) > 1 else None)
            (last,) = [row["agent"] for row in rows if row["kind"] == "arrived" and row["time"] == one.time]
            assert one.agent == last
        if one.agent is None:
            assert not arrived or arrived[-1] < one.time
        opened = one.time


def test_how_far_an_agent_is_behind_counts_what_came_after_its_last_answer(lossy: Any) -> None:
    found, rows = lossy
    rounds = [row["time"] for row in rows if row["kind"] == "round"]
    for agent, own in found.known.items():
        delivered = [row for row in rows if row["kind"] == "delivered" and row["agent"] == agent]
        assert [time for time, _ in own] == [row["time"] for row in delivered]
        for (time, count), row in zip(own, delivered, strict=True):
            if rounds:
                assert count == max(other["answer"] for other in delivered if other["time"] <= time) + 1
            else:
                arrived = [other for other in rows if other["kind"] == "arrived"]
                left = [other["time"] for other in arrived if other["agent"] == agent and other["time"] <= row["time"]]
                assert count in {sum(other["time"] <= begin for other in arrived) for begin in left}
    assert found.ticks == (rounds or [row["time"] for row in rows if row["kind"] == "arrived"])


def test_best_values_fall_to_the_final_one(tmp_path: Path) -> None:
    result = Result.open(write_run(tmp_path / "run", document()))
    found, _ = moments(result, "Together")
    finals = {one["agent"]: one for one in result.best("agent") if (one["algorithm"], one["replicate"]) == ("Together", 0)}
    for agent, own in found.bests.items():
        values = [one.value for one in own]
        assert values == sorted(values, reverse=True)  # it is an error
        assert values[-1] == finals[agent]["value"] and own[-1].step == finals[agent]["step"]


def test_every_kind_of_event_of_agents_and_messages_has_a_sentence(troubled: Any) -> None:
    assert set(SENTENCES) - {"lost down"} <= set(KINDS)
    found, rows = troubled
    assert len(found.log) == sum(row["kind"] in SENTENCES and not (row["kind"] == "rejected" and row["answer"]) for row in rows)
    assert [one.time for one in found.log] == sorted(one.time for one in found.log)
