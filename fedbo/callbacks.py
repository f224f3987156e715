"""Callbacks of any study: evaluations to MLflow, TensorBoard or Weights & Biases, counters and gauges to Ray's metrics.

Each needs its library, which is imported when the callback is created. `fedbo.execution.notices` describes their inputs.
Observations leave the run for the places where these libraries send them, so use them only if all sites of the study agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from fedbo.execution.notices import Callback, ClosedRound, Evaluation, LoggedEvent, check_callback
from fedbo.objectives.base import LibraryMissingError
from fedbo.settings.arguments import short, wrong
from fedbo.settings.errors import ArgumentError, unknown
from fedbo.settings.plugins import Catalogue
from fedbo.settings.trust import admit


class MLflow:
    """Logs every evaluation as a run of an experiment: its configuration, value, metrics, reports and notes, or its failure.

    These runs are nested in one run for each agent.
    """

    def __init__(self, experiment: str = "fedbo", tracking_uri: str | None = None) -> None:
        mlflow = _needed("mlflow", "mlflow")
        self._client = mlflow.MlflowClient(tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = self._client.create_experiment(experiment) if found is None else found.experiment_id
        self._parents = dict[int, str]()

    def __call__(self, evaluation: Evaluation) -> None:
        """Log an evaluation."""
        name, tags = f"agent {evaluation.agent}", {"agent": str(evaluation.agent)}
        if evaluation.agent not in self._parents:
            self._parents[evaluation.agent] = self._client.create_run(self._experiment, run_name=name, tags=tags).info.run_id
        tags |= {"mlflow.parentRunId": self._parents[evaluation.agent]}
        tags |= {note: str(text)[:5000] for note, text in evaluation.notes.items()}
        name = f"{name}, evaluation {evaluation.number}"
        run = self._client.create_run(self._experiment, run_name=name, tags=tags).info.run_id
        for parameter, value in evaluation.configuration.items():
            self._client.log_param(run, parameter, value)
        for metric, number in _numbers(evaluation):
            self._client.log_metric(run, metric, number, step=evaluation.number)
        for step, number in evaluation.reports:
            self._client.log_metric(run, "report", number, step=int(step))
        if evaluation.error is not None:
            self._client.set_tag(run, "error", evaluation.error[:5000])
        self._client.set_terminated(run, "FINISHED" if evaluation.error is None else "FAILED")

    def on_end(self) -> None:
        """End the runs of the agents."""
        for run in self._parents.values():
            self._client.set_terminated(run)


class TensorBoard:
    """Logs, for every agent, values and metrics by the number of the evaluation, and each evaluation's reports."""

    def __init__(self, folder: str | Path) -> None:
        self._writer = _needed("tensorboardX", "tensorboardX").SummaryWriter(str(folder))

    def __call__(self, evaluation: Evaluation) -> None:
        """Log an evaluation."""
        agent = f"agent {evaluation.agent}"
        for metric, number in _numbers(evaluation):
            self._writer.add_scalar(f"{agent}/{metric}", number, evaluation.number)
        for step, number in evaluation.reports:
            self._writer.add_scalar(f"{agent}/reports of {evaluation.number}", number, int(step))
        self._writer.add_text(f"{agent}/configuration", str(evaluation.configuration), evaluation.number)
        for note, text in evaluation.notes.items():
            self._writer.add_text(f"{agent}/{note}", str(text), evaluation.number)
        if evaluation.error is not None:
            self._writer.add_text(f"{agent}/error", evaluation.error[:5000], evaluation.number)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class WeightsAndBiases:
    """Logs every evaluation to the run of its agent, all in the group `fedbo`; further arguments are those of `wandb.init`."""

    def __init__(self, project: str = "fedbo", **options: Any) -> None:
        self._wandb, self._options = _needed("wandb", "wandb"), {"project": project, "group": "fedbo", **options}
        self._runs = dict[int, Any]()

    def __call__(self, evaluation: Evaluation) -> None:
        """Log an evaluation."""
        agent = evaluation.agent
        if agent not in self._runs:
            self._runs[agent] = self._wandb.init(**{"name": f"agent {agent}", "reinit": "create_new", **self._options})
        found: dict[str, Any] = {**dict(_numbers(evaluation)), **evaluation.notes}
        found |= {f"configuration/{name}": value for name, value in evaluation.configuration.items()}
        if evaluation.reports:
            found["last report"] = evaluation.reports[-1][1]
        self._runs[agent].log({**found, "evaluation": evaluation.number, "failed": evaluation.error is not None})

    def on_end(self) -> None:
        """End the runs of the agents."""
        for run in self._runs.values():
            run.finish()


class RayMetrics:
    """Counts evaluations, events and rounds of a study on Ray, and shows each agent's last value, as metrics of Ray.

    Ray's Prometheus endpoint shows them with the prefix "ray_". Raises RuntimeError if the study does not run on Ray.
    """

    def __init__(self) -> None:
        self._metrics = _needed("ray.util.metrics", "'ray[default]'")
        self._made: dict[str, Any] = {}

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Count an evaluation by its status; record its value and duration."""
        tags = {**_run_tags(*evaluation.run), "agent": str(evaluation.agent)}
        ended = "failed" if evaluation.value is None else "succeeded"
        self._metric("Counter", "fedbo_evaluations", "finished evaluations", (*tags, "ended")).inc(1, {**tags, "ended": ended})
        if evaluation.value is not None:
            self._metric("Gauge", "fedbo_value", "last value of each agent, in native units", tags).set(evaluation.value, tags)
            self._metric("Gauge", "fedbo_duration", "duration of the last evaluation, in the study's time", tags).set(
                evaluation.finished - evaluation.started, tags
            )

    def on_event(self, event: LoggedEvent) -> None:
        """Count an event by its kind."""
        tags = {**_run_tags(*event[:3]), "kind": event.kind}
        self._metric("Counter", "fedbo_events", "events, as in events.parquet", tags).inc(1, tags)

    def on_round(self, closed: ClosedRound) -> None:
        """Count a round and its bytes."""
        tags = _run_tags(*closed.run)
        self._metric("Counter", "fedbo_rounds", "closed rounds", tags).inc(1, tags)
        self._metric("Counter", "fedbo_round_bytes", "bytes of the rounds' messages and answers", tags).inc(
            closed.bytes_up + closed.bytes_down, tags
        )

    def _metric(self, kind: str, name: str, words: str, tags: Iterable[str]) -> Any:
        if name not in self._made:
            if not import_module("ray").is_initialized():
                raise RuntimeError("this study does not run on Ray; set workers, another hosting or an address")
            self._made[name] = getattr(self._metrics, kind)(name, words, tuple(tags))
        return self._made[name]


def _run_tags(cell: int, algorithm: str, replicate: int) -> dict[str, str]:
    return {"cell": str(cell), "algorithm": algorithm or "none", "replicate": str(replicate)}


def callback(given: str | Callback) -> Callback:
    """Return a callback, also for a name: `mlflow`, `wandb`, `ray_metrics`, a plug-in, or the place of an object.

    A class is instantiated without arguments. ValueError for an unknown name.
    """
    if isinstance(given, str):
        admit([given])  # no study names callbacks, only who runs it
    if isinstance(given, str) and given not in CALLBACKS:
        raise ValueError(unknown("callback", given, CALLBACKS))
    found = CALLBACKS[given] if isinstance(given, str) else given
    return check_callback(found() if isinstance(found, type) else found)


def callbacks_of(given: Any) -> list[Callback]:
    """Return the callbacks of an argument `callbacks`; ArgumentError if it is not a list, or contains an invalid one."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise wrong("callbacks", given, "must be a list; write callbacks=[…]")
    made = []
    for place, each in enumerate(given):
        try:
            made.append(callback(each))
        except ValueError as error:
            raise ArgumentError(f"callbacks[{place}] = {short(each)}: {error}") from None
        except TypeError as error:
            raise ArgumentError(
                f"callbacks[{place}] = {short(each)}: cannot be constructed without arguments ({error}); pass an instance"
            ) from None
    return made


CALLBACKS = Catalogue[Any](
    "callbacks", {"mlflow": MLflow, "wandb": WeightsAndBiases, "ray_metrics": RayMetrics}, check_callback
)


def _numbers(evaluation: Evaluation) -> Iterator[tuple[str, float]]:
    """Yield the value, if there is one, the duration, and the metrics."""
    if evaluation.value is not None:
        yield "value", evaluation.value
    yield "took", evaluation.finished - evaluation.started
    yield from evaluation.metrics.items()


def _needed(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise LibraryMissingError(
            f"this callback requires {module}, which cannot be imported ({error}); run pip install {package}"
        ) from error
