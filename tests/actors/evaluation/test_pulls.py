"""A point that is evaluated many times: what its mean is, what a failed pull does, and what a budget cuts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedbo.actors.agent import HostedAgent
from fedbo.actors.evaluation.batches import MIN_BATCH, cut_to_budget, evaluate_batch
from fedbo.actors.evaluation.evaluator import Evaluator
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.evaluation.step import StepEvaluator
from fedbo.actors.storage.checkpoint import read_checkpoint, write_checkpoint
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.rows import Batch, RunKey, single_rows, write_rows
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.task import StepRequest, Task, objective_of
from fedbo.algorithms.base import Array, Decision, Problem
from fedbo.algorithms.random import Random
from fedbo.algorithms.returned import asked
from fedbo.algorithms.streams import Streams
from fedbo.objectives.derived.federation import Centralised
from fedbo.objectives.functions import Quadratic
from fedbo.objectives.synthetic.bandits import Garland, Himmelblau
from fedbo.settings.own_code import ReturnError


@dataclass(frozen=True)
class Puller:
    """Asks for the same points in every step, each as often as is said; it remembers what it is told."""

    pulls: tuple[int, ...] = (3, 1, 4)
    clip: tuple[float, float] | None = None
    queries: int | None = None

    def sends(self, step: int) -> bool:
        return False

    def upload(self, problem: Problem) -> None: ...

    def download(self, problem: Problem) -> None: ...

    def agent_init(self, problem: Problem, streams: Streams) -> list[Any]:
        return []

    def ask(self, state: list[Any], inbox: Any, streams: Streams) -> tuple[Decision, list[Any]]:
        x = np.linspace(0.1, 0.9, len(self.pulls))[:, None].repeat(2, axis=1)
        return Decision(x, "own", np.array(self.pulls), self.clip), state

    def tell(self, state: list[Any], x: Array, y: Array) -> list[Any]:
        return [*state, (x, y)]

    def outbox(self, state: Any, streams: Streams) -> Any: ...

    def server_init(self, problem: Problem) -> Any: ...

    def receive(self, state: Any, message: Any, now: float) -> Any: ...

    def broadcast(self, state: Any, recipients: Any, worth: Array, streams: Streams) -> Any: ...


def agent_of(algorithm: Any = Puller(), pulls: int = 1000, **changes: Any) -> HostedAgent:
    federation = changes.pop("federation", Quadratic(agents=3, noise=0.0))
    task = Task(federation, algorithm, Problem(2, 3, (0, 1, 2), 0, 1000, pulls=pulls), Streams(4), **changes)
    return HostedAgent(task, 1)


def work(agent: HostedAgent, step: int = 1) -> list[Any]:
    agent.work(StepRequest(1, step))
    agent.commit(())
    return agent.state.algorithm


@pytest.mark.long
def test_a_mean_of_many_pulls_scatters_as_little_as_it_should_and_the_same_every_time() -> None:
    """The variance of a mean of n is 0.25 / n: squares over it, of 600 means, sum to chi-squared; 4 deviations are allowed."""
    agents = [agent_of(pulls=10_000, noise=0.25) for _ in range(2)]
    seen = []
    for step in range(1, 601):
        told = [work(agent, step)[-1][1] for agent in agents]
        np.testing.assert_array_equal(*told)
        seen.append(told[0])
    scores = [row.outcome.score for row in agents[0].state.rows[:3]]
    squares = (np.array(seen) - scores) ** 2 * np.array([3, 1, 4]) / 0.25
    assert (np.abs(squares.sum(axis=0) - 600) < 4 * np.sqrt(2 * 600)).all()


def test_one_pull_sees_what_one_evaluation_does() -> None:
    plain = agent_of(Random(), noise=0.25)
    work(plain)
    x = plain.state.rows[0].u
    asked = Decision(np.array([x]), "own", np.array([1]))

    @dataclass(frozen=True)
    class Same(Puller):
        def ask(self, state: list[Any], inbox: Any, streams: Streams) -> tuple[Decision, list[Any]]:
            return asked, state

    pulling = agent_of(Same(), noise=0.25)
    work(pulling)
    assert pulling.state.rows[0].outcome.value == plain.state.rows[0].outcome.value != plain.state.rows[0].outcome.score


def test_every_value_is_clipped_before_the_mean() -> None:
    """With noise of variance 100 about 0 and below, nearly half of the values are 0 and the others 1: not the clipped mean."""
    agent = agent_of(Puller((4000,), clip=(0.0, 1.0)), pulls=4000, noise=100.0)
    (_, (value,)) = work(agent)[-1]
    assert 0.3 < value < 0.6
    assert agent.state.rows[0].outcome.value == value


def test_rows_say_how_often_and_observations_count_all_pulls() -> None:
    agent = agent_of()
    work(agent)
    assert [(row.pulls, row.t_n) for row in agent.state.rows] == [(3, 3), (1, 4), (4, 8)]
    assert (agent.state.t_n, agent.state.pulled, agent.state.evaluated) == (8, 8, 3)


@dataclass(frozen=True)
class _Brittle:
    """Fails once for each of its points but the first, at the third pull."""

    best_value: float | None = None

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        if x[0] > 0.2 and rng.random() < 0.5:
            raise RuntimeError("a bad pull")
        return float(x[0])

    def score(self, x: Array) -> float:
        return float(x[0])


@dataclass(frozen=True)
class BrittleFederation(Quadratic):
    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Any:
        return _Brittle()


def test_a_pull_that_fails_fails_its_point_and_has_used_its_part_of_the_budget() -> None:
    agent = agent_of(Puller((3, 40, 40)), federation=BrittleFederation(agents=3), policy=Policy(failure="drop"))
    (x, y) = work(agent)[-1]
    np.testing.assert_allclose(y, [0.1])
    assert len(x) == 1 and (agent.state.t_n, agent.state.pulled) == (3, 83)
    assert [row.error is None for row in agent.state.rows] == [True, False, False]


def test_a_retry_pulls_all_again_and_costs_nothing_of_the_budget() -> None:
    agent = agent_of(Puller((3, 2)), federation=BrittleFederation(agents=3), policy=Policy(retries=30))
    (_, y) = work(agent)[-1]
    assert len(y) == 2 and agent.state.pulled == 5 and len(agent.state.rows) > 2
    assert {row.pulls for row in agent.state.rows if row.query == 1} == {2}


def test_a_decision_is_cut_at_the_budget_and_a_point_that_has_fewer_pulls_is_not_told() -> None:
    agent = agent_of(Puller((3, 1, 4)), pulls=14)
    work(agent)
    (x, y) = work(agent, 2)[-1]
    assert [row.pulls for row in agent.state.rows] == [3, 1, 4, 3, 1, 2]
    assert agent.state.pulled == 14 and len(x) == len(y) == 2


def test_cutting_keeps_the_first_points() -> None:
    decision = Decision(np.zeros((4, 1)), "own", np.array([2, 3, 4, 1]))
    for left, pulls, cut in ((10, [2, 3, 4, 1], False), (9, [2, 3, 4], False), (6, [2, 3, 1], True), (2, [2], False)):
        kept, short = cut_to_budget(decision, left)
        assert kept.pulls is not None and kept.pulls.tolist() == pulls and len(kept.x) == len(pulls) and short == cut
    kept, short = cut_to_budget(decision._replace(pulls=None), 3)
    assert kept.pulls is None and len(kept.x) == 3 and not short


@pytest.mark.parametrize("pulls", [[1], [1, 0], [1.0, 2.0]])
def test_pulls_that_are_no_counts_are_refused(pulls: list[float]) -> None:
    class Pulls(Puller):
        def ask(self, state: Any, inbox: Any, streams: Any) -> Any:
            return Decision(np.zeros((2, 1)), "own", np.array(pulls)), state

    with pytest.raises(ReturnError, match="pulls are .*; they must be one whole number of at least 1 for each of 2 points"):
        asked(Pulls(), None, (), None, 1)


def test_an_algorithm_with_pulls_may_not_say_beforehand_how_many_points_it_asks_for() -> None:
    with pytest.raises(ReturnError, match="declare queries = None"):
        work(agent_of(Puller(queries=3)))


def test_a_single_agent_in_place_of_all_sees_their_mean_with_the_noise_of_one() -> None:
    """The variance of 20,000 values is 0.04, within 4 of its standard errors; the mean is that of three bowls."""
    federation = Quadratic(agents=3, noise=0.04, spread=0.5)
    problem = Problem(2, 1, (0,), 0, 20_000, pulls=20_000)
    task = Task(Centralised(federation), Puller((20_000,)), problem, Streams(4))
    central = HostedAgent(task, 0)
    locals_ = [HostedAgent(replace(task, federation=federation, problem=Problem(2, 3, (0, 1, 2), 0, 9)), m) for m in range(3)]
    x = np.array([0.3, 0.8])
    exact = np.mean([agent.objective.score(x) for agent in locals_])
    assert central.objective.score(x) == pytest.approx(exact, abs=1e-12)
    values = central.objective.evaluate_many(x, 20_000, np.random.default_rng(0))  # type: ignore[attr-defined]
    assert abs(values.mean() - exact) < 4 * 0.2 / np.sqrt(20_000)
    assert abs(values.var() / 0.04 - 1.0) < 4 * np.sqrt(2 / 20_000)


def test_points_evaluated_together_are_as_they_should_be_one_by_one() -> None:
    """Means of 400 pulls of a function with uniform noise of +-0.1: each within 5 standard errors of its score."""
    decision = Decision(np.linspace(0.0, 1.0, 50)[:, None], "own", np.full(50, 400), (0.0, 1.0))
    objective, streams = objective_of(Garland(agents=3), 1, Streams(4)), Streams(4).of(1).at(7)
    made = evaluate_batch(objective, decision, decision.x, 0.0, streams)
    again = evaluate_batch(objective, decision, decision.x, 0.0, streams)
    assert made is not None and again is not None
    np.testing.assert_array_equal(made, again)
    for value, score, x in zip(made.values, made.scores, decision.x, strict=True):
        assert score == objective.score(x) and abs(value - score) < 5 * 0.1 / np.sqrt(3 * 400)
    assert evaluate_batch(_Brittle(), decision, decision.x, 0.0, streams) is None
    outside = decision._replace(x=decision.x + 0.5)
    assert evaluate_batch(objective, outside, outside.x, 0.0, streams) is None


def test_rows_of_a_batch_are_those_of_its_points_one_by_one(tmp_path: Path) -> None:
    """Where an evaluation may take too long, what was made at once is looked at point by point."""
    algorithm, federation = Puller(tuple(range(1, MIN_BATCH + 1))), Himmelblau(agents=3, half_width=0.5)
    limits = (None, 9.0)
    whole, single = (agent_of(algorithm, federation=federation, policy=Policy(time_limit=limit)) for limit in limits)
    key, times = RunKey(0, "puller", 0), tuple(np.arange(MIN_BATCH + 1.0).tolist())
    for step in (1, 2):
        whole.work(StepRequest(1, step))
        single.work(StepRequest(1, step, tries=(1.0,) * MIN_BATCH))
        for agent in (whole, single):
            agent.commit(times)
    assert [type(kept) for kept in whole.state.rows] == [Batch] * 2
    assert list(single_rows(whole.state.rows)) == list(single.state.rows)
    mixed = (*whole.state.rows[:1], *single.state.rows[MIN_BATCH:])
    for name, kept in (("whole", whole.state.rows), ("single", single.state.rows), ("mixed", mixed), ("none", ())):
        write_rows(kept, key, tmp_path / name)
    tables = [pq.read_table(tmp_path / name) for name in ("whole", "single", "mixed")]
    assert tables[0] == tables[1] == tables[2] and len(tables[0]) == 2 * MIN_BATCH
    assert len(pq.read_table(tmp_path / "none")) == 0
    assert (whole.state.best, whole.state.worst) == (single.state.best, single.state.worst)
    for told, as_told in zip(whole.state.algorithm, single.state.algorithm, strict=True):
        np.testing.assert_array_equal(told[0], as_told[0])
        np.testing.assert_array_equal(told[1], as_told[1])


def test_of_equal_values_the_first_is_the_best() -> None:
    agent = agent_of(Puller((1, 1)))
    work(agent, 1)
    work(agent, 2)
    assert agent.state.best is not None and agent.state.best.step == 1 and len(agent.state.rows) == 4


def test_a_batch_comes_back_from_a_checkpoint_and_is_forgotten_as_a_whole(tmp_path: Path) -> None:
    agent = agent_of(Puller((1,) * MIN_BATCH), federation=Himmelblau(agents=3, half_width=0.5), checkpoint=2)
    work(agent)
    write_checkpoint(agent.state, tmp_path / "memory")
    kept = read_checkpoint(tmp_path / "memory")
    assert list(single_rows(kept.rows)) == list(single_rows(agent.state.rows))
    agent.work(StepRequest(1, 2, restore="checkpoint"))
    agent.commit(())
    assert [row.error for row in single_rows(agent.state.rows)] == ["forgotten in a crash"] * MIN_BATCH + [None] * MIN_BATCH


def test_a_replay_takes_from_the_log_what_was_evaluated_point_by_point_in_real_time(tmp_path: Path) -> None:
    """An objective that can evaluate all points at once makes other draws then; none may be made again."""
    federation, puller = Himmelblau(agents=3, half_width=0.5), Puller((2,) * MIN_BATCH)
    folder = RunFolder.of(tmp_path, RunKey(0, "puller", 0)).claim()
    rows = []
    for real in (True, False):
        agent, log = agent_of(puller, federation=federation, noise=0.25), EvaluationLog(folder, {1}, None)
        evaluator = Evaluator(Policy(), real, log, recorded=not real)
        agent._evaluate = StepEvaluator(agent.task, 1, agent.objective, evaluator, lambda: 1.0)
        work(agent)
        log.close()
        rows.append(list(single_rows(agent.state.rows)))
    assert rows[0] == rows[1] and rows[0][0].finished == 1.0
