"""The columns of a study's metrics in the table of observations: one for each of its [[metric]] tables, and `feasible`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fedbo.objectives.goals import AgentGoals
from fedbo.objectives.outcome import Outcome, read_metrics

FEASIBLE = "feasible"
_READ = ("cell", "agent", "value", "score", "metrics", "error")


def column_name(metric: str) -> str:
    """Return the name of a metric's column."""
    return f"metric.{metric}"


def with_metrics(observations: Any, goals: Sequence[AgentGoals]) -> Any:
    """Return the table with the metrics of each row, in native units, and whether it is feasible for its agent.

    `goals` are those of each cell; without any the table is unchanged. A metric that is not known is NaN.
    """
    if not goals:
        return observations
    names = list(dict.fromkeys(name for each in goals for name in each.common.names))
    metrics: dict[str, list[float]] = {name: [] for name in names}
    feasible = list[bool]()
    for row in observations.select(list(_READ)).to_pylist():
        mine = goals[row["cell"]].of(row["agent"])
        outcome = Outcome(row["value"], row["score"], read_metrics(row["metrics"])[0])
        for name in names:
            metrics[name].append(mine.native(name, outcome))
        feasible.append(row["error"] is None and mine.feasible(outcome))
    for name in names:
        observations = observations.append_column(
            pa.field(column_name(name), pa.float64()), pa.array(metrics[name], pa.float64())
        )
    return observations.append_column(pa.field(FEASIBLE, pa.bool_()), pa.array(feasible, pa.bool_()))
