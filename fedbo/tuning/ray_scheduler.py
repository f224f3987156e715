"""A trial scheduler for Ray Tune that stops trials by the rules of `[stopping]`, and continues after a restore.

Needs Ray Tune: pip install 'ray[tune]'.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import ValidationError
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from fedbo.actors.storage import atomic
from fedbo.actors.storage.evaluations import Query
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Fidelity
from fedbo.objectives.outcome import Outcome
from fedbo.settings.arguments import Mode, path, text, whole
from fedbo.settings.errors import ArgumentError, SettingError
from fedbo.stopping.stoppers import RungState
from fedbo.stopping.stopping import Stopping
from fedbo.stopping.table import StoppingTable, invalid_rungs
from fedbo.study.document import StudyError
from fedbo.study.invalid import from_pydantic
from fedbo.tuning.arguments import check_metric, check_stopping, in_arguments


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
        self._log: _RungLog | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the values of trials: Tune stores a scheduler when an experiment starts, and the log is newer."""
        return {**self.__dict__, "_log": None}

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
        if self._log is None:
            head = {"stopping": self._table, "steps": self._steps, "metric": self._metric, "mode": self._mode}
            self._log = _RungLog(self._folder, head, self._stopping, 1.0 if self._mode == "max" else -1.0)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Judge a trial at every rung that it has passed since its last result."""
        if self._time_attr not in result or self._metric not in result:
            return str(self.CONTINUE)
        assert self._log is not None
        value = result[self._metric]
        goes_on = self._log.report(trial.trial_id, result[self._time_attr], -inf if value is None else float(value))
        return str(self.CONTINUE if goes_on else self.STOP)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Note the last result, which Tune does not report before when one of its own criteria ends the trial."""
        self.on_trial_result(tune_controller, trial, result)

    def debug_string(self) -> str:
        """Return how many trials were stopped."""
        stopped = 0 if self._log is None else self._log.stopped
        return f"Using {self._table['kind']} of fedbo: num_stopped={stopped}"


class _RungLog:
    """The values of trials at rungs: a log in a folder, and the state of the stopper, which is a function of its lines."""

    def __init__(self, folder: Path, head: dict[str, Any], stopping: Stopping, sign: float) -> None:
        self._stopping, self._sign, self._rungs = stopping, sign, RungState()
        self._at: dict[str, Query] = {}  # by trial: its present segment, or its last one
        self._ends: dict[str, int] = {}  # by trial that was stopped or has ended: the fidelity of that
        self.stopped = 0
        atomic.make_folder(folder, 0o700)
        self._path = folder / "rungs.jsonl"
        with open(self._path, "a+b", opener=atomic.no_link) as file:
            file.seek(0)
            whole, end, _ = file.read().rpartition(b"\n")
            file.truncate(len(whole) + len(end))  # its writer may have been killed within the last line
            lines = [json.loads(line) for line in whole.splitlines()] or [head]
            if not whole:
                atomic.append(file.fileno(), json.dumps(head).encode() + b"\n")
        if lines[0] != head:
            raise ArgumentError(f"'{folder}': has rungs of {json.dumps(lines[0])}; use the same arguments, or a new folder")
        for trial, _, value in lines[1:]:
            self._judge(trial, value)

    def report(self, trial: str, step: float, value: float) -> bool:
        """Note the value of a trial at every rung that it has passed, on disk first; return whether it continues."""
        while trial not in self._ends and (fidelity := self._fidelity(trial)) <= step:
            with open(self._path, "ab", buffering=0, opener=atomic.no_link) as file:
                atomic.append(file.fileno(), json.dumps([trial, fidelity, value]).encode() + b"\n")
            self._judge(trial, value)
        return step < self._ends.get(trial, inf)

    def _fidelity(self, trial: str) -> int:
        """Return the next rung of a trial."""
        if trial not in self._at:
            number = int.from_bytes(hashlib.sha256(trial.encode()).digest()[:7])
            span = self._stopping.first(Streams(0, owner=0), number, 0)
            self._at[trial] = Query(0, 0, 0, np.zeros(0), step=number, span=span)
        return self._at[trial].fidelity or 0

    def _judge(self, trial: str, value: float) -> None:
        """Judge a trial at its next rung."""
        fidelity, signed = self._fidelity(trial), self._sign * value if isfinite(value) else -inf
        self._rungs, verdict, self._at[trial] = self._stopping.judge(self._rungs, self._at[trial], Outcome(signed))
        self.stopped += verdict == "stop"
        if verdict != "go":
            self._ends[trial] = fidelity


def _stopping_on(table: dict[str, Any], steps: int) -> Stopping:
    """Return the stopper of a table for this number of steps; ArgumentError with a line for each error."""
    found = list[SettingError]()
    try:
        stopper = StoppingTable.model_validate(table).make()
        found += invalid_rungs(stopper, Fidelity("step", 1, steps))
        if stopper.pauses:
            found.append(SettingError(("variant",), 'must be "stop" in Ray Tune, whose trials this scheduler does not pause'))
    except ValidationError as error:
        found += from_pydantic(error, {}).faults
    except StudyError as error:
        found += error.faults
    if found:
        raise in_arguments(StudyError.of(found).under("stopping"), {"stopping": table}, {})
    return Stopping(stopper, 1, steps)
