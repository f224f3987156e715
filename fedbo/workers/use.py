"""The use of the workers of a simulated cluster: how long evaluations waited for them, and how busy they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbo.analysis.grouping import column_of, of_kinds, runs_by_algorithm
from fedbo.analysis.timeline_bars import listed_moves
from fedbo.study.study import Cell
from fedbo.workers.models import ClusterModel


@dataclass(frozen=True, slots=True)
class WorkerUse:
    """The queue for workers in the runs of one algorithm in one cell: means over replicates.

    Evaluations were `placed` on a worker and `preempted` there that often; `copies` of those placed were second ones. They had
    waited for the time `waited` on average, since they were queued, and for `longest` at most; the share `delayed` had to wait.
    `utilisation` is the used share of the workers' CPU time, from 0 to the end of the run; jobs of a log use it
    too.
    """

    cell: int
    algorithm: str
    placed: float
    preempted: float
    copies: float
    waited: float
    longest: float
    delayed: float
    utilisation: float


def worker_use(events: Any, cells: list[Cell]) -> list[WorkerUse]:
    """List the use of workers by algorithm and cell, for the cells with a cluster."""
    found = []
    for (number, label), runs in runs_by_algorithm(events).items():
        study = cells[number].study
        if study.cluster is None:
            continue
        model = study.cluster.make(study.evaluation.make().resources)
        facts = [_facts(own, model) for _, own in runs]
        means = np.array([[*each.values()] for each in facts]).mean(axis=0).tolist()
        found.append(WorkerUse(number, label, **dict(zip(facts[0], means, strict=True))))
    return found


def _facts(events: Any, model: ClusterModel) -> dict[str, float]:
    """Return the numbers of one run by the names of their fields."""
    end = float(column_of(events, "time").max())
    own = of_kinds(events, "placed", "released", "preempted")
    begun, waits, counts, used = dict[tuple[int, ...], float](), list[float](), {"preempted": 0, "copies": 0}, 0.0
    for time, kind, agent, *other, _, queued, _ in listed_moves(own):
        job = (agent, *other)
        if kind == "placed":
            waits.append(time - queued)
            begun[job] = time
            counts["copies"] += other[-1] is True
            continue
        used += (time - begun.pop(job)) * model.need(agent).cpus
        counts["preempted"] += kind == "preempted"
    used += sum((end - time) * model.need(job[0]).cpus for job, time in begun.items())
    for kind, sign in (("job_placed", 1), ("job_left", -1)):
        moves = of_kinds(events, kind)
        used += sign * float(np.sum((end - column_of(moves, "time")) * column_of(moves, "cpus")))
    waited = np.array(waits or [0.0])
    have = model.total.cpus * end
    return {
        "placed": float(len(waits)),
        "preempted": float(counts["preempted"]),
        "copies": float(counts["copies"]),
        "waited": float(waited.mean()),
        "longest": float(waited.max()),
        "delayed": float((waited > 0).mean()),
        "utilisation": used / have if have else 0.0,
    }
