"""Laws of metrics: the columns of each evaluation, whether it is feasible, and what its agent learns of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from tests.random_studies.run_tables import Row, RunTables

_PREFIX = "metric."


def metrics(run: RunTables) -> Iterator[str]:
    """Check that metrics are those that evaluations returned, and `feasible` is what they say of their agent's limits."""
    if run.task.goals is None:
        if run.rows and ("feasible" in run.rows[0] or any(name.startswith(_PREFIX) for name in run.rows[0])):
            yield "there are columns of metrics, and the study names none"
        return
    own = run.task.federation.metric
    for row in run.rows:
        where = f"agent {row['agent']}, step {row['step']}, point {row['query']}"
        returned = json.loads(row["metrics"] or "{}")
        for name in (goal.name for goal in run.task.goals.objectives):
            if f"{_PREFIX}{name}" not in row:
                yield f"objective {name} has no column"
        for column, value in row.items():
            name = column.removeprefix(_PREFIX)
            if name == column:
                continue
            was = float(own.native(row["value"])) if name == own.name else returned.get(name, math.nan)
            if not (value == was or math.isnan(value) and not math.isfinite(was)):
                yield f"{where}: {column} is {value}, and the evaluation returned {was}"
        if row["feasible"] != _keeps(run, row):
            yield f"{where}: feasible is {row['feasible']} with {_broken(run, row) or 'no limit broken'}"


def _keeps(run: RunTables, row: Row) -> bool:
    return row["error"] is None and math.isfinite(row["value"]) and not _broken(run, row)


def _broken(run: RunTables, row: Row) -> list[str]:
    """List the bounds that a row does not keep; that of its own value is judged by the noise-free score."""
    goals, own, found = run.task.goals_of(row["agent"]), run.task.federation.metric, list[str]()
    for limit in () if goals is None else goals.limits:
        value = float(own.native(row["score"])) if limit.name == own.name else row[f"{_PREFIX}{limit.name}"]
        if limit.at_most is not None and not value <= limit.at_most:
            found.append(f"{limit.name} = {value} above {limit.at_most}")
        if limit.at_least is not None and not value >= limit.at_least:
            found.append(f"{limit.name} = {value} below {limit.at_least}")
    return found
