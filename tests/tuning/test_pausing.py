"""Evaluations that pause at rungs in real time, and continue from their checkpoints."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tuned_functions
from small_runs import Setting
from tuned_functions import curve

import fedbo
from fedbo.actors.agent import HostedAgent
from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.actors.storage.rows import RunKey, single_rows
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.task import StepRequest, Task, reported_stopping
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.execution.replay import replay
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.typed_function import TypedFunction, giving
from fedbo.objectives.typed_spaces.spaces import written_space
from fedbo.stopping.checkpoints import Checkpoints
from fedbo.stopping.stoppers import Halving, Hyperband
from fedbo.stopping.stopping import Stopping
from fedbo.tuning.tune import tuning_study
from fedbo.workers.overlap import AsyncEvaluations, ReplayPool

SPACE = {"rate": (0.0, 1.0)}
ENDS, LEVELS = 40, (1, 3, 9)


@pytest.fixture(autouse=True)
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "calls" / "steps"
    path.parent.mkdir()
    path.touch()
    monkeypatch.setenv("FEDBO_CALLS", str(path))
    return path


class OneAfterTheOther:
    """A pool that makes the evaluations in the order in which they began."""

    def __init__(self, objective: Any, evaluator: Evaluator) -> None:
        self._objective, self._evaluator, self._waiting = objective, evaluator, deque[tuple[Query, Streams]]()

    def start(self, query: Query, streams: Streams) -> None:
        """Queue an evaluation, unless it waits already."""
        if query.number not in [other.number for other, _ in self._waiting]:
            self._waiting.append((query, streams))

    def wait(self) -> EvaluationRecord | None:
        """Make the first evaluation."""
        query, streams = self._waiting.popleft()
        record = self._evaluator.evaluate(self._objective, query, streams)
        record.started = record.finished = time.time()
        return record

    def close(self) -> None:
        """Do nothing."""


def pausing_task(function: Callable[..., float], places: int, stopper: Halving) -> Task:
    algorithm, policy = entry("random").make(), Policy(parallel=places, resources=({"CPU": 1.0},))
    task = Setting(algorithm, agents=1, initial=places, iterations=ENDS - places, policy=policy).task()
    federation = TypedFunction(function, written_space(SPACE), steps=9)
    problem = replace(task.problem, dim=1)
    return replace(task, federation=federation, problem=problem, reported=Stopping(stopper, 1, 9))


def ended(task: Task, folder: Path, pool: Any = None, until: int = ENDS) -> HostedAgent:
    """Carry out the steps of the only agent up to one, with a log in the folder; return the agent."""
    home = RunFolder.of(folder, RunKey(0, "random", 0))
    log, rules = EvaluationLog(home, {0}, None), reported_stopping(task, folder)
    agent, evaluator = HostedAgent(task, 0), Evaluator(Policy(), real=True)
    evaluator.stopping = rules
    pool = OneAfterTheOther(agent.objective, evaluator) if pool is None else pool
    agent.overlapping = AsyncEvaluations(task, pool, log, time.time, False, rules)
    for step in range(min(until, task.problem.iterations + 1)):
        agent.work(StepRequest(0, step))
        agent.commit(())
    log.close()
    return agent


def promotions(agent: HostedAgent) -> list[tuple[int, int, int | None, str | None]]:
    return [(row.step, row.query, row.fidelity, row.stopped) for row in single_rows(agent.state.rows)]


def simulated(agent: HostedAgent, places: int) -> list[tuple[int, int, int, str | None]]:
    """Carry out ASHA (Li et al. 2020, Alg. 2) by hand on the rates that the agent drew; give the ends in their order."""
    rates = {(row.step, row.query): row.x[0] for row in single_rows(agent.state.rows)}
    new = deque([(0, point) for point in range(places)] + [(step, 0) for step in range(1, ENDS - places + 1)])
    running = deque((new.popleft(), 0) for _ in range(places))
    values: list[dict[tuple[int, int], float]] = [{}, {}, {}]
    begun: list[set[tuple[int, int]]] = [set(), set()]
    ends = []
    while running:
        key, rung = running.popleft()
        values[rung][key] = curve(rates[key], LEVELS[rung])
        ends.append((*key, LEVELS[rung], "paused" if rung < 2 else None))
        for lower in (1, 0):
            best = sorted(values[lower], key=lambda each, rung=lower: -values[rung][each])[: len(values[lower]) // 3]  # type: ignore[misc]
            if left := [each for each in best if each not in begun[lower]]:
                begun[lower].add(left[0])
                running.append((left[0], lower + 1))
                break
        else:
            if new:
                running.append((new.popleft(), 0))
    return ends


@pytest.mark.parametrize("places", [1, 4])
def test_evaluations_pause_and_continue_as_in_asha_by_hand_and_make_no_step_twice(
    places: int, tmp_path: Path, calls: Path
) -> None:
    task = pausing_task(tuned_functions.pausing, places, Halving(variant="promote"))
    agent = ended(task, tmp_path)
    expected = simulated(agent, places)
    assert promotions(agent) == expected and len({end[:2] for end in expected}) == ENDS
    reached = {end[:2]: end[2] for end in expected}
    made = calls.read_text().splitlines()
    assert len(set(made)) == len(made) == sum(reached.values())
    assert sum(fidelity == 9 for fidelity in reached.values()) > 1
    kept = {path.name for path in (tmp_path / "checkpoints-0").iterdir()}
    assert kept == {f"{step}-{point}" for (step, point), fidelity in reached.items() if fidelity < 9}


def test_without_checkpoints_decisions_are_the_same_and_each_leg_starts_anew(tmp_path: Path, calls: Path) -> None:
    task = pausing_task(tuned_functions.forgetful, 4, Halving(variant="promote"))
    agent = ended(task, tmp_path)
    expected = simulated(agent, 4)
    assert promotions(agent) == expected
    assert len(calls.read_text().splitlines()) == sum(end[2] for end in expected)


def test_a_process_that_takes_over_and_a_replay_decide_the_same(tmp_path: Path) -> None:
    """From the log alone, whether all evaluations or the first ones are in it."""
    task = pausing_task(tuned_functions.pausing, 3, Hyperband(variant="promote"))
    whole = ended(task, tmp_path / "whole")
    replayed = ended(task, tmp_path / "whole", pool=ReplayPool())
    assert [*single_rows(replayed.state.rows)] == [*single_rows(whole.state.rows)]
    assert {row.fidelity for row in single_rows(whole.state.rows)} == {1, 3, 9}
    ended(task, tmp_path / "half", until=20)
    assert promotions(ended(task, tmp_path / "half")) == promotions(whole)


def test_an_evaluation_whose_process_was_killed_continues_from_its_checkpoint(tmp_path: Path, calls: Path) -> None:
    task = replace(pausing_task(tuned_functions.dying, 1, Halving(variant="promote")), reported=None)
    rng, evaluator = np.random.default_rng(1), Evaluator(Policy(time_limit=60.0, retries=1), real=True)
    evaluator.stopping = reported_stopping(task, tmp_path)
    objective, query = task.federation.objective(0, rng, rng), Query(0, 0, 0, np.array([0.5]))
    first, second = (evaluator(objective, query, Streams(1), time.time) for _ in range(2))
    evaluator.close()
    assert "ended with code -9" in str(first.error) and second.outcome.value == curve(0.5, 9)
    assert [line.split()[1] for line in calls.read_text().splitlines()] == [str(step) for step in range(1, 10)]
    assert [step for step, _ in second.outcome.reports] == [6, 7, 8, 9]
    assert not [*(tmp_path / "checkpoints-0").iterdir()]


def test_the_oldest_losers_lose_their_checkpoints_when_all_exceed_the_limit(tmp_path: Path) -> None:
    stopper = Halving(variant="promote", disk_limit=1)
    stopping = Stopping(stopper, 1, 9)
    rungs, streams = stopping.no_rungs(), Streams(1).of(0)
    kept = Checkpoints(tmp_path / "checkpoints-0")
    for number, value in enumerate([5.0, 1.0, 4.0, 2.0, 3.0, 0.0]):
        query = Query(0, number, 0, np.zeros(1), step=number)
        query.span = stopping.first(streams, number, 0)
        rungs = stopping.judge(rungs, query, query.evaluated(Outcome(value)).outcome).rungs
        (tmp_path / "mine").write_bytes(b"x" * 300_000)
        kept.keep((number, 0), tmp_path / "mine")
    assert stopper.losers(rungs) == [(1, 0), (3, 0), (4, 0), (5, 0), (0, 0), (2, 0)]
    rules = reported_stopping(pausing_task(tuned_functions.pausing, 1, stopper), tmp_path)
    rules._prune(query, rungs)
    assert {path.name for path in kept.folder.iterdir()} == {"0-0", "2-0", "5-0"}
    told = (tmp_path / "deleted-0.log").read_text().splitlines()
    assert len(told) == 3 and "point 0 of step 1 (300,000 bytes) was deleted, since disk_limit = 1 MiB" in told[0]


def test_a_checkpoint_is_a_file_or_a_folder_and_the_last_whole_one_counts(tmp_path: Path) -> None:
    kept, mine = Checkpoints(tmp_path / "kept"), tmp_path / "model"
    (mine / "layers").mkdir(parents=True)
    (mine / "layers" / "one").write_text("1")
    assert kept.latest((0, 0)) is None
    kept.keep((0, 0), mine)
    (mine / "layers" / "one").write_text("2")
    kept.keep((0, 0), mine)
    (tmp_path / "kept" / "0-0" / ".000009-7" / "torn").mkdir(parents=True)
    found = kept.latest((0, 0))
    assert found is not None and found.name == "model" and (found / "layers" / "one").read_text() == "2"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        kept.keep((0, 0), tmp_path / "nowhere")
    assert kept.latest((0, 0)) == found


def test_what_cannot_pause_is_refused_in_a_line() -> None:
    for function, stopping, study, words in (
        (tuned_functions.training, {"variant": "promote"}, {}, "requires an objective that continues from a checkpoint"),
        (tuned_functions.pausing, {"variant": "promote"}, {"evaluation": {"resources": []}}, "for example to one CPU"),
        (tuned_functions.pausing, {"checkpoint": 1.0}, {}, "has no effect in real time"),
        (tuned_functions.pausing, {"disk_limit": 0}, {}, "must be at least 1"),
    ):
        with pytest.raises(fedbo.errors.ArgumentError) as error:
            tuning_study(function, SPACE, 1, {"steps": 9, "stopping": {"kind": "asha", **stopping}, "study": study})  # type: ignore[typeddict-item]
        assert words in str(error.value), words


def test_a_checkpoint_of_a_function_that_cannot_continue_fails_the_evaluation(tmp_path: Path) -> None:
    def wrong(config: dict[str, Any], report: Any) -> float:
        report(1.0, 1, checkpoint=tmp_path)
        return 1.0

    rng = np.random.default_rng(1)
    objective = TypedFunction(wrong, written_space(SPACE)).objective(0, rng, rng)
    record = Evaluator(Policy(), real=True)(objective, Query(0, 0, 0, np.array([0.5])), Streams(1), time.time)
    assert "has no argument 'restore'" in str(record.error)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("parallel", [1, 2])
def test_sites_pause_on_ray_and_a_replay_gives_the_same(parallel: int, tmp_path: Path, calls: Path) -> None:
    def noting(config: dict[str, Any], report: Any, restore: Any) -> float:
        os.environ["FEDBO_CALLS"] = str(calls)  # the workers of Ray are older than the fixture
        return tuned_functions.pausing(config, report, restore)

    result = fedbo.tune(
        noting, SPACE, 2, iterations=12, parallel=parallel, steps=9, algorithm="random",
        stopping={"kind": "asha", "variant": "promote"}, out=tmp_path / "run",
    )  # fmt: skip
    trials = [*result.trials()]
    assert {trial["status"] for trial in trials} >= {"paused", "stopped early"} and {3} <= {
        trial["fidelity"] for trial in trials
    }
    made = calls.read_text().splitlines()
    reached = {(trial["agent"], trial["step"], trial["query"]): trial["fidelity"] for trial in trials}
    assert len(set(made)) == len(made) == sum(reached.values())
    with giving(str(result.study.objective.settings["function"]), noting):
        assert replay(tmp_path / "run", verify=True, trust=True).same
    assert len(pq.read_table(tmp_path / "run" / "evaluations.parquet")) == len(trials)
