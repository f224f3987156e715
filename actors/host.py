"""Where agents live: a process that holds one agent or many, their checkpoints, and what keeps a live one from going on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from threadpoolctl import threadpool_limits

from fedbo.actors.agent import HostedAgent
from fedbo.actors.evaluation.evaluator import EvaluationError, EvaluationLog, Evaluator, write_evaluations
from fedbo.actors.evaluation.overlap import bench_of
from fedbo.actors.memory import Memory, UncommittedStep
from fedbo.actors.storage.checkpoint import read_checkpoint, write_checkpoint
from fedbo.actors.storage.rows import each, write_rows
from fedbo.actors.storage.run_folder import PROVISIONAL, RunFolder, SnapshotIndex, Superseded
from fedbo.actors.task import DecisionSize, StepReport, StepRequest, Task

Commits = Sequence[tuple[int, tuple[float, ...]]]


class HostConfig(NamedTuple):
    """What the hosts of a run have in common: the run's folder, whether time is real, and whether agents may forget rows.

    `latest` is the snapshot from which they go on. `recorded` says that all evaluations are in the log already. `life` counts
    the processes that a host has had. `dispatcher` is the Ray actor that submits evaluations that are tasks of their own.
    """

    home: RunFolder
    real: bool = False
    lossy: bool = False
    latest: SnapshotIndex = SnapshotIndex()
    recorded: bool = False
    life: int = 0
    dispatcher: Any = None


class WallClockState(NamedTuple):
    """What the coordinator knows of live agents: the last step of each that counts, who is held until when, who is slowed."""

    counted: dict[int, int]
    held: dict[int, float]
    slowed: dict[int, float]


class AgentCheckpoint(NamedTuple):
    """The checkpoint of one agent: what it knows, its last own checkpoint, and a step that does not count yet."""

    memory: Memory
    saved: Memory
    done: UncommittedStep | None


class Host:
    """Some agents of a run in one process; they share nothing but the process."""

    def __init__(self) -> None:
        threadpool_limits(1)  # one thread each: the replicates and hosts are what runs in parallel
        self.agents: dict[int, HostedAgent] = {}
        self._site: HostConfig | None = None
        self._log: EvaluationLog | None = None
        self._place, self._epoch = 0, 0.0
        self._held: dict[int, float] = {}
        self._slow: dict[int, float] = {}
        self._halted = False

    def load(self, task: Task, numbers: Sequence[int], site: HostConfig | None = None, place: int = 0) -> int:
        """Make the agents of a run, in place of those of an earlier one; give this process's number.

        They begin as they were at the site's snapshot, if it has one; where time is real, at their own last checkpoints.
        """
        self._site, self._place, self._halted = site, place, False
        self._held, self._slow = {}, {}
        if self._log is not None:
            self._log.close()
        real, recorded = (False, False) if site is None else (site.real, site.recorded)
        self._log = None if site is None else EvaluationLog(site.home, set(numbers), None if real else site.latest.number)
        evaluator = Evaluator(task.policy, real, self._log, self._linger if real else None, recorded)
        self.agents = {number: HostedAgent(task, number, self.clock, evaluator) for number in numbers}
        for agent in self.agents.values() if site is not None and task.policy.overlaps and (real or recorded) else ():
            assert site is not None
            run = None if recorded else str(site.home.folder)
            bench = partial(
                bench_of,
                policy=task.policy,
                agent=agent.number,
                run=run,
                halted=lambda: self._halted,
                dispatcher=site.dispatcher,
            )
            agent.overlapping(bench, self._log, task.policy.failure == "stop" and not recorded)
        if site is not None and (site.latest.number or real):
            for number, kept in _kept(site, numbers).items():
                agent = self.agents[number]
                agent.memory, agent.saved, agent.done = kept
        return os.getpid()

    def begin(self, epoch: float) -> None:
        """Set the clock of real time to 0 at `epoch` (as `time.time` gives it)."""
        self._epoch = epoch

    def reached(self) -> float:
        """Give the time at which the last evaluation had ended that earlier processes noted down for these agents."""
        return self._log.reached if self._log is not None else 0.0

    def clock(self) -> float:
        """Give the real time of the study."""
        return time.time() - self._epoch

    def decide(self, commits: Commits, order: StepRequest) -> DecisionSize:
        """Let an agent choose the points of a step."""
        self._commit(commits)
        return self.agents[order.agent].decide(order)

    def work(self, commits: Commits, orders: Sequence[StepRequest]) -> list[StepReport]:
        """Carry out steps of several agents, one after the other."""
        self._commit(commits)
        try:
            reports = [self._work(order) for order in orders if not self._halted]
        except FileNotFoundError:  # an objective's own is an error of its evaluation
            if self._site is None or self._site.home.is_ours():
                raise
            self._halted, reports = True, []  # the run has ended, and its files are gone
        return [report for report in reports if report is not None]

    def _work(self, order: StepRequest) -> StepReport | None:
        agent = self.agents[order.agent]
        real = self._site is not None and self._site.real
        if real and agent.done is not None and agent.done.report.step < order.step:  # else it was not heard of
            agent.commit(())
        try:
            report = agent.work(order)
        except EvaluationError as error:  # told when this step is due, and not with the steps of its neighbours
            return StepReport(order.agent, order.step, 0, None, order.lease, failure=str(error))
        if report is not None and self._site is not None and self._site.real:
            self._if_ours(partial(self._keep, agent, self._site.home.checkpoint(order.agent, self._site.life)))
        return report

    def _keep(self, agent: HostedAgent, path: Path) -> dict[str, str]:
        """Write the checkpoint that an agent makes for itself, the first of a process in place of its predecessors'."""
        assert self._site is not None
        first = not path.exists()
        digest = write_checkpoint(AgentCheckpoint(agent.memory, agent.saved, agent.done), path)
        for older in self._site.home.checkpoints(agent.number) if first else ():
            if older < path:
                older.unlink(missing_ok=True)
        return {path.name: digest}

    def halt(self) -> None:
        """Leave undone what has not been begun, and wait for nothing; it may be called while agents work."""
        self._halted = True

    def hold(self, agent: int, until: float) -> None:
        """Let nothing come out of an agent until this time of the study; it may be called while the agent works."""
        self._held[agent] = max(until, self._held.get(agent, 0.0))

    def slow(self, agent: int, factor: float) -> None:
        """Let an agent's evaluations take so many times as long; it may be called while the agent works."""
        self._slow[agent] = factor

    def _linger(self, agent: int, seconds: float) -> None:
        until = time.monotonic() + (self._slow.get(agent, 1.0) - 1.0) * seconds
        while (left := until - time.monotonic()) > 0 and not self._halted:
            time.sleep(min(left, 0.05))
        while (left := self._held.get(agent, 0.0) - self.clock()) > 0 and not self._halted:
            time.sleep(min(left, 0.05))

    def _commit(self, commits: Commits) -> None:
        for agent, times in commits:
            self.agents[agent].commit(times)

    def best(self) -> dict[int, float]:
        """Give the score of the best observation so far of every agent that has one, for the progress display."""
        return {number: agent.memory.best.score for number, agent in self.agents.items() if agent.memory.best is not None}

    def best_values(self) -> dict[int, float | None]:
        """Give the known optimum of every agent's objective."""
        return {number: agent.best_value for number, agent in self.agents.items()}

    def snapshot(self, commits: Commits, number: int) -> dict[str, str]:
        """Write new rows and the agents as they are by what counts; give the names of the files, each with its SHA-256.

        A host that is taken for dead writes nothing, and gives none.
        """
        assert self._site is not None
        self._commit(commits)
        return self._if_ours(partial(self._snapshot, number))

    def _snapshot(self, number: int) -> dict[str, str]:
        assert self._site is not None
        path = self._site.home.agents(number, self._place)
        names = self._write(number, self._site.lossy)
        kept = {agent.number: AgentCheckpoint(agent.settled, agent.saved, None) for agent in self.agents.values()}
        names[path.name] = write_checkpoint(kept, path)
        if self._log is not None:
            self._log.begin(number)
        return names

    def _if_ours(self, write: Callable[[], dict[str, str]]) -> dict[str, str]:
        """Write to the run while it is this attempt's; leave it, and all that is still to be done, when it is another's."""
        assert self._site is not None
        try:
            with self._site.home.ours():
                return write()
        except Superseded:  # nobody waits for an answer: whoever asked is superseded too
            self._halted = True
            return {}

    def finish(self, commits: Commits, number: int, kind: str, counted: Mapping[int, int] | None = None) -> dict[str, str]:
        """Write all rows that are left as tables of this kind, and in real time all evaluations too; give names and SHA-256.

        In real time `counted` has the last step of each agent that the coordinator has heard of; what an agent did after that
        does not count.
        """
        self._commit(commits)
        for number_, agent in self.agents.items() if counted is not None else ():
            if agent.done is not None and agent.done.report.step <= (counted or {}).get(number_, -1):
                agent.commit(())
            agent.wind_up()
        return self._if_ours(partial(self._write, number, lossy=False, kind=kind))

    def _write(self, number: int, lossy: bool, kind: str = "observations") -> dict[str, str]:
        assert self._site is not None
        rows = [row for agent in sorted(self.agents) for row in self.agents[agent].take(lossy)]
        if not rows:
            return {}
        home, real = self._site.home, self._site.real
        path = home.table(kind, number, self._place)
        written = {path.name: write_rows(rows, home.key, path)}
        if not real or kind == PROVISIONAL or self._log is None:
            return written
        evaluations = home.table("evaluations", number, self._place)
        begun = {(row.agent, row.started) for row in each(rows)}
        return {**written, evaluations.name: write_evaluations(self._log.counted(begun), home.key, evaluations)}


class Hosts(Protocol):
    """All hosts of a run, as the engine sees them."""

    def submit(self, order: StepRequest) -> None:
        """Take an order; it may run at once or later, but before its result is given."""

    def decide(self, order: StepRequest) -> DecisionSize:
        """Wait for an agent's decision."""

    def result(self, agent: int) -> StepReport:
        """Wait for the report of the last order that the agent was given.

        What interrupts a step and lets it go on later gives the step's end another lease, but no other order.
        """

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Let the agent's last step count."""

    def settle(self) -> None:
        """Note that nothing else is due now."""

    def best(self) -> dict[int, float]:
        """Give every agent's best score so far, as far as it is known without waiting."""

    def best_values(self) -> dict[int, float | None]:
        """Give the known optimum of every agent's objective."""

    def snapshot(self, number: int) -> None:
        """Begin to write the agents as they are now; it goes on while the run does."""

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Give the files of the snapshot that was begun, by name with their SHA-256, or None while it is being written."""

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Let all agents write the rows that are left as tables of this kind; give their names and SHA-256."""


class InlineHosts:
    """All agents in this process; a step is computed when its result is asked for."""

    def __init__(self, task: Task, numbers: Sequence[int], site: HostConfig | None = None) -> None:
        self.host = Host()
        self.host.load(task, numbers, site)
        self._orders: dict[int, StepRequest] = {}
        self._written: dict[str, str] = {}

    def submit(self, order: StepRequest) -> None:
        """Keep the order."""
        self._orders[order.agent] = order

    def decide(self, order: StepRequest) -> DecisionSize:
        """Let the agent decide."""
        return self.host.decide((), order)

    def result(self, agent: int) -> StepReport:
        """Carry the order out now."""
        return sound(self.host.work((), [self._orders.pop(agent)])[0])

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Let the step count."""
        self.host.agents[agent].commit(times)

    def settle(self) -> None:
        """Nothing waits here."""

    def best(self) -> dict[int, float]:
        """Give every agent's best score so far."""
        return self.host.best()

    def best_values(self) -> dict[int, float | None]:
        """Give the known optimum of every agent's objective."""
        return self.host.best_values()

    def snapshot(self, number: int) -> None:
        """Write the agents now."""
        self._written = self.host.snapshot((), number)

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Give the files of the snapshot."""
        return self._written

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Write all rows that are left."""
        return self.host.finish((), number, kind)


def sound(report: StepReport) -> StepReport:
    """Give a report back, or raise what ended the run."""
    if report.failure is not None:
        raise EvaluationError(report.failure)
    return report


def _kept(site: HostConfig, numbers: Sequence[int]) -> dict[int, AgentCheckpoint]:
    """Read what is kept of these agents; an agent without a checkpoint of its own begins anew."""
    if site.real:
        paths = {number: site.home.checkpoints(number) for number in numbers}
        return {number: read_checkpoint(written[-1]) for number, written in paths.items() if written}
    found: dict[int, AgentCheckpoint] = {}
    for path in sorted(site.home.folder.glob(f"{site.latest.stem}-*.agents")):
        found |= {number: kept for number, kept in read_checkpoint(path).items() if number in numbers}
    return found
