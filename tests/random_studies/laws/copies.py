"""The laws of copies of slow evaluations: when one is made, and what it costs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from fedbo.coordinator.environment.faults import Crash
from tests.random_studies.run_tables import NEAR, RunTables

Key = tuple[int, int, int]  # agent, step, point


def copies(run: RunTables) -> Iterator[str]:
    """Check that a copied evaluation had run too long, and that rows have all time on workers, or a preemption has it."""
    model = run.environment.cluster
    if model is None:
        return
    if model.after == math.inf:
        if any(event["copy"] for event in run.of("placed")) or any(row["copied"] for row in run.rows):
            yield "an evaluation was copied, and nothing asks for it"
        return
    if run.suffers(Crash) or any("forgotten" in (row["error"] or "") for row in run.rows):
        return  # which leave evaluations without a row
    begun, stays = defaultdict[Key, list[float]](list), 0.0
    ends = sorted((row["finished"], row["finished"] - row["started"]) for row in run.rows)
    open_ = dict[tuple[Key, bool], float]()
    there = {(row["agent"], row["step"], row["query"], row["finished"]) for row in run.rows}
    given_up = {(event["agent"], event["time"]) for event in run.of("absent")}
    for event in run.of("placed", "released", "preempted"):
        key, is_copy = (event["agent"], event["step"], event["query"]), event["copy"] is True
        if event["kind"] != "placed":
            since = open_.pop((key, is_copy))
            stays += event["time"] - since if event["kind"] == "released" else 0.0
            is_told = (*key, event["time"]) in there or (event["agent"], event["time"]) in given_up
            if event["kind"] == "released" and not is_told:
                # It has ended, and the agent has lost its step since or not ended it with the run: no row tells of it.
                if (key, not is_copy) in open_:
                    return  # nor which of the two has ended
                ends.append((event["time"], event["time"] - since))
            continue
        open_[key, is_copy] = event["time"]
        if not is_copy:
            begun[key].append(event["time"])
            continue
        since = max(time for time in begun[key] if time <= event["queued_at"])  # a preemption may have come since
        durations = np.array([length for finished, length in ends if finished <= event["queued_at"]])
        enough = len(durations) * (1 - model.quantile) > 1 - NEAR
        if not enough or event["queued_at"] - since < model.after * np.quantile(durations, model.quantile) - NEAR:
            yield f"evaluation {key} began at {since} and was copied at {event['queued_at']} after {len(durations)} others"
    known = sum(row["finished"] - row["started"] + (row["copied"] or 0.0) for row in run.rows)
    if not (run.ends_early or open_) and _is_whole(run) and abs(known - stays) > NEAR * max(1.0, known):
        yield f"evaluations took {stays} on workers, and {known} by their rows"


def _is_whole(run: RunTables) -> bool:
    """Check whether no agent gave up what it had begun: nobody leaves a step, or ends by its budget of time."""
    return run.task.cost == math.inf and not run.of("crashed", "absent", "done_early") and not run.of("failed")
