"""Hosts of agents in real time: Ray actors that are restarted when they die, and that planned faults hold and slow down."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from fedbo.actors.host_storage import HostConfig
from fedbo.actors.hosts import News, WallClockState, raise_if_failed
from fedbo.actors.late_ray import HOST_DEATHS, actor_losses, ray
from fedbo.actors.nodes import leaving, nodes_of
from fedbo.actors.remote import HostLost, RayHosts, RemoteHost, got, start_hosts
from fedbo.actors.task import StepReport, StepRequest, Task
from fedbo.actors.unsent import Ends, Unsent
from fedbo.settings.rooms import optional

_HALT_TIMEOUT = 1.0  # seconds that a halted process has to end its step, in which it may wait for evaluations elsewhere


class HostProcesses:
    """The processes of hosts in real time. A dead one is replaced, and its agents continue from their own checkpoints.

    A process takes a second or two to start, so a spare one is kept ready.
    """

    def __init__(self, task: Task, config: HostConfig, live: WallClockState) -> None:
        self._task, self._config, self.live = task, config, live
        self._begun = 0.0
        self._spare = self._start_spare()

    def begin(self, hosts: Sequence[RemoteHost], epoch: float) -> None:
        """Start all clocks of the study, which were 0 at `epoch`, also those of later processes."""
        self._begun = time.monotonic() - (time.time() - epoch)
        got([host.handle.begin.remote(epoch) for host in hosts])

    def kill(self, host: RemoteHost) -> None:
        """Kill a process at once."""
        ray.kill(host.handle)
        host.calls.clear()
        host.buffer = Unsent()
        host.process = 0

    def hold(self, host: RemoteHost, agent: int, until: float) -> None:
        """Block an agent's results until this time."""
        self.live.held[agent] = max(until, self.live.held.get(agent, 0.0))
        self._tell(host, host.handle.hold, agent, until)

    def slow(self, host: RemoteHost, agent: int, factor: float) -> None:
        """Slow an agent's evaluations down by a factor."""
        self.live.slowed[agent] = factor
        self._tell(host, host.handle.slow, agent, factor)

    def _tell(self, host: RemoteHost, method: Any, *arguments: Any) -> None:
        """Call a process beside its work. One that is killed gets the call when it is restarted."""
        if host.process:
            host.calls.append(concurrently(method).remote(*arguments))

    def handle_death(self, host: RemoteHost) -> None:
        """Replace a process that died unexpectedly; RuntimeError when that happens repeatedly."""
        host.calls.clear()
        host.buffer = Unsent()
        host.deaths += not host.leaves  # else its node is gone, as announced
        if host.deaths == HOST_DEATHS:
            agents = ", ".join(map(str, host.numbers[:5]))
            remedy = "set [evaluation] memory_limit or time_limit, so that each evaluation runs in its own process"
            raise RuntimeError(f"the process of agents {agents} died {HOST_DEATHS} times without returning a result; {remedy}")
        self.restart(host)

    def restart(self, host: RemoteHost) -> Any:
        """Start a new process for a host, whose agents continue from their own last checkpoints.

        Returns the call that loads the agents.
        """
        ray.kill(host.handle)  # for the case that it can only not be reached
        host.handle, self._spare = self._spare, self._start_spare()
        host.life += 1
        host.process, host.leaves = 1, False
        host.calls.append(host.handle.begin.remote(time.time() - (time.monotonic() - self._begun)))  # by the time of day now
        config = self._config._replace(life=host.life)
        loaded = host.handle.load.remote(self._task, host.numbers, config, host.place)
        host.calls.append(loaded)
        for agent in host.numbers:  # held and slowed down as before
            for wanted, call in ((self.live.held, host.handle.hold), (self.live.slowed, host.handle.slow)):
                if agent in wanted:
                    host.calls.append(call.remote(agent, wanted[agent]))
        return loaded

    def leave(self, nodes: Collection[str], hosts: Sequence[RemoteHost]) -> list[RemoteHost]:
        """Replace the hosts on nodes that leave, once they have ended the evaluation in progress; return those replaced."""
        spare, *places = nodes_of([self._spare, *(host.handle for host in hosts)])
        if spare in nodes:
            ray.kill(self._spare)
            self._spare = self._start_spare()
        left = list[RemoteHost]()
        for host, place in zip(hosts, places, strict=True):
            if place not in nodes or not host.process:
                continue
            if not host.leaves:
                concurrently(host.handle.halt).remote()  # it begins nothing more
                host.leaves = True
            elif not host.calls:
                self.restart(host)
                left.append(host)
        return left

    def _start_spare(self) -> Any:
        """Start a process that has imported all that the task needs."""
        (spare,) = start_hosts(1, None if self._task.policy.overlaps else self._config.labels)
        spare.load.remote(self._task, [])
        return spare


class SupervisedHosts(RayHosts):
    """Agents in Ray actors in real time. Every request is a separate call, so that its end is seen at once."""

    def __init__(
        self, actors: Sequence[Any], task: Task, numbers: Sequence[int], config: HostConfig, live: WallClockState | None = None
    ) -> None:
        if task.policy.overlaps and (start_dispatcher := optional("dispatcher")) is not None:
            config = config._replace(dispatcher=start_dispatcher(task.policy.parallel))
        super().__init__(actors, task, numbers, config)
        self.live = live or WallClockState({}, {}, {})
        self._processes = HostProcesses(task, config, self.live)
        self._overlaps = task.policy.overlaps
        self._heard: dict[int, int] = {}
        self._begun: dict[int, StepRequest] = {}

    def _connect(self) -> None:
        """Open no channel: calls are waited for together here, and processes may be replaced."""

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Note that the agent's last step is committed; its next request shows this to the agent."""
        self.live.counted[agent] = self._heard[agent]

    def flush(self, ends: Ends | None = None) -> None:
        """Send all buffers."""
        for host in self.remote:
            if len(host.buffer):
                self._send(host)

    def snapshot(self, number: int, whole: bool) -> None:
        """Do nothing: every agent writes its own checkpoints, with its rows."""

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Make every host write its remaining rows, after `abandon`; return the file names with their SHA-256."""
        calls = [host.handle.finish.remote((), number, kind, self.live.counted) for host in self.remote]
        return {name: digest for part in got(calls) for name, digest in part.items()}

    def begin(self, epoch: float) -> None:
        """Start all clocks of the study, which were 0 at `epoch`."""
        self._processes.begin(self.remote, epoch)

    def reached(self) -> float:
        """Return the time at which the last of all logged evaluations ended."""
        return max(got([host.handle.reached.remote() for host in self.remote]), default=0.0)

    def ready(self, timeout: float) -> News:
        """Return the reports of calls that end within `timeout` seconds, and the agents whose process was found dead."""
        reports, dead = list[StepReport](), list[int]()
        if not self._overlaps and (nodes := leaving()):  # where evaluations overlap, a host has none
            dead += [agent for host in self._processes.leave(nodes, self.remote) for agent in host.numbers]
        calls = {call: host for host in self.remote for call in host.calls}
        if not calls:
            time.sleep(max(timeout, 0))
            return News([], dead)
        done, _ = ray.wait(list(calls), num_returns=1, timeout=max(timeout, 0))
        for call in done:
            host = calls[call]
            try:
                reports += self._take(host, call)
            except HostLost:
                self._processes.handle_death(host)
                dead += host.numbers
        for report in reports:
            self.heard(raise_if_failed(report))
        return News(reports, dead)

    def heard(self, report: StepReport) -> None:
        """Note the last step of an agent that the coordinator has received."""
        self._heard[report.agent] = report.step

    def busy(self) -> bool:
        """Return whether any call is running or waiting to be sent."""
        return any(host.calls or host.buffer for host in self.remote)

    def kill(self, agent: int) -> None:
        """Kill an agent's process at once; the next request to the agent starts another."""
        self._processes.kill(self._host_of(agent))

    def hold(self, agent: int, until: float) -> None:
        """Block an agent's results until this time."""
        self._processes.hold(self._host_of(agent), agent, until)

    def slow(self, agent: int, factor: float) -> None:
        """Slow an agent's evaluations down by a factor."""
        self._processes.slow(self._host_of(agent), agent, factor)

    def abandon(self, patience: float = _HALT_TIMEOUT) -> None:
        """Halt all work, and replace dead processes and those that still evaluate, so that their agents can write their rows.

        An evaluation in an agent's own process cannot be interrupted otherwise. After `patience` seconds its result is dropped.
        """
        for host in self.remote:
            concurrently(host.handle.halt).remote()
        calls = [] if self._overlaps else [call for host in self.remote for call in host.calls]
        running = set(ray.wait(calls, num_returns=len(calls), timeout=patience)[1] if calls else ())
        over = [host for host in self.remote if running.intersection(host.calls) or _is_dead(host)]
        for host in over:
            host.calls.clear()
            host.buffer = Unsent()
        loads = [self._processes.restart(host) for host in over]  # they start side by side
        for host, load in zip(over, loads, strict=True):
            self._take(host, load)
            under_way = [one for one in map(self._begun.get, host.numbers) if one and self._heard.get(one.agent, -1) < one.step]
            if not self._overlaps:
                got([host.handle.keep_made.remote(under_way)])

    def _send(self, host: RemoteHost, wanted: int = -1) -> None:
        if host.process == 0:
            self._processes.restart(host)
        requests = [host.buffer.pop(agent) for agent in list(host.buffer)]
        self._begun |= {request.agent: request for request in requests}
        host.calls += [host.handle.work.remote((), [request]) for request in requests]

    def _take(self, host: RemoteHost, call: Any) -> list[StepReport]:
        """Return the reports of a call that has ended. Calls to hold or slow an agent have none, and may be lost as well."""
        host.calls.remove(call)
        (found,) = got([call])
        if not isinstance(found, list):
            host.process = host.process if found is None else found
            return []
        host.deaths = 0 if found else host.deaths
        return list(found)


def _is_dead(host: RemoteHost) -> bool:
    try:
        ray.get(concurrently(host.handle.clock).remote())
    except actor_losses():
        return True
    return False


def concurrently(method: Any) -> Any:
    """Return a host's method as one that runs beside the host's work."""
    return method.options(concurrency_group="control")
