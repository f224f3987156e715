"""Hosts of agents that are Ray actors, in virtual time. Requests that are due together go to a host in one call.

A host on this machine is called through a channel, a host on another machine through Ray.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fedbo.actors.channel import Channel, ChannelClosed, Reply, serve
from fedbo.actors.columns import ByAgent, Floats, Ints, StepReports, StepRequests, joint_requests, rows_of
from fedbo.actors.host import Host
from fedbo.actors.host_storage import HostConfig
from fedbo.actors.hosts import Hosts, no_ends
from fedbo.actors.late_ray import actor_losses, ray
from fedbo.actors.nodes import LASTING, spread_over, this_node_leaves
from fedbo.actors.population import Commit, CommitColumns
from fedbo.actors.task import DecisionSize, StepReport, StepRequest, Task
from fedbo.actors.unsent import Ends, Unsent
from fedbo.settings.interrupts import mark_interrupts

_COMMITS = 500  # steps that count and of which a host has not been told: until then it keeps what its agents were before
_MOST = 256  # requests in one call through a channel: with 112, a plain step takes a fifth more of a host's time
_MOST_BY_RAY = 112  # in one through Ray: with messages of 100 numbers they are just small enough to bypass its store
_AHEAD = 4  # calls that a host is given while others of its calls run


class HostLost(RuntimeError):
    """A host's process is gone, with all progress of its agents since the last snapshot."""


class HostActor(Host):
    """A host as a Ray actor, which a coordinator on the same machine may call through a channel."""

    _connection: socket.socket
    leaves = staticmethod(this_node_leaves)

    def __init__(self) -> None:
        super().__init__()
        mark_interrupts()

    def connect(self, path: str, place: int) -> bool:
        """Connect to the coordinator's socket and send the host's place; return whether the coordinator is on this machine."""
        self._connection = socket.socket(socket.AF_UNIX)
        try:
            self._connection.connect(path)
            self._connection.sendall(place.to_bytes(4, "little"))
        except OSError:
            self._connection.close()
            return False
        return True

    def serve(self) -> None:
        """Run the calls from the channel until its other end is closed."""
        with self._connection, contextlib.suppress(ConnectionError):
            serve(self, self._connection)


@dataclass(slots=True)
class RemoteHost:
    """One host as the coordinator sees it.

    - `numbers`: its agents.
    - `buffer`: requests that are not sent yet; `commits`: commits that are not sent yet, of so many `steps`.
    - `calls`: calls whose results are not read yet, oldest first; so many of them have `ended`.
    - `told`: calls without a result, or on which a snapshot rests. If one is lost, so is the host, since later calls depend
      on it.
    - `process`: id of its process in real time (0: killed).
    - `life`: number of processes that it has had before.
    - `deaths`: deaths of its process since an agent last finished a step.
    - `leaves`: whether its node leaves, so that it begins nothing more and is replaced.
    - `channel`: the channel to call it through, if it has one.
    """

    place: int
    handle: Any
    numbers: Sequence[int]
    buffer: Unsent = field(default_factory=Unsent)
    commits: list[Commit] = field(default_factory=list)
    steps: int = 0
    calls: list[Any] = field(default_factory=list)
    ended: int = 0
    told: list[Any] = field(default_factory=list)
    process: int = 0
    life: int = 0
    deaths: int = 0
    leaves: bool = False
    channel: Channel | None = None

    @property
    def most(self) -> int:
        """Return the largest number of requests in one call."""
        return _MOST_BY_RAY if self.channel is None else _MOST

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the host; return the reference of its result."""
        if self.channel is None:
            return getattr(self.handle, method).remote(*arguments)
        try:
            return self.channel.call(method, *arguments)
        except ChannelClosed as error:
            raise _lost(error) from error

    def call_last(self, method: str, *arguments: Any) -> Any:
        """Call a method whose result rests on all earlier calls, running ones included; `check_told` checks these."""
        self.told += self.calls
        return self.call(method, self.take_commits(), *arguments)

    def check_told(self) -> None:
        """Check that all earlier calls have arrived, also those without a result; HostLost where one has not.

        A host runs calls in order, so this does not wait once a later call has ended.
        """
        told, self.told = self.told, []
        for call in told:
            try:
                got([call])
            except HostLost:
                raise
            except Exception:  # by code of the study, after the commits; `_collect` raises it if the run needs the step
                continue

    def commit(self, commit: Commit, steps: int) -> None:
        """Commit so many steps: the host learns of it with its next call, or with a batch of commits."""
        self.commits.append(commit)
        self.steps += steps
        if self.steps >= _COMMITS:
            self.told.append(self.call("commit", self.take_commits()))

    def take_commits(self) -> list[Commit]:
        """Return the commits that were not sent to the host, and forget them."""
        commits, self.commits, self.steps = self.commits, [], 0
        return commits


class RayHosts(Hosts):
    """Agents in Ray actors, each of which may have several running calls.

    A request is sent when its actor has few running calls; others wait in a buffer, from which those are sent first whose
    steps end first. The agents of a round are requested at one moment: an idle actor gets its first call while others are
    still being requested. None of this can change a result, since a request is complete when it is made.
    """

    def __init__(self, actors: Sequence[Any], task: Task, numbers: Sequence[int], config: HostConfig | None = None) -> None:
        self.remote = [RemoteHost(place, actor, numbers[place :: len(actors)]) for place, actor in enumerate(actors)]
        loads = [host.handle.load.remote(task, host.numbers, config, host.place) for host in self.remote]
        for host, process in zip(self.remote, got(loads), strict=True):
            host.process = process
        self._reports = ByAgent()
        self._given = np.zeros(task.problem.n_agents, np.int64)  # lease of each agent's last request: only its report counts
        self._asked: list[Any] = []
        self._best: dict[int, float] = {}
        self._writing: list[Any] = []
        self._ends: Ends = no_ends
        self._connect()

    def _connect(self) -> None:
        """Open channels to the hosts on this machine."""
        with tempfile.TemporaryDirectory(prefix="fedbo-") as folder, socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(path := f"{folder}/hosts")
            except OSError:  # the name of the folder is too long for a socket
                return
            listener.listen(len(self.remote))
            connected = got([host.handle.connect.remote(path, host.place) for host in self.remote])
            for _ in range(sum(connected)):
                connection, _ = listener.accept()
                host = self.remote[int.from_bytes(connection.recv(4), "little")]
                serving = host.handle.serve.remote()
                host.channel = Channel(connection, partial(_all_there, [serving]))

    def close(self) -> None:
        """Close the channels, after which the actors can serve another run."""
        for host in self.remote:
            if host.channel is not None:
                host.channel.close()

    @property
    def actors(self) -> list[Any]:
        """Return the actors that serve now."""
        return [host.handle for host in self.remote]

    def _host_of(self, agent: int) -> RemoteHost:
        """Return the host of an agent; agents are assigned to hosts in rotation."""
        return self.remote[agent % len(self.remote)]

    def submit(self, request: StepRequest) -> None:
        """Put the request in its host's buffer; send a full buffer to an idle host."""
        host = self._host_of(request.agent)
        host.buffer.put([request])
        self._reports.discard(request.agent)
        self._given[request.agent] = request.lease
        if len(host.buffer) >= host.most and not host.calls:
            self._send(host)

    def submit_each(self, requests: StepRequests) -> None:
        """Put the requests in the buffers of their hosts; send full buffers to idle hosts."""
        place = requests.agent % len(self.remote)
        for host in self.remote:
            host.buffer.put(rows_of(requests, place == host.place))
            if len(host.buffer) >= host.most and not host.calls:
                self._send(host)
        self._reports.discard_each(requests.agent)
        self._given[requests.agent] = requests.lease

    def decide(self, request: StepRequest) -> DecisionSize:
        """Wait for the agent's decision and return it."""
        host = self._host_of(request.agent)
        host.buffer.discard(request.agent)  # else a request that this one replaces would be carried out after it
        (decided,) = got([host.call("decide", host.take_commits(), request)])
        assert isinstance(decided, DecisionSize)
        return decided

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Commit the agent's last step."""
        self._host_of(agent).commit((agent, times), 1)

    def commit_each(self, agents: Ints, begun: Floats, ended: Floats) -> None:
        """Commit the last steps of these agents."""
        place = agents % len(self.remote)
        for host in self.remote:
            here = place == host.place
            if here.any():
                host.commit(CommitColumns(agents[here], begun[here], ended[here]), int(here.sum()))

    def flush(self, ends: Ends | None = None) -> None:
        """Send requests to hosts that will soon be idle."""
        self._ends = ends or self._ends
        for host in self.remote:
            while len(host.buffer) and self._running(host) < _AHEAD:
                self._send(host)

    def _running(self, host: RemoteHost) -> int:
        """Return how many calls of a host are running; their results, or errors, are looked at when the run needs them."""
        while len(host.calls) - host.ended >= _AHEAD and _all_there([host.calls[host.ended]]):
            host.ended += 1
        return len(host.calls) - host.ended

    def report(self, agent: int) -> StepReport:
        """Wait for the report of the agent's last request and return it."""
        self._await(agent)
        report: StepReport = self._reports.pop(agent)
        return report

    def results(self, agents: Ints) -> StepReports | list[StepReport]:
        """Wait for the reports of these agents' last requests."""
        for agent in agents[~self._reports.have(agents)].tolist():
            self._await(agent)
        return self._reports.reports(agents)

    def _await(self, agent: int) -> None:
        """Wait for the report of the agent's last request."""
        while agent not in self._reports:
            host = self._host_of(agent)
            while agent in host.buffer:
                self._send(host, agent)
            self.flush()  # no other waits while this one works
            self._collect(host)

    def snapshot(self, number: int, whole: bool) -> None:
        """Make every host write its agents; calls that are sent later run after that."""
        self._writing = [host.call_last("snapshot", number, whole) for host in self.remote]

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Return the files of the snapshot once every host has written its part."""
        if not wait and not _all_there(self._writing):
            return None
        parts, self._writing = got(self._writing), []
        for host in self.remote:
            host.check_told()
        return _merged(parts)

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Make every host write its remaining rows; return the file names with their SHA-256."""
        parts = got([host.call_last("finish", number, kind) for host in self.remote])
        for host in self.remote:
            host.check_told()
        return _merged(parts)

    def best(self) -> dict[int, float]:
        """Return every agent's best score as of a moment ago: the engine must not wait for a busy actor."""
        if self._asked and _all_there(self._asked):
            for call in self._asked:
                with contextlib.suppress(HostLost):  # its agents' last scores stand
                    self._best |= got([call])[0]
            self._asked = []
        if not self._asked:
            self._asked = [host.call("best") for host in self.remote]
        return self._best

    def best_values(self) -> dict[int, float | None]:
        """Return the known optimum of every agent's objective."""
        return _merged(got([host.call("best_values") for host in self.remote]))

    def abandon(self, patience: float = 0.0) -> None:
        """Do nothing: in virtual time no step is under way when a run ends, and one without its hosts begins again."""

    def _send(self, host: RemoteHost, wanted: int = -1) -> None:
        """Send a call of requests to a host."""
        some = host.buffer.first(host.most, self._ends, wanted)
        # Where all are plain, columns take a third of the time to send.
        batches = [(joint_requests(batch) or batch) if isinstance(batch, list) else batch for batch in some]
        host.calls.append(host.call("work_in_columns", host.take_commits(), batches))

    def _collect(self, host: RemoteHost) -> None:
        """Wait for the oldest call of a host, and keep those of its reports that are still current."""
        (parts,) = got([host.calls.pop(0)])
        host.ended = max(host.ended - 1, 0)
        for reports in parts:
            if isinstance(reports, StepReports):
                current = self._given[reports.agent] == reports.lease
                self._reports.put(reports if current.all() else rows_of(reports, current))
            else:
                self._reports.put(report for report in reports if report.lease == self._given[report.agent])


def start_hosts(count: int, labels: Mapping[str, str] | None = None) -> list[Any]:
    """Start host actors, spread over nodes with these labels; without (None) they evaluate nothing and need nodes that last."""
    declared: Any = ray.remote(concurrency_groups={"control": 1})(HostActor)  # type: ignore[call-overload]
    remote: Callable[..., Any] = declared.options(num_cpus=0, **(LASTING if labels is None else spread_over(labels))).remote
    hosts = [remote() for _ in range(count)]
    for host in hosts:
        host.collect_rarely.remote()
    return hosts


def got(calls: Sequence[Any]) -> list[Any]:
    """Wait for the results of calls and return them; HostLost when a host's process is gone."""
    losses: tuple[type[Exception], ...] = (*actor_losses(), ChannelClosed)
    try:
        return [call.get() if isinstance(call, Reply) else ray.get(call) for call in calls]
    except losses as error:
        raise _lost(error) from error


def _lost(error: Exception) -> HostLost:
    return HostLost(f"a host of agents was lost: {str(error).splitlines()[0]}")


def _all_there(calls: Sequence[Any]) -> bool:
    """Return whether all calls have ended, without waiting."""
    for call in calls:
        if not isinstance(call, Reply):
            if not ray.wait([call], timeout=0)[0]:
                return False
        elif not call.is_there:
            try:
                call.channel.receive(wait=False)
            except ChannelClosed:
                return True  # which whoever gets it is told
            if not call.is_there:
                return False
    return True


def _merged(parts: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
    return {key: value for part in parts for key, value in part.items()}
