"""The trials of a run as a table, and what other programs read of it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from synthetic_run import document, write_run

import fedbo
from fedbo.actors.storage.rows import read_table, write_table
from fedbo.analysis import curves, spending, trouble
from fedbo.analysis.records.records import ResultTable, column_array
from fedbo.analysis.result import Result
from fedbo.analysis.schemas import OBSERVATIONS
from fedbo.optuna.export import export_to_optuna
from fedbo.tuning.evaluated import evaluated

SPACE = {"lr": (0.001, 1.0), "n": (1, 4), "opt": ["=adam", "sgd"], "width": [1, 2.5, 16], "agent": (0.5, 1.5), "fixed": 3}
VIRTUAL = {"timing": {"clock": "virtual"}, "hosting": {"kind": "inline"}, "evaluation": {"resources": []}}


def tuned(config: dict[str, Any], agent: int) -> dict[str, float]:
    """Return an error, to be minimised, and metrics; some configurations of one agent fail."""
    if agent == 1 and config["n"] == 3:
        raise ValueError("three is one too many")
    notes = {"note": f"of {agent}"} | ({"layers": [config["n"]]} if agent else {})
    return {"error": config["lr"] + config["n"] + 0.1 * agent, "value": 7, "loss": config["width"], **notes}


@pytest.fixture(scope="module")
def tuning(tmp_path_factory: pytest.TempPathFactory) -> Result:
    out = tmp_path_factory.mktemp("tunings") / "run"
    options: dict[str, Any] = {"metric": "error", "mode": "min", "algorithm": "random", "seed": 1, "study": VIRTUAL}
    return fedbo.tune(tuned, SPACE, 2, iterations=6, out=out, **options)


def test_trials_of_a_tuning_have_the_configurations_and_what_the_function_returned(tuning: Result) -> None:
    rows = tuning.trials().to_arrow().to_pylist()
    assert len(rows) == 2 * 9 and list(rows[0])[:7] == [
        "cell", "algorithm", "replicate", "agent", "step", "query", "origin"
    ]  # fmt: skip
    assert {"lr", "n", "opt", "width", "param_agent", "fixed", "loss", "metric_value"} < set(rows[0])
    assert {row["status"] for row in rows} == {"complete", "failed"}
    for row in rows:
        config = {name: row["param_agent" if name == "agent" else name] for name in SPACE}
        assert type(row["n"]) is int and row["fixed"] == 3 and row["opt"] in SPACE["opt"]
        if row["status"] == "complete":
            assert (row["note"], row["layers"]) == (f"of {row['agent']}", f"[{row['n']}]" if row["agent"] else None)
        if row["status"] == "failed":
            assert row["value"] is None and row["error"].endswith("ValueError: three is one too many")
            assert (row["agent"], row["n"]) == (1, 3)
        else:
            assert row["error"] is None and row["metric_value"] == 7
            assert row["value"] == row["score"] == pytest.approx(tuned(config, row["agent"])["error"])
            assert row["loss"] == config["width"]


def test_the_best_value_is_that_of_the_tables_and_of_optuna(tuning: Result, tmp_path: Path) -> None:
    frame = tuning.trials().to_pandas()
    best = {row["agent"]: row["value"] for row in tuning.best("agent")}
    assert frame.groupby("agent").value.min().to_dict() == best
    assert tuning.summary()[0].final.mean == pytest.approx(np.mean(list(best.values())))
    names = export_to_optuna(tuning, tmp_path / "j")
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "j")))
    for agent, name in enumerate(names):
        study, mine = optuna.load_study(study_name=name, storage=storage), frame[frame.agent == agent]
        assert study.best_value == mine.value.min()
        assert sorted(t.value for t in study.trials if t.value is not None) == sorted(mine.value.dropna())
        assert study.best_params["opt"] == mine.loc[mine.value.idxmin(), "opt"]


def test_csv_keeps_every_digit_and_starts_another_tuning(tuning: Result, tmp_path: Path) -> None:
    space = {name: each for name, each in SPACE.items() if name != "agent"}
    table = tuning.trials()
    assert (tmp_path / "t.csv").write_text(table.to_csv(tmp_path / "other.csv")) and (tmp_path / "other.csv").exists()
    frame, own = pd.read_csv(tmp_path / "t.csv"), table.to_pandas()
    assert list(frame.columns) == list(own.columns)
    for name in ("lr", "n", "value", "score", "started", "finished", "loss"):
        assert np.array_equal(frame[name], own[name], equal_nan=True)
    points = evaluated(tmp_path / "t.csv", space)
    good = own[own.status == "complete"]
    assert [point.value for point in points] == good.value.tolist()
    assert [point.configuration["opt"] for point in points] == good.opt.tolist()
    assert [point.configuration["width"] for point in points] == good.width.tolist()


def test_latex_and_markdown_have_a_line_for_each_trial(tuning: Result) -> None:
    table = tuning.trials()
    lines = [line for line in table.to_latex().splitlines() if line.endswith(r"\\")]
    assert len(lines) == 1 + len(table) and all(line.count(" & ") == lines[0].count(" & ") for line in lines)
    marked = table.to_markdown().splitlines()
    assert len(marked) == 2 + len(table) and f"{table.to_pandas().value[0]:.4g}" in marked[2]


def test_summaries_and_curves_convert_the_same_way(tmp_path: Path) -> None:
    result = Result.open(write_run(tmp_path / "run", document(agents=3, iterations=3)))
    frame, rows = result.summary().to_pandas(), result.summary()
    assert frame.final_mean.tolist() == [row.final.mean for row in rows] and rows[1].difference is not None
    assert frame.difference_low[1] == rows[1].difference.low and np.isnan(frame.difference_low[0])
    assert frame.origins_federated[1] == rows[1].federated
    again = pd.read_csv(io.StringIO(rows.to_csv()))
    assert again.final_error.tolist() == [row.final.error for row in rows]
    for axis in ("iteration", "evaluations", "time", "bytes"):
        found = curves(result, axis)
        drawn = found.to_pandas()
        for curve in found:
            mine = drawn[drawn.algorithm == curve.algorithm]
            assert mine.x.tolist() == curve.x.tolist() and mine["mean"].tolist() == curve.mean.tolist()
    assert len(trouble(result).to_pandas()) == 2 and len(spending(result).to_arrow()) == 0


def test_cells_of_a_sweep_have_their_swept_values_and_plain_boxes_their_numbers(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", document(agents=2, iterations=2, replicates=1, agents__initial=[2, 3]), troubled=True)
    frame = Result.open(folder).trials().to_pandas()
    assert dict(zip(frame.cell, frame["agents.initial"], strict=True)) == {0: 2, 1: 3}
    observed = Result.open(folder).observations.to_pandas()
    assert np.array_equal(frame.value, -observed.value.where(observed.error.isna() | observed.value.notna()), equal_nan=True)
    assert np.array_equal(frame[["C", "gamma"]], np.stack(observed.x))
    forgotten = observed.error.fillna("").str.startswith("forgotten")
    assert (frame.status[forgotten] == "forgotten").all() and (frame.status == "failed").sum() == (
        observed.error.notna() & ~forgotten
    ).sum()


def test_early_stopping_shows_what_stopped_and_what_went_on(tmp_path: Path) -> None:
    study = {
        "study": {"name": "s", "seed": 1}, "objective": {"name": "learning_curves", "agents": 1},
        "budget": {"iterations": 12}, "algorithm": [{"name": "random"}],
        "stopping": {"kind": "asha", "variant": "promote"},
    }  # fmt: skip
    frame = fedbo.run(study, out=tmp_path / "run").trials().to_pandas()
    points = frame.groupby(["step", "query"])
    assert (points.status.apply(lambda found: (found == "paused").sum()) == points.size() - 1).all()
    assert {"stopped early", "paused"} <= set(frame.status) and frame.fidelity.notna().all()


def test_without_pandas_it_is_said_in_one_line(tuning: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for made in (tuning.trials(), tuning.summary(), curves(tuning)):
        with pytest.raises(ImportError, match=r"^to_pandas requires pandas; install it with: pip install pandas$"):
            made.to_pandas()
        assert made.to_csv() and made.to_arrow().num_columns


def test_a_run_of_an_earlier_version_lacks_columns_that_are_null_now(tuning: Result, tmp_path: Path) -> None:
    older = tuning.observations.drop_columns(["metrics", "rungs", "stopped", "fidelity"])
    write_table(older, tmp_path / "old.parquet")
    found = read_table(tmp_path / "old.parquet", OBSERVATIONS)
    assert found.schema.equals(OBSERVATIONS) and found["metrics"].null_count == len(found)
    texts = pq.read_table(tuning.directory / "observations.parquet")["metrics"].to_pylist()
    assert json.loads(next(filter(None, texts)))["value"] == 7


@pytest.mark.parametrize(
    ("values", "kind", "kept"),
    [
        ([1, None], pa.int64(), [1, None]),
        ([1, 2.5], pa.float64(), [1.0, 2.5]),
        ([True, None], pa.bool_(), [True, None]),
        (["a", 1, None, [1, 2], True], pa.string(), ["a", "1", None, "[1, 2]", "True"]),
    ],
)
def test_a_column_has_one_type(values: list[Any], kind: pa.DataType, kept: list[Any]) -> None:
    made = column_array(values)
    assert made.type == kind and made.to_pylist() == kept


def test_trials_are_a_sequence_of_their_rows(tuning: Result) -> None:
    trials = tuning.trials()
    rows = trials.to_arrow().to_pylist()
    assert list(trials) == rows and len(trials) == len(rows)
    assert trials[0] == rows[0] and trials[-1] == rows[-1] and trials[2:-1:3] == rows[2:-1:3]
    with pytest.raises(IndexError, match="out of bounds"):
        trials[len(rows)]


@pytest.mark.parametrize("name", ["trials", "summary", "curves", "trouble", "trouble_by_agent", "spending"])
def test_a_notebook_shows_the_first_rows_of_every_table(tuning: Result, name: str) -> None:
    found = getattr(tuning, name)() if hasattr(tuning, name) else getattr(fedbo.analysis, name)(tuning)
    html, rows = found._repr_html_(), len(found.to_arrow())
    assert html.count("<tr>") == 1 + min(rows, 20) and (f"of {rows} rows" in html) == (rows > 20)


def test_what_a_notebook_shows_of_other_peoples_words_is_escaped() -> None:
    table = ResultTable("words", pa.table({"<b>name": ["<script>alert(1)</script>", "\x1b[31m"]}))
    assert "<b>" not in table._repr_html_() and "<script>" not in table._repr_html_() and "\x1b" not in table._repr_html_()
