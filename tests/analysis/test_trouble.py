"""What agents did when, and the measures of trouble, against numbers reckoned by hand and by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from synthetic_run import document, write_run

from fedbo.analysis import trouble
from fedbo.analysis.agent_states import STATES, EventInterval, event_intervals, state_intervals
from fedbo.analysis.disruptions import disruptions
from fedbo.analysis.grouping import by_run
from fedbo.analysis.result import Result
from fedbo.analysis.schemas import EVENTS

Mark = tuple[float, str] | tuple[float, str, dict[str, Any]]


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("runs") / "troubled"
    return Result.open(write_run(folder, document(agents=7, iterations=12), troubled=True))


def log(*lives: Sequence[Mark]) -> Any:
    """Return the events of one run from each agent's time, kind and other facts."""
    lines = sorted(((agent, *mark) for agent, life in enumerate(lives) for mark in life), key=lambda line: (line[1], line[0]))
    blank = {"cell": 0, "algorithm": "A", "replicate": 0}
    rows = [
        {**blank, "sequence": number, "time": time, "agent": agent, "kind": kind, **dict(*facts)}
        for number, (agent, time, kind, *facts) in enumerate(lines)
    ]
    return pa.Table.from_pylist(rows, schema=EVENTS)


def listed(events: Any) -> list[tuple[int, float, float, str]]:
    found = state_intervals(events)
    return [
        (int(agent), float(begin), float(end), STATES[state])
        for agent, begin, end, state in zip(found.agent, found.begin, found.end, found.state, strict=True)
    ]


def test_pauses_in_the_middle_of_a_step_are_not_spent_evaluating() -> None:
    life = [(1.0, "started"), (2.0, "absent"), (4.0, "returned"), (5.0, "hung"), (5.5, "woke"),
            (7.0, "finished"), (8.0, "done"), (9.0, "arrived", {"staleness": 0}), (9.0, "absent")]  # fmt: skip
    assert listed(log(life)) == [
        (0, 0.0, 1.0, "waiting"),
        (0, 1.0, 2.0, "evaluating"),
        (0, 2.0, 4.0, "away"),
        (0, 4.0, 5.0, "evaluating"),
        (0, 5.0, 5.5, "down"),
        (0, 5.5, 7.0, "evaluating"),
        (0, 7.0, 8.0, "waiting"),
    ]


def test_after_a_crash_a_step_is_begun_again_and_a_crash_for_good_ends_a_life() -> None:
    life = [(0.0, "started"), (1.0, "crashed", {"state": "kept"}), (3.0, "restarted"), (3.5, "started", {"again": True}),
            (5.0, "crashed", {"permanent": True}), (6.0, "arrived", {"staleness": 2}), (7.0, "delivered")]  # fmt: skip
    other = [(0.0, "started"), (4.0, "finished")]
    assert listed(log(life, other)) == [
        (0, 0.0, 1.0, "evaluating"),
        (0, 1.0, 3.0, "down"),
        (0, 3.0, 3.5, "waiting"),
        (0, 3.5, 5.0, "evaluating"),
        (1, 0.0, 4.0, "evaluating"),
    ]


def test_being_down_comes_before_being_away() -> None:
    life = [(0.0, "absent"), (1.0, "crashed", {"state": "lost"}), (2.0, "returned"), (3.0, "restarted"), (4.0, "done")]
    assert [(begin, state) for _, begin, _, state in listed(log(life))] == [(0, "away"), (1, "down"), (3, "waiting")]


def test_faults_that_overlap_are_over_when_the_last_one_is() -> None:
    life = [(0.0, "started"), (1.0, "hung", {"step": 1}), (2.0, "hung", {"step": 2}), (3.0, "woke"), (5.0, "woke"),
            (6.0, "finished")]  # fmt: skip
    assert [(begin, state) for _, begin, _, state in listed(log(life))] == [(0, "evaluating"), (1, "down"), (5, "evaluating")]
    (one,) = event_intervals(log(life), "hung", "woke")
    assert (one.agent, one.begin, one.end, one.ends, one.first["step"]) == (0, 1, 5, True, 1)


def test_copies_and_messages_that_were_given_up_are_no_refusals(tmp_path: Path) -> None:
    result = Result.open(write_run(tmp_path / "run", document(agents=1, iterations=1, replicates=1)))
    refusals: list[dict[str, Any]] = [{"reason": "malformed"}, {"reason": "duplicate"}, {"reason": "duplicate", "answer": 3},
                                      {"reason": "given_up", "attempts": 3}]  # fmt: skip
    (row,) = disruptions(result.observations, log([(float(n), "rejected", facts) for n, facts in enumerate(refusals)]))
    assert (row.rejected, row.duplicates, row.answer_copies, row.given_up) == (1, 1, 1, 1)


def test_agents_that_are_lost_before_their_first_evaluation_have_none(tmp_path: Path) -> None:
    """The third has no row at all, and the fourth optimises nothing."""
    result = Result.open(write_run(tmp_path / "run", document(agents=2, iterations=1, replicates=1)))
    lost = [(0.0, "started"), (0.5, "crashed", {"permanent": True})]
    events = log([(0.0, "started")], [(0.0, "started")], lost, [(0.0, "started"), (0.0, "done")])
    label = pa.array(result.study.labels[:1] * len(events))
    events = events.set_column(1, events.schema.field(1), label)
    for optimising, barren in ((None, 0), ({0: range(3)}, 1), ({0: (0, 1)}, 0)):
        (row,) = disruptions(result.observations, events, optimising=optimising)
        assert row.barren == barren


def test_messages_of_agents_that_lie_are_counted_and_told(tmp_path: Path) -> None:
    result = Result.open(write_run(tmp_path / "run", document(agents=2, iterations=1, replicates=1)))
    marks = [
        (1.0, "falsified", {"lies": ["inverted"]}),
        (1.0, "sent"),
        (2.0, "falsified", {"lies": ["constant"]}),
        (2.0, "sent"),
    ]
    (row,) = disruptions(result.observations, log(marks, [(1.0, "sent")]))
    assert (row.falsified, row.sent) == (2, 3)


def test_what_nobody_ended_lasts_until_the_life_or_the_run_is_over() -> None:
    first = [(1.0, "absent"), (2.0, "done")]
    second = [(1.0, "crashed", {"state": "lost"}), (2.5, "restarted"), (3.0, "absent"), (9.0, "arrived")]
    found = [one._replace(first={}) for one in event_intervals(log(first, second), "absent", "returned")]
    assert found == [EventInterval(0, 1, 2, {}, False), EventInterval(1, 3, 9, {}, False)]
    (crash,) = event_intervals(log(first, second), "crashed", "restarted")
    assert (crash.agent, crash.begin, crash.end, crash.ends, crash.first["state"]) == (1, 1, 2.5, True, "lost")
    assert event_intervals(log(), "down", "up") == [] and listed(log()) == []


def by_brute_force(rows: Sequence[dict[str, Any]], agent: int) -> dict[str, float]:
    """Walk through one agent's events one by one."""
    spent, state = dict.fromkeys(STATES, 0.0), {"step": False, "away": False, "crashed": False, "hung": False}
    now = 0.0
    switch = {"started": ("step", True), "finished": ("step", False), "absent": ("away", True), "returned": ("away", False),
              "crashed": ("crashed", True), "restarted": ("crashed", False), "hung": ("hung", True),
              "woke": ("hung", False)}  # fmt: skip
    for row in rows:
        if row["agent"] != agent or row["kind"] in ("arrived", "late", "lost", "rejected", "cut", "joined"):
            continue
        doing = "evaluating" if state["step"] else "waiting"
        doing = "down" if state["crashed"] or state["hung"] else "away" if state["away"] else doing
        spent[doing] += row["time"] - now
        now = row["time"]
        if row["kind"] in switch:
            name, value = switch[row["kind"]]
            state[name] = value
        if row["kind"] == "crashed":
            state["step"] = False
        if row["kind"] == "done" or row["permanent"]:
            break
    return spent


def test_times_and_utilisation_are_those_of_walking_through_the_log(troubled: Result) -> None:
    for row in trouble(troubled):
        spent = {state: np.zeros(3) for state in STATES}
        for key, events in by_run(troubled.events):
            if key.algorithm == row.algorithm:
                for agent in range(7):
                    for state, time in by_brute_force(events.to_pylist(), agent).items():
                        spent[state][key.replicate] += time / 7
        means = {state: float(times.mean()) for state, times in spent.items()}
        assert {state: getattr(row, state) for state in STATES} == pytest.approx(means)
        assert row.utilisation == pytest.approx(means["evaluating"] / sum(means.values()))
        assert 0 < row.utilisation < 1 and row.down > 0 and row.away > 0


def test_what_was_lost_is_apart_from_useful_work_and_by_its_cause(tmp_path: Path) -> None:
    """By hand: step 0 was forgotten, step 1 crashed after 2 and came too late after 3, step 2 lost a worker for 0.5."""
    result = Result.open(write_run(tmp_path / "run", document(agents=1, iterations=2, replicates=1)))
    row = {**result.observations.to_pylist()[0], "algorithm": "A", "query": 0}
    rows = [{**row, "step": step, "started": begin, "finished": end, "error": error} for step, begin, end, error in
            ((0, 0.0, 1.0, "forgotten in a crash"), (1, 5.0, 8.0, None), (2, 10.0, 11.0, None))]  # fmt: skip
    worker = {"step": 2, "query": 0, "worker": 0}
    life = [(0.0, "started", {"step": 0}), (1.0, "finished", {"step": 0}), (2.0, "started", {"step": 1}),
            (4.0, "crashed", {"state": "lost"}), (5.0, "restarted"), (5.0, "started", {"step": 1, "again": True}),
            (8.0, "finished", {"step": 1}), (8.0, "sent", {"step": 1}), (8.2, "late", {"step": 1}),
            (8.5, "started", {"step": 2}), (8.5, "placed", {**worker, "queued_at": 8.5}),
            (9.3, "preempted", {**worker, "lost": 0.5}), (10.0, "placed", {**worker, "queued_at": 9.3}),
            (11.0, "released", worker), (11.0, "finished", {"step": 2}), (11.5, "rejected", {"step": 2, "reason": "given_up"}),
            (12.0, "done")]  # fmt: skip
    (found,) = disruptions(pa.Table.from_pylist(rows, result.observations.schema), log(life))
    lost = found.lost_to_crashes, found.lost_to_preemption, found.lost_to_lateness
    assert lost == pytest.approx((1.0 + 2.0, 0.5, 3.0)) and found.useful == pytest.approx(0.3 + 1.0)
    assert found.evaluating == pytest.approx(7.8) and found.queueing == pytest.approx(0.7)
    assert found.evaluating + found.queueing + found.waiting + found.away + found.down == pytest.approx(12.0)


def test_messages_are_counted_by_their_fate(troubled: Result) -> None:
    rows = [row for row in troubled.events.to_pylist() if row["algorithm"] == "Together"]

    def count(kind: str, **facts: str) -> float:
        return sum(row["kind"] == kind and all(row[name] == fact for name, fact in facts.items()) for row in rows) / 3

    _, together = trouble(troubled)
    assert (together.sent, together.arrived, together.late) == (count("sent"), count("arrived"), count("late"))
    assert (together.lost, together.answers_lost) == (count("lost", direction="up"), count("lost", direction="down"))
    assert together.duplicates == count("rejected", reason="duplicate") > 0
    assert together.rejected == pytest.approx(count("rejected") - together.duplicates) and together.rejected > 0
    assert together.sent + together.duplicates == pytest.approx(
        together.arrived + together.late + together.lost + together.rejected + together.duplicates
    )
    stale = [row["staleness"] for row in rows if row["kind"] == "arrived"]
    assert (together.staleness, together.max_staleness) == (pytest.approx(np.mean(stale)), max(stale))
    assert (together.rounds, together.round_length) == (count("round"), pytest.approx(2.5))


def test_failures_are_counted_apart_from_what_was_forgotten(troubled: Result) -> None:
    for row in trouble(troubled):
        errors = [one["error"] for one in troubled.observations.to_pylist() if one["algorithm"] == row.algorithm]
        assert row.failed == errors.count("ValueError: no") / 3 > 0
        assert row.forgotten == errors.count("forgotten in a crash") / 3 > 0
        assert row.barren == 0


def test_an_algorithm_that_is_alone_has_no_staleness_and_no_rounds(tmp_path: Path) -> None:
    alone, _ = trouble(Result.open(write_run(tmp_path / "run", document(agents=2, iterations=1, replicates=1))))
    assert (alone.sent, alone.staleness, alone.max_staleness, alone.round_length) == (0, None, None, None)


def test_rows_with_an_error_are_evaluations_but_no_observations(troubled: Result) -> None:
    rows = troubled.observations.to_pylist()
    for row in troubled.summary():
        mine = [one for one in rows if one["algorithm"] == row.algorithm]
        assert row.evaluations == len(mine) / 3
        best = [
            -max(one["score"] for one in mine if (one["replicate"], one["agent"]) == (r, a) and one["error"] is None)
            for r in range(3)
            for a in range(7)
        ]
        assert row.final.mean == pytest.approx(np.mean(best))
    assert [row["error"] for row in rows if row["error"]] != []
    for found in troubled.best("agent"):
        assert np.isfinite(found["value"])


def test_a_study_that_was_cut_short_is_measured_on_the_runs_that_ended(troubled: Result) -> None:
    ended = [[0, "Alone", 0], [0, "Alone", 1], [0, "Together", 1]]
    cut = Result(troubled.directory, troubled.study, {**troubled.manifest, "status": "interrupted", "complete_runs": ended})
    assert [row.replicates for row in trouble(cut)] == [2, 1]
    sent = [row for row in troubled.events.to_pylist() if row["kind"] == "sent" and row["replicate"] == 1]
    assert trouble(cut)[1].sent == len(sent)
    assert cut.summary()[1].bytes_up == pytest.approx(sum(row["bytes"] for row in sent) / 7)
