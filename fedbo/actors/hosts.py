"""The hosts of a run as the engine sees them, and those that are all in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from fedbo.actors.blocks import serves_blocks
from fedbo.actors.evaluation.evaluator import EvaluationError
from fedbo.actors.host import Host
from fedbo.actors.host_storage import HostConfig
from fedbo.actors.task import DecisionSize, StepReport, StepRequest, Task

Ends = Callable[[], dict[int, float]]


class WallClockState(NamedTuple):
    """The coordinator's knowledge of agents in real time: the last step of each that counts, and who is held and slowed.

    `held` has the time until which each is held, `slowed` the factor of each.
    """

    counted: dict[int, int]
    held: dict[int, float]
    slowed: dict[int, float]


class Hosts(Protocol):
    """All hosts of a run, as the engine sees them."""

    def submit(self, request: StepRequest) -> None:
        """Take a request; it may run at once or later, but before its result is given."""

    def decide(self, request: StepRequest) -> DecisionSize:
        """Wait for an agent's decision."""

    def result(self, agent: int) -> StepReport:
        """Wait for the report of the last request that the agent was given.

        What interrupts a step and lets it go on later gives the step's end another lease, but no other request.
        """

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Let the agent's last step count."""

    def flush(self, ends: Ends = dict) -> None:
        """Note that nothing else is due now; `ends` tells when the agents' present steps will end, as far as that is known."""

    def close(self) -> None:
        """Close what is open; the agents serve no longer."""

    def best(self) -> dict[int, float]:
        """Give every agent's best score so far, as far as it is known without waiting."""

    def best_values(self) -> dict[int, float | None]:
        """Give the known optimum of the objective of every agent that was given anything to do."""

    def snapshot(self, number: int, whole: bool) -> None:
        """Begin to write the agents as they are now, all or those that changed; it goes on while the run does."""

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Give the files of the snapshot that was begun, by name with their SHA-256, or None while it is being written."""

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Let all agents write the rows that are left as tables of this kind; give their names and SHA-256."""


_MOST = 128  # steps that are carried out together, at most
_ENOUGH = 0.02  # seconds that these may take


class InlineHosts:
    """All agents in this process; a step is computed when its result is asked for.

    Where the algorithm decides for several agents in less time, and steps take little, others are computed with it. Where the
    run may end before they are over, they are not.
    """

    def __init__(self, task: Task, numbers: Sequence[int], config: HostConfig | None = None) -> None:
        self.host = Host()
        self.host.load(task, numbers, config)
        self._requests: dict[int, StepRequest] = {}
        self._reports: dict[int, StepReport] = {}
        is_whole = task.early_end is None
        self._most = _MOST if serves_blocks(type(task.algorithm)) and is_whole and self.host.in_virtual_time else 1
        self._together = 1
        self._written: dict[str, str] = {}
        self._replays_overlaps = config is not None and config.recorded and task.policy.overlaps

    def submit(self, request: StepRequest) -> None:
        """Keep the request."""
        self._requests[request.agent] = request
        self._reports.pop(request.agent, None)

    def decide(self, request: StepRequest) -> DecisionSize:
        """Let the agent decide."""
        self._requests.pop(request.agent, None)  # else a request that this one replaces might be carried out after it
        return self.host.decide((), request)

    def result(self, agent: int) -> StepReport:
        """Carry the request out now, if that has not been done."""
        if agent not in self._reports:
            self._carry_out([self._requests.pop(agent)])
        return raise_if_failed(self._reports.pop(agent))

    def _carry_out(self, requests: list[StepRequest]) -> None:
        """Carry out a request, and with it others, as many as take little time."""
        if self._most > 1:
            others = islice(self._requests, self._together - 1)
            requests += [self._requests.pop(number) for number in list(others)]
        begun = time.perf_counter()
        for report in self.host.carry_out(requests):
            self._reports[report.agent] = report
        if time.perf_counter() - begun < _ENOUGH:
            self._together = min(2 * self._together, self._most)
        else:
            self._together = max(self._together // 2, 1)

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Let the step count."""
        self.host.agents[agent].commit(times)

    def flush(self, ends: Ends = dict) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Close the files of this run."""
        self.host.close()

    def best(self) -> dict[int, float]:
        """Give every agent's best score so far."""
        return self.host.best()

    def best_values(self) -> dict[int, float | None]:
        """Give the known optimum of every agent's objective."""
        return self.host.best_values()

    def snapshot(self, number: int, whole: bool) -> None:
        """Write the agents now."""
        self._written = self.host.snapshot((), number, whole)

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Give the files of the snapshot."""
        return self._written

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Write all rows that are left.

        In a replay of overlapping evaluations these are also rows of steps that the coordinator had not heard of at the end,
        since an evaluation counts as soon as it has ended.
        """
        if self._replays_overlaps:
            for request in self._requests.values():
                self.host.carry_out([request])
            for agent in self.host.agents.every():
                agent.close()
        return self.host.finish((), number, kind)


def raise_if_failed(report: StepReport) -> StepReport:
    """Give a report back, or raise what ended the run."""
    if report.failure is not None:
        raise EvaluationError(report.failure)
    return report
