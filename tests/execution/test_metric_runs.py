"""Whole runs of studies with [[metric]]: columns, indicators, fronts, ends and files."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.analysis import curves, failures, own_metric
from fedbo.analysis.result import Result, ResultError
from fedbo.commands.watch.run_watch import study_state
from fedbo.execution.runner import resume_study, run_study
from fedbo.study.study import Study, load_study
from tests.random_studies.invariants import violations

BARE = {"study": {"name": "own"}, "algorithm": [{"name": "random"}]}
OBJECTIVE = {
    "name": "python_function",
    "function": "tests.execution.metric_functions:costly",
    "low": [0.0],
    "high": [1.0],
    "agents": 2,
    "direction": "minimise",
    "metric_name": "error",
}
TWO = [
    {"name": "error", "mode": "min", "reference": 1.0},
    {"name": "seconds", "mode": "min", "reference": 10.0},
    {"name": "memory", "at_most": 0.9},
]


def studied(metric: Any, objective: Any = (), **tables: Any) -> Study:
    """Return a small study of random search on two agents."""
    return load_study(
        {
            "study": {"name": "metrics", "seed": 5},
            "objective": {**OBJECTIVE, **dict(objective)},
            "budget": {"iterations": 12},
            "algorithm": [{"name": "random"}],
            "metric": metric,
            **tables,
        },
        trust=True,
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Run the study with two objectives, a limit, and another limit for agent 1."""
    group = {"name": "strict", "agents": [1], "at_most": {"memory": 1.5}}
    return run_study(studied(TWO, group=[group]), tmp_path_factory.mktemp("two") / "run")


def rows_of(result: Result) -> list[dict[str, Any]]:
    """Return the observations."""
    rows: list[dict[str, Any]] = result.observations.to_pylist()
    return rows


def test_every_metric_has_a_column_in_native_units(two: Result) -> None:
    """What was not a number is NaN; other numbers stay in the JSON of `metrics`."""
    for row in rows_of(two):
        at = row["x"][0]
        assert row["metric.error"] == 1.0 - at == -row["value"]
        assert row["metric.memory"] == at * (row["agent"] + 1)
        assert row["metric.seconds"] == 10.0 * at if at <= 0.9 else math.isnan(row["metric.seconds"])
        assert row["feasible"] == (row["metric.memory"] <= (1.5 if row["agent"] == 1 else 0.9))
        assert '"extra": 7.0' in row["metrics"]
    assert {row["feasible"] for row in rows_of(two)} == {True, False}


def test_traces_are_hypervolumes_by_hand(two: Result) -> None:
    """On this line each point dominates a rectangle of its own."""
    for trace in two.traces:
        mine = [row for row in rows_of(two) if row["agent"] == trace.agent]
        found = list[float]()
        for count in range(1, len(mine) + 1):
            kept = sorted({row["x"][0] for row in mine[:count] if row["feasible"] and not math.isnan(row["metric.seconds"])})
            areas = ((at - before) * (10.0 - 10.0 * at) for before, at in itertools.pairwise([0.0, *kept]))
            found.append(sum(areas))
        np.testing.assert_allclose(trace.best, found, rtol=1e-12)
    assert two.metric().name == "hypervolume" and own_metric(two).name == "error"
    assert two.summary()[0].final.mean == pytest.approx(np.mean([trace.best[-1] for trace in two.traces]))
    with pytest.raises(ResultError):
        curves(two, regret=True)


def test_best_is_the_front_by_brute_force(two: Result) -> None:
    """Of each agent, or of all of them together; every point has its metrics and its configuration."""
    for each in ("agent", "algorithm"):
        found = {(one["agent"], one["configuration"]["x1"]) for one in two.best(each)}
        expected = set[tuple[int, float]]()
        for agents in ([0], [1]) if each == "agent" else ([0, 1],):
            good = [row for row in rows_of(two) if row["feasible"] and row["agent"] in agents]
            good = [row for row in good if not math.isnan(row["metric.seconds"])]
            points = [(row["metric.error"], row["metric.seconds"]) for row in good]
            for row, (error, seconds) in zip(good, points, strict=True):
                if not any(a <= error and b <= seconds and (a, b) != (error, seconds) for a, b in points):
                    expected.add((row["agent"], row["x"][0]))
        assert found == expected
    first = two.best()[0]
    assert first["value"] == first["metrics"]["error"] and set(first["metrics"]) == {"error", "seconds", "memory"}
    assert two.best("all")[0]["known"] == "unknown"
    assert "seconds" in repr(two)


def test_a_watched_run_shows_the_same_indicator(two: Result) -> None:
    """The state of a run that has ended is that of its summary."""
    (row,) = study_state(two.directory).rows
    assert row.metric == "hypervolume" and row.best == pytest.approx(two.summary()[0].final.mean)


def test_an_incumbent_is_feasible(tmp_path: Path) -> None:
    """With limits alone, curves follow the best feasible value, and the regret is not known."""
    result = run_study(studied([{"name": "memory", "at_most": 0.6}]), tmp_path / "run")
    for trace in result.traces:
        mine = [row for row in rows_of(result) if row["agent"] == trace.agent]
        scores = [row["score"] if row["feasible"] else -math.inf for row in mine]
        best = np.maximum.accumulate(scores)
        np.testing.assert_array_equal(trace.best, np.where(np.isfinite(best), best, np.nan))
    for one in result.best("agent"):
        assert one["metrics"]["memory"] <= 0.6
    assert result.metric().name == "error"


def test_a_run_ends_at_a_feasible_target(tmp_path: Path) -> None:
    """A value beyond the target that breaks a limit does not end it."""
    study = studied([{"name": "memory", "at_most": 0.6}], budget={"iterations": 40, "target": 0.5})
    rows = rows_of(run_study(study, tmp_path / "run"))
    reached = [row for row in rows if row["feasible"] and row["metric.error"] <= 0.5]
    last = max(row["finished"] for row in rows)
    assert reached and min(row["finished"] for row in reached) >= last - 1.0
    assert any(row["metric.error"] <= 0.5 and not row["feasible"] for row in rows)


def test_a_metric_that_is_not_returned_fails_the_evaluation(tmp_path: Path) -> None:
    """The reason names the metric and what there is; the other metrics are kept."""
    objective = {"function": "tests.execution.metric_functions:forgetful", "agents": 1}
    result = run_study(studied([{"name": "memory", "at_most": 1.0}], objective), tmp_path / "run")
    count, why = failures(result)
    assert count == len(result.observations) and "no metric 'memory'" in why
    assert not any(row["feasible"] for row in rows_of(result)) and '"error"' in rows_of(result)[0]["metrics"]
    assert result.best() == []


def test_an_extended_run_has_the_bytes_of_a_longer_one(tmp_path: Path) -> None:
    """Its earlier rows come from the table, whose columns of metrics are written anew."""
    run_study(studied(TWO, budget={"iterations": 5}), tmp_path / "short")
    resume_study(tmp_path / "short", ["budget.iterations=12"])
    run_study(studied(TWO), tmp_path / "whole")
    one, other = (tmp_path / name / "observations.parquet" for name in ("short", "whole"))
    assert one.read_bytes() == other.read_bytes()


def test_a_study_without_metrics_has_no_columns_of_them(tmp_path: Path) -> None:
    """Its table and its manifest are those of before."""
    result = run_study(studied([]), tmp_path / "run")
    assert "goals" not in result.manifest and "feasible" not in result.observations.column_names
    assert "metrics" not in result.best()[0]


def test_histories_carry_metrics(tmp_path: Path, two: Result) -> None:
    """An earlier run is learned with its metrics; a run or a file without them is refused."""
    history = {"run": str(two.directory), "warm_start": True}
    study = studied([{"name": "memory", "at_most": 0.6}], agents={"history": history}, algorithm=[{"name": "ts"}])
    assert len(run_study(study, tmp_path / "run").best()) == 1
    (tmp_path / "points.csv").write_text("x1,value\n0.5,0.5\n")
    with pytest.raises(ValueError, match="memory"):
        studied([{"name": "memory", "at_most": 0.6}], agents={"history": {"file": str(tmp_path / "points.csv")}})


@pytest.mark.parametrize("name", ["fed_pne", "random"])
def test_the_own_metric_may_be_limited(name: str, tmp_path: Path) -> None:
    """Also for a method that evaluates a point several times, and where evaluations stop early."""
    budget = {"pulls": 60} if name == "fed_pne" else {"iterations": 9}
    objective = (
        {"name": "quadratic", "agents": 2, "noise": 0.01} if name == "fed_pne" else {"name": "learning_curves", "agents": 2}
    )
    metric = load_study({**BARE, "objective": objective, "budget": {"iterations": 1}}).federation().metric
    tables: dict[str, Any] = {} if name == "fed_pne" else {"stopping": {"kind": "asha"}}
    limit = {"name": metric.name, "at_most" if metric.sign < 0 else "at_least": 0.4}
    study = load_study(
        {**BARE, "objective": objective, "budget": budget, "algorithm": [{"name": name}], "metric": [limit], **tables}
    )
    result = run_study(study, tmp_path / "run")
    assert violations(study, result.directory) == []
    assert {row["feasible"] for row in rows_of(result)} == {True, False}
