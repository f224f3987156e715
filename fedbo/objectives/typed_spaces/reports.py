"""Intermediate reports of an evaluation: what it was worth after each step, kept with it however it ends, and answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, NamedTuple

Answer = Literal["go", "stop"]


class Report(NamedTuple):
    """What a step of an evaluation came to."""

    step: float
    value: float


class StoppedEarly(BaseException):
    """Ends an evaluation that goes on to report though it has been told to stop; no objective catches it by accident."""


_JUDGES: list[Callable[[Report], Answer]] = []  # of the evaluation that runs in this process


@contextmanager
def answered_by(judge: Callable[[Report], Answer]) -> Iterator[None]:
    """Let a judge answer the reports of an evaluation in this process."""
    _JUDGES.append(judge)
    try:
        yield
    finally:
        _JUDGES.pop()


def answer(report: Report) -> Answer:
    """Say whether the evaluation that reports shall go on."""
    return _JUDGES[-1](report) if _JUDGES else "go"


class Reports:
    """Collects the reports of one evaluation, which calls it; a step that is not given is the number of reports before."""

    def __init__(self) -> None:
        self.said: list[Report] = []
        self._last: Answer = "go"

    def __call__(self, value: float, step: float | None = None) -> Answer:
        """Take a report, and answer "go" or "stop"; TypeError or ValueError when the value or the step is no number.

        StoppedEarly when the answer was "stop" before.
        """
        if self._last == "stop":
            raise StoppedEarly
        report = Report(float(len(self.said) if step is None else step), float(value))
        self.said.append(report)
        self._last = answer(report)
        return self._last


def with_reports(metrics: Mapping[str, float], said: Iterable[Report]) -> str | None:
    """Write metrics and reports as JSON, in which reports are pairs under `reports`; None where there are neither."""
    reports = [list(report) for report in said]
    if not (metrics or reports):
        return None
    return json.dumps({**metrics, "reports": reports} if reports else dict(metrics))


def of_failure(error: BaseException, said: Iterable[Report]) -> None:
    """Let an error carry what the evaluation had reported before."""
    error.__dict__["metrics"] = with_reports({}, said)
