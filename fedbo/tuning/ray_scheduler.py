"""A trial scheduler for Ray Tune that stops trials by the rules of `[stopping]`, and continues after a restore.

Needs Ray Tune: pip install 'ray[tune]'.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import Any, cast

import numpy as np
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from fedbo.actors.storage import atomic
from fedbo.actors.storage.evaluations import Query
from fedbo.algorithms.streams import Streams
from fedbo.objectives.typed_spaces.reports import Report
from fedbo.settings.arguments import Mode, path, text, whole, wrong
from fedbo.settings.errors import ArgumentError
from fedbo.stopping.reported import ReportedStopping, ReportJudge
from fedbo.stopping.stopping import Stopping
from fedbo.tuning.arguments import check_metric, check_stopping
from fedbo.tuning.tune import tuning_study


class RayScheduler(FIFOScheduler):
    """Stops trials at rungs by a stopper, with the same code as evaluations of a study.

    `stopping` is the name of a stopper or the table `[stopping]`: "asha", "hyperband" or "median"; no trial pauses. A trial has
    `steps` steps of `time_attr`, and ends with the last one. It is judged at its first result at or beyond a rung, by its value
    of `metric`. A result without one of the two is ignored, and NaN is worse than any number. With several brackets, a trial's
    bracket is drawn by its id.

    The values of trials at rungs are stored in `folder`, a line each. A restored experiment reads them there, so that it keeps
    its rungs and verdicts. Another experiment needs another folder. ArgumentError when an argument is invalid, or the folder is
    of a scheduler with other arguments.
    """

    def __init__(
        self,
        folder: str | Path,
        stopping: str | Mapping[str, Any],
        steps: int,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: Mode | None = None,
    ) -> None:
        path("folder", folder)
        check_stopping("stopping", stopping)
        whole("steps", steps, 2)
        text("time_attr", time_attr)
        check_metric(metric, mode)
        super().__init__()  # type: ignore[no-untyped-call]
        self._folder, self._steps, self._time_attr = Path(folder).resolve(), steps, time_attr
        self._table = {"kind": stopping} if isinstance(stopping, str) else dict(stopping)
        self._metric, self._mode = metric, mode
        self._stopping = _stopping_on(self._table, steps)
        self._rules: ReportedStopping | None = None
        self._judges, self._stopped = dict[str, ReportJudge](), set[str]()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the values of trials: Tune stores a scheduler when an experiment starts, and the log is newer."""
        return {**self.__dict__, "_rules": None, "_judges": {}, "_stopped": set()}

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Set metric and mode of the experiment; return False if they differ from those of the constructor."""
        if metric not in (None, self._metric or metric) or mode not in (None, self._mode or mode):
            return False
        self._metric, self._mode = metric or self._metric, cast(Mode | None, mode or self._mode)
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Read the values of earlier trials; ArgumentError without metric and mode."""
        if self._metric is None or self._mode not in ("min", "max"):
            words = f"metric = {self._metric!r}, mode = {self._mode!r}: RayScheduler requires both"
            raise ArgumentError(f"{words}; pass them to TuneConfig or RayScheduler, with mode 'min' or 'max'")
        if self._rules is None:
            head = {"stopping": self._table, "steps": self._steps, "metric": self._metric, "mode": self._mode}
            self._rules = _rules(self._folder, head, self._stopping)
        number = int.from_bytes(hashlib.sha256(trial.trial_id.encode()).digest()[:7])
        query = Query(0, number, 0, np.zeros(0), step=number)
        self._judges[trial.trial_id] = self._rules.judge(query, Streams(0, owner=0))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Judge a trial at every rung that it has passed since its last result."""
        if self._time_attr not in result or self._metric not in result:
            return str(self.CONTINUE)
        step, value = result[self._time_attr], result[self._metric]
        if self._judges[trial.trial_id](Report(step, nan if value is None else float(value))) == "stop":
            self._stopped.add(trial.trial_id)
            return str(self.STOP)
        return str(self.STOP if step >= self._steps else self.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Note the last result, which Tune does not report before when one of its own criteria ends the trial."""
        self.on_trial_result(tune_controller, trial, result)

    def debug_string(self) -> str:
        """Return how many trials were stopped."""
        return f"Using {self._table['kind']} of fedbo: num_stopped={len(self._stopped)}"


def _rules(folder: Path, head: dict[str, Any], stopping: Stopping) -> ReportedStopping:
    """Return the rules of an experiment in a folder; ArgumentError where those of other arguments are there."""
    atomic.make_folder(folder, 0o700)
    atomic.write(folder / "scheduler.json", lambda file: file.write(json.dumps(head).encode()), new=True)
    there = json.loads((folder / "scheduler.json").read_bytes())
    if there != head:
        raise ArgumentError(f"'{folder}': has rungs of {json.dumps(there)}; use the same arguments, or a new folder")
    return ReportedStopping(stopping, folder, 1 if head["mode"] == "max" else -1)


def _stopping_on(table: dict[str, Any], steps: int) -> Stopping:
    """Return the stopper of a table for this number of steps; ArgumentError with a line for each error."""
    if table.get("variant") == "promote":
        raise wrong("stopping['variant']", "promote", 'must be "stop" in Ray Tune, whose trials this scheduler does not pause')
    study = tuning_study(_trainable, {"x": (0.0, 1.0)}, 1, {"steps": steps, "stopping": table})
    assert study.stopping is not None
    return Stopping(study.stopping.make(), 1, steps)


def _trainable(configuration: Any, report: Any) -> float:
    """Stand for the function that Ray Tune calls, where a table is checked as in a study."""
    raise NotImplementedError
