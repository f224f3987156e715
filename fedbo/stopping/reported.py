"""Early stopping in real time: reports of running evaluations are judged at rungs, and their checkpoints are kept.

A verdict to stop is a function of the lines of a log that all processes of a run share, up to that of its report, in their
order. So an evaluation that restarts after a kill gets the same verdicts. Where evaluations pause, each does at its next rung;
its agent decides which continue, by the ends that it has learned from.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from fedbo.actors.storage import atomic
from fedbo.actors.storage.evaluations import EvaluationRecord, Query
from fedbo.algorithms.streams import Streams
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.typed_spaces.reports import Answer, Checkpoint, Report
from fedbo.settings.records import changed
from fedbo.stopping.checkpoints import Checkpoints
from fedbo.stopping.stoppers import Key, Place, RungState
from fedbo.stopping.stopping import Stopping


class ReportedStopping(NamedTuple):
    """Early stopping by reported values: its rules, None if nothing stops; the folder of the run; the sign of the values."""

    stopping: Stopping | None
    folder: Path
    sign: int

    def judge(self, query: Query, streams: Streams) -> ReportJudge:
        """Return the judge of an evaluation; `streams` are those of its agent."""
        return ReportJudge(self, query, streams)

    def begun(self, query: Query, streams: Streams) -> Query:
        """Return a new evaluation with its first segment, where evaluations pause; `streams` are those of its agent."""
        if self.stopping is None or self.stopping.stopper.variant != "promote":
            return query
        return changed(query, span=self.stopping.first(streams, query.step, query.point))

    def ended(
        self, rungs: RungState | None, query: Query, record: EvaluationRecord, promotes: bool
    ) -> tuple[Any, Query | None]:
        """Return an agent's rungs after the end of an evaluation, and the paused one that continues in its place, if any.

        Removes the checkpoint of an evaluation that cannot continue. Unless it `promotes`, none continues.
        """
        if record.stopped != "paused":
            Checkpoints.of(self.folder, query).remove((query.step, query.point))
        if query.span is None or self.stopping is None:
            return rungs, None
        rungs = rungs or RungState()
        if record.error is None:
            # One that returned before its next rung has come to its end.
            span = query.span if record.stopped else query.span._replace(fidelity=self.stopping.largest)
            value = record.rungs[-1] if record.rungs else record.outcome.value
            rungs = self.stopping.judge(rungs, changed(query, span=span), Outcome(value)).rungs
        rungs, promoted = self.stopping.promoted(rungs) if promotes else (rungs, None)
        self._prune(query, rungs)
        return rungs, promoted

    def _prune(self, query: Query, rungs: RungState) -> None:
        """Keep the limit on the checkpoints of an agent, and note in `deleted-N.log` what was deleted for it."""
        stopper: Any = None if self.stopping is None else self.stopping.stopper  # a `Halving`, since no other one pauses
        limit, kept = stopper.disk_limit * 2**20, Checkpoints.of(self.folder, query)
        for (step, point), size in kept.prune(stopper.losers(rungs), limit):
            words = f"agent {query.agent}: the checkpoint of point {point} of step {step} ({size:,} bytes) was deleted"
            line = f"{words}, since disk_limit = {stopper.disk_limit} MiB was exceeded; if promoted, it starts anew\n"
            file = atomic.open_log(self.folder / f"deleted-{query.agent}.log")
            atomic.append(file, line.encode())
            os.close(file)

    def recall(self, streams: Streams, places: Mapping[float, tuple[int, int]], records: Iterable[EvaluationRecord]) -> None:
        """Rewrite an agent's log of rungs from its evaluations, in the order of their ends, for an extended run.

        `streams` are those of the agent; `places` maps the start of each evaluation to its step and point.
        """
        if self.stopping is None or self.stopping.stopper.variant == "promote":  # nothing stops by the log
            return
        for record in sorted(records, key=lambda one: one.finished):
            if not record.rungs or record.started not in places:
                continue
            bracket = self.stopping.first(streams, *places[record.started]).bracket
            for fidelity, value in zip(self.stopping.brackets[bracket], record.rungs, strict=False):
                noted(self.folder / f"rungs-{record.agent}.jsonl", (bracket, fidelity), (record.number, 0), value)


class ReportJudge:
    """Judges one running evaluation: at its first report at or beyond a rung, decides whether it continues."""

    def __init__(self, rules: ReportedStopping, query: Query, streams: Streams) -> None:
        self._rules, self._key, self._place = rules, (query.number, 0), (query.step, query.point)
        self._path, self._kept = rules.folder / f"rungs-{query.agent}.jsonl", Checkpoints.of(rules.folder, query)
        self._bracket = 0 if rules.stopping is None else rules.stopping.first(streams, query.step, query.point).bracket
        self._rungs, self._stopped, self._fidelity = list[float](), False, 0 if query.span is None else query.span.leg

    def __call__(self, question: Report | Checkpoint) -> Answer | str | None:
        """Judge a report, keep a checkpoint, or return the path of the last one."""
        if isinstance(question, Report):
            return self._judge(question)
        if question.path is not None:
            self._kept.keep(self._place, Path(question.path))
            return None
        found = self._kept.latest(self._place)
        return None if found is None else str(found)

    def _judge(self, report: Report) -> Answer:
        """Note the evaluation's value at every rung that it has passed since the last report, and judge it there."""
        stopping = self._rules.stopping
        if stopping is None:
            return "go"
        value, levels = self._rules.sign * report.value if isfinite(report.value) else -inf, stopping.brackets[self._bracket]
        for fidelity in levels:
            if self._stopped or not self._fidelity < fidelity <= report.step:
                continue
            self._fidelity = fidelity
            if stopping.stopper.variant == "promote":
                self._rungs.append(value)
                self._stopped = fidelity < stopping.largest
                continue
            state = noted(self._path, (self._bracket, fidelity), self._key, value)
            self._rungs.append(state.values[self._bracket, fidelity][self._key])
            if fidelity < stopping.largest:
                verdict = stopping.stopper.verdict(state, levels, (self._bracket, fidelity), self._key)
                self._stopped = verdict == "stop"
        return "stop" if self._stopped else "go"

    def judged(self, record: EvaluationRecord) -> EvaluationRecord:
        """Note in the record of a successful evaluation which fidelity it reached."""
        stopping = self._rules.stopping
        if record.error is not None or stopping is None:
            return record
        if self._stopped:
            record.fidelity, record.stopped = self._fidelity, "paused" if stopping.stopper.variant == "promote" else "stopped"
        else:
            record.fidelity = stopping.largest
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
