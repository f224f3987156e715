"""The coordinator as a process, local or in a Ray actor: runs one run after another, and reports its progress."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from fedbo.actors.history import learn
from fedbo.actors.host_storage import HostConfig
from fedbo.actors.hosts import Hosts, InlineHosts, LiveHosts, WallClockState
from fedbo.actors.late_ray import HOST_LOSSES, WHY_ONE_DIES, ray
from fedbo.actors.nodes import LASTING, NodeLeavesError, leaving, nodes_of, spread_over, this_node_leaves
from fedbo.actors.pool_worker import PoolWorker, as_job
from fedbo.actors.remote import HostLost, RayHosts, start_hosts
from fedbo.actors.storage.checkpoint import read_checkpoint
from fedbo.actors.storage.rows import Row, RunKey
from fedbo.actors.storage.run_folder import RunFolder, Superseded
from fedbo.actors.storage.sealed import DamagedError
from fedbo.actors.storage.snapshot_store import SnapshotStore
from fedbo.actors.supervision import SupervisedHosts
from fedbo.actors.task import Task
from fedbo.actors.threads import blas_threads
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.environment.faults import Crash
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.coordinator.runtime.event_log import EventLog
from fedbo.coordinator.runtime.replay_log import resume_from_log
from fedbo.coordinator.runtime.snapshots import RunParts, Snapshotter
from fedbo.coordinator.runtime.wall_clock import run_wall
from fedbo.settings.own_code import exits_as_errors
from fedbo.settings.rooms import optional_or
from fedbo.settings.trust import admit_same

_TO_END = 0.7  # share of the time that a node has left in which evaluations may end; in the rest the run is saved


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a study: one cell of its sweep, one algorithm, one replicate. Its own folder is made in `folder`.

    It ends at the time `until`; a snapshot is made after so many `seconds`, and after so many `events` if set. Its agents live
    in `hosts` Ray actors, or with their coordinator if that is 0; evaluations run on nodes with these `labels`. With `isolate`
    they have a process of their own, which is ended after `patience` real seconds. `budget` is that of the privacy room.
    """

    key: RunKey
    task: Task
    exchange: Exchange
    environment: Environment
    folder: Path
    hosts: int = 0
    isolate: bool = False
    patience: float | None = None
    until: float = float("inf")
    seconds: float = 60.0
    events: int | None = None
    budget: Any = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WarmupRun:
    """An earlier task of some agents, whose observations the runs that need them begin with.

    If observations are `given`, agents only store them, and evaluate nothing.
    """

    key: RunKey
    task: Task
    agents: tuple[int, ...]
    folder: Path
    given: Mapping[int, Sequence[Row]] | None = None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a coordinator: the share of its present run, and every target's best score so far."""

    key: RunKey | None = None
    share: float = 0.0
    best: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The result of a run besides its tables: the targets' best scores, and their optima where they are known.

    `time` is its last, `events` their number; `seconds` its duration, of which `kept` for snapshots. `stopped` tells whether it
    was stopped before its end.
    """

    key: RunKey
    time: float
    events: int
    stopped: bool
    seconds: float
    kept: float
    best: tuple[float, ...]
    best_values: dict[int, float | None]


class Coordinator(PoolWorker):
    """A process that coordinates runs. Its host actors, if it has any, serve run after run.

    One that `moves` saves its run when a node leaves on which it, or in virtual time one of its hosts, lives.
    """

    def __init__(self, moves: bool = False) -> None:
        blas_threads().limit(limits=1)
        self._progress = RunProgress()
        self._stopped = self._stopped_early = self._leaves = False
        self._moves = moves
        self.hosts: list[Any] = []

    @as_job
    @exits_as_errors
    def learn(self, job: WarmupRun) -> None:
        """Run an earlier task of some agents."""
        admit_same(job.task.code)
        for number in job.agents:
            if self._stopped:
                return
            learn(job.task, [number], job.key, job.folder, job.given)

    @as_job
    @exits_as_errors
    def run(self, run: Run) -> RunSummary | None:
        """Execute a run, from its last snapshot if it has one; its tables are written also when it is stopped or fails.

        Return None if another process has taken the run over: that process returns the result.
        """
        try:
            return self._run(run)
        except Superseded:
            self.hosts = []
            return None

    def _run(self, run: Run) -> RunSummary:
        admit_same(run.task.code)
        home = RunFolder.of(run.folder, run.key)
        store = SnapshotStore(home)
        latest = store.latest()
        if latest.ended:
            store.check(latest, tables=False)
            found: RunSummary = read_checkpoint(home.path / "ended")
            return found
        left, furthest = HOST_LOSSES, 0
        while True:
            queue = EventQueue()
            try:
                self._leaves = False
                ended = self._go_on(run, queue)
                if not ended.stopped or self._stopped or not self._leaves:
                    return ended
                if this_node_leaves():
                    raise NodeLeavesError(f"{run.key}: the node of its coordinator leaves; the run is saved")
                self._kill_hosts()  # they have written all; others begin elsewhere
            except HostLost as lost:  # begin again from the last snapshot, with hosts that live
                self._kill_hosts()  # some may be alive
                left = HOST_LOSSES if queue.events > furthest else left - 1
                furthest = max(furthest, queue.events)
                if not left:
                    raise HostLost(f"{lost}; {HOST_LOSSES} times at the same point of the run; {WHY_ONE_DIES}") from lost

    def _kill_hosts(self) -> None:
        for host in self.hosts:
            ray.kill(host)
        self.hosts = []

    def _go_on(self, run: Run, queue: EventQueue) -> RunSummary:
        """Execute a run from its last snapshot, with the present hosts."""
        snapshots = Snapshotter(RunFolder.of(run.folder, run.key), run.seconds, run.events)
        # Secure noise has its key in the run's folder until the run has ended.
        key = optional_or("noise_key", None)(run.budget, snapshots.home.key_file)
        core = assembled(run.task, run.exchange, run.environment, run.budget, key)
        event_log, live = EventLog(snapshots.home), None
        snapshot = snapshots.load_latest()
        if snapshot is not None:
            core.state, live = snapshot.state, snapshot.live
            event_log.count, event_log.moments = snapshot.lines, snapshot.moments
            queue.become(snapshot.queue)
        hosts = self._host(run, snapshots, live)
        try:
            return self._carry_out(run, RunParts(core, queue, event_log, hosts), snapshots)
        finally:
            hosts.close()

    def _carry_out(self, run: Run, parts: RunParts, snapshots: Snapshotter) -> RunSummary:
        """Execute a run, and write its results."""
        begun = time.monotonic()
        core, queue, hosts = parts.core, parts.queue, parts.hosts
        try:
            self._drive(run, parts, snapshots)
        except (HostLost, Superseded, DamagedError):
            raise
        except Exception:
            if isinstance(hosts, RayHosts):
                hosts.abandon()
            snapshots.finish(parts, ended=False)
            raise
        self._note_progress(run, core, hosts)
        if isinstance(hosts, RayHosts):
            hosts.abandon(*([_TO_END * max(0.0, min(leaving().values()))] if self._leaves else []))
            self.hosts = hosts.actors
        best_values, targets = hosts.best_values(), core.rules.targets
        result = RunSummary(
            key=run.key,
            time=queue.time,
            events=queue.events,
            stopped=queue.stopped,
            seconds=time.monotonic() - begun,
            kept=snapshots.spent,
            best=self._progress.best,
            best_values={agent: value for agent, value in sorted(best_values.items()) if agent in targets},
        )
        snapshots.note_result(result)
        snapshots.finish(parts, ended=not queue.stopped)
        return result

    @exits_as_errors
    def _drive(self, run: Run, parts: RunParts, snapshots: Snapshotter) -> None:
        """Drive a run in the time of its study, until it ends or is stopped."""
        core, queue, event_log, hosts = parts.core, parts.queue, parts.event_log, parts.hosts
        hooks = RunHooks(
            event_log.extend,
            lambda: self._stopped or self._leaves,
            lambda: self._look_around(run, core, hosts),
            keep=lambda events: snapshots.tick(events, parts),
            every=run.events or 0,
            in_columns=True,
            record=event_log.record,
            enough=lambda: self._stopped_early,
            die=lambda: os.kill(os.getpid(), signal.SIGKILL),  # its supervisor starts another process that continues
        )
        if not run.environment.is_real_time:
            run_virtual(core, hosts, hooks, queue, run.until)
            return
        live = cast(LiveHosts, hosts)
        resume_from_log(core, live, queue, snapshots.events_since(), hooks)
        snapshots.start(parts)
        run_wall(core, live, hooks, queue, run.until)

    def progress(self) -> RunProgress:
        """Return the progress of the present run; may be called from another thread."""
        return self._progress

    def stop(self) -> None:
        """Stop the present run soon, with its results so far; may be called from another thread."""
        self._stopped = True

    def stop_early(self) -> None:
        """End the present run in real time soon, as a complete one; may be called from another thread."""
        self._stopped_early = True

    def _host(self, run: Run, snapshots: Snapshotter, live: WallClockState | None) -> Hosts:
        agents: Sequence[int] = range(run.task.problem.n_agents)
        lossy = any(isinstance(fault, Crash) and fault.state == "lost" for fault in run.environment.plan)
        config = HostConfig(snapshots.home, run.environment.is_real_time, lossy, snapshots.latest)
        config = config._replace(isolate=run.isolate, patience=run.patience, labels=run.labels)
        if not run.hosts:
            return InlineHosts(run.task, agents, config)
        if len(self.hosts) != run.hosts:
            apart = run.environment.is_real_time and run.task.policy.overlaps
            self.hosts = start_hosts(run.hosts, None if apart else run.labels)
        if run.environment.is_real_time:
            return SupervisedHosts(self.hosts, run.task, agents, config, live)
        return RayHosts(self.hosts, run.task, agents, config)

    def _look_around(self, run: Run, core: Core, hosts: Hosts) -> None:
        """Note the progress of a run, and whether it has to move."""
        self._note_progress(run, core, hosts)
        if self._moves and (nodes := leaving()):  # in real time hosts are replaced one by one
            theirs = nodes_of(hosts.actors) if isinstance(hosts, RayHosts) and not run.environment.is_real_time else []
            self._leaves = this_node_leaves() or not nodes.keys().isdisjoint(theirs)

    def _note_progress(self, run: Run, core: Core, hosts: Hosts) -> None:
        targets = core.rules.targets
        scores = tuple(score for agent, score in sorted(hosts.best().items()) if agent in targets)
        end, made = run.task.early_end, core.state.progress
        shares = [core.share_done(), made.last_time / run.until]  # 0 without a last time
        shares += [made.evaluations / end.evaluations] if end is not None and end.evaluations else []
        self._progress = RunProgress(run.key, min(1.0, max(shares)), scores)


def start_coordinators(count: int, cpus: float, labels: Mapping[str, str] | None = None) -> list[Any]:
    """Start `count` coordinator actors, on nodes with these labels if they evaluate too; others (None) need nodes that last."""
    place = LASTING if labels is None else spread_over(labels)
    actor = ray.remote(Coordinator).options(num_cpus=cpus, max_concurrency=3, **place)
    return [actor.remote(moves=True) for _ in range(count)]
