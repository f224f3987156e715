"""Intermediate reports of an evaluation: its value after each step, kept however it ends, its checkpoints, and the answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

Answer = Literal["go", "stop"]


class Report(NamedTuple):
    """The value after a step of an evaluation."""

    step: float
    value: float


class Checkpoint(NamedTuple):
    """A file or folder from which an evaluation can continue, to be kept; without a path, a request for the last one kept."""

    path: str | None = None


class StoppedEarly(BaseException):
    """Ends an evaluation that continues to report after "stop"; no objective catches it by accident."""


class EvaluationMoved(BaseException):
    """Ends an evaluation whose node leaves, once its checkpoint is kept; it continues from there on another node."""


_judge: ContextVar[Callable[[Any], Any] | None] = ContextVar("judge", default=None)  # of this thread's evaluation


@contextmanager
def answered_by(judge: Callable[[Any], Any]) -> Iterator[None]:
    """Install a judge that answers the reports and keeps the checkpoints of an evaluation in this thread."""
    token = _judge.set(judge)
    try:
        yield
    finally:
        _judge.reset(token)


def moved_by(judge: Callable[[Any], Any], leaves: Callable[[], bool]) -> Callable[[Any], Any]:
    """Return a judge that ends an evaluation at a checkpoint that it keeps while its node `leaves`."""

    def judged(question: Report | Checkpoint) -> Any:
        found = judge(question)
        if isinstance(question, Checkpoint) and question.path is not None and leaves():
            raise EvaluationMoved
        return found

    return judged


def answer(question: Report | Checkpoint) -> Any:
    """Return "go" or "stop" to an evaluation that reports, and the path of its last checkpoint, if any, to one that asks."""
    judge = _judge.get()
    if judge is None:
        return "go" if isinstance(question, Report) else None
    return judge(question)


def restore() -> str | None:
    """Return the path of the last checkpoint of this evaluation before it paused or was interrupted; None without one."""
    path: str | None = answer(Checkpoint())
    return path


class Reports:
    """Collects the reports of one evaluation, which calls it; a step that is not given is the number of reports before.

    `restores` states whether the evaluation continues from checkpoints.
    """

    def __init__(self, restores: bool) -> None:
        self.said: list[Report] = []
        self._restores, self._last = restores, "go"

    def __call__(self, value: float, step: float | None = None, checkpoint: str | os.PathLike[str] | None = None) -> Answer:
        """Record a report and keep a copy of its checkpoint, a file or a folder; return "go" or "stop".

        TypeError or ValueError when the value or the step is no number, or the evaluation cannot continue from a checkpoint.
        OSError when the checkpoint cannot be copied. StoppedEarly when the answer was "stop" before.
        """
        if self._last == "stop":
            raise StoppedEarly
        if checkpoint is not None:
            if not self._restores:
                raise TypeError("report(checkpoint=…): the objective has no argument 'restore' to continue from it; add it")
            answer(Checkpoint(os.path.abspath(checkpoint)))
        report = Report(float(len(self.said) if step is None else step), float(value))
        self.said.append(report)
        found: Answer = answer(report)
        self._last = found
        return found


def note_reports(error: BaseException, said: Iterable[Report]) -> None:
    """Note on an error what its evaluation had reported before."""
    error.__dict__["fedbo_reports"] = tuple(said)


def reports_of(error: BaseException) -> tuple[Report, ...]:
    """Return the reports of an evaluation before it raised an error."""
    noted: tuple[Report, ...] = error.__dict__.get("fedbo_reports", ())
    return noted
