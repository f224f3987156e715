"""Regret on the mean of all agents' functions: against sums done by hand, in tables, figures and beside the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import fedbo
from fedbo.actors.storage.sealed import seal
from fedbo.algorithms.streams import Streams
from fedbo.analysis import regret_summary, regret_traces
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.mean_objective import FILE
from fedbo.analysis.regret import RegretTrace, regret_averages
from fedbo.analysis.result import Result
from fedbo.cli import app
from fedbo.figures.curves import WINDOWS, _single
from fedbo.figures.kinds.optima import _found
from fedbo.objectives.functions import Quadratic

STUDY: dict[str, Any] = {
    "study": {"name": "bowls", "seed": 3, "replicates": 2},
    "objective": {"name": "quadratic", "agents": 3, "dimensions": 1, "spread": 0.5, "noise": 0.01},
    "agents": {"initial": 2},
    "budget": {"iterations": 6},
    "algorithm": [{"name": "random"}, {"name": "random", "label": "one for all", "centralised": True}],
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return fedbo.run(STUDY, out=tmp_path_factory.mktemp("regret") / "run", progress=False)


def centres(replicate: int) -> np.ndarray:
    """Give the places of the three bowls as the agents themselves had them."""
    bowls, streams = Quadratic(**{k: v for k, v in STUDY["objective"].items() if k != "name"}), Streams(3, replicate)
    made = [bowls.objective(a, streams.shared("objective"), streams.of(a).rng("objective")) for a in range(3)]
    return np.array([float(one.centre[0]) for one in made])


def trace(pulls: list[int], instant: list[float], agent: int = 0, replicate: int = 0) -> RegretTrace:
    return RegretTrace(0, "A", replicate, agent, np.array(pulls), np.array(instant))


def test_a_point_counts_as_often_as_it_was_evaluated() -> None:
    one = trace([2, 1, 4], [1.0, 0.5, 0.25])
    assert (one.rounds, one.total) == (7, 3.5)
    np.testing.assert_allclose(one.cumulative(np.array([0, 1, 2, 3, 5, 7, 8])), [0, 1, 2, 2.5, 3, 3.5, np.nan])


def test_curves_average_over_agents_and_then_over_replicates() -> None:
    traces = [trace([4], [1.0]), trace([2, 2], [0.0, 1.0], agent=1), trace([2, 2], [0.5, 0.25], replicate=1)]
    (made,) = regret_averages(traces, 2)
    np.testing.assert_allclose(made.rounds, [1, 4])
    np.testing.assert_allclose(made.mean, [(0.5 + 0.5) / 2, (3.0 + 1.5) / 2])
    np.testing.assert_allclose(made.deviation, [0.0, 1.5 / np.sqrt(2)])
    np.testing.assert_allclose(made.instant, [0.5, (2.5 / 3 + 1.0 / 3) / 2])  # since the place before


def test_who_has_ended_is_left_out_from_there_on() -> None:
    (made,) = regret_averages([trace([4], [1.0]), trace([1], [0.5], agent=1)], 4)
    np.testing.assert_allclose(made.mean, [0.75, 2.0, 3.0, 4.0])
    assert np.isnan(made.deviation).all()


def test_the_regret_of_bowls_is_what_it_is_by_hand(result: Result) -> None:
    """The mean of bowls -(x - c)^2 is at most minus the variance of c, at their mean, and the regret there is (x - mean)^2."""
    rows = result.observations.to_pylist()
    assert {(one.algorithm, one.replicate, one.agent) for one in regret_traces(result)} == {
        *(("random", r, a) for r in (0, 1) for a in range(3)), *(("one for all", r, 0) for r in (0, 1))
    }  # fmt: skip
    for one in regret_traces(result):
        mine = [r for r in rows if (r["algorithm"], r["replicate"], r["agent"]) == (one.algorithm, one.replicate, one.agent)]
        x = np.array([row["x"][0] for row in sorted(mine, key=lambda row: row["finished"])])
        np.testing.assert_allclose(one.instant, (x - centres(one.replicate).mean()) ** 2, atol=1e-10)
        assert one.rounds == 8 and (one.pulls == 1).all()


def test_the_largest_value_is_kept_beside_the_tables_and_looked_up_again(result: Result) -> None:
    assert regret_traces(result)
    path = result.directory / FILE
    written = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: entry for key, entry in written.items() if isinstance(entry, dict)}  # beside its format and its sum
    assert len(kept) == 2
    for entry in kept.values():
        where = centres(entry["of"]["replicate"])
        assert entry["value"] == pytest.approx(-where.var(), abs=1e-12) and entry["x"] == pytest.approx(
            [where.mean()], abs=1e-6
        )
    before = [one.instant for one in regret_traces(result)]
    path.write_text(seal({key: {**entry, "value": entry["value"] + 1.0} for key, entry in kept.items()}), encoding="utf-8")
    again = regret_traces(Result.open(result.directory))
    path.write_text(json.dumps(written), encoding="utf-8")
    assert all(one.instant == pytest.approx(old + 1.0) for one, old in zip(again, before, strict=True))


def test_a_table_with_pulls_weighs_rows_by_them(result: Result) -> None:
    table = result.observations
    weighed = Result(result.directory, result.study, result.manifest)
    place = table.column_names.index("pulls")
    weighed.observations = table.set_column(place, table.schema.field(place), pa.array([3] * len(table), pa.int32()))
    assert [one.total for one in regret_traces(weighed)] == pytest.approx([3.0 * one.total for one in regret_traces(result)])


def test_the_summary_divides_by_agents_and_counts_what_was_sent(result: Result) -> None:
    first, second = regret_summary(result)
    mine = [one for one in regret_traces(result) if one.algorithm == "random"]
    by_replicate = [sum(one.total for one in mine if one.replicate == r) for r in (0, 1)]
    assert (first.algorithm, first.agents, first.replicates, first.rounds) == ("random", 3, 2, 8.0)
    assert first.total == pytest.approx(np.mean(by_replicate)) and first.mean == pytest.approx(first.total / 3)
    assert first.deviation == pytest.approx(np.std(by_replicate, ddof=1) / 3)
    assert (first.rounds_up, first.scalars_up, first.scalars_down) == (0.0, 0.0, 0.0)
    assert (second.agents, second.total) == (1, pytest.approx(second.mean))


def test_show_prints_regret_as_a_table_and_as_json(result: Result) -> None:
    told = CliRunner().invoke(app, ["show", str(result.directory), "--regret"])
    assert told.exit_code == 0 and "R(T)/M ± sd" in told.stdout and "one for all" in told.stdout
    facts = json.loads(CliRunner().invoke(app, ["show", str(result.directory), "--regret", "--format", "json"]).stdout)
    assert [row["algorithm"] for row in facts["regret"]] == ["random", "one for all"]
    assert facts["regret"][0]["mean"] == pytest.approx(regret_summary(result)[0].mean)


@pytest.mark.long
def test_the_figure_is_drawn(result: Result, tmp_path: Path) -> None:
    path = result.plot(tmp_path / "regret.png", kind="regret")
    assert path.stat().st_size > 20_000


@pytest.mark.parametrize(("rounds", "averaged"), [(15, False), (WINDOWS, False), (100, True)])
def test_the_regret_of_one_evaluation_is_told_as_averaged_only_where_it_is(rounds: int, averaged: bool) -> None:
    trace = RegretTrace(0, "A", 0, 0, np.ones(rounds, dtype=np.int64), np.linspace(1.0, 0.1, rounds))
    curves = regret_averages([trace], WINDOWS)
    axes = Figure().subplots()
    _single(axes, curves, {"A": {"color": "#000000"}})
    assert ("of the rounds" in axes.get_ylabel()) == averaged


def test_each_agents_best_point_is_its_own_and_not_that_of_a_centralised_run(result: Result) -> None:
    best, seen = _found(result, 0, drawn=True)
    rows = [r for r in result.observations.to_pylist() if r["algorithm"] == "random" and r["replicate"] == 0]
    assert len(seen) == len(rows) == 24
    assert best.score == pytest.approx([-max(r["score"] for r in rows if r["agent"] == agent) for agent in range(3)])


def test_a_mean_that_nobody_can_say_is_refused_in_words(tmp_path: Path) -> None:
    study = {**STUDY, "objective": {"name": "digits", "agents": 3}, "algorithm": [{"name": "random"}]}
    study |= {"budget": {"iterations": 1}, "agents": {"initial": 1}, "study": {"name": "digits", "seed": 1}}
    made = fedbo.run(study, out=tmp_path / "run", progress=False)
    with pytest.raises(ResultError, match="regret on the mean of all agents: .* has no `scores` method"):
        _ = regret_traces(made)
