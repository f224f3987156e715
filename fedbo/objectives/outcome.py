"""The outcome of one evaluation: one record from `Objective.evaluate` to the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np

from fedbo.settings.arguments import short
from fedbo.settings.shown import encodable

Reports = Sequence[tuple[float, float]]
MOST_NOTED = 65_536  # bytes of a note as JSON: every table holds it


@dataclass(slots=True, init=False)
class Outcome:
    """The result of one evaluation."""

    value: float
    """Observed value, to be maximised: an error has its sign changed."""
    score: float
    """Noise-free counterpart of the value, by which points are judged; the value if not set."""
    metrics: Mapping[str, Any]
    """Other numbers by name, in native units, and notes (`is_note`); JSON in tables."""
    reports: Reports
    """Pairs of a step and the native value reported there."""

    def __init__(
        self, value: float, score: float | None = None, metrics: Mapping[str, Any] | None = None, reports: Reports = ()
    ) -> None:
        self.value = value
        self.score = value if score is None else score
        self.metrics = {} if metrics is None else metrics
        self.reports = reports


def outcome_of(returned: Outcome | SupportsFloat, score: float | None = None, objective: object = None) -> Outcome:
    """Return what `evaluate` of an `objective` returned as an outcome, whose score is that of its `score` if there is one.

    Raises:
        TypeError: The value, the score or a metric is not a number.
    """
    noise_free = None if score is None else float(score)
    if type(returned) is float:  # as nearly always
        return Outcome(returned, noise_free)
    if isinstance(returned, Outcome):
        metrics = {
            encodable(str(name)): metric if is_note(str(name), metric) else _number(name, metric)
            for name, metric in returned.metrics.items()
        }
        if noise_free is None:
            noise_free = _returned(returned.score, objective, "an outcome of score ")
        value = _returned(returned.value, objective, "an outcome of value ")
        return Outcome(value, noise_free, metrics, tuple(returned.reports))
    return Outcome(_returned(returned, objective), noise_free)


def _returned(value: Any, objective: object, of: str = "") -> float:
    """Return what `evaluate` returned as a number; TypeError for text and booleans, which `float` reads too."""
    try:
        if not isinstance(value, str | bytes | bytearray | bool | np.bool_):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TypeError(f"{type(objective).__name__}.evaluate returned {of}{short(value)}; return a number or an Outcome")


def _number(name: str, metric: Any) -> float:
    try:
        return float(metric)
    except (TypeError, ValueError):
        raise TypeError(f"metric '{name}' of the outcome is {metric!r}; return a number") from None


def value_of(returned: Outcome | SupportsFloat, objective: object = None) -> float:
    """Return the value of a result of `evaluate` of an `objective`; TypeError as `outcome_of`."""
    value = returned.value if isinstance(returned, Outcome) else returned
    return value if type(value) is float else _returned(value, objective)


def written_metrics(outcome: Outcome) -> str | None:
    """Return metrics and reports as JSON, with reports as pairs under `reports`; None where there are neither."""
    if not (outcome.metrics or outcome.reports):
        return None
    reports = {"reports": [list(report) for report in outcome.reports]} if outcome.reports else {}
    return json.dumps({**outcome.metrics, **reports})


def read_metrics(text: str | None) -> tuple[dict[str, Any], Reports]:
    """Return the metrics and the reports that `written_metrics` wrote."""
    metrics: dict[str, Any] = json.loads(text) if text else {}
    # A metric of this name is a number; reports are a list.
    reports = metrics.pop("reports") if isinstance(metrics.get("reports"), list) else ()
    return metrics, tuple((step, value) for step, value in reports)


def outcome_by_name(returned: Mapping[Any, Any], metric: str, sign: int, reports: Reports = ()) -> Outcome:
    """Return what a function returned as a dictionary of native numbers and notes; its value is that of `metric` times `sign`.

    Raises:
        TypeError: The metric is missing or no number, or an entry is neither a number nor a note.
    """
    if metric not in returned:
        raise TypeError(f"the objective returned {sorted(map(str, returned))}, without '{metric}'; return it as well")
    metrics = {
        str(name): each if name != metric and is_note(str(name), each) else native_number(each, str(name))
        for name, each in returned.items()
    }
    if "reports" in metrics and (reports or isinstance(metrics["reports"], list)):
        raise TypeError("the objective reported values and returned a metric 'reports'; rename the metric")
    return Outcome(sign * native_number(returned[metric]), metrics=metrics, reports=reports)


def is_note(name: str, value: Any) -> bool:
    """Return whether an entry beside the value is a note: text, a boolean, or a list or dictionary that JSON keeps as it is.

    TypeError for a note that JSON would change, or that has more than `MOST_NOTED` bytes.
    """
    if not isinstance(value, str | bool | list | dict):
        return False
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        kept = json.loads(text) == value
    except (TypeError, ValueError):
        kept = False
    if not kept:
        words = "return text, or lists and dictionaries of text and finite numbers"
        raise TypeError(f"the objective returned {name} = {short(value)}, which JSON cannot keep; {words}")
    if len(text) > MOST_NOTED:
        raise TypeError(f"the objective returned a note '{name}' of {len(text):,} bytes; keep at most {MOST_NOTED:,}")
    return True


def native_number(value: Any, name: str = "") -> float:
    """Return what a function returned, under a name if it is one of several, as a number.

    TypeError for text and booleans, which `float` reads too.
    """
    remedy = f"return a number there, or leave '{name}' out" if name else "return a number, or a dictionary of numbers"
    wrong = f"the objective returned {f'{name} = ' if name else ''}{short(value)}; {remedy}"
    if isinstance(value, str | bytes | bytearray | bool | np.bool_):
        raise TypeError(wrong)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as failure:
        raise TypeError(wrong) from failure
