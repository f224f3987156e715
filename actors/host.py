"""Where agents live: in the caller's process, or in Ray actors that hold one agent or many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import ray
from threadpoolctl import threadpool_limits

from fedbo.actors.agent import Agent, EvaluationError, Order, Report, Task
from fedbo.actors.rows import Key, part_name, write_rows


class Host:
    """Some agents of a run in one process; they share nothing but the process."""

    def __init__(self) -> None:
        threadpool_limits(1)  # one thread each: the replicates and hosts are what runs in parallel
        self.agents: dict[int, Agent] = {}
        self._epoch = 0.0

    def load(self, task: Task, numbers: Sequence[int]) -> None:
        """Make the agents of a run, in place of those of an earlier one."""
        self.agents = {number: Agent(task, number, self._clock) for number in numbers}

    def begin(self, epoch: float) -> None:
        """Set the clock of real time to 0 at `epoch` (as `time.time` gives it)."""
        self._epoch = epoch

    def _clock(self) -> float:
        return time.time() - self._epoch

    def decide(self, order: Order) -> int:
        """Let an agent choose the points of a step; give their number."""
        return self.agents[order.agent].decide(order)

    def work(self, orders: Sequence[Order]) -> list[Report]:
        """Carry out steps of several agents, one after the other."""
        return [self._work(order) for order in orders]

    def _work(self, order: Order) -> Report:
        try:
            return self.agents[order.agent].work(order)
        except EvaluationError as error:  # told when this step is due, and not with the steps of its neighbours
            return Report(order.agent, order.step, 0, None, str(error))

    def best(self) -> dict[int, float]:
        """Give the score of the best observation so far of every agent that has one, for the progress display."""
        return {number: agent.best.score for number, agent in self.agents.items() if agent.best is not None}

    def best_values(self) -> dict[int, float | None]:
        """Give the known optimum of every agent's objective."""
        return {number: agent.best_value for number, agent in self.agents.items()}

    def flush(self, key: Key, path: Path) -> None:
        """Write the rows of all agents as one part file."""
        write_rows([row for number in sorted(self.agents) for row in self.agents[number].rows], key, path)


class Hosts(Protocol):
    """All hosts of a run, as the engine sees them."""

    def submit(self, order: Order) -> None:
        """Take an order; it may run at once or later, but before its result is given."""

    def decide(self, order: Order) -> int:
        """Wait for an agent's decision; give the number of its points."""

    def result(self, agent: int) -> Report:
        """Wait for the report of the order that the agent was given last."""

    def settle(self) -> None:
        """Note that nothing else is due now."""

    def best(self) -> dict[int, float]:
        """Give every agent's best score so far, as far as it is known without waiting."""

    def best_values(self) -> dict[int, float | None]:
        """Give the known optimum of every agent's objective."""

    def flush(self, key: Key, folder: Path) -> None:
        """Let all agents write their rows."""


class InlineHosts:
    """All agents in this process; a step is computed when its result is asked for."""

    def __init__(self, task: Task, numbers: Sequence[int]) -> None:
        self.host = Host()
        self.host.load(task, numbers)
        self._orders: dict[int, Order] = {}

    def submit(self, order: Order) -> None:
        """Keep the order."""
        self._orders[order.agent] = order

    def decide(self, order: Order) -> int:
        """Let the agent decide."""
        return self.host.decide(order)

    def result(self, agent: int) -> Report:
        """Carry the order out now."""
        return _sound(self.host.work([self._orders.pop(agent)])[0])

    def settle(self) -> None:
        """Nothing waits here."""

    def best(self) -> dict[int, float]:
        """Give every agent's best score so far."""
        return self.host.best()

    def best_values(self) -> dict[int, float | None]:
        """Give the known optimum of every agent's objective."""
        return self.host.best_values()

    def flush(self, key: Key, folder: Path) -> None:
        """Write all rows."""
        self.host.flush(key, folder / _part(key, 0))


@dataclass(slots=True)
class _Remote:
    """One host actor as seen from outside: the orders not sent yet, and the calls under way, oldest first."""

    handle: Any
    buffer: list[Order] = field(default_factory=list)
    calls: list[tuple[Any, list[int]]] = field(default_factory=list)


class RayHosts:
    """Agents in Ray actors. Orders that fall due together go to an actor in one call, and several calls may be under way.

    An order is sent as soon as its actor has fewer than two calls to work on; the rest waits in a buffer, so that the
    load on Ray falls when the actors are busy. None of this can change a result: an order is complete when it is made.
    In real time every order is a call of its own, so that each ends when it ends.
    """

    def __init__(self, actors: Sequence[Any], task: Task, numbers: Sequence[int], real_time: bool = False) -> None:
        shares = [list(numbers[place :: len(actors)]) for place in range(len(actors))]
        ray.get([actor.load.remote(task, share) for actor, share in zip(actors, shares, strict=True)])
        self._hosts = [_Remote(actor) for actor in actors]
        self._host_of = {number: host for host, share in zip(self._hosts, shares, strict=True) for number in share}
        self._reports: dict[int, Report] = {}
        self._real_time = real_time
        self._asked: list[Any] = []
        self._best: dict[int, float] = {}

    def submit(self, order: Order) -> None:
        """Put the order in its host's buffer."""
        self._host_of[order.agent].buffer.append(order)

    def decide(self, order: Order) -> int:
        """Wait for the agent's decision."""
        return int(ray.get(self._host_of[order.agent].handle.decide.remote(order)))

    def settle(self) -> None:
        """Send the buffers of hosts that are about to run out of work."""
        for host in self._hosts:
            if host.buffer and (self._real_time or len(host.calls) < 2):
                self._send(host)

    def result(self, agent: int) -> Report:
        """Wait for the agent's report."""
        host = self._host_of[agent]
        while agent not in self._reports:
            if not any(agent in numbers for _, numbers in host.calls):
                self._send(host)
            self._collect(host)
        return _sound(self._reports.pop(agent))

    def begin(self, epoch: float) -> None:
        """Set all clocks of real time to 0 at `epoch`."""
        ray.get([host.handle.begin.remote(epoch) for host in self._hosts])

    def ready(self, timeout: float) -> list[Report]:
        """Give the reports of calls that end within `timeout` seconds, for a run in real time."""
        calls = {call: host for host in self._hosts for call, _ in host.calls}
        if not calls:
            time.sleep(max(timeout, 0))
            return []
        done, _ = ray.wait(list(calls), num_returns=1, timeout=max(timeout, 0))
        for call in done:
            self._collect(calls[call])
        reports, self._reports = list(self._reports.values()), {}
        return [_sound(report) for report in reports]

    def busy(self) -> bool:
        """Say whether any call is under way."""
        return any(host.calls or host.buffer for host in self._hosts)

    def best(self) -> dict[int, float]:
        """Give every agent's best score as of a moment ago: a busy actor must not hold the engine up."""
        if self._asked and len(ray.wait(self._asked, num_returns=len(self._asked), timeout=0)[0]) == len(self._asked):
            self._best, self._asked = _merged(ray.get(self._asked)), []
        if not self._asked:
            self._asked = [host.handle.best.remote() for host in self._hosts]
        return self._best

    def best_values(self) -> dict[int, float | None]:
        """Give the known optimum of every agent's objective."""
        return _merged(ray.get([host.handle.best_values.remote() for host in self._hosts]))

    def flush(self, key: Key, folder: Path) -> None:
        """Let every host write its own part file."""
        ray.get([host.handle.flush.remote(key, folder / _part(key, place)) for place, host in enumerate(self._hosts)])

    def _send(self, host: _Remote) -> None:
        orders, host.buffer = host.buffer, []
        for batch in [[order] for order in orders] if self._real_time else [orders]:
            host.calls.append((host.handle.work.remote(batch), [order.agent for order in batch]))

    def _collect(self, host: _Remote) -> None:
        call, _ = host.calls.pop(0)
        for report in ray.get(call):
            self._reports[report.agent] = report


def start_hosts(count: int) -> list[Any]:
    """Start `count` host actors, spread over the cluster."""
    remote: Callable[..., Any] = ray.remote(Host).options(num_cpus=0, scheduling_strategy="SPREAD").remote
    return [remote() for _ in range(count)]


def _sound(report: Report) -> Report:
    if report.failure is not None:
        raise EvaluationError(report.failure)
    return report


def _part(key: Key, place: int) -> str:
    return f"{part_name(key)}-{place:04d}.parquet"


def _merged(parts: Iterable[dict[int, Any]]) -> dict[int, Any]:
    return {number: value for part in parts for number, value in part.items()}
