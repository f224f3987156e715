"""Hosts of agents that are Ray actors: batches of orders, a spare for the next that dies, and their end and return."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from fedbo.actors.evaluation.ray_pool import start_dispatcher
from fedbo.actors.host import Host, HostConfig, WallClockState, sound
from fedbo.actors.task import DecisionSize, StepReport, StepRequest, Task

_DEATHS = 5  # how often a process may die before its agents have finished anything


class HostLost(RuntimeError):
    """A host's process is gone, and with it what its agents knew since the last snapshot."""


@dataclass(slots=True)
class _Remote:
    """One host as seen from outside: its agents, the orders not sent yet, and the calls under way, oldest first."""

    place: int
    handle: Any
    numbers: list[int]
    buffer: dict[int, StepRequest] = field(default_factory=dict)
    commits: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)
    calls: list[tuple[Any, list[int]]] = field(default_factory=list)
    process: int = 0
    life: int = 0
    deaths: int = 0

    def take_commits(self) -> list[tuple[int, tuple[float, ...]]]:
        commits, self.commits = self.commits, []
        return commits


class RayHosts:
    """Agents in Ray actors. Orders that fall due together go to an actor in one call, and several calls may be under way.

    An order is sent as soon as its actor has fewer than two calls to work on; the rest waits in a buffer, so that the
    load on Ray falls when the actors are busy. None of this can change a result: an order is complete when it is made.
    In real time every order is a call of its own, so that each ends when it ends; an agent's process that dies is replaced.
    """

    def __init__(
        self,
        actors: Sequence[Any],
        task: Task,
        numbers: Sequence[int],
        site: HostConfig | None = None,
        live: WallClockState | None = None,
    ) -> None:
        self._real = site is not None and site.real
        if site is not None and self._real and task.policy.overlaps:
            site = site._replace(dispatcher=start_dispatcher())
        self._task, self._site, self._epoch = task, site, 0.0
        self.live = live or WallClockState({}, {}, {})
        self._heard: dict[int, int] = {}
        self._hosts = [_Remote(place, actor, list(numbers[place :: len(actors)])) for place, actor in enumerate(actors)]
        loads = [h.handle.load.remote(task, h.numbers, site, h.place) for h in self._hosts]
        for host, process in zip(self._hosts, _got(loads), strict=True):
            host.process = process
        self._host_of = {number: host for host in self._hosts for number in host.numbers}
        self._reports: dict[tuple[int, int], StepReport] = {}
        self._given: dict[int, int] = {}  # the lease of each agent's last order: only its report counts in virtual time
        self._asked: list[Any] = []
        self._best: dict[int, float] = {}
        self._writing: list[Any] = []
        # A process takes a second or two to start: in real time one stands by for the next that dies.
        self._spare: Any = self._stand_by() if self._real else None

    @property
    def actors(self) -> list[Any]:
        """List the actors that serve now."""
        return [host.handle for host in self._hosts]

    def submit(self, order: StepRequest) -> None:
        """Put the order in its host's buffer."""
        host = self._host_of[order.agent]
        host.buffer.pop(order.agent, None)  # an order that is replaced loses its place
        host.buffer[order.agent] = order
        self._reports.pop((order.agent, self._given.get(order.agent, order.lease)), None)
        self._given[order.agent] = order.lease

    def decide(self, order: StepRequest) -> DecisionSize:
        """Wait for the agent's decision."""
        host = self._host_of[order.agent]
        host.buffer.pop(order.agent, None)  # else an order that this one replaces would be carried out after it
        (decided,) = _got([host.handle.decide.remote(host.take_commits(), order)])
        assert isinstance(decided, DecisionSize)
        return decided

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Tell the agent with the next call that its last step counts; where time is real, it sees that by its next order."""
        if self._real:
            self.live.counted[agent] = self._heard[agent]
        else:
            self._host_of[agent].commits.append((agent, times))

    def settle(self) -> None:
        """Send the buffers of hosts that are about to run out of work."""
        for host in self._hosts:
            if host.buffer and (self._real or len(host.calls) < 2):
                self._send(host)

    def result(self, agent: int) -> StepReport:
        """Wait for the report of the agent's last order."""
        host, wanted = self._host_of[agent], (agent, self._given[agent])
        while wanted not in self._reports:
            if agent in host.buffer:
                self._send(host)
            self._collect(host)
        return sound(self._reports.pop(wanted))

    def snapshot(self, number: int) -> None:
        """Ask every host to write its agents; whatever it is sent later comes after that.

        Where time is real there is nothing to write: every agent keeps checkpoints of its own, with its rows.
        """
        if self._real:
            return
        self._writing = [host.handle.snapshot.remote(host.take_commits(), number) for host in self._hosts]

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Give the files of the snapshot once every host has written its part."""
        if not wait and self._writing:
            done, _ = ray.wait(self._writing, num_returns=len(self._writing), timeout=0)
            if len(done) < len(self._writing):
                return None
        parts, self._writing = _got(self._writing), []
        return _merged(parts)

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Let every host write its own part file."""
        counted = self.live.counted if self._real else None
        for host in self._hosts if self._real else ():
            _beside(host.handle.halt).remote()
        return _merged(_got([host.handle.finish.remote(host.take_commits(), number, kind, counted) for host in self._hosts]))

    def best(self) -> dict[int, float]:
        """Give every agent's best score as of a moment ago: a busy actor must not hold the engine up."""
        if self._asked and len(ray.wait(self._asked, num_returns=len(self._asked), timeout=0)[0]) == len(self._asked):
            for call in self._asked:
                try:
                    self._best |= ray.get(call)
                except ray.exceptions.RayActorError:
                    pass  # its agents' last scores stand
            self._asked = []
        if not self._asked:
            self._asked = [host.handle.best.remote() for host in self._hosts]
        return self._best

    def best_values(self) -> dict[int, float | None]:
        """Give the known optimum of every agent's objective."""
        return _merged(_got([host.handle.best_values.remote() for host in self._hosts]))

    # In real time.

    def begin(self, epoch: float) -> None:
        """Set all clocks of real time to 0 at `epoch`."""
        self._epoch = epoch
        _got([host.handle.begin.remote(epoch) for host in self._hosts])

    def reached(self) -> float:
        """Give the time at which the last of all evaluations that were noted down had ended."""
        return max(_got([host.handle.reached.remote() for host in self._hosts]), default=0.0)

    def ready(self, timeout: float) -> tuple[list[StepReport], list[int]]:
        """Give the reports of calls that end within `timeout` seconds, and the agents whose process was found dead."""
        calls = {call: host for host in self._hosts for call, _ in host.calls}
        if not calls:
            time.sleep(max(timeout, 0))
            return [], []
        done, _ = ray.wait(list(calls), num_returns=1, timeout=max(timeout, 0))
        dead: list[int] = []
        for call in done:
            host = calls[call]
            try:
                self._collect(host, call)
            except HostLost:
                self._bury(host)
                dead += host.numbers
        reports, self._reports = list(self._reports.values()), {}
        for report in reports:
            self.heard(sound(report))
        return reports, dead

    def heard(self, report: StepReport) -> None:
        """Note which step of an agent the coordinator has heard of last."""
        self._heard[report.agent] = report.step

    def busy(self) -> bool:
        """Say whether any call is under way."""
        return any(host.calls or host.buffer for host in self._hosts)

    def kill(self, agent: int) -> None:
        """End an agent's process at once; the next order to it starts another."""
        host = self._host_of[agent]
        ray.kill(host.handle)
        host.calls.clear()
        host.buffer.clear()
        host.process = 0

    def hold(self, agent: int, until: float) -> None:
        """Let nothing come out of an agent until this time."""
        self.live.held[agent] = max(until, self.live.held.get(agent, 0.0))
        _beside(self._host_of[agent].handle.hold).remote(agent, until)

    def slow(self, agent: int, factor: float) -> None:
        """Let an agent's evaluations take so many times as long."""
        self.live.slowed[agent] = factor
        _beside(self._host_of[agent].handle.slow).remote(agent, factor)

    def revive(self) -> None:
        """Replace the processes that are gone, where time is real, so that their agents can still write their rows."""
        for host in self._hosts if self._real else ():
            try:
                ray.get(_beside(host.handle.clock).remote())
            except ray.exceptions.RayActorError:
                self._collect(host, self._replace(host))

    def _bury(self, host: _Remote) -> None:
        """Replace a process that died although no plan said so; HostLost when that happens again and again."""
        host.calls.clear()
        host.buffer.clear()
        host.deaths += 1
        if host.deaths == _DEATHS:
            agents = ", ".join(map(str, host.numbers[:5]))
            remedy = "set [evaluation] memory_limit or time_limit, and evaluations have processes of their own"
            raise RuntimeError(f"the process of agents {agents} died {_DEATHS} times without finishing anything; {remedy}")
        self._replace(host)

    def _stand_by(self) -> Any:
        """Start a process that has imported all that the task needs."""
        (spare,) = start_hosts(1)
        spare.load.remote(self._task, [])
        return spare

    def _replace(self, host: _Remote) -> Any:
        """Give a host a new process, in which its agents begin at their own last checkpoints; give the call that says so."""
        assert self._site is not None
        ray.kill(host.handle)  # for the case that it can only not be reached
        host.handle, self._spare = self._spare, self._stand_by()
        host.life += 1
        host.process = 1
        host.handle.begin.remote(self._epoch)
        loaded = host.handle.load.remote(self._task, host.numbers, self._site._replace(life=host.life), host.place)
        host.calls.append((loaded, []))
        self._hamper(host)
        return loaded

    def _hamper(self, host: _Remote) -> None:
        """Let a new process be held and slowed as the one before it was."""
        for agent in host.numbers:
            for wanted, call in ((self.live.held, host.handle.hold), (self.live.slowed, host.handle.slow)):
                if agent in wanted:
                    call.remote(agent, wanted[agent])

    def _send(self, host: _Remote) -> None:
        if host.process == 0:
            self._replace(host)
        orders, host.buffer = list(host.buffer.values()), {}
        for batch in [[order] for order in orders] if self._real else [orders]:
            call = host.handle.work.remote(host.take_commits(), batch)
            host.calls.append((call, [order.agent for order in batch]))

    def _collect(self, host: _Remote, call: Any = None) -> None:
        place = next((n for n, (c, _) in enumerate(host.calls) if c == call), 0)
        chosen, _ = host.calls.pop(place)
        for found in _got([chosen]):
            if isinstance(found, int):  # it was loaded, and this is its process
                host.process = found
                continue
            for report in found:
                host.deaths = 0
                if self._real or report.lease == self._given[report.agent]:
                    self._reports[report.agent, report.lease] = report


def _beside(method: Any) -> Any:
    """Give a host's method as one that does not wait for the host's work."""
    return method.options(concurrency_group="control")


def start_hosts(count: int) -> list[Any]:
    """Start `count` host actors, spread over the cluster; each can be told to hold or to slow down while it works."""
    declared: Any = ray.remote(concurrency_groups={"control": 1})(Host)  # type: ignore[call-overload]
    remote: Callable[..., Any] = declared.options(num_cpus=0, scheduling_strategy="SPREAD").remote
    return [remote() for _ in range(count)]


def _got(calls: Sequence[Any]) -> list[Any]:
    try:
        found: list[Any] = ray.get(list(calls))
        return found
    except ray.exceptions.RayActorError as error:
        raise HostLost(f"a host of agents is gone: {str(error).splitlines()[0]}") from error


def _merged(parts: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    return {key: value for part in parts for key, value in part.items()}
