"""The observations that a site releases with a report: none, values and times, or also the points.

Rows travel as records of fixed length, without names and texts: reasons of failures and notes may quote private data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from fedbo.actors.storage.rows import Row, single_rows
from fedbo.actors.task import StepReport
from fedbo.algorithms.base import ORIGINS
from fedbo.objectives.base import LARGEST_VALUE
from fedbo.objectives.outcome import Outcome
from fedbo.settings.records import changed
from fedbo.sites.policy import Share

FAILED = "failed at its site"
_ORIGINS: Final = sorted(ORIGINS)
_PHASES: Final = ("initial", "search")
_COUNTS, _TIMES = ("step", "query", "t_n", "pulls"), ("started", "finished")
_NUMBERS = [*((name, "<i4") for name in _COUNTS), *((name, "u1") for name in ("origin", "phase", "failed"))]
_VALUES = [(name, "<f8") for name in ("value", "score", *_TIMES)]


@dataclass(slots=True)
class SiteReport(StepReport):
    """The report of a step at a site, with the rows that the site releases."""

    released: tuple[Row, ...] = ()


@cache
def _record(dim: int, share: Share) -> np.dtype[Any]:
    points: list[Any] = [("x", "<f8", (dim,)), ("u", "<f8", (dim,))] if share == "observations" else []
    return np.dtype([*_NUMBERS, *_VALUES, *points])


def largest(rows: int, dim: int, share: Share) -> int:
    """Return the bytes of so many rows in a space of `dim` parameters."""
    return 0 if share == "nothing" else rows * _record(dim, share).itemsize


def pack(rows: Sequence[Row], dim: int, share: Share) -> bytes:
    """Return rows as the bytes that leave a site."""
    if share == "nothing":
        return b""
    records = np.zeros(len(single := [*single_rows(rows)]), _record(dim, share))
    for record, row in zip(records, single, strict=True):
        for name in (*_COUNTS, *_TIMES):
            record[name] = getattr(row, name)
        record["origin"], record["phase"] = _ORIGINS.index(row.origin), _PHASES.index(row.phase)
        record["failed"], record["value"], record["score"] = row.error is not None, row.outcome.value, row.outcome.score
        if share == "observations":
            record["x"], record["u"] = row.x, row.u
    return records.tobytes()


def unpack(data: bytes, dim: int, agent: int, share: Share) -> tuple[Row, ...]:
    """Read the rows of an agent from the bytes of `pack`, from anybody; ValueError where they cannot be such rows."""
    if share == "nothing":
        if data:
            raise ValueError(f"{len(data)} bytes of observations, but sites release none")
        return ()
    kind = _record(dim, share)
    if len(data) % kind.itemsize:
        raise ValueError(f"{len(data)} bytes are no whole number of rows of {kind.itemsize} bytes")
    records = np.frombuffer(data, kind)
    _check(records)
    return tuple([_row(record, agent, share) for record in records])


def _check(records: Any) -> None:
    """Check that numbers are in range; ValueError."""
    codes = ((records["origin"], len(_ORIGINS)), (records["phase"], len(_PHASES)), (records["failed"], 2))
    if any((records[name] < 0).any() for name in _COUNTS) or any((numbers >= end).any() for numbers, end in codes):
        raise ValueError("a row has a number out of range")
    good = records[records["failed"] == 0]
    fine = [np.abs(good[name]) <= LARGEST_VALUE for name in ("value", "score")]  # written so that NaN is not
    times = [np.abs(records[name]) <= LARGEST_VALUE for name in _TIMES]
    points = [(0.0 <= records["u"]) & (records["u"] <= 1.0), np.isfinite(records["x"])] if "u" in records.dtype.names else []
    if not all(bool(each.all()) for each in (*fine, *times, *points)):
        raise ValueError("a row has a value, a time or a point that is no usable number")


def _row(record: Any, agent: int, share: Share) -> Row:
    x, u = (record["x"].tolist(), record["u"].tolist()) if share == "observations" else ([], [])
    failed = bool(record["failed"])
    outcome = Outcome(float("nan"), float("nan")) if failed else Outcome(float(record["value"]), float(record["score"]))
    phase, origin, step = _PHASES[record["phase"]], _ORIGINS[record["origin"]], int(record["step"])
    row = Row(agent=agent, phase=phase, step=step, query=int(record["query"]), origin=origin, x=x, u=u, outcome=outcome)
    row.started, row.finished = float(record["started"]), float(record["finished"])
    row.t_n, row.pulls, row.error = int(record["t_n"]), int(record["pulls"]), FAILED if failed else None
    return row


def released_by(report: StepReport, rows: Sequence[Row], dim: int, share: Share) -> SiteReport:
    """Return what leaves a site of the report of a step and its rows: without the texts of failures, which name points."""
    kept = unpack(pack(rows, dim, share), dim, report.agent, share)  # so that both sides have the same rows
    values = {name: getattr(report, name) for name in StepReport.__slots__}
    failed = (f"agent {report.agent}: an evaluation {FAILED}",) * len(report.failed)
    return changed(SiteReport(**{**values, "failed": failed, "failure": None}, released=kept))
