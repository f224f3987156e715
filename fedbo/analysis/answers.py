"""The answers of methods that finally agree on a point, such as ADMM: their cost, and their constraint violation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from fedbo.algorithms.catalog import algorithms
from fedbo.analysis.averages import mean_and_error
from fedbo.analysis.finished_run import own_metric, trusted_cells
from fedbo.analysis.grouping import runs_by_algorithm
from fedbo.analysis.records.records import Records
from fedbo.analysis.result import Result
from fedbo.analysis.summary import Estimate

_NOTE = re.compile(r"primal residual (\S+), dual residual (\S+)")


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """The answers of one algorithm in one cell, the evaluations of origin "agreed": means over replicates.

    `cost` is the mean over `agents` of the native scores. `violation` is the distance of the points from the constraint, None
    if it is not known or an agent did not answer. `primal` and `dual` are the last residuals that the agents knew, and `time`
    is the time of the last answer.
    """

    cell: int
    algorithm: str
    replicates: int
    agents: float
    cost: Estimate
    violation: float | None
    primal: float | None
    dual: float | None
    time: float


def answers(result: Result) -> Records[AnswerRow]:
    """Measure the answers, one row for each algorithm in each cell that has any."""
    agreed = result.observations.filter(pc.equal(result.observations["origin"], "agreed"))
    counts = {key: len(set(table["agent"].to_pylist())) for key, runs in runs_by_algorithm(result.observations).items()
              for _, table in runs[:1]}  # fmt: skip
    rows = []
    for (cell, label), runs in runs_by_algorithm(agreed).items():
        method, count = _method(result, cell, label), counts[cell, label]
        facts = [_facts(table.to_pylist(), method, count) for _, table in runs]
        costs, *rest = (np.array(column) for column in zip(*facts, strict=True))
        mean, error = mean_and_error(np.asarray(own_metric(result, cell).native(costs))[:, None])
        cost = Estimate(float(mean[0]), float(error[0]) if len(runs) > 1 else None)
        names, means = ("agents", "violation", "primal", "dual", "time"), (float(column.mean()) for column in rest)
        known = {name: None if np.isnan(mean) else mean for name, mean in zip(names, means, strict=True)}
        rows.append(AnswerRow(cell=cell, algorithm=label, replicates=len(runs), cost=cost, **known))  # type: ignore[arg-type]
    return Records("answers", AnswerRow, rows)


def _method(result: Result, cell: int, label: str) -> Any:
    """Make the method with its settings in a cell; None for one that is not built in."""
    study = trusted_cells(result)[cell].study if result.study.sweep else result.study
    table = next(table for table in study.algorithm if table.title == label)
    return table.make() if table.name in algorithms() else None


def _facts(rows: Sequence[dict[str, Any]], method: Any, count: int) -> tuple[float, ...]:
    """Return the score, the number of agents, the violation, both residuals and the time of one run."""
    good = [row for row in rows if row["error"] is None]
    whole = len(good) == count and hasattr(method, "violation")
    violation = method.violation(np.array([row["x"] for row in good])) if whole else np.nan
    noted = [found for row in rows if (found := _NOTE.fullmatch(row["note"] or ""))]
    primal, dual = (max((float(found[place]) for found in noted), default=np.nan) for place in (1, 2))
    score = float(np.mean([row["score"] for row in good])) if good else np.nan
    return score, len(good), violation, primal, dual, max(row["finished"] for row in rows)
