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

from fedbo.actors.checkpoint import read_checkpoint, write_checkpoint
from fedbo.actors.history import learn
from fedbo.actors.home import Home
from fedbo.actors.host import Hosts, InlineHosts, Site
from fedbo.actors.remote import HostLost, RayHosts, start_hosts
from fedbo.actors.rows import Key
from fedbo.actors.task import Task
from fedbo.coordinator.core import Core
from fedbo.coordinator.engine import Agenda, Moment, Watch, run_recorded, run_virtual, run_wall
from fedbo.coordinator.exchange import Exchange
from fedbo.coordinator.faults import Crash
from fedbo.coordinator.journal import Journal
from fedbo.coordinator.keeper import Keeper
from fedbo.coordinator.world import World

_LIVES = 5  # how often the hosts of a run may be lost before it fails


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a study: one cell of its sweep, one algorithm, one replicate. Its own folder is made in `folder`.

    It ends at the time `until`; a snapshot is made after so many `seconds`, and after so many `events` where those are given.
    """

    key: Key
    task: Task
    exchange: Exchange
    world: World
    folder: Path
    hosting: Literal["inline", "dedicated", "packed"] = "inline"
    workers: int = 1
    until: float = float("inf")
    seconds: float = 60.0
    events: int | None = None


@dataclass(frozen=True, slots=True)
class Learning:
    """An earlier task of some agents, to be carried out before the runs that need it."""

    key: Key
    task: Task
    agents: tuple[int, ...]
    folder: Path


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a coordinator is: the share of its present run, and every target's best score so far."""

    key: Key | None = None
    share: float = 0.0
    best: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run leaves behind besides its tables: the targets' best scores, and their optima where they are known.

    `time` is its last, `events` their number; `seconds` it took, `kept` of them for snapshots. `stopped` says whether it was
    stopped before its end.
    """

    key: Key
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
        self._stop = False
        self._hosts: list[Any] = []

    def learn(self, job: Learning) -> None:
        """Carry out an earlier task of some agents."""
        for number in job.agents:
            if self._stop:
                return
            learn(job.task, [number], job.key, job.folder)

    def run(self, run: Run) -> Ended:
        """Carry a run out, from its last snapshot on if it has one; its tables are written also when it is stopped or fails."""
        home = Home.of(run.folder, run.key)
        if home.latest().ended:
            found: Ended = read_checkpoint(home.folder / "ended")
            return found
        for life in range(_LIVES):
            try:
                return self._go_on(run)
            except HostLost:  # begin again from the last snapshot, with hosts that live
                self._hosts = []
                if life == _LIVES - 1:
                    raise
        raise AssertionError("no life is left")

    def _go_on(self, run: Run) -> Ended:
        begun = time.monotonic()
        keeper = Keeper(Home.of(run.folder, run.key), run.seconds, run.events)
        core = Core(run.task, run.exchange, run.world)
        snapshot = keeper.restore()
        agenda, journal = Agenda(), Journal(keeper.home)
        if snapshot is not None:
            agenda, core.state, journal.count, journal.moments = snapshot
            agenda.stopped = False
        hosts = self._host(run, keeper)
        watch = Watch(
            journal.extend,
            lambda: self._stop,
            lambda: self._look(run, core, hosts),
            lambda events: keeper.keep(events, core, agenda, journal, hosts),
            journal.record,
        )
        try:
            if run.world.real:
                assert isinstance(hosts, RayHosts)
                run_wall(core, hosts, watch, agenda, run.until, lambda: self._die(core, agenda, journal, hosts, keeper))
            else:
                run_virtual(core, hosts, watch, agenda, run.until)
        except HostLost:
            raise
        except Exception:
            keeper.end(core, agenda, journal, hosts, ended=False)
            raise
        self._look(run, core, hosts)
        if isinstance(hosts, RayHosts):
            hosts.revive()
            self._hosts = hosts.actors
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
        if not agenda.stopped:  # it counts once the last snapshot says that the run has ended
            write_checkpoint(result, keeper.home.folder / "ended")
        keeper.end(core, agenda, journal, hosts, ended=not agenda.stopped)
        return result

    def replay(self, run: Run, record: Sequence[Moment]) -> Ended:
        """Carry out again a run that was made in real time, by its record, in this process and without waiting."""
        begun = time.monotonic()
        keeper = Keeper(Home.of(run.folder, run.key), float("inf"), None)
        keeper.restore()
        core, journal, agenda = Core(run.task, run.exchange, run.world), Journal(keeper.home), Agenda()
        hosts = InlineHosts(run.task, range(run.task.problem.n_agents), Site(keeper.home))
        try:
            agenda.time = run_recorded(core, hosts, Watch(journal.extend), record)
        finally:
            keeper.end(core, agenda, journal, hosts, ended=True)
        return Ended(run.key, agenda.time, len(record), False, time.monotonic() - begun, 0.0, (), {})

    def standing(self) -> Standing:
        """Say how far the present run is; it may be asked from another thread."""
        return self._standing

    def stop(self) -> None:
        """Let the present run end soon, with what it has; it may be called from another thread."""
        self._stop = True

    def _host(self, run: Run, keeper: Keeper) -> Hosts:
        agents: Sequence[int] = range(run.task.problem.n_agents)
        lossy = any(isinstance(fault, Crash) and fault.state == "lost" for fault in run.world.plan)
        site, snapshot = Site(keeper.home, run.world.real, lossy), keeper.latest.number
        if run.hosting == "inline":
            return InlineHosts(run.task, agents, site, snapshot)
        count = len(agents) if run.hosting == "dedicated" else min(run.workers, len(agents))
        if len(self._hosts) != count:
            self._hosts = start_hosts(count)
        return RayHosts(self._hosts, run.task, agents, site, snapshot)

    def _die(self, core: Core, agenda: Agenda, journal: Journal, hosts: Hosts, keeper: Keeper) -> None:
        """End this process, as the plan says; whoever looks after it will let another one go on."""
        keeper.end(core, agenda, journal, hosts, ended=False)
        os.kill(os.getpid(), signal.SIGKILL)

    def _look(self, run: Run, core: Core, hosts: Hosts) -> None:
        problem = run.task.problem
        steps = sum(core.state.step[agent] for agent in problem.targets)
        best = hosts.best()
        scores = tuple(best[agent] for agent in problem.targets if agent in best)
        self._standing = Standing(run.key, steps / (len(problem.targets) * problem.iterations), scores)


def start_coordinators(count: int, cpus: float) -> list[Any]:
    """Start `count` coordinator actors; each answers `standing` and `stop` while it runs."""
    actor = ray.remote(Coordinator).options(num_cpus=cpus, max_concurrency=3, scheduling_strategy="SPREAD")
    return [actor.remote() for _ in range(count)]
