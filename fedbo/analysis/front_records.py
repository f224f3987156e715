"""The fronts of a run: for each agent or each algorithm the feasible evaluations that no other one of them dominates."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedbo.analysis.finished_run import FinishedRun
from fedbo.analysis.grouping import column_of, grouped
from fedbo.analysis.indicators import Hypervolume, Indicator, indicators_in
from fedbo.analysis.metric_columns import column_name
from fedbo.objectives.goals import goals_in
from fedbo.surrogates.fronts import non_dominated


def has_fronts(run: FinishedRun) -> bool:
    """Return whether a run has several objectives."""
    return any(isinstance(each, Hypervolume) for each in indicators_in(run.manifest))


def front_records(run: FinishedRun, each: str) -> list[dict[str, Any]]:
    """Return the records of the fronts in the form of `Result.best`, each front from its best first objective on.

    A point that an agent evaluated again with the same outcome is listed once.
    """
    observations, indicators = run.shown[0], indicators_in(run.manifest)
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
    return [record(run, row) for row in rows if once[row["replicate"], row["agent"], *row["x"], row["score"]] is row]


def record(run: FinishedRun, row: dict[str, Any]) -> dict[str, Any]:
    """Return an evaluation as `Result.best` gives it; `metrics` are those of the study, if it names any."""
    cell, goals = row["cell"], goals_in(run.manifest)
    found = {key: row[key] for key in ("cell", "algorithm", "replicate", "agent", "step")}
    found["value"] = float(run.own_metric(cell).native(row["score"]))
    if goals:
        found["metrics"] = {name: row[column_name(name)] for name in goals[cell].common.names}
    return {**found, "configuration": run.configurations(cell).declared(row["x"])}
