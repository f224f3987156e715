"""Evaluations in a process of their own: whatever one does, it is recorded, and the next one works."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_failures import FIRST, study
from violent import SlowToLoad, Violent

import fedbo
from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.evaluation.isolated import Isolated
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.algorithms.streams import Streams
from fedbo.analysis import failures
from fedbo.objectives.outcome import Outcome
from fedbo.study.document import to_toml
from tests.random_studies.carrying_out import tables

GOOD, BAD = np.array([0.25]), np.array([0.75])
HOME = Streams(1)


def children() -> set[int]:
    """List the processes that this one has started and that are left, dead or alive."""
    found = set[int]()
    for task in Path("/proc/self/task").iterdir():
        found |= {int(number) for number in (task / "children").read_text().split()}
    return found


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before, "a process was left running, or was not waited for"


@pytest.fixture(scope="module")
def process() -> Iterator[Isolated]:
    before, made = children(), Isolated(1.0, 2048)
    yield made
    made.close()
    assert children() <= before


@pytest.fixture
def alone(process: Isolated) -> Isolated:
    """The process that tests share, which is sent all objectives again."""
    process._sent.clear()
    return process


def outcome(policy: Policy, deed: str, *points: Any, objective: Any = None) -> list[EvaluationRecord]:
    """Evaluate points one after the other, as an agent does in real time."""
    evaluator, objective = Evaluator(policy, real=True), objective or Violent(deed)
    try:
        return [
            evaluator(objective, Query(0, number, 0, x), HOME.at(number), time.monotonic) for number, x in enumerate(points)
        ]
    finally:
        assert evaluator._isolated is not None
        evaluator._isolated.close()


def test_an_evaluation_that_sleeps_ends_at_its_limit_and_the_next_one_works(nothing_is_left: None) -> None:
    before, slept, after = outcome(Policy(time_limit=0.5), "sleep", GOOD, BAD, GOOD)
    assert slept.error is not None and "TimeoutError: took longer than time_limit = 0.5" in slept.error
    assert 0.5 <= slept.finished - slept.started < 10.0
    assert (before.outcome.value, after.outcome.value) == (0.25, 0.25) and before.error is after.error is None


def test_the_limit_is_for_evaluations_and_not_for_what_must_be_imported_first(nothing_is_left: None) -> None:
    (first,) = outcome(Policy(time_limit=0.3), "sleep", GOOD, objective=SlowToLoad("sleep"))
    assert first.error is None and first.outcome.value == 0.25
    assert first.finished - first.started > 0.6


def test_a_big_allocation_is_a_recorded_memory_error_and_the_next_one_works(nothing_is_left: None) -> None:
    hoarded, after = outcome(Policy(memory_limit=4096), "hoard", BAD, GOOD)
    assert hoarded.error is not None and "MemoryError" in hoarded.error.splitlines()[0]
    assert after.outcome.value == 0.25 and after.error is None


@pytest.mark.long
@pytest.mark.parametrize(("deed", "code"), [pytest.param("exit", 7, marks=pytest.mark.long), ("kill", -9)])
def test_a_process_that_ends_itself_is_recorded_with_its_code(deed: str, code: int, nothing_is_left: None) -> None:
    dead, after, again = outcome(Policy(time_limit=5.0), deed, BAD, GOOD, BAD)
    for one in (dead, again):
        assert one.error is not None and f"the evaluation's process ended with code {code}" in one.error
    assert after.outcome.value == 0.25 and after.error is None


@pytest.mark.parametrize("deed", ["leave", pytest.param("interrupt", marks=pytest.mark.long)])
def test_an_objective_that_ends_its_program_is_recorded_too(deed: str, nothing_is_left: None) -> None:
    left, after = outcome(Policy(time_limit=5.0), deed, BAD, GOOD)
    assert left.error is not None and ("SystemExit: enough" if deed == "leave" else "KeyboardInterrupt") in left.error
    assert after.outcome.value == 0.25


def test_an_error_crosses_with_its_kind_and_its_text(alone: Isolated) -> None:
    with pytest.raises(KeyError, match="the key to the cellar"):
        alone.evaluate(0, Violent("fail"), BAD, HOME)
    assert alone.evaluate(0, Violent("fail"), GOOD, HOME) == Outcome(0.25)


@pytest.mark.parametrize("deed", ["fail", pytest.param("leave", marks=pytest.mark.long)])
def test_a_failed_evaluation_has_the_same_traceback_in_another_process(deed: str, nothing_is_left: None) -> None:
    """Frames of the objective's file alone, on the line that raised."""
    here = Evaluator(Policy(), real=True).evaluate(Violent(deed), Query(0, 0, 0, BAD), HOME).error
    there = outcome(Policy(time_limit=5.0), deed, BAD)[0].error
    assert here == there and here is not None and f"in {deed}\n" in here and "fedbo" not in here


def test_an_error_that_is_raised_again_with_other_words_has_those(nothing_is_left: None) -> None:
    first, second = outcome(Policy(time_limit=5.0), "again", BAD, BAD)
    assert first.error is not None and second.error is not None
    assert "RuntimeError: call 1\n" in first.error and "RuntimeError: call 2\n" in second.error


def test_an_error_that_cannot_cross_does_so_by_name(alone: Isolated) -> None:
    with pytest.raises(RuntimeError, match="Unportable: of this process alone"):
        alone.evaluate(0, Violent("unportable"), BAD, HOME)


def test_printing_does_not_disturb_the_answers(alone: Isolated) -> None:
    for objective in (Violent("shout"), Violent("descend")):
        alone._sent.clear()
        assert [alone.evaluate(0, objective, x, HOME).value for x in (BAD, GOOD, BAD)] == [0.75, 0.25, 0.75]


@pytest.mark.parametrize("deed", ["move", "close", "replace", "half", "read", "fork", "split"])
@pytest.mark.parametrize("limit", [None, pytest.param(5.0, marks=pytest.mark.long)])
def test_an_evaluation_leaves_streams_and_folder_to_the_next(
    limit: float | None, deed: str, nothing_is_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what it reads or what its children print is not what passes between the two processes."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    texts: list[str] = []
    evaluator = Evaluator(Policy(time_limit=limit), real=True)
    evaluator.printed = lambda query, text: texts.append(text)
    try:
        records = [
            evaluator.evaluate(Violent(what), Query(agent, agent, 0, x), HOME)
            for agent, (what, x) in enumerate([(deed, BAD), ("tell", BAD), ("tell", GOOD)])
        ]
    finally:
        evaluator.close()
    assert [record.error for record in records] == [None] * 3
    assert [record.outcome.value for record in records] == [0.75, 0.75, 0.25]
    assert texts[-1] == f"{os.getcwd()}\n"
    "".join(texts).encode()  # which tables hold


@pytest.mark.parametrize("deed", ["read", "split"])
def test_what_an_evaluation_reads_or_forks_has_no_part_in_what_passes_between_processes(deed: str, alone: Isolated) -> None:
    for agent, (what, x) in enumerate([(deed, BAD), ("tell", BAD), ("tell", GOOD)]):
        assert alone.evaluate(agent, Violent(what), x, HOME).value == x[0]


def test_one_process_serves_many_evaluations_and_many_agents(alone: Isolated) -> None:
    said = []
    for agent in (0, 1, 0, 1, 0):
        with pytest.raises(ValueError, match="call .* in process") as caught:
            alone.evaluate(agent, Violent("count"), BAD, HOME)
        said.append(str(caught.value).split())
    assert [words[1] for words in said] == ["1", "1", "2", "2", "3"], "an objective was sent more than once"
    assert len({words[-1] for words in said}) == 1 and said[0][-1] != str(os.getpid())


def test_the_randomness_of_an_evaluation_is_the_same_in_another_process(alone: Isolated) -> None:
    from fedbo.actors.evaluation.evaluate import evaluate
    from fedbo.objectives.functions import Quadratic

    bowl = Quadratic(agents=1, noise=0.1).objective(0, HOME.shared("objective"), HOME.rng("objective"))
    x = np.array([0.1, 0.2])
    assert alone.evaluate(0, bowl, x, HOME.of(0).at(3)) == evaluate(bowl, x, HOME.of(0).at(3))


@pytest.mark.long
def test_closing_twice_or_before_the_first_evaluation_is_nothing(nothing_is_left: None) -> None:
    made = Isolated(1.0, None)
    made.close()
    assert made.evaluate(0, Violent("sleep"), GOOD, HOME) == Outcome(0.25)
    made.close()
    made.close()
    assert made.evaluate(0, Violent("sleep"), GOOD, HOME) == Outcome(0.25)
    made.close()


def test_a_process_that_died_between_two_evaluations_is_replaced(alone: Isolated) -> None:
    alone.evaluate(0, Violent("sleep"), GOOD, HOME)
    assert alone._process is not None
    alone._process.kill()
    alone._process.wait()
    assert alone.evaluate(0, Violent("sleep"), GOOD, HOME) == Outcome(0.25)


def test_an_objective_whose_answer_cannot_be_sent_is_an_error(alone: Isolated) -> None:
    class Local(Violent):
        pass

    with pytest.raises(Exception, match="Local|local"):
        alone.evaluate(0, Local("sleep"), GOOD, HOME)
    assert alone.evaluate(0, Violent("sleep"), GOOD, HOME) == Outcome(0.25)


# The log of evaluations.


def opened(folder: Path, agents: set[int]) -> EvaluationLog:
    return EvaluationLog(RunFolder(folder, RunKey(0, "talk", 0)), agents, None)


def query(number: int, x: Any, agent: int = 0) -> Query:
    return Query(agent, number, 0, np.asarray(x))


def logged(folder: Path, agents: set[int], evaluations: list[Query], objective: Any) -> list[EvaluationRecord]:
    log = opened(folder, agents)
    evaluator = Evaluator(Policy(), real=True, log=log)
    found = [evaluator(objective, one, HOME, lambda: 1.5) for one in evaluations]
    log.close()
    return found


def test_what_one_process_evaluated_is_found_by_the_next(tmp_path: Path) -> None:
    first, second = Violent("fail"), Violent("fail")
    asked = [query(0, GOOD), query(1, BAD), query(2, [0.1])]
    made = logged(tmp_path, {0}, asked, first)
    found = logged(tmp_path, {0}, asked, second)
    assert (first.calls, second.calls) == (3, 0)
    assert repr(found) == repr(made) and found[1].error is not None and "cellar" in found[1].error


def test_another_number_another_point_and_another_agent_are_evaluated(tmp_path: Path) -> None:
    logged(tmp_path, {0}, [query(0, GOOD), query(1, [0.1])], Violent("fail"))
    again = Violent("fail")
    found = logged(tmp_path, {0, 1}, [query(0, [0.1]), query(2, GOOD), query(0, GOOD, agent=1)], again)
    assert again.calls == 3 and [one.outcome.value for one in found] == [0.1, 0.25, 0.25]
    other = Violent("fail")
    logged(tmp_path, {1}, [query(0, GOOD, agent=0)], other)
    assert other.calls == 1, "what other agents did is not read"


def test_the_log_is_written_before_the_evaluation_is_told(tmp_path: Path) -> None:
    log = opened(tmp_path, {0})
    Evaluator(Policy(), real=True, log=log)(Violent("fail"), query(0, GOOD), HOME, lambda: 1.5)
    assert opened(tmp_path, {0}).find(query(0, GOOD)) is not None
    log.close()


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.99])
def test_a_cut_last_line_is_passed_over(tmp_path: Path, kept: float) -> None:
    logged(tmp_path, {0}, [query(0, GOOD), query(1, [0.1])], Violent("fail"))
    (path,) = tmp_path.glob("*.jsonl")
    first, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + last[: int(kept * len(last))])
    again = Violent("fail")
    found = logged(tmp_path, {0}, [query(0, GOOD), query(1, [0.1])], again)
    assert again.calls == 1 and [one.outcome.value for one in found] == [0.25, 0.1]


def test_a_last_line_that_is_cut_in_the_middle_of_a_letter_is_passed_over(tmp_path: Path) -> None:
    class Foreign(Violent):
        def fail(self) -> None:
            raise ValueError("ungültig: 値")

    logged(tmp_path, {0}, [query(0, GOOD), query(1, BAD)], Foreign("fail"))
    (path,) = tmp_path.glob("*.jsonl")
    whole = path.read_bytes()
    for length in range(len(whole.splitlines(keepends=True)[0]), len(whole), 7):
        path.write_bytes(whole[:length])
        assert opened(tmp_path, {0}).find(query(0, GOOD)) is not None
        assert opened(tmp_path, {0}).find(query(1, BAD)) is None


@pytest.mark.parametrize("hosting", FIRST[:2])
def test_an_objective_that_ends_its_process_fails_where_evaluations_are_isolated(
    hosting: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if hosting:
        request.getfixturevalue("ray_session")
    hosting = {"hosting": {**hosting.get("hosting", {}), "isolate": True}}
    result = fedbo.run(study("dies_at_small_values", **hosting), out=tmp_path / "run")
    errors = [row["error"] for row in result.observations.to_pylist()]
    assert sum("process ended with code -9" in (error or "") for error in errors) == 1 and errors.count(None) == 3
    plain = fedbo.run(study("silent", **hosting), out=tmp_path / "silent")
    alone = fedbo.run(study("silent"), out=tmp_path / "alone")
    assert tables(plain.directory) == tables(alone.directory), "another process changes no result"


def test_an_objective_that_hangs_fails_in_virtual_time_too(tmp_path: Path) -> None:
    result = fedbo.run(study("hangs_at_small_values", hosting={"patience": 0.5}), out=tmp_path / "run")
    errors = [row["error"] for row in result.observations.to_pylist()]
    assert sum("TimeoutError: took longer than hosting.patience = 0.5" in (error or "") for error in errors) == 1
    assert errors.count(None) == 3


@pytest.mark.long
def test_a_run_that_an_objective_has_ended_goes_on_isolated(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(to_toml(study("dies_at_small_values")))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "fedbo", "run", "s.toml", "--quiet", "--out", "run"]
    assert subprocess.run(command, cwd=tmp_path, env=environment, timeout=100).returncode == -9
    result = fedbo.resume(tmp_path / "run", overrides=["hosting.isolate=true"])
    assert result.manifest["status"] == "complete" and failures(result)[0] == 1
