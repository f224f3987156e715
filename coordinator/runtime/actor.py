"""The coordinator as a process: it runs one run after another, here or in a Ray actor, and can be asked how far it is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ray
from threadpoolctl import threadpool_limits

from fedbo.actors.history import learn
from fedbo.actors.host_storage import HostConfig
from fedbo.actors.hosts import Hosts, InlineHosts, WallClockState
from fedbo.actors.remote import HostLost, RayHosts, start_hosts
from fedbo.actors.retry_limits import HOST_LOSSES
from fedbo.actors.storage.checkpoint import read_checkpoint
from fedbo.actors.storage.evaluation_log import EvaluationLog
from fedbo.actors.storage.evaluations import EvaluationRecord
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder, Superseded
from fedbo.actors.storage.sealed import Damaged
from fedbo.actors.storage.snapshot_store import SnapshotStore
from fedbo.actors.supervision import SupervisedHosts
from fedbo.actors.task import Task
from fedbo.coordinator.core import Core
from fedbo.coordinator.environment.environment import World
from fedbo.coordinator.environment.faults import Crash
from fedbo.coordinator.exchange import Exchange
from fedbo.coordinator.privacy.aggregator import DEFAULT_TERMS, PrivacyBudget
from fedbo.coordinator.privacy.noise import secret_key
from fedbo.coordinator.runtime.engine import EventQueue, RecordedEvent, RunHooks, run_virtual
from fedbo.coordinator.runtime.event_log import EventLog
from fedbo.coordinator.runtime.replay_log import catch_up, run_recorded
from fedbo.coordinator.runtime.snapshots import Snapshotter
from fedbo.coordinator.runtime.wall_clock import run_wall


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a study: one cell of its sweep, one algorithm, one replicate. Its own folder is made in `folder`.

    It ends at the time `until`; a snapshot is made after so many `seconds`, and after so many `events` where those are given.
    """

    key: RunKey
    task: Task
    exchange: Exchange
    world: World
    folder: Path
    hosting: Literal["inline", "dedicated", "packed"] = "inline"
    workers: int = 1
    until: float = float("inf")
    seconds: float = 60.0
    events: int | None = None
    terms: PrivacyBudget = DEFAULT_TERMS


@dataclass(frozen=True, slots=True)
class Learning:
    """An earlier task of some agents, to be carried out before the runs that need it."""

    key: RunKey
    task: Task
    agents: tuple[int, ...]
    folder: Path


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a coordinator is: the share of its present run, and every target's best score so far."""

    key: RunKey | None = None
    share: float = 0.0
    best: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run leaves behind besides its tables: the targets' best scores, and their optima where they are known.

    `time` is its last, `events` their number; `seconds` it took, `kept` of them for snapshots. `stopped` says whether it was
    stopped before its end.
    """

    key: RunKey
    time: float
    events: int
    stopped: bool
    seconds: float
    kept: float
    best: tuple[float, ...]
    best_values: dict[int, float | None]


class Coordinator:
    """A process that coordinates runs. Its host actors, if it has any, serve run after run."""

    def __init__(self) -> None:
        threadpool_limits(1)
        self._standing = Standing()
        self._stop = self._sufficient = False
        self.hosts: list[Any] = []

    def learn(self, job: Learning) -> None:
        """Carry out an earlier task of some agents."""
        for number in job.agents:
            if self._stop:
                return
            learn(job.task, [number], job.key, job.folder)

    def run(self, run: Run) -> Ended | None:
        """Carry a run out, from its last snapshot on if it has one; its tables are written also when it is stopped or fails.

        None when another process goes on with it: that one gives the result, and nobody waits for this one.
        """
        try:
            return self._run(run)
        except Superseded:
            self.hosts = []
            return None

    def _run(self, run: Run) -> Ended:
        home = RunFolder.of(run.folder, run.key)
        store = SnapshotStore(home)
        latest = store.latest()
        if latest.ended:
            store.check(latest, tables=False)
            found: Ended = read_checkpoint(home.path / "ended")
            return found
        lives, reached = HOST_LOSSES, 0
        while True:
            agenda = EventQueue()
            try:
                return self._go_on(run, agenda)
            except HostLost:  # begin again from the last snapshot, with hosts that live
                for host in self.hosts:
                    ray.kill(host)  # some may be alive
                self.hosts = []
                lives = HOST_LOSSES if agenda.events > reached else lives - 1
                reached = max(reached, agenda.events)
                if not lives:
                    raise

    def _go_on(self, run: Run, agenda: EventQueue) -> Ended:
        begun = time.monotonic()
        keeper = Snapshotter(RunFolder.of(run.folder, run.key), run.seconds, run.events)
        core, journal, live = _core(run, keeper.home), EventLog(keeper.home), None
        snapshot = keeper.restore()
        if snapshot is not None:
            core.state, journal.count, journal.moments, live = snapshot[1:]
            agenda.become(snapshot.agenda)
        hosts = self._host(run, keeper, live)
        watch = RunHooks(
            journal.extend,
            lambda: self._stop,
            lambda: self._look(run, core, hosts),
            lambda events: keeper.keep(events, core, agenda, journal, hosts),
            journal.record,
            lambda: self._sufficient,
        )
        try:
            if run.world.real:
                assert isinstance(hosts, SupervisedHosts)
                catch_up(core, hosts, agenda, keeper.since(), watch)
                keeper.begin(core, agenda, journal, hosts)
                run_wall(core, hosts, watch, agenda, run.until, _die)
            else:
                run_virtual(core, hosts, watch, agenda, run.until)
        except (HostLost, Superseded, Damaged):
            raise
        except Exception:
            if isinstance(hosts, RayHosts):
                hosts.restart_dead()
            keeper.end(core, agenda, journal, hosts, ended=False)
            raise
        self._look(run, core, hosts)
        if isinstance(hosts, RayHosts):
            hosts.restart_dead()
            self.hosts = hosts.actors
        best_values = hosts.best_values()
        result = Ended(
            key=run.key,
            time=agenda.time,
            events=agenda.events,
            stopped=agenda.stopped,
            seconds=time.monotonic() - begun,
            kept=keeper.spent,
            best=self._standing.best,
            best_values={agent: best_values[agent] for agent in run.task.problem.targets},
        )
        keeper.note_result(result)
        keeper.end(core, agenda, journal, hosts, ended=not agenda.stopped)
        return result

    def replay(self, run: Run, record: Sequence[RecordedEvent], evaluations: Sequence[EvaluationRecord]) -> Ended:
        """Carry out again a run that was made in real time, by its record, in this process and without waiting.

        What its `evaluations` gave is not found out again.
        """
        begun = time.monotonic()
        keeper = Snapshotter(RunFolder.of(run.folder, run.key), float("inf"), None)
        core, journal, agenda = _core(run, keeper.home), EventLog(keeper.home), EventQueue()
        log = EvaluationLog(keeper.home, set(), 0)
        log.append(evaluations)
        log.close()
        hosts = InlineHosts(run.task, range(run.task.problem.n_agents), HostConfig(keeper.home, recorded=True))
        try:
            agenda.time = run_recorded(core, hosts, RunHooks(journal.extend), record)
        finally:
            keeper.end(core, agenda, journal, hosts, ended=True)
        return Ended(run.key, agenda.time, len(record), False, time.monotonic() - begun, 0.0, (), {})

    def standing(self) -> Standing:
        """Say how far the present run is; it may be asked from another thread."""
        return self._standing

    def stop(self) -> None:
        """Let the present run end soon, with what it has; it may be called from another thread."""
        self._stop = True

    def suffice(self) -> None:
        """Let the present run in real time end soon, as one that is complete; it may be called from another thread."""
        self._sufficient = True

    def _host(self, run: Run, keeper: Snapshotter, live: WallClockState | None) -> Hosts:
        agents: Sequence[int] = range(run.task.problem.n_agents)
        lossy = any(isinstance(fault, Crash) and fault.state == "lost" for fault in run.world.plan)
        config = HostConfig(keeper.home, run.world.real, lossy, keeper.latest)
        if run.hosting == "inline":
            return InlineHosts(run.task, agents, config)
        count = len(agents) if run.hosting == "dedicated" else min(run.workers, len(agents))
        if len(self.hosts) != count:
            self.hosts = start_hosts(count)
        if run.world.real:
            return SupervisedHosts(self.hosts, run.task, agents, config, live)
        return RayHosts(self.hosts, run.task, agents, config)

    def _look(self, run: Run, core: Core, hosts: Hosts) -> None:
        problem = run.task.problem
        done = core.state.pulled if problem.pulls else core.state.step
        count = sum(done[agent] for agent in problem.targets)
        best = hosts.best()
        scores = tuple(best[agent] for agent in problem.targets if agent in best)
        self._standing = Standing(run.key, count / (len(problem.targets) * (problem.pulls or problem.iterations)), scores)


def _core(run: Run, home: RunFolder) -> Core:
    """Make the rules of a run; noise that shall be secure has its key in the run's folder until the run has ended."""
    key = secret_key(home.key_file) if run.terms.secure_noise else None
    return Core(run.task, run.exchange, run.world, run.terms, key)


def _die() -> None:
    """End this process, as the plan says; whoever looks after it will let another one go on."""
    os.kill(os.getpid(), signal.SIGKILL)


def start_coordinators(count: int, cpus: float) -> list[Any]:
    """Start `count` coordinator actors; each answers `standing` and `stop` while it runs."""
    actor = ray.remote(Coordinator).options(num_cpus=cpus, max_concurrency=3, scheduling_strategy="SPREAD")
    return [actor.remote() for _ in range(count)]
