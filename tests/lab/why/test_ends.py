"""Statements of a bad end: which are understood, and their values in a run."""

from __future__ import annotations

import numpy as np
import pytest

import fedbo
from fedbo.analysis.grouping import by_run
from fedbo.lab.why.ends import End, EndedRun, parse_end
from fedbo.settings.errors import ArgumentError


@pytest.mark.parametrize(
    ("words", "end"),
    [
        ("regret > 0.1", End("regret > 0.1", "regret", ">", 0.1)),
        ("best<.8 at t = 10", End("best<.8 at t = 10", "best", "<", 0.8, 10)),
        ("best >= 1e-3 at mean", End("best >= 1e-3 at mean", "best", ">=", 1e-3, "mean")),
        ("time to level > 40", End("time to level > 40", "time to level", ">", 40.0)),
        ("time to 0.25 > 40", End("time to 0.25 > 40", "time to level", ">", 40.0, level=0.25)),
        ("epsilon > 2", End("epsilon > 2", "epsilon", ">", 2.0)),
        ("agent 3 last", End("agent 3 last", "last", agent=3)),
        ("stuck", End("stuck", "stuck")),
    ],
)
def test_statements_are_understood(words: str, end: End) -> None:
    assert parse_end(words) == end


@pytest.mark.parametrize("words", ["", "regret", "regret = 1", "speed > 1", "agent x last", "best > 1 at 3"])
def test_other_words_are_refused_with_examples(words: str) -> None:
    with pytest.raises(ArgumentError, match="must be a statement such as"):
        parse_end(words)


def test_at_belongs_to_values_alone() -> None:
    with pytest.raises(ArgumentError, match="has 'at' only for regret and best"):
        parse_end("end > 3 at mean")
    with pytest.raises(ArgumentError, match="must count iterations from 1"):
        parse_end("best > 3 at t = 0")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    study = {
        "study": {"name": "ends", "seed": 2},
        "objective": {"name": "quadratic", "agents": 3},
        "budget": {"iterations": 4},
        "algorithm": [{"name": "random"}],
        "timing": {"evaluation": {"model": "exponential", "mean": 1.0}},
    }
    run = fedbo.run(study, out=tmp_path_factory.mktemp("ends") / "run")
    ((key, events),) = by_run(run.events)
    return EndedRun(key, run.observations, events, run.privacy, run.metric(), run.manifest["best_values"])


def test_values_agree_with_the_rows_of_the_run(tables: EndedRun) -> None:
    frame = tables.observations.to_pandas()
    best = frame.groupby("agent")["score"].max().mean()
    assert parse_end("best > 0").value(tables) == pytest.approx(-best)
    known = np.mean(list(tables.best_values["0"]["0"].values()))
    assert parse_end("regret > 0").value(tables) == pytest.approx(known - best)
    early = frame[frame["step"] <= 2].groupby("agent")["score"].max().mean()
    assert parse_end("best > 0 at t = 2").value(tables) == pytest.approx(-early)
    ends = frame.groupby("agent")["finished"].max()
    assert parse_end("end > 0").value(tables) == ends.max()
    assert parse_end("evaluations > 0").value(tables) == len(frame)
    others = ends.drop(1).max()
    assert parse_end("agent 1 last").value(tables) == pytest.approx(ends[1] - others)
    assert parse_end("stuck").value(tables) == 0.0


def test_the_time_to_a_level_is_when_the_mean_reached_it(tables: EndedRun) -> None:
    level = parse_end("best > 0").value(tables)
    end = parse_end("time to level > 0").with_level(level)
    assert 0 < end.value(tables) <= parse_end("end > 0").value(tables)
    assert parse_end("time to -1 > 5").value(tables) == np.inf


def test_an_agent_that_is_no_target_is_refused(tables: EndedRun) -> None:
    with pytest.raises(ArgumentError, match="must name a target of the run"):
        parse_end("agent 7 last").value(tables)


def test_private_budgets_and_missing_optima_are_told(tables: EndedRun) -> None:
    assert parse_end("epsilon > 2").value(tables) == 0.0
    unknown = EndedRun(tables.key, tables.observations, tables.events, tables.privacy, tables.metric, {})
    with pytest.raises(fedbo.errors.ResultError, match="use best in place of regret"):
        parse_end("regret > 0").value(unknown)
