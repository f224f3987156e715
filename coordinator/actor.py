"""The coordinator as a process: it runs one run after another, here or in a Ray actor, and can be asked how far it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ray
from threadpoolctl import threadpool_limits

from fedbo.actors.agent import Task
from fedbo.actors.history import learn
from fedbo.actors.host import Hosts, InlineHosts, RayHosts, start_hosts
from fedbo.actors.rows import Key
from fedbo.coordinator.core import Core, World
from fedbo.coordinator.engine import Outcome, Watch, run_virtual, run_wall
from fedbo.coordinator.exchange import Exchange
from fedbo.coordinator.journal import Journal


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a study: one cell of its sweep, one algorithm, one replicate. Parts are written under `folder`."""

    key: Key
    task: Task
    exchange: Exchange
    world: World
    folder: Path
    hosting: Literal["inline", "dedicated", "packed"] = "inline"
    workers: int = 1


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
    """What a run leaves behind besides its tables: the targets' best scores, and their optima where they are known."""

    key: Key
    outcome: Outcome
    seconds: float
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
        """Carry out a run and write its parts, also when it is stopped or fails."""
        begun, virtual = time.monotonic(), run.world.evaluation is not None
        hosts = self._host(run, range(run.task.problem.n_agents), real_time=not virtual)
        core = Core(run.task.algorithm, run.task.problem, run.exchange, run.world, run.task.streams)
        journal = Journal(run.key)
        watch = Watch(journal.extend, lambda: self._stop, lambda: self._look(run, core, hosts))
        try:
            if virtual:
                outcome = run_virtual(core, hosts, watch, run.task.until)
            else:
                assert isinstance(hosts, RayHosts)
                epoch = time.time()
                hosts.begin(epoch)
                outcome = run_wall(core, hosts, watch, epoch, run.task.until)
        finally:
            journal.extend(core.journal)
            journal.flush(run.folder / "events")
            hosts.flush(run.key, run.folder / "observations")
        self._look(run, core, hosts)
        best_values = hosts.best_values()
        optima = {agent: best_values[agent] for agent in run.task.problem.targets}
        return Ended(run.key, outcome, time.monotonic() - begun, self._standing.best, optima)

    def standing(self) -> Standing:
        """Say how far the present run is; it may be asked from another thread."""
        return self._standing

    def stop(self) -> None:
        """Let the present run end soon, with what it has; it may be called from another thread."""
        self._stop = True

    def _host(self, run: Run, agents: Sequence[int], real_time: bool) -> Hosts:
        if run.hosting == "inline":
            return InlineHosts(run.task, agents)
        count = len(agents) if run.hosting == "dedicated" else min(run.workers, len(agents))
        if len(self._hosts) != count:
            self._hosts = start_hosts(count)
        return RayHosts(self._hosts, run.task, agents, real_time)

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
