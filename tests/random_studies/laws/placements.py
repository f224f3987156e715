"""The laws of placements on the workers of a cluster, at every instant as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tests.random_studies.run_tables import Row, RunTables

Job = tuple[int, int, int, bool]  # agent, step, point, and whether it is a copy


def placements(run: RunTables) -> Iterator[str]:
    """Check that an evaluation is not preempted as it is placed, or twice at one instant, and that priorities hold.

    The wait of a preempted evaluation begins with its preemption.
    """
    model = run.environment.cluster
    if model is None:
        return
    waits = _waits(run) if model.rule == "priority" and run.task.stopping is None else []
    stopped = dict[Job, float]()
    for time, events in groupby(run.of("placed", "preempted"), key=lambda event: event["time"]):
        placed, preempted = set[tuple[Job, int]](), set[Job]()
        for event in events:
            job, worker = _job(event), event["worker"]
            if event["kind"] == "placed":
                placed.add((job, worker))
                if event["queued_at"] < stopped.get(job, 0.0):
                    yield f"evaluation {job} waited since {event['queued_at']}, and was preempted at {stopped[job]}"
                continue
            stopped[job] = time
            if (job, worker) in placed:
                yield f"evaluation {job} was placed on worker {worker} at {time}, and preempted there at the same time"
            elif job in preempted:
                yield f"evaluation {job} was preempted twice at {time}"
            else:
                preempted.add(job)
        for (number, *_), _ in placed:
            passed = [
                job
                for job, since, until in waits
                if since <= time < until
                and model.need(job[0]) == model.need(number)
                and model.priority(job[0]) > model.priority(number)
            ]
            if passed:
                yield f"an evaluation of agent {number} was placed at {time}, while {passed[0]} with a higher priority waited"


def _waits(run: RunTables) -> list[tuple[Job, float, float]]:
    """List the waiting times of each evaluation that was finally placed."""
    return [(_job(one), one["queued_at"], one["time"]) for one in run.of("placed")]


def _job(event: Row) -> Job:
    return event["agent"], event["step"], event["query"], event["copy"] is True
