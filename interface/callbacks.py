"""Callbacks of `fedbo.tune` that write every evaluation to MLflow, TensorBoard or Weights & Biases.

Each needs its library, which is imported when the callback is made. What they are told of is what
`fedbo.execution.monitor.Evaluation` holds: observations leave the run for wherever these libraries send them, so give them to a
study whose sites agree to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from fedbo.execution.monitor import Callback, Evaluation
from fedbo.settings.errors import unknown
from fedbo.settings.plugins import Catalogue


class MLflow:
    """Logs every evaluation as a run of an experiment: its configuration, value, metrics and reports, or its failure."""

    def __init__(self, experiment: str = "fedbo", tracking_uri: str | None = None) -> None:
        mlflow = _needed("mlflow", "mlflow")
        self._client = mlflow.MlflowClient(tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = self._client.create_experiment(experiment) if found is None else found.experiment_id

    def __call__(self, evaluation: Evaluation) -> None:
        """Write an evaluation down."""
        name = f"agent {evaluation.agent}, evaluation {evaluation.number}"
        run = self._client.create_run(self._experiment, run_name=name, tags={"agent": str(evaluation.agent)}).info.run_id
        for parameter, value in evaluation.configuration.items():
            self._client.log_param(run, parameter, value)
        for metric, number in _numbers(evaluation):
            self._client.log_metric(run, metric, number, step=evaluation.number)
        for step, number in evaluation.reports:
            self._client.log_metric(run, "report", number, step=int(step))
        if evaluation.error is not None:
            self._client.set_tag(run, "error", evaluation.error[:5000])
        self._client.set_terminated(run, "FINISHED" if evaluation.error is None else "FAILED")


class TensorBoard:
    """Logs, for every agent, values and metrics against the number of the evaluation, and each evaluation's reports."""

    def __init__(self, folder: str | Path) -> None:
        self._writer = _needed("tensorboardX", "tensorboardX").SummaryWriter(str(folder))

    def __call__(self, evaluation: Evaluation) -> None:
        """Write an evaluation down."""
        agent = f"agent {evaluation.agent}"
        for metric, number in _numbers(evaluation):
            self._writer.add_scalar(f"{agent}/{metric}", number, evaluation.number)
        for step, number in evaluation.reports:
            self._writer.add_scalar(f"{agent}/reports of {evaluation.number}", number, int(step))
        self._writer.add_text(f"{agent}/configuration", str(evaluation.configuration), evaluation.number)
        if evaluation.error is not None:
            self._writer.add_text(f"{agent}/error", evaluation.error[:5000], evaluation.number)
        self._writer.flush()

    def close(self) -> None:
        """Close its file."""
        self._writer.close()


class WeightsAndBiases:
    """Logs every evaluation to one run; further arguments are those of `wandb.init`, such as `mode="offline"`."""

    def __init__(self, project: str = "fedbo", **options: Any) -> None:
        self._run = _needed("wandb", "wandb").init(project=project, **options)

    def __call__(self, evaluation: Evaluation) -> None:
        """Write an evaluation down."""
        agent = f"agent {evaluation.agent}"
        found: dict[str, Any] = {f"{agent}/{metric}": number for metric, number in _numbers(evaluation)}
        found |= {f"{agent}/configuration/{name}": value for name, value in evaluation.configuration.items()}
        if evaluation.reports:
            found[f"{agent}/last report"] = evaluation.reports[-1][1]
        self._run.log({**found, f"{agent}/evaluation": evaluation.number, f"{agent}/failed": evaluation.error is not None})

    def close(self) -> None:
        """End the run."""
        self._run.finish()


def callback(given: str | Callback) -> Callback:
    """Give a callback, or the one of this name: `mlflow`, `wandb`, or a plug-in; ValueError when there is none.

    A class is called without arguments to make one.
    """
    if not isinstance(given, str):
        return given
    if given not in CALLBACKS:
        raise ValueError(unknown("callback", given, CALLBACKS))
    found = CALLBACKS[given]
    made: Callback = found() if isinstance(found, type) else found
    return made


def _admitted(found: Any) -> Any:
    if not callable(found):
        raise ValueError(f"it is {found!r:.80}, and a function of an evaluation, or a class of such, would do")
    return found


CALLBACKS = Catalogue[Any]("callbacks", {"mlflow": MLflow, "wandb": WeightsAndBiases}, _admitted)


def _numbers(evaluation: Evaluation) -> Iterator[tuple[str, float]]:
    """List the value, where there is one, how long it took, and the metrics."""
    if evaluation.value is not None:
        yield "value", evaluation.value
    yield "took", evaluation.finished - evaluation.started
    yield from evaluation.metrics.items()


def _needed(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"this callback needs {module}, which cannot be imported ({error}): pip install {package}") from error
