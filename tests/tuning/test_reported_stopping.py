"""Early stopping in real time: reports are answered, verdicts are a function of the log, and evaluations are ended."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tuned_functions
from tuned_functions import SPACE

import fedbo
from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.algorithms.streams import Streams
from fedbo.execution.replay import replay
from fedbo.objectives.typed_function import TypedFunction
from fedbo.objectives.typed_spaces.reports import Report
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.settings.errors import ArgumentError
from fedbo.stopping.reported import ReportedStopping, ReportJudge
from fedbo.stopping.stoppers import Halving, Hyperband, Median, Stopper
from fedbo.stopping.stopping import Stopping
from fedbo.tuning.tune import tuning_study

NOW = [30, 15, 6, 24, 3, 27]  # n of one evaluation after the other: the value of step s is n / 30 * s / 4


def rules(folder: Path, stopper: Stopper, sign: int = 1) -> ReportedStopping:
    return ReportedStopping(Stopping(stopper, 1, 4), folder, sign)


def evaluated(
    folder: Path, function: Any, policy: Policy = Policy(), log: EvaluationLog | None = None  # noqa: B008
) -> list[EvaluationRecord]:  # fmt: skip
    """Make evaluations one after the other, as an agent with one place does."""
    federation = TypedFunction(function, written_space(SPACE), steps=4)
    rng, evaluator = np.random.default_rng(1), Evaluator(policy, real=True, log=log)
    evaluator.stopping = rules(folder, Halving(reduction=2))
    objective, found = federation.objective(0, rng, rng), list[EvaluationRecord]()
    for number, n in enumerate(NOW):
        x = np.array([each.high if each.name == "rate" else n if each.name == "n" else 0.0 for each in federation.parameters])
        found.append(evaluator(objective, Query(0, number, 0, x, step=number), Streams(1).of(0), time.time))
    evaluator.close()
    return found


def by_brute_force() -> list[list[float]]:
    """Give the values at rungs 1, 2 and 4 of each evaluation of `NOW` up to the one where successive halving by 2 stops it."""
    seen: dict[int, list[float]] = {1: [], 2: []}
    found = []
    for n in NOW:
        found.append([n / 30 / 4])
        for rung, after in ((1, 2), (2, 4)):
            value = n / 30 * rung / 4
            seen[rung].append(value)
            better = sum(other > value for other in seen[rung])
            if better >= max(1, len(seen[rung]) // 2):
                break
            found[-1].append(n / 30 * after / 4)
    return found


def test_evaluations_stop_where_successive_halving_by_brute_force_stops_them(tmp_path: Path) -> None:
    found = evaluated(tmp_path, tuned_functions.training)
    assert [one.rungs for one in found] == by_brute_force()
    stopped = [one.stopped is not None for one in found]
    assert stopped == [len(each) < 3 for each in by_brute_force()] and True in stopped and False in stopped
    assert [one.fidelity for one in found] == [(1, 2, 4)[len(each) - 1] for each in by_brute_force()]
    assert [one.outcome.value for one in found] == [(one.rungs or [])[-1] for one in found]
    lines = [json.loads(line) for line in (tmp_path / "rungs-0.jsonl").read_text().splitlines()]
    assert [line[3] for line in lines] == [value for each in by_brute_force() for value in each]


@pytest.mark.parametrize("policy", [Policy(), Policy(time_limit=60.0)], ids=["in this process", "in one of its own"])
def test_one_that_goes_on_reporting_is_ended_with_the_value_at_which_it_was_stopped(policy: Policy, tmp_path: Path) -> None:
    found = evaluated(tmp_path, tuned_functions.stubborn, policy)
    assert all(one.error is None for one in found)
    assert [one.outcome.value for one in found if one.stopped] == [(one.rungs or [])[-1] for one in found if one.stopped]
    assert {one.outcome.value for one in found if not one.stopped} == {99.0}


def said(judge: ReportJudge, values: Sequence[float]) -> list[str]:
    return [judge(Report(step, value)) for step, value in enumerate(values, 1)]


@pytest.mark.parametrize("stopper", [Halving(reduction=2), Hyperband(reduction=2), Median(others=1)])
def test_what_is_begun_again_after_a_kill_is_told_the_same(stopper: Stopper, tmp_path: Path) -> None:
    told, streams = rules(tmp_path, stopper), Streams(1).of(0)
    queries = [Query(0, number, 0, np.zeros(1), step=number) for number in range(12)]
    values = [[float(number * 5 % 12), float(number * 7 % 12), 1.0, 1.0] for number in range(12)]
    first = [said(told.judge(query, streams), each) for query, each in zip(queries, values, strict=True)]
    written = (tmp_path / "rungs-0.jsonl").read_bytes()
    again = [said(told.judge(query, streams), [0.0] * 4) for query in queries]  # another value: what was said first stays
    assert again == first and (tmp_path / "rungs-0.jsonl").read_bytes() == written
    assert {word for each in first for word in each} == {"go", "stop"}


def test_a_line_that_a_kill_has_cut_is_written_anew(tmp_path: Path) -> None:
    told, streams = rules(tmp_path, Halving()), Streams(1).of(0)
    for number in range(3):
        said(told.judge(Query(0, number, 0, np.zeros(1)), streams), [float(number)])
    path = tmp_path / "rungs-0.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    said(told.judge(Query(0, 2, 0, np.zeros(1)), streams), [2.0])
    assert path.read_bytes() == whole


def test_the_log_of_rungs_is_made_again_from_the_evaluations(tmp_path: Path) -> None:
    found = evaluated(tmp_path, tuned_functions.training)
    path = tmp_path / "rungs-0.jsonl"
    written = path.read_bytes()
    path.unlink()
    records = [replace(one, started=float(place), finished=place + 0.5) for place, one in enumerate(found)]
    places = {one.started: (one.number, 0) for one in records}
    rules(tmp_path, Halving(reduction=2)).recall(Streams(1).of(0), places, records)
    assert path.read_bytes() == written


def test_values_that_are_to_be_small_steps_that_are_left_out_and_values_that_are_no_numbers(tmp_path: Path) -> None:
    told, streams = rules(tmp_path, Halving(reduction=2), sign=-1), Streams(1).of(0)
    judges = [told.judge(Query(0, number, 0, np.zeros(1)), streams) for number in range(3)]
    assert [judge(Report(3.0, value)) for judge, value in zip(judges, (0.2, 0.5, 0.1), strict=True)] == ["go", "stop", "go"]
    assert told.judge(Query(0, 3, 0, np.zeros(1)), streams)(Report(1.0, float("nan"))) == "stop"
    assert judges[0](Report(3.0, 9.0)) == "go", "a rung is passed once"
    lines = [json.loads(line) for line in (tmp_path / "rungs-0.jsonl").read_text().splitlines()]
    assert [line[2] for line in lines] == [1, 2, 1, 1, 2, 1]


def test_an_evaluation_that_was_stopped_is_found_in_the_log(tmp_path: Path) -> None:
    def opened() -> EvaluationLog:
        return EvaluationLog(RunFolder(tmp_path, RunKey(0, "ts", 0)), {0}, None)

    log = opened()
    first = evaluated(tmp_path, tuned_functions.training, log=log)
    log.close()

    def never(config: dict[str, Any]) -> float:
        raise AssertionError("evaluated again")

    assert evaluated(tmp_path, never, log=opened()) == first


def test_real_time_needs_evaluations_that_report_and_to_pause_those_that_continue() -> None:
    options: Any = {"stopping": {"kind": "asha", "reduction": 2}, "steps": 4}
    assert tuning_study(tuned_functions.training, SPACE, 2, options).stopping is not None
    for wrong, words in (
        ({"stopping": "asha"}, "stopping = 'asha': needs the number of steps of an evaluation; add steps="),
        (
            {"stopping": {"kind": "asha", "variant": "promote"}, "steps": 4},
            "stopping['variant'] = 'promote': requires an objective that continues from a checkpoint",
        ),
        ({"stopping": {"kind": "asha", "smallest": 9}, "steps": 4}, "must be at least 1 and below 4, the steps of the object"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(words)):
            tuning_study(tuned_functions.training, SPACE, 2, wrong)  # type: ignore[arg-type]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.long
@pytest.mark.parametrize("parallel", [2, 1])
def test_sites_stop_evaluations_early_and_a_replay_gives_the_same(parallel: int, tmp_path: Path) -> None:
    result = fedbo.tune(
        tuned_functions.training, SPACE, 2, iterations=5, parallel=parallel, steps=4, stopping={"kind": "asha", "reduction": 2},
        algorithm={"name": "fts", "p": 0.5}, out=tmp_path / "run",
    )  # fmt: skip
    rows = result.observations.to_pylist()
    assert len(rows) == 2 * (3 + 5)
    assert {row["stopped"] for row in rows} == {"stopped", None}
    assert all(row["value"] == row["rungs"][-1] for row in rows)
    assert all((row["fidelity"] < 4) == (row["stopped"] is not None) for row in rows)
    assert replay(tmp_path / "run", verify=True, trust=True).same


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize(("example", "steps"), [("early stopping", 81), ("pausing", 27)])
def test_the_example_of_the_page_runs(example: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "early-stopping.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- example: {example} -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(found[1].replace("agents=2", "agents=2, iterations=3"), "<example>", "exec"), names)
    assert min(names["result"].observations["fidelity"].to_pylist()) < steps
