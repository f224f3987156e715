"""The bad end of a run as a short statement, such as "regret > 0.1" or "agent 3 last", its value, and its unusual events.

As in the statements of a paper, `at` is a number of iterations, "end" or "mean".
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import pyarrow.compute as pc

from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.averages import REGRET, replicate_means
from fedbo.analysis.comparison import At, first_place
from fedbo.analysis.finished_run import ResultError, regrets
from fedbo.analysis.indicators import Indicator
from fedbo.analysis.traces import IncumbentTrace, traces
from fedbo.lab.fork.result import run_costs
from fedbo.objectives.base import Metric
from fedbo.settings.arguments import wrong

STUCK = "stuck"
_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
COUNTED = ("end", "waiting", "bytes", "evaluations", "epsilon")
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
_END = re.compile(
    rf"(?P<what>regret|best|end|waiting|bytes|evaluations|epsilon|time to (?P<level>level|{NUMBER}))"
    rf"\s*(?P<sign>>=|<=|>|<)\s*(?P<number>{NUMBER})(?:\s+at\s+(?P<at>end|mean|t\s*=\s*\d+))?"
)
_LAST = re.compile(r"agent (\d+) last")
EXAMPLES = '"regret > 0.1", "best < 0.8 at t = 10", "time to level > 40", "end > 30", "epsilon > 2", "agent 3 last" or "stuck"'


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The tables of one run, with what its values mean; `was_stuck` if it could not end."""

    key: RunKey
    observations: Any
    events: Any
    privacy: Any
    metric: Metric
    best_values: Mapping[str, Any]
    was_stuck: bool = False
    indicators: Sequence[Indicator] = ()

    def traces(self, regret: bool = False) -> list[IncumbentTrace]:
        """Return the incumbents of all targets; ResultError where the regret is asked for and not known."""
        found = traces(self.observations, self.events, self.privacy if len(self.privacy) else None, self.indicators)
        try:
            return regrets(found, self.best_values) if regret else found
        except ValueError as error:
            raise ResultError(f"end: {error}; use best in place of regret") from None


@dataclass(frozen=True, slots=True)
class End:
    """A bad end: a quantity `what`, and the comparison and the number that make it bad.

    `level` is the native value of "time to level", `agent` that of "agent N last"; `words` is the statement as given.
    """

    words: str
    what: str
    sign: str = ">"
    number: float = 0.0
    at: At = "end"
    level: float | None = None
    agent: int = -1

    def is_bad(self, value: float) -> bool:
        """Check whether a run with this value ended badly."""
        return not math.isnan(value) and _COMPARED[self.sign](value, self.number)

    @property
    def quantity(self) -> str:
        """Return the name of the quantity."""
        if self.what == "last":
            return f"lead of agent {self.agent} in being last"
        if self.what == "time to level":
            return "time to level" if self.level is None else f"time to {self.level:g}"
        at = "" if self.at == "end" else " mean" if self.at == "mean" else f" at t = {self.at}"
        return {"end": "end of the run"}.get(self.what, self.what) + at

    def with_level(self, level: float | None) -> End:
        """Return the end with a level, where its own names none."""
        needs = self.what == "time to level" and self.level is None
        return replace(self, level=level) if needs else self

    def value(self, run: EndedRun) -> float:
        """Return the quantity of a run, which may be infinite, or NaN where the run has none."""
        if self.what == STUCK:
            return float(run.was_stuck)
        if self.what == "last":
            return _lead(run, self.agent)
        if self.what == "time to level":
            assert self.level is not None
            return first_place(run.traces(), run.key.replicate, run.metric.sign * (self.level - run.metric.offset))
        if self.what in COUNTED:
            costs = run_costs(run.observations, run.events, run.privacy)
            return costs.get(self.what, 0.0)
        metric = REGRET if self.what == "regret" else run.metric
        found = run.traces(self.what == "regret")
        places = np.array([math.inf if self.at == "end" else float(self.at)]) if self.at != "mean" else _iterations(found)
        return float(np.mean(metric.native(replicate_means(found, "iteration", places)[run.key.replicate])))


def parse_end(words: str) -> End:
    """Parse the statement of a bad end; SettingError with examples for any other text."""
    text = " ".join(words.split())
    if text == STUCK:
        return End(text, STUCK)
    if found := _LAST.fullmatch(text):
        return End(text, "last", agent=int(found[1]))
    found = _END.fullmatch(text)
    if found is None:
        raise wrong("end", words, f"must be a statement such as {EXAMPLES}")
    what, level, at = found["what"], found["level"], found["at"] or "end"
    if found["at"] and what not in ("regret", "best"):
        raise wrong("end", words, "has 'at' only for regret and best; remove it")
    named = "time to level" if level else what
    place: At = int(at.partition("=")[2]) if at not in ("end", "mean") else "mean" if at == "mean" else "end"
    if place == 0:
        raise wrong("end", words, "must count iterations from 1")
    given = None if level in (None, "level") else float(level)
    return End(words=text, what=named, sign=found["sign"], number=float(found["number"]), at=place, level=given)


def _lead(run: EndedRun, agent: int) -> float:
    """Return by how much later than all others a target made its last evaluation, in units of time."""
    ends = {trace.agent: float(trace.finished[-1]) for trace in run.traces()}
    if agent not in ends:
        raise wrong("end", f"agent {agent} last", f"must name a target of the run, one of {sorted(ends)}")
    others = [time for one, time in ends.items() if one != agent]
    return ends[agent] - max(others, default=0.0)


def _iterations(found: list[IncumbentTrace]) -> np.ndarray[Any, np.dtype[np.float64]]:
    last = max(int(trace.places("iteration")[-1]) for trace in found)
    return np.arange(1.0, last + 1)


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
