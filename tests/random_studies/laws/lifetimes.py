"""The law of the ledger of time: its parts sum to the whole life of each agent, and are those of a walk through its events."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from fedbo.actors.storage.rows import OBSERVATIONS
from fedbo.analysis.agent_states import OWN_EVENTS
from fedbo.analysis.disruptions import lifetimes
from fedbo.coordinator.logged.table import EVENTS
from tests.random_studies.run_tables import RunTables

PARTS = ("useful", "lost_to_crashes", "lost_to_preemption", "lost_to_lateness", "queueing", "waiting", "away", "down")
_PAUSES = {"absent": ("away", 1), "returned": ("away", -1), "crashed": ("crashed", 1), "restarted": ("crashed", -1),
           "hung": ("hung", 1), "woke": ("hung", -1)}  # fmt: skip


def lifetimes_sum_to_lives(run: RunTables) -> Iterator[str]:
    """Check that no part is negative or without a cause, that they sum to the life, and where steps are plain each part."""
    if run.environment.is_real_time or not run.events:
        return
    observations = pa.Table.from_pylist(list(run.rows), OBSERVATIONS)
    measured, walked = lifetimes(observations, pa.Table.from_pylist(list(run.events), EVENTS)), _walked(run)
    is_plain = not run.task.policy.overlaps and run.environment.cluster is None and run.task.stopping is None
    is_plain &= not any((row["error"] or "").startswith("forgotten") for row in run.rows)
    for agent, parts in walked.items():
        times = measured(np.array([agent]))
        life, near = sum(parts.values()), 1e-6 * max(1.0, run.events[-1]["time"])
        if abs(sum(times[part] for part in PARTS) - life) > near or min(times.values()) < -near:
            yield f"the times {times} of agent {agent} are not the parts of {life}"
        for part, kinds in (("lost_to_preemption", ("preempted",)), ("lost_to_lateness", ("late", "rejected")),
                            ("queueing", ("placed",))):  # fmt: skip
            if times[part] > near and not any(event["kind"] in kinds for event in run.of(*kinds) if event["agent"] == agent):
                yield f"agent {agent} has {part} = {times[part]} without any event {' or '.join(kinds)}"
        if is_plain and {part: times[part] for part in PARTS} != pytest.approx(parts, rel=1e-6, abs=near):
            yield f"agent {agent} spent {times}, and by its events {parts}"


def _walked(run: RunTables) -> dict[int, dict[str, float]]:
    """Return the time of each agent by walking through its events, where all that a step does is one piece of work."""
    arrived = {(event["agent"], event["step"]) for event in run.of("arrived")}
    refused = {(event["agent"], event["step"]) for event in run.of("late", "rejected") if event["answer"] is None
               and event["reason"] not in ("duplicate", "given_up")} - arrived  # fmt: skip
    parts, works, now = (
        defaultdict[int, dict[str, float]](lambda: dict.fromkeys(PARTS, 0.0)),
        dict[int, float](),
        defaultdict[int, float](float),
    )
    depth, over = defaultdict[int, Counter[str]](Counter), set[int]()
    for event in run.of(*OWN_EVENTS):
        agent, kind, passed = event["agent"], event["kind"], event["time"] - now[event["agent"]]
        if agent in over:
            continue
        now[agent], paused = event["time"], depth[agent]
        if paused["crashed"] or paused["hung"]:
            parts[agent]["down"] += passed
        elif paused["away"]:
            parts[agent]["away"] += passed
        elif agent in works:
            works[agent] += passed
        else:
            parts[agent]["waiting"] += passed
        if kind in ("started", "crashed", "finished") and agent in works:
            is_late = (agent, event["step"]) in refused
            why = "lost_to_crashes" if kind != "finished" else "lost_to_lateness" if is_late else "useful"
            parts[agent][why] += works.pop(agent)
        if kind == "started":
            works[agent] = 0.0
        if kind in _PAUSES:
            name, change = _PAUSES[kind]
            paused[name] += change
        if kind == "done" or event["permanent"]:
            over.add(agent)
    for agent, left in works.items():  # the run ended within this step
        parts[agent]["useful"] += left
    return {agent: own for agent, own in parts.items() if agent >= 0}
