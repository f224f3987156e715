"""Intermediate reports of an evaluation: its value after each step, kept however it ends, and the answer to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple

Answer = Literal["go", "stop"]


class Report(NamedTuple):
    """The value after a step of an evaluation."""

    step: float
    value: float


class StoppedEarly(BaseException):
    """Ends an evaluation that continues to report after "stop"; no objective catches it by accident."""


_judge: ContextVar[Callable[[Report], Answer] | None] = ContextVar("judge", default=None)  # of this thread's evaluation


@contextmanager
def answered_by(judge: Callable[[Report], Answer]) -> Iterator[None]:
    """Install a judge that answers the reports of an evaluation in this thread."""
    token = _judge.set(judge)
    try:
        yield
    finally:
        _judge.reset(token)


def answer(report: Report) -> Answer:
    """Return "go" or "stop" to the evaluation that reports."""
    judge = _judge.get()
    return "go" if judge is None else judge(report)


class Reports:
    """Collects the reports of one evaluation, which calls it; a step that is not given is the number of reports before."""

    def __init__(self) -> None:
        self.said: list[Report] = []
        self._last: Answer = "go"

    def __call__(self, value: float, step: float | None = None) -> Answer:
        """Record a report, and return "go" or "stop"; TypeError or ValueError when the value or the step is no number.

        StoppedEarly when the answer was "stop" before.
        """
        if self._last == "stop":
            raise StoppedEarly
        report = Report(float(len(self.said) if step is None else step), float(value))
        self.said.append(report)
        self._last = answer(report)
        return self._last


def note_reports(error: BaseException, said: Iterable[Report]) -> None:
    """Note on an error what its evaluation had reported before."""
    error.__dict__["fedbo_reports"] = tuple(said)


def reports_of(error: BaseException) -> tuple[Report, ...]:
    """Return the reports of an evaluation before it raised an error."""
    noted: tuple[Report, ...] = error.__dict__.get("fedbo_reports", ())
    return noted
