"""Callbacks for MLflow, TensorBoard and Weights & Biases, with the libraries themselves where they are installed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedbo.callbacks import MLflow, TensorBoard, WeightsAndBiases
from fedbo.execution.notices import Evaluation

GOOD = Evaluation(
    1, 0, {"rate": 0.1, "kind": "a"}, 2.5, None, 1.0, 3.0, {"seconds": 2.0}, ((1.0, 9.0), (2.0, 4.0)), notes={"why": ["warm"]}
)  # fmt: skip
BAD = Evaluation(1, 1, {"rate": 0.2, "kind": "b"}, None, "agent 1: RuntimeError: no", 3.0, 4.0)


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_holds_every_evaluation_as_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "runs").as_uri()
    logged = MLflow("sites", uri)
    for evaluation in (GOOD, BAD, replace(BAD, agent=2)):
        logged(evaluation)
    logged.on_end()
    client = mlflow.MlflowClient(uri)
    every = client.search_runs([client.get_experiment_by_name("sites").experiment_id])
    agents = {run.data.tags["agent"]: run for run in every if "mlflow.parentRunId" not in run.data.tags}
    assert {run.info.run_name for run in agents.values()} == {"agent 1", "agent 2"} and len(every) == 5
    assert {run.info.status for run in agents.values()} == {"FINISHED"}
    runs = [run for run in every if run.data.tags.get("mlflow.parentRunId") == agents["1"].info.run_id]
    by_status = {run.info.status: run for run in runs}
    assert set(by_status) == {"FINISHED", "FAILED"} and len(runs) == 2
    assert by_status["FINISHED"].data.tags["why"] == "['warm']"
    good = by_status["FINISHED"].data
    assert good.params == {"rate": "0.1", "kind": "a"}
    assert good.metrics == {"value": 2.5, "took": 2.0, "seconds": 2.0, "report": 4.0}
    history = client.get_metric_history(by_status["FINISHED"].info.run_id, "report")
    assert [(each.step, each.value) for each in history] == [(1, 9.0), (2, 4.0)]
    assert by_status["FAILED"].data.tags["error"] == BAD.error


@pytest.mark.filterwarnings("ignore")  # tensorboardX's own
def test_tensorboard_draws_values_and_reports(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="needs tensorboardX: pip install tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    board = TensorBoard(tmp_path)
    for evaluation in (GOOD, BAD):
        board(evaluation)
    board.close()
    (path,) = tmp_path.iterdir()
    data, scalars = path.read_bytes(), list[tuple[str, int, float]]()
    while data:  # a record: length, its checksum, bytes, their checksum
        length = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + length])
        scalars += [(v.tag, event.step, v.simple_value) for v in event.summary.value if v.HasField("simple_value")]
        data = data[16 + length :]
    told = {(tag.replace("_", " "), step): value for tag, step, value in scalars}
    assert told[("agent 1/value", 0)] == 2.5
    assert told[("agent 1/reports of 0", 2)] == 4.0
    assert ("agent 1/value", 1) not in told and told[("agent 1/took", 1)] == 1.0


@pytest.mark.filterwarnings("ignore")  # Weights & Biases' own
def test_weights_and_biases_logs_to_one_run_for_each_agent(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs Weights & Biases: pip install wandb")
    logged = WeightsAndBiases("sites", mode="offline", dir=str(tmp_path))
    for evaluation in (GOOD, BAD, replace(GOOD, agent=2)):
        assert logged(evaluation) is None
    summary = dict(logged._runs[1].summary)
    assert summary["value"] == 2.5 and summary["evaluation"] == 1 and summary["failed"]
    assert summary["last report"] == 4.0 and not dict(logged._runs[2].summary)["failed"]
    assert {run.name for run in logged._runs.values()} == {"agent 1", "agent 2"}
    logged.on_end()
    assert len(list(tmp_path.rglob("*.wandb"))) == 2


def test_a_library_that_is_not_there_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("mlflow", "tensorboardX", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
    for make, package in ((MLflow, "mlflow"), (lambda: TensorBoard(tmp_path), "tensorboardX"), (WeightsAndBiases, "wandb")):
        with pytest.raises(ImportError, match=f"this callback requires {package}.*pip install {package}"):
            make()
