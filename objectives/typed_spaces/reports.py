"""Intermediate reports of an evaluation: what it was worth after each step, kept with it however it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple


class Report(NamedTuple):
    """What a step of an evaluation came to."""

    step: float
    value: float


LISTENERS: list[Callable[[Report], None]] = []  # who is told of each report in this process at once


class Reports:
    """Collects the reports of one evaluation, which calls it; a step that is not given is the number of reports before."""

    def __init__(self) -> None:
        self.said: list[Report] = []

    def __call__(self, value: float, step: float | None = None) -> None:
        """Take a report; TypeError or ValueError when the value or the step is no number."""
        report = Report(float(len(self.said) if step is None else step), float(value))
        self.said.append(report)
        for tell in LISTENERS:
            tell(report)


def with_reports(metrics: Mapping[str, float], said: Iterable[Report]) -> str | None:
    """Write metrics and reports as JSON, in which reports are pairs under `reports`; None where there are neither."""
    reports = [list(report) for report in said]
    if not (metrics or reports):
        return None
    return json.dumps({**metrics, "reports": reports} if reports else dict(metrics))


def of_failure(error: Exception, said: Iterable[Report]) -> None:
    """Let an error carry what the evaluation had reported before."""
    error.__dict__["metrics"] = with_reports({}, said)
