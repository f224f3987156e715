"""Studies and agents that begin with what was evaluated before, wherever it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tuned_functions

import fedbo
from fedbo.study.document import StudyError
from fedbo.tuning.evaluated import evaluated
from fedbo.tuning.tune import tuning_study

SPACE: dict[str, Any] = {"rate": (1e-4, 1.0), "kind": ["a", "b"]}
PAIRS = [({"rate": 0.01 * number, "kind": "b"}, -abs(number - 20.0)) for number in range(1, 9)]
STUDY: dict[str, Any] = {
    "study": {"name": "before", "seed": 3},
    "objective": {"name": "branin", "agents": 2},
    "agents": {"initial": 1},
    "budget": {"iterations": 2},
    "algorithm": [{"name": "gp_ei"}],
}


def test_pairs_and_parquet_and_csv_are_read_alike(tmp_path: Path) -> None:
    columns = {"rate": [one["rate"] for one, _ in PAIRS], "kind": [one["kind"] for one, _ in PAIRS]}
    table = pa.table({**columns, "value": [value for _, value in PAIRS], "note": ["x"] * len(PAIRS)})
    pq.write_table(table, tmp_path / "old.parquet")
    lines = ["rate,kind,value", *(f"{one['rate']},{one['kind']},{value}" for one, value in PAIRS)]
    (tmp_path / "old.csv").write_text("\n".join(lines))
    found = [
        [point[:2] for point in evaluated(source, SPACE)] for source in (PAIRS, tmp_path / "old.parquet", tmp_path / "old.csv")
    ]
    assert found[0] == found[1] == found[2] == PAIRS


def test_what_agents_of_a_run_observed_is_read_in_native_units(tmp_path: Path) -> None:
    result = fedbo.run(STUDY, out=tmp_path / "run")
    (first, second), metric = result.manifest["parameters"][0], result.metric()
    space = {one["name"]: (one["low"], one["high"]) for one in (first, second)}
    rows = [row for row in result.observations.to_pylist() if row["agent"] == 1]
    points = evaluated(tmp_path / "run", space, agent=1)
    assert [(point.configuration, point.value) for point in points] == [
        ({first["name"]: row["x"][0], second["name"]: row["x"][1]}, metric.native(row["value"])) for row in rows
    ]
    assert len(evaluated(tmp_path / "run", space)) == 2 * 3


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            7,
            "start = 7: pass pairs of a configuration and its value, an optuna.Study, a .csv or .parquet file, or a run",
        ),
        ([({"rate": 0.5}, 1.0)], "start, point 1: .*kind"),
        ([({"rate": 9.0, "kind": "a"}, 1.0)], "start, point 1: .*rate"),
        (
            "nowhere.csv",
            "start = 'nowhere.csv': is not an existing .csv file, .parquet file or run directory; pass the path of one",
        ),
    ],
)
def test_what_is_no_start_is_refused_in_one_line(source: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        fedbo.Agent(tmp_path / "agent", SPACE, fedbo.Terms("ts"), start=source)
    assert "\n" not in str(refusal.value)


def test_a_parquet_file_without_values_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"rate": [0.1]}), tmp_path / "old.parquet")
    with pytest.raises(ValueError, match="has no column 'value'; available: rate; pass the name of the value's column"):
        evaluated(tmp_path / "old.parquet", SPACE)


def test_what_holds_no_evaluation_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "old.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(
        fedbo.errors.ArgumentError, match=r"^start = '\S+': it cannot be read as a table: .*; pass a table of evaluations$"
    ):
        evaluated(tmp_path / "old.parquet", SPACE)
    nobody = {"fault": [{"kind": "crash", "at": 0.0}], "evaluation": {"failure": "drop"}}
    fedbo.run({**STUDY, **nobody}, out=tmp_path / "run")
    with pytest.raises(fedbo.errors.ArgumentError, match="is a run without any value; pass one that has evaluated something"):
        evaluated(tmp_path / "run", SPACE)


def test_an_agent_takes_its_start_in_once(tmp_path: Path) -> None:
    for _ in range(2):
        with fedbo.Agent(tmp_path / "agent", SPACE, fedbo.Terms("ts", seed=1), start=PAIRS) as agent:
            best = agent.best()
            assert best is not None and best[1] == -12.0
    assert (tmp_path / "agent" / "log.jsonl").read_text().count('"add"') == len(PAIRS)


def test_a_warm_start_is_learned_as_an_agents_own_and_is_no_row_of_the_study(tmp_path: Path) -> None:
    fedbo.run(STUDY, out=tmp_path / "run", overrides=["budget.iterations=12"])
    history = {"run": str(tmp_path / "run"), "warm_start": True}
    warm = {**STUDY, "agents": {"initial": 1, "history": history}}
    found = {name: fedbo.run(study, out=tmp_path / name) for name, study in (("warm", warm), ("cold", STUDY))}
    assert len(found["warm"].observations) == len(found["cold"].observations) == 2 * 3
    best = {name: result.best()[0]["value"] for name, result in found.items()}
    assert best["warm"] < best["cold"]  # which minimises
    told = {row["t_n"] for row in found["warm"].observations.to_pylist()}
    assert told == {1, 2, 3}


@pytest.mark.parametrize(
    ("history", "algorithm", "words"),
    [
        (
            {"algorithm": "random", "observations": 5},
            "ts",
            "warm_start = true: applies only to a history by a file or a run, of the same task",
        ),
        ({}, "t_hoo", "cannot start from observations that it did not choose; use ts, fts, gp_ei or gp_ucb"),
    ],
)
def test_what_cannot_start_warm_is_refused(history: dict[str, Any], algorithm: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("x1,x2,value\n0.5,0.5,1.0\n")
    names = [one.name for one in fedbo.load_study(STUDY).federation().parameters]
    (tmp_path / "old.csv").write_text(f"{','.join(names)},value\n1.0,1.0,3.0\n")
    given = {"warm_start": True, **(history or {"file": str(tmp_path / "old.csv")})}
    with pytest.raises(StudyError, match=words):
        fedbo.load_study({**STUDY, "agents": {"history": given}, "algorithm": [{"name": algorithm}]})


def test_a_tuning_study_names_the_file_of_its_start(tmp_path: Path) -> None:
    options: Any = {"start": {1: PAIRS}, "out": tmp_path / "run", "iterations": 2}
    study = tuning_study(tuned_functions.meeting, SPACE, 2, options)
    assert study.agents.history is not None and study.agents.history.warm_start
    file = Path(str(study.agents.history.file))
    assert file.parent == tmp_path and len(file.read_text().splitlines()) == 1 + len(PAIRS)
    assert tuning_study(tuned_functions.meeting, SPACE, 2, options).digest() == study.digest()
    with pytest.raises(ValueError, match="start: has points for agent 2; use agents 0 to 1"):
        tuning_study(tuned_functions.meeting, SPACE, 2, {**options, "start": {2: PAIRS}})
    with pytest.raises(ValueError, match="start: has no point with a value; add one, or remove start"):
        tuning_study(tuned_functions.meeting, SPACE, 2, {**options, "start": []})


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_sites_that_start_from_what_was_tuned_before_know_it(tmp_path: Path) -> None:
    result = fedbo.tune(
        tuned_functions.meeting, tuned_functions.SPACE, 1, iterations=1, initial=1, metric="loss", mode="min",
        resources={"CPU": 0.5}, out=tmp_path / "first",
    )  # fmt: skip
    assert len(result.observations) == 2
    again = fedbo.tune(
        tuned_functions.meeting, tuned_functions.SPACE, 1, iterations=1, initial=1, metric="loss", mode="min",
        resources={"CPU": 0.5}, out=tmp_path / "second", start=tmp_path / "first",
    )  # fmt: skip
    assert [row["origin"] for row in again.observations.to_pylist()] == ["initial", "own"]
