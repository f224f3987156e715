"""The interface between the engine and the hosts of a run, and its implementation in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from fedbo.actors.columns import ByAgent, Floats, Ints, StepReports, StepRequests, joint_reports, single_requests
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.host import Host
from fedbo.actors.host_storage import HostConfig
from fedbo.actors.task import DecisionSize, StepReport, StepRequest, Task
from fedbo.actors.unsent import Ends


def no_ends(agents: Sequence[int]) -> list[float]:
    """Return the ends of steps of which nothing is known."""
    return [0.0] * len(agents)


class WallClockState(NamedTuple):
    """The coordinator's knowledge of agents in real time.

    - `counted`: last committed step of each agent.
    - `held`: time until which each held agent is blocked.
    - `slowed`: factor by which each slowed agent is slower.
    """

    counted: dict[int, int]
    held: dict[int, float]
    slowed: dict[int, float]


class News(NamedTuple):
    """News of live processes: reports, the agents whose process was found dead, and those whose site is there or away."""

    reports: list[StepReport]
    dead: list[int]
    present: frozenset[int] = frozenset()
    away: frozenset[int] = frozenset()


class Hosts(Protocol):
    """The hosts of a run, as the engine sees them."""

    def submit(self, request: StepRequest) -> None:
        """Submit a request. It runs at some time before its result is returned."""

    def decide(self, request: StepRequest) -> DecisionSize:
        """Return an agent's decision once it is made."""

    def result(self, agent: int) -> StepReport:
        """Wait for the report of the last request submitted for the agent; EvaluationError where the run cannot continue.

        An interrupted step that is resumed later has a new lease for its end, but no new request.
        """
        return raise_if_failed(self.report(agent))

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Commit the agent's last step."""

    def submit_each(self, requests: StepRequests) -> None:
        """Submit plain requests of different agents."""
        for request in single_requests(requests):
            self.submit(request)

    def results(self, agents: Ints) -> StepReports | list[StepReport]:
        """Wait for the reports of the last requests of these different agents; one may say why the run cannot continue.

        They are columns if all are plain.
        """
        return joint_reports([self.report(agent) for agent in agents.tolist()])

    def report(self, agent: int) -> StepReport:
        """Wait for the report of the last request, which may say why the run cannot continue."""

    def commit_each(self, agents: Ints, begun: Floats, ended: Floats) -> None:
        """Commit the last steps of different agents, each of one evaluation between these times."""
        for agent, *times in zip(agents.tolist(), begun.tolist(), ended.tolist(), strict=True):
            self.commit(agent, tuple(times))

    def flush(self, ends: Ends | None = None) -> None:
        """Note that nothing else is due now; `ends` returns when agents' steps will end, as far as known."""

    def close(self) -> None:
        """Close open files and channels; no more requests are accepted."""

    def best(self) -> dict[int, float]:
        """Return every agent's best score so far, as far as it is known without waiting."""

    def best_values(self) -> dict[int, float | None]:
        """Return the known optimum of the objective of every agent that has worked."""

    def snapshot(self, number: int, whole: bool) -> None:
        """Start to write the agents as they are now, all or those that changed; the run continues meanwhile."""

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Return the files of the started snapshot, as a map of names to SHA-256; None while it is being written."""

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Write the remaining rows of all agents as tables of this kind; return the file names with their SHA-256."""


class LiveHosts(Hosts, Protocol):
    """Hosts whose processes live in real time."""

    def begin(self, epoch: float) -> None:
        """Start all clocks of the study, which were at 0 at `epoch`, in seconds of `time.time`."""

    def reached(self) -> float:
        """Return the time at which the last recorded evaluation had ended."""

    def ready(self, timeout: float) -> News:
        """Return the reports that arrive within `timeout` seconds, and what has happened to processes and sites."""

    def heard(self, report: StepReport) -> None:
        """Note that the coordinator has processed the report of this step."""

    def busy(self) -> bool:
        """Check whether any agent works."""

    def kill(self, agent: int) -> None:
        """End an agent's process at once."""

    def hold(self, agent: int, until: float) -> None:
        """Hold an agent's reports back until this time."""

    def slow(self, agent: int, factor: float) -> None:
        """Multiply the duration of an agent's evaluations by `factor`."""


_MOST = 128  # steps that are carried out together, at most
_MANY = 24  # steps that are due together and gain little from others
_ENOUGH = 0.05  # seconds that these may take


class InlineHosts(Hosts):
    """All agents in this process; a step is computed when its result is requested.

    Others are computed with it where agents are in columns and steps take little time, unless a target may end the run.
    """

    def __init__(self, task: Task, numbers: Sequence[int], config: HostConfig | None = None) -> None:
        self.host = Host()
        self.host.load(task, numbers, config)
        self._requests, self._reports = ByAgent(), ByAgent()
        self._most = _MOST if self.host.agents.serves else 1
        self._together = 1
        self._written: dict[str, str] = {}
        self._replays_overlaps = config is not None and config.recorded and task.policy.overlaps

    def submit(self, request: StepRequest) -> None:
        """Store the request."""
        self._requests.put([request])
        self._reports.discard(request.agent)

    def submit_each(self, requests: StepRequests) -> None:
        """Store the requests."""
        self._requests.put(requests)
        self._reports.discard_each(requests.agent)

    def decide(self, request: StepRequest) -> DecisionSize:
        """Return the agent's decision."""
        self._requests.discard(request.agent)  # else a request that this one replaces might be carried out after it
        return self.host.decide((), request)

    def report(self, agent: int) -> StepReport:
        """Run the request now, unless it has run already, and return its report."""
        if agent not in self._reports:
            self._carry_out(self._with_others([agent]))
        report: StepReport = self._reports.pop(agent)
        return report

    def results(self, agents: Ints) -> StepReports | list[StepReport]:
        """Run those of the requests that have not run, and return their reports."""
        missing = agents[~self._reports.have(agents)]
        if len(missing):
            self._carry_out(self._with_others(missing.tolist()))
        return self._reports.reports(agents)

    def _with_others(self, agents: list[int]) -> list[int]:
        """Return these agents and those that are computed with them."""
        room = self._together - len(agents)
        if room <= 0 or len(agents) >= _MANY:
            return agents
        due = set(agents)
        return [*agents, *islice((number for number in self._requests if number not in due), room)]

    def _carry_out(self, agents: list[int]) -> None:
        """Run the requests of these agents, and learn how many take little time together."""
        begun = time.perf_counter()
        for batch in self._requests.take(agents):
            self._reports.put(self.host.carry_out(batch))
        if time.perf_counter() - begun < _ENOUGH:
            self._together = min(2 * self._together, self._most)
        else:
            self._together = max(self._together // 2, 1)

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Commit the agent's last step."""
        self.host.commit([(agent, times)])

    def commit_each(self, agents: Ints, begun: Floats, ended: Floats) -> None:
        """Commit the last steps of these agents."""
        self.host.agents.commit_each(agents, begun, ended)

    def flush(self, ends: Ends | None = None) -> None:
        """Do nothing, since no request is buffered."""

    def close(self) -> None:
        """Close the files of this run."""
        self.host.close()

    def best(self) -> dict[int, float]:
        """Return every agent's best score so far."""
        return self.host.best()

    def best_values(self) -> dict[int, float | None]:
        """Return the known optimum of every agent's objective."""
        return self.host.best_values()

    def snapshot(self, number: int, whole: bool) -> None:
        """Write the agents now."""
        self._written = self.host.snapshot((), number, whole)

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Return the files of the snapshot."""
        return self._written

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Write all remaining rows.

        In a replay of overlapping evaluations these include rows of steps that the coordinator had not received at the end,
        since an evaluation is committed as soon as it ends.
        """
        if self._replays_overlaps:
            for agent in list(self._requests):
                self.host.carry_out([self._requests.pop(agent)])
            for hosted in self.host.agents.objects.every():
                hosted.close()
        return self.host.finish((), number, kind)


def raise_if_failed(report: StepReport) -> StepReport:
    """Return a report, or raise the error that ended the run."""
    if report.failure is not None:
        raise EvaluationError(report.failure) if isinstance(report.failure, str) else report.failure
    return report
