"""One evaluation of an objective: what came of it, whatever came, written down before anybody is told."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbo.actors.isolated import Isolated
from fedbo.actors.policy import Policy
from fedbo.algorithms.base import Array
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Objective

NAN = float("nan")


class EvaluationError(RuntimeError):
    """An objective failed, and the study's policy is to stop then."""


class Known(NamedTuple):
    """An evaluation before it is made: number `number` of its agent, at point `point` of its step, at `x (d,)` in native units.

    `length` is how long it will take, where time is virtual and it may take too long.
    """

    agent: int
    number: int
    point: int
    x: Array
    length: float | None = None


class Outcome(NamedTuple):
    """What came of an evaluation: its value and noise-free score, or the error; and when, where time is real."""

    number: int
    point: int
    x: Array
    value: float
    score: float
    started: float
    finished: float
    error: str | None


class Evaluator:
    """Evaluates under a policy, with a log in which nothing that was computed is ever lost."""

    def __init__(
        self,
        policy: Policy,
        real: bool,
        log: EvaluationLog | None = None,
        linger: Callable[[int, float], None] | None = None,
    ) -> None:
        self._policy, self._real, self._log, self._linger = policy, real, log, linger
        limited = real and (policy.time_limit is not None or policy.memory_limit is not None)
        self._isolated = Isolated(policy.time_limit, policy.memory_limit) if limited else None

    def __call__(self, objective: Objective, known: Known, streams: Streams, clock: Callable[[], float]) -> Outcome:
        """Make one evaluation, or look it up where an earlier process has made it."""
        found = self._log.find(known) if self._log is not None else None
        if found is not None:
            return found
        started = clock() if self._real else 0.0
        value, score, error = self._call(objective, known, streams)
        if self._linger is not None:
            self._linger(known.agent, clock() - started)
        outcome = Outcome(known.number, known.point, known.x, value, score, started, clock() if self._real else 0.0, error)
        if self._log is not None:
            self._log.append(known.agent, outcome)
        return outcome

    def _call(self, objective: Objective, known: Known, streams: Streams) -> tuple[float, float, str | None]:
        limit = self._policy.time_limit
        if known.length is not None and limit is not None and known.length > limit:
            return NAN, NAN, self._place(known) + f"took longer than time_limit = {limit:g}"
        try:
            if self._isolated is not None:
                value, score = self._isolated.evaluate(known.agent, objective, known.x, streams)
            else:
                value, score = evaluate(objective, known.x, streams)
        except Exception as error:
            last = "".join(traceback.format_exception(error))
            return NAN, NAN, self._place(known) + f"{type(error).__name__}: {error}\n{last}"
        if not np.isfinite(value):
            return NAN, NAN, self._place(known) + f"the objective gave {value}, not a finite number"
        return value, score, None

    def _place(self, known: Known) -> str:
        return f"agent {known.agent} at x = {known.x.tolist()}: "


def evaluate(objective: Objective, x: Array, streams: Streams) -> tuple[float, float]:
    """Give one observation and the score by which it is judged."""
    value = float(objective.evaluate(x, streams.rng("evaluation")))
    score = objective.score(x)
    return value, value if score is None else float(score)


class EvaluationLog:
    """Every evaluation of some agents, appended as one line to a file of this process before it is reported.

    A process that takes over reads the files of its predecessors, so that it need not evaluate again what they did.
    """

    def __init__(self, folder: Path, agents: set[int]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._found: dict[tuple[int, int], list[Any]] = {}
        for path in sorted(folder.glob("evaluations-*.jsonl")):
            self._read(path, agents)
        self._path = folder / f"evaluations-{os.getpid()}-{os.urandom(4).hex()}.jsonl"
        self._file: int | None = None

    def find(self, known: Known) -> Outcome | None:
        """Give an evaluation that has been made, if it was at the same point."""
        found = self._found.get((known.agent, known.number))
        if found is None or found[0] != known.x.tolist():
            return None
        _, value, score, started, finished, error = found
        return Outcome(known.number, known.point, known.x, value, score, started, finished, error)

    def append(self, agent: int, outcome: Outcome) -> None:
        """Write an evaluation down; OSError when the disk is full."""
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        _, _, x, value, score, started, finished, error = outcome
        line = json.dumps([agent, outcome.number, x.tolist(), value, score, started, finished, error])
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self, path: Path, agents: set[int]) -> None:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if not line.endswith("\n"):
                    return  # its writer was killed while it wrote this
                agent, number, *rest = json.loads(line)
                if agent in agents:
                    self._found[agent, number] = rest
