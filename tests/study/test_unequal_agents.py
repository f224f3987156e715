"""Unequal agents: groups with budgets, histories and a span of their own, and histories from files and earlier runs."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedbo
from fedbo.analysis.cost import estimate_cost
from fedbo.execution.jobs import runs
from fedbo.execution.replay import replay
from fedbo.objectives.space import to_unit
from fedbo.study.document import StudyError
from fedbo.study.study import Study, load_study

HISTORY = "agent,x1,x2,value\n0,0.5,1,3.5\n0,1.0,2.0,4.5\n2,0,0,-1\n0,0.1,0.2,\n5,3,4,2\n"
MODES: list[dict[str, Any]] = [
    {"mode": "immediate"},
    {"mode": "buffered", "k": 2},
    {"mode": "barrier"},
    {"mode": "deadline", "length": 1.5},
    {"mode": "first_k", "k": 2},
]


def document(**changes: Any) -> dict[str, Any]:
    algorithms = [{"name": "fts", "own": {"features": 20, "refit": 1000}}, {"name": "random"}]
    return {
        "study": {"name": "unequal", "seed": 5},
        "objective": {"name": "branin", "agents": 6},
        "agents": {"initial": 2},
        "budget": {"iterations": 5},
        "algorithm": algorithms,
        **changes,
    }


GROUPS = [
    {"name": "new", "agents": [0, 1], "iterations": 2, "initial": 4},
    {"name": "old", "agents": [2], "iterations": 9, "history": {"algorithm": "random", "observations": 7}},
    {"name": "late", "agents": [3], "from": 2.5},
    {"name": "gone", "agents": [4], "until": 3.5},
]


def observations(study: Study, folder: Path) -> Any:
    return fedbo.run(study, out=folder).observations.to_pandas()


@pytest.mark.parametrize(
    "exchange",
    [pytest.param(mode, id=mode["mode"], marks=[pytest.mark.long] * (place not in (0, 2))) for place, mode in enumerate(MODES)],
)
def test_agents_have_the_budgets_and_the_spans_of_their_groups(exchange: dict[str, Any], tmp_path: Path) -> None:
    found = observations(load_study(document(group=GROUPS, exchange=exchange)), tmp_path / "run")
    for label in ("fts", "random"):
        mine = found[found.algorithm == label]
        counts = mine.groupby(["agent", "step"]).size()
        assert [int(counts[agent, 0]) for agent in range(6)] == [4, 4, 2, 2, 2, 2]
        assert mine.groupby("agent").step.max()[[0, 1, 2, 3, 5]].tolist() == [2, 2, 9, 5, 5]
        assert mine[mine.agent == 3].started.min() == 2.5
        assert mine[mine.agent == 4].finished.max() <= 3.5 < mine[mine.agent == 5].finished.max()


def test_a_budget_of_evaluations_may_be_unequal_too(tmp_path: Path) -> None:
    tree = {"objective": {"name": "garland", "agents": 3}, "algorithm": [{"name": "fed_pne"}, {"name": "hct"}]}
    study = document(**tree, budget={"pulls": 40}, group=[{"name": "small", "agents": [1], "pulls": 13}])
    found = observations(load_study(study), tmp_path / "run")
    assert found.groupby(["algorithm", "agent"]).pulls.sum().tolist() == [40, 13, 40, 40, 13, 40]


def test_a_study_without_such_groups_gives_every_run_one_budget() -> None:
    study = load_study(document(group=[{"name": "some", "agents": [1], "bandwidth": 1e3}]))
    assert {len(run.task.budgets) for run in runs(study, Path("parts"))} == {0}


def test_a_method_knows_the_largest_budget_and_the_cost_counts_each() -> None:
    study = load_study(document(group=GROUPS))
    problem = study.problem()
    assert (problem.initial, problem.iterations, problem.history) == (4, 9, 7)
    # (4 + 2) of two agents, 2 + 9 of one, 2 + 5 of three, for two methods, and seven before.
    assert estimate_cost(study).evaluations == 2 * (12 + 11 + 21) + 7
    again = load_study(tomllib.loads(study.to_toml()))
    assert again.digest() == study.digest()
    assert again.document()["group"][2]["from"] == 2.5


def test_a_longer_history_begins_with_the_shorter_one(tmp_path: Path) -> None:
    common = {"algorithm": "random", "observations": 3}
    groups = [{"name": "old", "agents": [2, 4], "history": {"algorithm": "random", "observations": 8}}]
    fedbo.run(load_study(document(agents={"history": common}, group=groups)), out=tmp_path / "one")
    fedbo.run(load_study(document(agents={"history": common})), out=tmp_path / "other")
    one, other = (pq.read_table(tmp_path / name / "histories.parquet").to_pandas() for name in ("one", "other"))
    assert one.groupby("agent").size().tolist() == [3, 3, 8, 3, 8, 3]
    for agent in range(6):
        shorter = other[other.agent == agent]
        assert one[one.agent == agent].value.tolist()[:3] == shorter.value.tolist()


def test_a_history_from_a_file_is_what_the_agents_begin_with(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text(HISTORY)
    study = load_study(document(agents={"history": {"file": str(path)}}))
    fedbo.run(study, out=tmp_path / "run")
    found = pq.read_table(tmp_path / "run" / "histories.parquet").to_pandas()
    assert found.agent.tolist() == [0, 0, 2, 5]
    assert found.value.tolist() == [-3.5, -4.5, 1.0, -2.0]  # Branin's function is minimised
    assert found.x.tolist()[0].tolist() == [0.5, 1.0]
    parameters = study.federation().parameters
    assert np.array_equal(np.stack(found.u), to_unit(parameters, np.stack(found.x)))
    assert (set(found.algorithm), set(found.phase), found.t_n.tolist()) == ({"file"}, {"history"}, [1, 2, 1, 1])


def test_a_parquet_file_without_agents_is_for_everybody_and_may_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "history.parquet"
    pq.write_table(pa.table({"x1": [0.1, 0.2, 0.3], "x2": [1, 2, 3], "value": [1.0, 2.0, 3.0]}), path)
    groups = [{"name": "all of it", "agents": [0], "history": {"file": str(path)}}]
    study = load_study(document(agents={"history": {"file": str(path), "observations": 2}}, group=groups))
    fedbo.run(study, out=tmp_path / "run")
    found = pq.read_table(tmp_path / "run" / "histories.parquet").to_pandas()
    assert found.groupby("agent").size().tolist() == [3, 2, 2, 2, 2, 2]


def test_a_file_may_have_a_history_for_each_replicate(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text("agent,replicate,x1,x2,value\n0,0,0,0,1\n0,1,0.5,0,2\n0,1,1,0,3\n")
    study = document(study={"name": "two", "replicates": 2}, agents={"history": {"file": str(path)}})
    fedbo.run(load_study(study), out=tmp_path / "run")
    found = pq.read_table(tmp_path / "run" / "histories.parquet").to_pandas()
    assert list(zip(found.replicate, -found.value, strict=True)) == [(0, 1.0), (1, 2.0), (1, 3.0)]


def test_a_study_begins_with_what_an_earlier_run_observed(tmp_path: Path) -> None:
    first = fedbo.run(load_study(document(study={"name": "first", "replicates": 2})), out=tmp_path / "first")
    history = '[agents.history]\nrun = "first"\nlabel = "fts"\nobservations = 4\n'
    (tmp_path / "second.toml").write_text(load_study(document()).to_toml() + history)
    second = load_study(tmp_path / "second.toml", ["study.replicates=2"])
    fedbo.run(second, out=tmp_path / "run")
    before = first.observations.to_pandas()
    found = pq.read_table(tmp_path / "run" / "histories.parquet").to_pandas()
    for replicate, agent in itertools.product(range(2), range(6)):
        theirs = before[(before.algorithm == "fts") & (before.replicate == replicate) & (before.agent == agent)]
        mine = found[(found.replicate == replicate) & (found.agent == agent)]
        assert mine.value.tolist() == theirs.sort_values("t_n").value.tolist()[:4]
    assert replay(tmp_path / "run", verify=True).same


def test_what_is_in_a_history_enters_the_hash_of_a_study(tmp_path: Path) -> None:
    paths = [tmp_path / "one.csv", tmp_path / "two.csv", tmp_path / "copy.csv"]
    for path, text in zip(paths, (HISTORY, HISTORY.replace("3.5", "3.6"), HISTORY), strict=True):
        path.write_text(text)
    one, two, copy = (load_study(document(agents={"history": {"file": str(path)}})).digest() for path in paths)
    assert one == copy != two
    run = tmp_path / "run"
    fedbo.run(load_study(document(algorithm=[{"name": "random"}])), out=run)
    shown = load_study(document(agents={"history": {"run": str(run)}})).digest()
    other = tmp_path / "moved"
    run.rename(other)
    assert load_study(document(agents={"history": {"run": str(other)}})).digest() == shown


@pytest.mark.long
@pytest.mark.parametrize("exchange", MODES, ids=lambda mode: str(mode["mode"]))
def test_unequal_agents_are_the_same_after_a_kill(exchange: dict[str, Any], tmp_path: Path) -> None:
    from tests.random_studies.promises import broken_by_kills

    path = tmp_path / "history.csv"
    path.write_text(HISTORY)
    groups = [*GROUPS, {"name": "read", "agents": [5], "history": {"file": str(path), "observations": 1}}]
    study = load_study(document(agents={"history": {"file": str(path)}}, group=groups, exchange=exchange))
    broken, kills = broken_by_kills(study, tmp_path, 60.0, 4, 1)
    assert (broken, kills > 0) == ([], True)


WRONG_FILES: list[tuple[str, str]] = [
    ("x1,value\n1,2\n", "has columns x1, value; it must have x1, x2 and value, each once"),
    ("x1,x2,value\n", "has no rows; give at least one with x1, x2 and value"),
    ("x1,x2,value\n0.5,0.5,1\n0.5,17,1\n", "has x2 = 17 in row 2; it must be from 0 to 15"),
    ("x1,x2,value\n0.5,,1\n", "has no x2 in row 1; give every row a number there"),
    ("agent,x1,x2,value\n6,0,0,1\n", "has agent 6 in row 1; this objective has agents 0 to 5"),
    ("agent,x1,x2,value\n1.5,0,0,1\n", "cannot be read as csv (In CSV column #0: Row #2: CSV conversion error to int64: "
     "invalid value '1.5')"),
    ("x1,x2,value\n0,0,inf\n", "has value = inf in row 1; leave it empty where an evaluation failed"),
    ("agent,x1,x2,value\n1,0,0,\n", "has no value for agents 0, 1, 2, 3, 4 and others in replicate 0; add some"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "remedy"), WRONG_FILES, ids=[remedy[:24] for _, remedy in WRONG_FILES])
def test_a_wrong_history_file_is_told_by_column_and_row(text: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "history.csv").write_text(text)
    with pytest.raises(StudyError) as told:
        load_study(document(agents={"history": {"file": str(tmp_path / "history.csv")}}))
    line = str(told.value)
    assert line.startswith("study: [agents.history] file = ")
    assert line.endswith(f": {remedy}")


def complaints(**changes: Any) -> list[str]:
    with pytest.raises(StudyError) as told:
        load_study(document(**changes))
    return str(told.value).splitlines()


def group(**settings: Any) -> dict[str, Any]:
    return {"group": [{"name": "some", "agents": [1], **settings}]}


WRONG: list[tuple[dict[str, Any], str]] = [
    (group(pulls=4), "[[group]] 1 pulls = 4: does not match [budget]; set iterations"),
    (group(iterations=0), "[[group]] 1 iterations = 0: must be at least 1"),
    (group(initial=-1), "[[group]] 1 initial = -1: must be at least 0"),
    (group(**{"from": 4.0}, until=4.0), "[[group]] 1 until = 4.0: must be above from = 4"),
    (group(until=0), "[[group]] 1 until = 0: must be above 0"),
    ({**group(**{"from": 9.0}), "budget": {"iterations": 2, "time": 8.0}},
     "[[group]] 1 from = 9.0: must be before the study's end; [budget] time = 8"),
    ({**group(iterations=3), "agents": {"targets": [0, 2]}},
     "[[group]] 1: has a budget, but none of its agents optimises; remove it, or list some of its agents as targets"),
    (group(iteration=3), "[[group]] 1 iteration = 3: no such key; did you mean 'iterations'?"),
    (group(history={"observations": 3}), '[[group]] 1 history.algorithm: is missing; add algorithm = "ts", a file, or a run'),
    (group(history={"algorithm": "random", "run": "runs/a", "observations": 3}),
     "[[group]] 1 history.run = 'runs/a': cannot be combined with algorithm; set one of them"),
    (group(history={"file": "none.csv", "fresh": False}),
     "[[group]] 1 history.fresh = false: applies only to a history by algorithm; remove it"),
    (group(history={"algorithm": "random", "observations": 3, "label": "fts"}),
     "[[group]] 1 history.label = 'fts': applies only to a history by run; remove it"),
    (group(history={"algorithm": "random", "observations": 10**7}),
     "[[group]] 1 history.observations = 10000000: must be at most 1,000,000"),
    (group(iterations=10**10), "[[group]] 1 iterations = 10000000000: must be at most 1,000,000,000"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "line"), WRONG, ids=[line[:40] for _, line in WRONG])
def test_a_wrong_group_is_told_in_one_line(changes: dict[str, Any], line: str) -> None:
    assert complaints(**changes) == [f"study: {line}"]


def test_a_wrong_earlier_run_is_told_in_one_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    swept = document(study={"name": "s", "replicates": 2}, sweep={"budget.iterations": [1, 2]})
    fedbo.run(load_study(swept), out=run)
    history = {"run": str(run), "label": "random", "cell": 1}

    def told(**changes: Any) -> str:
        (line,) = complaints(**{"agents": {"history": history}, **changes})
        return line.partition("]")[2].replace(f"'{run}'", "RUN").replace(repr(str(run))[:59], "RUN")

    assert load_study(document(agents={"history": history})).problem().history == 4
    assert told(agents={"history": {**history, "cell": 2}}) == " cell = 2: is not a cell of the run; it has cells 0 to 1"
    assert "label = 'rndom': no algorithm 'rndom'; did you mean 'random'? available: fts, random" in told(
        agents={"history": {**history, "label": "rndom"}}
    )
    assert " cell: is missing; the run has 2 cells: set cell to a number from 0 to 1" in told(
        agents={"history": {"run": str(run)}}
    )
    assert "has 2 replicates, and this study needs replicate 2; run more" in told(study={"name": "s", "replicates": 3})
    assert "has 2 parameters, and this objective has 3; use a run of the same objective" in told(
        objective={"name": "quadratic", "agents": 6, "dimensions": 3}
    )
    assert "x1 from -5 to 10, and this objective x1 from 0 to 1" in told(objective={"name": "quadratic", "agents": 6})
    assert "is not a run directory: it has no manifest.json" in told(agents={"history": {**history, "run": str(tmp_path)}})
    table = run / "observations.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    assert "is damaged (its SHA-256 differs" in told()
