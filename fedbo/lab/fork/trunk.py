"""The fork of a run in virtual time: its trunk up to a point, and the snapshot from which a branch continues."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from fedbo.actors.host_storage import HostConfig
from fedbo.actors.hosts import InlineHosts
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.runtime.actor import Run
from fedbo.coordinator.runtime.event_log import EventLog
from fedbo.coordinator.runtime.snapshots import RunParts, Snapshotter
from fedbo.lab.fork.switching import switch
from fedbo.settings.records import changed


class ForkPoint(NamedTuple):
    """The point of a fork: a time, before the events at that time, or after a number of events of each run."""

    time: float | None = None
    event: int | None = None

    def __str__(self) -> str:
        return f"event:{self.event}" if self.time is None else f"{self.time:g}"


class _Reached(Exception):
    """The trunk has reached its point."""


def grow_trunk(run: Run, point: ForkPoint) -> float | None:
    """Run from the present state up to a point, and write a snapshot; return the time, None if the run ended before."""

    def look(events: int) -> None:
        if events == point.event:
            raise _Reached

    snapshots, parts = open_run(run)
    # The trunk stops just before the events at the time of the fork, which belong to the branches.
    until = run.until if point.time is None else min(run.until, math.nextafter(point.time, -math.inf))
    reached = False
    if parts.queue.events == point.event:
        reached = True
    else:
        try:
            hooks = RunHooks(parts.event_log.extend, keep=look, every=point.event or 0, in_columns=True)
            run_virtual(parts.core, parts.hosts, hooks, parts.queue, until)
        except _Reached:
            reached = True
    ended = parts.core.state.progress.is_enough or (parts.core.is_over and parts.queue.quiet) or not _goes_on(parts, run.until)
    snapshots.finish(parts, ended=False)
    if ended or not (reached or point.time is not None):
        return None
    return parts.queue.time if point.time is None else point.time


def _goes_on(parts: RunParts, until: float) -> bool:
    due = parts.queue.next_time()
    return due is not None and due <= until and (bool(parts.queue.waiting) or parts.core.will_recover())


def begin_branch(trunk: Run, branch: Run, now: float) -> None:
    """Convert a copy of the trunk in the branch's folder to the rules of the branch; ForkError.

    Steps that agents work on were decided under the old rules, and stay.
    """
    snapshots, left = open_run(replace(trunk, folder=branch.folder))
    before, hosts = left.core, left.hosts
    assert isinstance(hosts, InlineHosts)
    for order in before.orders():
        hosts.host.agents[order.agent].settle(order)
        step = before.state.agents[order.agent].current
        assert step is not None
        step.order = changed(order, restore="")
    snapshots.finish(left, ended=False)
    snapshots, parts = open_run(branch)
    switch(before, parts.core, parts.hosts, parts.queue, now)
    snapshots.finish(parts, ended=False)


def open_run(run: Run) -> tuple[Snapshotter, RunParts]:
    """Open a run in its present state, in this process; rows that a crash could still remove stay with their agents."""
    snapshots = Snapshotter(RunFolder.of(run.folder, run.key), math.inf, None)
    core, event_log, queue = (
        assembled(run.task, run.exchange, run.environment, run.budget),
        EventLog(snapshots.home),
        EventQueue(),
    )
    snapshot = snapshots.load_latest()
    if snapshot is not None:
        core.state, event_log.count, event_log.moments = snapshot.state, snapshot.lines, snapshot.moments
        queue.become(snapshot.queue)
    config = HostConfig(snapshots.home, lossy=True, latest=snapshots.latest)
    return snapshots, RunParts(core, queue, event_log, InlineHosts(run.task, range(run.task.problem.n_agents), config))
