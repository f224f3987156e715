"""Early stopping in real time: reports of running evaluations are judged at rungs, by a log that all processes of a run share.

A verdict is a function of the log's lines up to that of its report, in their order. So an evaluation that restarts after a
kill gets the same verdicts.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import NamedTuple

from fedbo.actors.storage import atomic
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.algorithms.streams import Streams
from fedbo.objectives.typed_spaces.reports import Answer, Report
from fedbo.stopping.stoppers import Key, Place, RungState
from fedbo.stopping.stopping import Stopping


class ReportedStopping(NamedTuple):
    """Early stopping by reported values: its rules, the folder of the logs, and the sign of the values."""

    stopping: Stopping
    folder: Path
    sign: int

    def judge(self, query: Query, streams: Streams) -> ReportJudge:
        """Return the judge of an evaluation; `streams` are those of its agent."""
        return ReportJudge(self, query, streams)

    def recall(self, streams: Streams, places: Mapping[float, tuple[int, int]], records: Iterable[EvaluationRecord]) -> None:
        """Rewrite an agent's log of rungs from its evaluations, in the order of their ends, for an extended run.

        `streams` are those of the agent; `places` maps the start of each evaluation to its step and point.
        """
        for record in sorted(records, key=lambda one: one.finished):
            if not record.rungs or record.started not in places:
                continue
            bracket = self.stopping.first(streams, *places[record.started]).bracket
            for fidelity, value in zip(self.stopping.brackets[bracket], record.rungs, strict=False):
                noted(self.folder / f"rungs-{record.agent}.jsonl", (bracket, fidelity), (record.number, 0), value)


class ReportJudge:
    """Judges one running evaluation: at its first report at or beyond a rung, decides whether it continues."""

    def __init__(self, rules: ReportedStopping, query: Query, streams: Streams) -> None:
        self._rules, self._key = rules, (query.number, 0)
        self._path = rules.folder / f"rungs-{query.agent}.jsonl"
        self._bracket = rules.stopping.first(streams, query.step, query.point).bracket
        self._rungs, self._stopped, self._fidelity = list[float](), False, 0

    def __call__(self, report: Report) -> Answer:
        """Note the evaluation's value at every rung that it has passed since the last report, and judge it there."""
        stopping, levels = self._rules.stopping, self._rules.stopping.brackets[self._bracket]
        value = self._rules.sign * report.value if isfinite(report.value) else -inf
        for fidelity in levels:
            if self._stopped or not self._fidelity < fidelity <= report.step:
                continue
            self._fidelity = fidelity
            state = noted(self._path, (self._bracket, fidelity), self._key, value)
            self._rungs.append(state.values[self._bracket, fidelity][self._key])
            if fidelity < stopping.largest:
                verdict = stopping.stopper.verdict(state, levels, (self._bracket, fidelity), self._key)
                self._stopped = verdict == "stop"
        return "stop" if self._stopped else "go"

    def judged(self, record: EvaluationRecord) -> EvaluationRecord:
        """Note in the record of a successful evaluation which fidelity it reached."""
        if record.error is not None:
            return record
        if self._stopped:
            record.fidelity, record.stopped = self._fidelity, "stopped"
        else:
            record.fidelity = self._rules.stopping.largest
        record.rungs = self._rungs
        return record


def noted(path: Path, place: Place, key: Key, value: float) -> RungState:
    """Append an evaluation's value at a rung to the agent's log; return the rungs at that line.

    If an earlier process, since killed, noted the same rung, that line stays: the rungs are those at that line.
    """
    os.close(atomic.open_log(path))
    with open(path, "a+b", opener=atomic.no_link) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        whole, end, _ = file.read().rpartition(b"\n")  # the last line may have been cut by a kill
        state = RungState()
        for line in whole.split(b"\n") if whole else ():
            number, bracket, fidelity, seen = json.loads(line)
            state = state.reached((bracket, fidelity), (number, 0), seen)
            if ((bracket, fidelity), (number, 0)) == (place, key):
                return state
        file.truncate(len(whole) + len(end))
        atomic.append(file.fileno(), json.dumps([key[0], *place, value]).encode() + b"\n", sync=True)
        return state.reached(place, key, value)
