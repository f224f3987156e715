"""The summary of a run: one row for each algorithm in each cell, with standard errors and paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import scipy

from fedbo.algorithms.base import Origin
from fedbo.analysis.averages import mean_and_error, replicate_means
from fedbo.analysis.grouping import by_replicate, bytes_of, of_kinds, sent_down, sent_up
from fedbo.analysis.traces import IncumbentTrace
from fedbo.objectives.base import Metric

FEDERATED: Origin = "federated"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over replicates and its standard error, which is None with a single replicate."""

    mean: float
    error: float | None

    def __str__(self) -> str:
        if math.isnan(self.mean):  # no agent had a good observation
            return "–"
        return f"{self.mean:.4g}" + ("" if self.error is None else f" ± {self.error:.2g}")


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference to the baseline, in native units, with the ends of its 95 % t-interval over replicates."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        low, high = (f"{end:+.2g}" if abs(end) < 99.5 else f"{end:+.0f}" for end in (self.low, self.high))
        return f"{self.mean:+.3g} [{low}, {high}]"


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """The summary of one algorithm in one cell.

    - `final` and `half`: the mean best native values over targets, at the end and at half of the iterations.
    - `difference`: that of `final` to the baseline's on the same replicates.
    - `origins`: the share of each origin in the decided points; `federated`: the share of that origin.
    - `bytes_up`, `bytes_down` and `messages`: means over replicates for each sending agent, in the transmissions to the
      coordinator and to agents, including those lost on the way.
    - `duration` (in the study's unit of time) and `evaluations`: means over replicates.
    """

    cell: int
    algorithm: str
    replicates: int
    final: Estimate
    half: Estimate
    difference: Difference | None
    origins: Mapping[str, float]
    federated: float
    bytes_up: float
    bytes_down: float
    messages: float
    duration: float
    evaluations: float


def summary_row(found: Sequence[IncumbentTrace], half: int, tables: tuple[Any, Any], metric: Metric) -> SummaryRow:
    """Summarise one algorithm in one cell; `tables` are its observations and its events."""
    replicates = len({trace.replicate for trace in found})
    observations, events = tables
    searched = observations.filter(pc.equal(observations["phase"], "search"))
    counts = {item["values"]: item["counts"] for item in pc.value_counts(searched["origin"]).to_pylist()}
    origins = {name: counts[name] / len(searched) for name in sorted(counts)}
    ends = [max(float(trace.finished.max()) for trace in group) for group in by_replicate(found).values()]
    return SummaryRow(
        cell=found[0].cell,
        algorithm=found[0].algorithm,
        replicates=replicates,
        final=_estimate(found, math.inf, metric),
        half=_estimate(found, half, metric),
        difference=None,
        origins=origins,
        federated=origins.get(FEDERATED, 0.0),
        **_traffic(events),
        duration=float(np.mean(ends)),
        evaluations=sum(int(trace.evaluated[-1]) for trace in found) / replicates,
    )


def unobserved_row(key: tuple[int, str], reports: Any, events: Any) -> SummaryRow:
    """Summarise one algorithm in one cell whose agents were at sites that released no observation: from what they sent."""
    cell, algorithm = key
    unknown = Estimate(math.nan, None)
    return SummaryRow(
        cell=cell,
        algorithm=algorithm,
        replicates=1,
        final=unknown,
        half=unknown,
        difference=None,
        origins={},
        federated=0.0,
        **_traffic(events),
        duration=float(pc.max(of_kinds(events, "finished")["time"]).as_py() or 0.0),
        evaluations=float(pc.sum(reports["queries"]).as_py() or 0),
    )


def _traffic(events: Any) -> dict[str, float]:
    """Return messages and bytes both ways for each sending agent and replicate."""
    sent = of_kinds(events, "sent")
    senders = max(1, sent.group_by(["replicate", "agent"]).aggregate([]).num_rows)
    moved = {"bytes_up": bytes_of(sent_up(events)), "bytes_down": bytes_of(sent_down(events)), "messages": len(sent)}
    return {name: count / senders for name, count in moved.items()}


def final_estimate(found: Sequence[IncumbentTrace], metric: Metric) -> Estimate:
    """Return the final mean best native value over targets, with its error over replicates."""
    return _estimate(found, math.inf, metric)


def difference(found: Sequence[IncumbentTrace], baseline: Sequence[IncumbentTrace], metric: Metric) -> Difference | None:
    """Compare final values on the shared replicates; None with fewer than two of them."""
    mine, other = (replicate_means(traces, "iteration", np.array([math.inf])) for traces in (found, baseline))
    shared = sorted(set(mine) & set(other))
    return paired(metric.sign * np.array([float(mine[r][0] - other[r][0]) for r in shared]))


def paired(gaps: npt.NDArray[np.float64]) -> Difference | None:
    """Return the mean of `gaps (r,)` over replicates with its 95 % Student interval; None with fewer than two of them."""
    if len(gaps) < 2:
        return None
    mean, error = mean_and_error(gaps[:, None])
    half = student_factor(len(gaps)) * float(error[0])
    return Difference(float(mean[0]), float(mean[0]) - half, float(mean[0]) + half)


def student_factor(replicates: int) -> float:
    """Return the half width of a 95 % Student interval in standard errors of a mean over `replicates`, at least 2."""
    return float(scipy.special.stdtrit(replicates - 1, 0.975))  # the quantile of scipy.stats.t, whose import takes a second


def main_algorithm(rows: Sequence[SummaryRow], labels: Sequence[str]) -> str:
    """Return the first algorithm with federated queries in any cell, else the first that sent, else the last."""
    heard = [row.algorithm for row in rows if row.federated > 0] or [row.algorithm for row in rows if row.bytes_up > 0]
    return min(heard, key=labels.index) if heard else max((row.algorithm for row in rows), key=labels.index, default=labels[-1])


def _estimate(found: Sequence[IncumbentTrace], step: float, metric: Metric) -> Estimate:
    means = replicate_means(found, "iteration", np.array([step]))
    mean, error = mean_and_error(metric.native(np.stack(list(means.values()))))
    return Estimate(float(mean[0]), float(error[0]) if len(means) > 1 else None)


def holm(chances: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's step-down procedure; NaN stays and does not count."""
    values = np.asarray(chances, dtype=np.float64)
    corrected, known = values.copy(), np.flatnonzero(~np.isnan(values))
    order, running = known[np.argsort(values[known], kind="stable")], 0.0
    for place, number in enumerate(order):
        running = max(running, min(1.0, (len(order) - place) * float(values[number])))
        corrected[number] = running
    return [float(value) for value in corrected]
