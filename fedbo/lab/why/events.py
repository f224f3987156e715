"""The most unusual events of a window of time, in words."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

import pyarrow.compute as pc

from fedbo.lab.why.ends import EndedRun

_MOST = 6  # events of a window that are named
_DETAILS = ("step", "round", "answer", "direction", "reason", "lies", "permanent", "factor", "worker")


def events_between(tables: EndedRun, start: float, stop: float) -> tuple[tuple[str, ...], int]:
    """Return the most unusual events from `start` until before `stop`, most unusual first, and the number of the others.

    An event is as unusual as its kind is rare in the run, and an evaluation as it is longer than the run's median.
    """
    kinds = Counter(tables.events["kind"].to_pylist())
    total = sum(kinds.values())
    found = [
        (total / kinds[row["kind"]], row["time"], _words(row))
        for row in _during(tables.events, "time", start, stop)
        if row["kind"] != "started"  # the evaluations tell more
    ]
    lengths = [
        end - begin for begin, end in zip(*(tables.observations[n].to_pylist() for n in ("started", "finished")), strict=True)
    ]
    usual = median(lengths) if lengths else 0.0
    for row in _during(tables.observations, "started", start, stop):
        length = row["finished"] - row["started"]
        ratio = length / usual if usual > 0 else 1.0
        words = f"{row['started']:.4g}: agent {row['agent']} begins an evaluation of {length:.3g}"
        found.append((ratio, row["started"], words + (f", {ratio:.1f} times the median" if ratio > 2 else "")))
    named = sorted(found, key=lambda one: (-one[0], one[1]))[:_MOST]
    return tuple(words for _, _, words in named), len(found) - len(named)


def _during(table: Any, column: str, start: float, stop: float) -> list[dict[str, Any]]:
    inside = pc.and_(pc.greater_equal(table[column], start), pc.less(table[column], stop))
    rows: list[dict[str, Any]] = table.filter(inside).to_pylist()
    return rows


def _words(row: dict[str, Any]) -> str:
    who = f"agent {row['agent']} " if row["agent"] >= 0 else ""
    details = [f"{name} {_shown(row[name])}" for name in _DETAILS if row.get(name) not in (None, [], False)]
    return f"{row['time']:.4g}: {who}{row['kind']}" + (f" ({', '.join(details)})" if details else "")


def _shown(value: Any) -> str:
    return "yes" if value is True else ", ".join(value) if isinstance(value, list) else str(value)
