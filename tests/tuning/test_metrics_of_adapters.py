"""Several objectives and limits in other tools: Optuna's sampler, export and studies to start from, and Ray Tune's searcher."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.analysis.result import Result
from fedbo.settings.errors import ArgumentError
from fedbo.tuning.evaluated import evaluated
from fedbo.tuning.metrics import goals_of
from fedbo.tuning.tune import tuning_study

optuna = pytest.importorskip("optuna", reason="the sampler needs Optuna: pip install optuna")
from optuna.distributions import FloatDistribution  # noqa: E402
from optuna.storages import JournalStorage  # noqa: E402
from optuna.storages.journal import JournalFileBackend  # noqa: E402
from optuna.trial import TrialState  # noqa: E402

from fedbo.optuna import Sampler  # noqa: E402
from fedbo.optuna.export import export_to_optuna  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.ERROR)
SPACE: dict[str, Any] = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}
METRICS = [
    {"name": "error", "mode": "min", "reference": 2.0},
    {"name": "speed", "mode": "max", "reference": 0.0},
    {"name": "memory", "at_most": 8.0, "at_least": 1.0},
]
LIMITED = [{"name": "error", "mode": "min"}, {"name": "memory", "at_most": 8.0}]


def outcome(x: float, y: float) -> dict[str, float]:
    return {"error": x + y, "speed": x * (2.0 - y), "memory": 10.0 * x}


def trained(trial: Any) -> tuple[float, float]:
    found = outcome(trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0))
    trial.set_constraint("memory at most", found["memory"] - 8.0)
    trial.set_constraint("memory at least", 1.0 - found["memory"])
    return found["error"], found["speed"]


@pytest.fixture(scope="module")
def study() -> Any:
    made = optuna.create_study(directions=["minimize", "maximize"], sampler=optuna.samplers.RandomSampler(seed=1))
    made.optimize(trained, n_trials=6)
    return made


def test_a_sampler_learns_all_values_and_the_constraints_of_a_study(tmp_path: Path) -> None:
    sampler = Sampler(agent=fedbo.Agent(tmp_path, SPACE, fedbo.Terms("random", metrics=METRICS, repeats=True)))
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    study.optimize(trained, n_trials=12)
    assert sampler._agent is not None
    told = list(sampler._agent._log.metrics.values())
    assert told == [pytest.approx(outcome(**trial.params)) for trial in study.trials]
    front = {(metrics["error"], metrics["speed"]) for _, metrics in sampler._agent.front()}
    assert front == {tuple(trial.values) for trial in study.best_trials}  # by Optuna's own rule of feasibility
    sampler._agent.close()


def test_a_sampler_with_a_limit_reads_attributes_and_refuses_other_directions(tmp_path: Path) -> None:
    sampler = Sampler(agent=fedbo.Agent(tmp_path, SPACE, fedbo.Terms("gp_ei", metrics=LIMITED, repeats=True)))

    def train(trial: Any) -> float:
        found = outcome(trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0))
        if trial.number != 1:
            trial.set_user_attr("memory", found["memory"])
        return found["error"]

    study = optuna.create_study(sampler=sampler)
    study.optimize(train, n_trials=5)
    assert sampler._agent is not None
    told = [metrics["memory"] for metrics in sampler._agent._log.metrics.values()]
    assert told[1] is None and told[0] == pytest.approx(10.0 * study.trials[0].params["x"])
    other = optuna.create_study(directions=["maximize"], sampler=sampler)
    with pytest.raises(ArgumentError, match="has directions max, but the metrics have min; use the same ones"):
        other.optimize(train, n_trials=1)
    sampler._agent.close()


def test_an_agent_starts_from_a_study_of_several_objectives(study: Any, tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("random", metrics=METRICS), start=study) as agent:
        added = list(agent._log.metrics.values())
        assert added == [pytest.approx(outcome(**trial.params)) for trial in study.trials]
        assert {metrics["error"] for _, metrics in agent.front()} == {trial.values[0] for trial in study.best_trials}
    with pytest.raises(ArgumentError, match="has 2 objectives; use a study with one objective, or add metrics for all"):
        evaluated(study, SPACE)
    with pytest.raises(ArgumentError, match="has directions min, max, but the metrics have min; use the same ones"):
        evaluated(study, SPACE, goals=goals_of(LIMITED, "min"))


def test_files_and_pairs_have_a_number_for_each_metric(tmp_path: Path) -> None:
    goals, path = goals_of(METRICS, "max"), tmp_path / "old.csv"
    path.write_text("x,y,value,speed,memory\n0.5,0.25,0.75,0.875,5\n0.5,0.5,1,0.75,\n", encoding="utf-8")
    seen = [{"error": 0.75, "speed": 0.875, "memory": 5.0}, {"error": 1.0, "speed": 0.75, "memory": None}]
    assert [point.value for point in evaluated(path, SPACE, goals=goals)] == seen
    pairs = [({"x": 0.5, "y": 0.25}, seen[0]), ({"x": 0.5, "y": 0.5}, seen[1])]
    assert [point.value for point in evaluated(pairs, SPACE, goals=goals)] == seen
    path.write_text("x,y,value,speed\n0.5,0.25,0.75,0.875\n", encoding="utf-8")
    with pytest.raises(ArgumentError, match="has no column 'memory'; available: x, y, value, speed; add it, with empty cells"):
        evaluated(path, SPACE, goals=goals)
    with pytest.raises(ArgumentError, match="has no 'memory'; add it, with None if it is not known"):
        evaluated([({"x": 0.5, "y": 0.5}, {"error": 1.0, "speed": 2.0})], SPACE, goals=goals)


def test_tune_starts_from_a_study_of_several_objectives(study: Any, tmp_path: Path) -> None:
    def train(configuration: dict[str, Any]) -> dict[str, float]:
        return outcome(**configuration)

    options: Any = {"metrics": METRICS, "algorithm": "random", "start": study, "out": tmp_path / "run"}
    made = tuning_study(train, SPACE, 1, options)
    assert made.agents.history is not None and made.agents.history.file is not None
    with open(made.agents.history.file, newline="", encoding="utf-8") as file:
        rows = [{name: float(number) for name, number in row.items()} for row in csv.DictReader(file)]
    for row, trial in zip(rows, study.trials, strict=True):
        found = outcome(**trial.params)
        assert row == pytest.approx({**trial.params, "value": found.pop("error"), "agent": 0.0, **found})


def test_a_run_is_exported_with_its_directions_values_and_constraints(tmp_path: Path) -> None:
    tables = {
        "study": {"name": "bowls"},
        "objective": {"name": "bnh", "agents": 2},
        "metric": [
            {"name": "f1", "mode": "min", "reference": 140.0},
            {"name": "f2", "mode": "min", "reference": 50.0},
            {"name": "g1", "at_most": 25.0},
            {"name": "g2", "at_least": 50.0},
        ],
        "budget": {"iterations": 6},
        "algorithm": [{"name": "random"}],
    }
    result = fedbo.run(tables, out=tmp_path / "run")
    (first, _) = export_to_optuna(result, tmp_path / "run.journal")
    study = optuna.load_study(study_name=first, storage=JournalStorage(JournalFileBackend(str(tmp_path / "run.journal"))))
    assert [direction.name for direction in study.directions] == ["MINIMIZE"] * 2 and study.metric_names == ["f1", "f2"]
    rows = [row for row in result.observations.to_pylist() if row["agent"] == 0]
    assert len(study.trials) == len(rows) == 9 and {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    for trial, row in zip(study.trials, sorted(rows, key=lambda row: row["finished"]), strict=True):
        assert trial.values == [row["metric.f1"], row["metric.f2"]]
        assert trial.constraints == {"g1": row["metric.g1"] - 25.0, "g2": 50.0 - row["metric.g2"]}
        assert row["feasible"] == all(value <= 0.0 for value in trial.constraints.values())
    best = sorted(trial.values[0] for trial in study.best_trials)
    assert best == sorted(one["value"] for one in Result.open(tmp_path / "run").best("agent") if one["agent"] == 0)
    space = {"x1": (0.0, 5.0), "x2": (0.0, 3.0)}
    again = evaluated(study, space, goals=goals_of(tables["metric"], "min"))
    assert [point.value for point in again] == [
        {name: pytest.approx(row[f"metric.{name}"]) for name in ("f1", "f2", "g1", "g2")}
        for row in sorted(rows, key=lambda row: row["finished"])
    ]


def test_a_searcher_of_ray_tune_learns_all_metrics_of_a_result(tmp_path: Path) -> None:
    pytest.importorskip("ray.tune", reason="the searcher needs Ray Tune: pip install 'ray[tune]'")
    from fedbo.tuning.ray_searcher import RaySearcher

    searcher = RaySearcher(tmp_path, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, fedbo.Terms("random", metrics=METRICS))
    asked = {name: searcher.suggest(name) for name in ("a", "b", "c")}
    searcher.on_trial_result("a", {**outcome(**asked["a"]), "training_iteration": 1})
    searcher.on_trial_complete("a")
    searcher.on_trial_complete("b", {"error": 1.0, "speed": 0.5})
    searcher.on_trial_complete("c", error=True)
    told = searcher._agent._log
    assert [told.metrics.get(token) for token in told.points] == [
        outcome(**asked["a"]),
        {"error": 1.0, "speed": 0.5, "memory": None},
        None,
    ]
    assert np.isclose(searcher._agent.front()[0][1]["error"], asked["a"]["x"] + asked["a"]["y"])
    assert searcher.set_search_properties("speed", "max", {})
    with pytest.raises(ArgumentError, match="the first objective of the terms is"):
        searcher.suggest("d")
    searcher.close()
