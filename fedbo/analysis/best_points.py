"""The best points of each agent or algorithm: its incumbent, or with several objectives its front.

The front contains the feasible evaluations that no other one dominates.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedbo.analysis.finished_run import FinishedRun, configurations, counted_tables, own_metric
from fedbo.analysis.grouping import column_of, grouped
from fedbo.analysis.indicators import Hypervolume, Indicator, column_name, indicators_in
from fedbo.analysis.traces import IncumbentTrace
from fedbo.objectives.goals import goals_in
from fedbo.surrogates.fronts import non_dominated


def best_points(run: FinishedRun, each: Literal["algorithm", "agent"]) -> list[dict[str, Any]]:
    """Return the best point of each algorithm in each cell, or of each agent and replicate, in the form of `Result.best`."""
    if any(isinstance(indicator, Hypervolume) for indicator in indicators_in(run.manifest)):
        return _fronts(run, each)
    chosen: dict[tuple[Any, ...], IncumbentTrace] = {}
    for trace in run.traces:
        key: tuple[Any, ...] = (trace.cell, trace.algorithm)
        key += (trace.replicate, trace.agent) if each == "agent" else ()
        if trace.row[-1] >= 0 and (key not in chosen or trace.best[-1] > chosen[key].best[-1]):
            chosen[key] = trace
    return [_record(run, run.observations.slice(int(trace.row[-1]), 1).to_pylist()[0]) for trace in chosen.values()]


def _fronts(run: FinishedRun, each: str) -> list[dict[str, Any]]:
    """Return the records of the fronts, each front from its best first objective on.

    A point that an agent evaluated again with the same outcome is listed once.
    """
    observations, indicators = counted_tables(run)[0], indicators_in(run.manifest)
    value = column_of(observations, "value").astype(np.float64)
    failed = ~np.asarray(observations["error"].is_null()) | ~np.isfinite(value)
    failed |= column_of(observations, "phase") == "history"
    names = ("cell", "algorithm", "replicate", "agent")
    keys = list(zip(*(observations[name].to_pylist() for name in names), strict=True))
    found = list[dict[str, Any]]()
    for key, places in grouped(range(len(keys)), lambda place: keys[place][: 4 if each == "agent" else 2]).items():
        indicator, rows = indicators[key[0]], np.array(list(places))
        found += _front(run, indicator, observations.take(rows), failed[rows])
    return found


def _front(run: FinishedRun, indicator: Indicator, observations: Any, failed: Any) -> list[dict[str, Any]]:
    score = indicator.points(observations, failed).score
    kept = np.flatnonzero(non_dominated(score))
    rows = observations.take(kept[np.argsort(-score[kept, 0], kind="stable")]).to_pylist()
    once = {(row["replicate"], row["agent"], *row["x"], row["score"]): row for row in reversed(rows)}
    return [_record(run, row) for row in rows if once[row["replicate"], row["agent"], *row["x"], row["score"]] is row]


def _record(run: FinishedRun, row: dict[str, Any]) -> dict[str, Any]:
    """Return an evaluation in the form of `Result.best`; `metrics` are those of the study, if it names any."""
    cell, goals = row["cell"], goals_in(run.manifest)
    found = {key: row[key] for key in ("cell", "algorithm", "replicate", "agent", "step")}
    found["value"] = float(own_metric(run, cell).native(row["score"]))
    if goals:
        found["metrics"] = {name: row[column_name(name)] for name in goals[cell].common.names}
    return {**found, "configuration": configurations(run, cell).declared(row["x"])}
