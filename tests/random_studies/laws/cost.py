"""The law of [budget] cost: no agent decides once the time of its evaluations has reached it, and none ends before.

An agent may also end with a decision that is not worth its cost.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from fedbo.algorithms.gp import GP, STOP
from tests.random_studies.run_tables import NEAR, Row, RunTables


def cost(run: RunTables) -> Iterator[str]:
    """Check that an agent decides only while the evaluations that it has learned of have taken less than the budget's cost.

    Where evaluations overlap, those that end between two steps are learned of in the second one.
    """
    most, overlap, targets = run.task.cost, run.task.policy.overlaps, run.task.problem.targets
    told = not (overlap and run.environment.is_real_time)  # else what a process knew when is in no table
    rows, ended = defaultdict[int, list[Row]](list), dict[int, float]()
    for row in run.rows:
        rows[row["agent"]].append(row)
    for event in run.of("started", "finished", "done"):
        agent, step, kind = event["agent"], event["step"], event["kind"]
        own = rows[agent]
        if kind == "finished":
            ended[agent] = event["time"]
        elif kind == "started" and not event["again"] and agent in ended and told:
            known = [row for row in own if is_known(row, ended[agent], step, overlap)]
            if (spent := time_of(known)) > most + NEAR or any(is_last(run, row) for row in known):
                yield f"agent {agent} decided in step {step} after {spent} of the cost {most}"
        elif kind == "done" and agent in targets and _is_early(run, agent, step):
            if (spent := time_of(own)) < most - NEAR and not any(is_last(run, row) for row in own):
                yield f"agent {agent} was done with step {step} after {spent} of the cost {most}"


def is_known(row: Row, ended: float, step: int, overlap: bool) -> bool:
    """Check whether an agent that decides in a step, and whose last one ended at this time, has learned of an evaluation.

    An earlier step may have an evaluation that was paused and goes on in a later one.
    """
    return bool(row["finished"] < ended - NEAR or (row["finished"] <= ended + NEAR and row["step"] < step and not overlap))


def time_of(rows: Iterable[Row]) -> float:
    """Return the time that evaluations took."""
    return math.fsum(row["finished"] - row["started"] + (row["copied"] or 0.0) for row in rows)


def _is_early(run: RunTables, agent: int, step: int) -> bool:
    """Check whether an agent had decisions left at the end of a step."""
    _, iterations, pulls = run.task.budget_of(agent)
    return not run.exchange.selection.idles and not pulls and step < iterations


def is_last(run: RunTables, row: Row) -> bool:
    """Check whether an agent ends with this evaluation, because none is worth its cost."""
    algorithm = run.task.algorithm
    return isinstance(algorithm, GP) and algorithm.stop and row["note"] == STOP
