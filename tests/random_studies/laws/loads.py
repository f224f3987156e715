"""The laws of the background load of a cluster, and of its workers that follow the queue."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.random_studies.run_tables import NEAR, RunTables


class Stay(NamedTuple):
    """A stay of a part of a job on a worker, which began with event `number`; `left` is infinite where the run ends before."""

    number: int
    job: int
    cpus: float
    worker: int
    queued: float
    placed: float
    left: float
    is_whole: bool


def stays_of(run: RunTables) -> Iterator[Stay]:
    """List the stays of parts of jobs; of parts of one job that are alike on a worker, the first to come is the first to go."""
    here = defaultdict[tuple[int, float, int], list[list[float]]](list)
    found = list[Stay]()
    for event in run.of("job_placed", "job_left"):
        key = event["job"], event["cpus"], event["worker"]
        if event["kind"] == "job_placed":
            here[key].append([event["sequence"], event["queued_at"], event["time"]])
            continue
        number, queued, placed = here[key].pop(0)
        found.append(Stay(int(number), *key, queued, placed, event["time"], event["lost"] is None))
    open_ = (Stay(int(one[0]), *key, one[1], one[2], math.inf, False) for key, some in here.items() for one in some)
    return iter(sorted([*found, *open_]))


def loads(run: RunTables) -> Iterator[str]:
    """Check that parts of jobs enter and stay as the log says, and that no work is on a worker that is stopped."""
    model = run.environment.cluster
    if model is None:
        return
    parts = defaultdict[int, list[tuple[float, float, float]]](list)
    for part in model.load:
        parts[part.row].append((part.submit, part.length, part.cpus))
    whole, cut = Counter[int](), {stay.job for stay in stays_of(run) if math.isfinite(stay.left) and not stay.is_whole}
    kinds = [one for one in model.classes for _ in range(one.count)]
    for stay in stays_of(run):
        submit, length, _ = parts[stay.job][0]
        if stay.queued < submit - NEAR or (stay.job not in cut and abs(stay.queued - submit) > NEAR):
            yield f"a part of job {stay.job} queued at {stay.queued}, and was submitted at {submit}"
        kind, whole[stay.job] = kinds[stay.worker], whole[stay.job] + stay.is_whole
        lasts = kind.startup + (length + model.saving(length)) / kind.speed
        if stay.is_whole and stay.job not in cut and abs(stay.left - stay.placed - lasts) > NEAR * max(1.0, lasts):
            yield f"a part of job {stay.job} stayed {stay.left - stay.placed} on worker {stay.worker}, and takes {lasts}"
    for row, count in whole.items():
        if count > len(parts[row]):
            yield f"{count} parts of job {row} ended, and it has {len(parts[row])}"
    there = [one.least is None or place < one.least for one in model.classes for place in range(one.count)]
    for event in run.of("workers_joined", "workers_left", "placed", "job_placed"):
        worker = event["worker"]
        if worker is None:
            continue
        is_start = event["kind"] == "workers_joined"
        if event["kind"].startswith("workers"):
            if there[worker] is is_start:
                yield f"worker {worker} was {'started' if is_start else 'stopped'} at {event['time']}, and was so before"
            there[worker] = is_start
        elif not there[worker]:
            yield f"worker {worker} was stopped, and something was placed there at {event['time']}"
