"""The connection to a Ray cluster: its address and token, the installation of the package, and the check of all hosts."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedbo.actors.late_ray import ray
from fedbo.actors.nodes import grows, nodes_with
from fedbo.execution.head import ADDRESSES, Head, no_answer
from fedbo.execution.hosts import HostWatch, faults_of_hosts, living
from fedbo.execution.wheel import build_wheel
from fedbo.settings.errors import FedboError

_CONNECT_TIMEOUT = 10.0  # seconds until a host that does not answer counts as absent
_ELSEWHERE = "to go on without it, set --address local (hosting.address=local); with kind inline, also hosting.workers=0"
_TOKEN = (
    "run `ray get-auth-token` on a host of the cluster and store its output in ~/.ray/auth_token or a file named "
    "by RAY_AUTH_TOKEN_PATH"
)

Package = Literal["wheel", "image"]
_guard = threading.Lock()  # Ray starts once in a process, and its start changes settings of the whole process


class ClusterError(FedboError, RuntimeError):
    """The Ray cluster cannot run the study."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster.

    - `address`: address of the cluster; None starts a Ray on this machine.
    - `package`: "wheel" installs the package on the hosts for the job; "image" expects it there.
    - `plugins`: plug-ins that every host must have, with their distributions and versions.
    - `labels`: those of the nodes on which evaluations run.
    """

    address: str | None = None
    package: Package = "wheel"
    plugins: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


_users: list[Cluster] = []  # those for whom this process has connected itself


@contextmanager
def connected(
    to: Cluster, cpus: int, folder: Path, note: Callable[[str], None] = lambda words: None
) -> Iterator[Callable[[], None]]:
    """Connect this process to a cluster, unless it is connected, and disconnect in the end; hosts must see `folder`.

    Yields a check to call repeatedly, which raises HeadLostError, or ClusterError for a host that has joined meanwhile.
    `note` is called with a line before that. ClusterError when the cluster cannot be reached, refuses the token or has fewer
    CPUs than `cpus`, or when one of its hosts has other versions or does not see the folder. The last of several threads
    disconnects.
    """
    with _connection(to, cpus, note):
        head = Head(str(getattr(ray.get_runtime_context(), "gcs_address", "")))  # a client is not told it
        have = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
        if have < cpus and not grows():  # an actor that is never scheduled would be waited for without end
            raise ClusterError(f"[hosting] workers = {cpus}: the Ray cluster has {have} CPUs; set at most {have}")
        if to.address is not None:
            check_hosts(folder, to.plugins, head)
            if to.labels and not nodes_with({}, to.labels) and not grows():
                words = "no host of the Ray cluster has these; see `ray list nodes`"
                raise ClusterError(f"[hosting] labels = {dict(to.labels)}: {words}")
        with nullcontext() if to.address is None else closing(HostWatch(folder, to.plugins)) as watch:

            def check() -> None:
                head.check()
                _refuse([] if watch is None else watch.wrong())

            yield check


@contextmanager
def _connection(to: Cluster, cpus: int, note: Callable[[str], None]) -> Iterator[None]:
    """Connect this process unless it is connected, one thread at a time; the last thread that uses our connection ends it."""
    with _guard:
        ours = bool(_users) or not ray.is_initialized()
        if not ray.is_initialized():
            note("starting Ray …" if to.address is None else f"connecting to the Ray cluster at '{to.address}' …")
            _connect(to, cpus)
        elif to.address is not None:
            _check_same(to.address)
        _users.extend([to] if ours else [])
    try:
        yield
    finally:
        with _guard:
            if ours:
                _users.remove(to)
            if ours and not _users:
                ray.shutdown()


@contextmanager
def hosts_there(to: Cluster, count: int, seconds: float, note: Callable[[str], None]) -> Iterator[None]:
    """Connect this process to a cluster until the end, once it has so many hosts, or with a note once the seconds are over."""
    with _connection(to, 0, note):
        until = time.monotonic() + seconds
        while (have := len(living())) < count and time.monotonic() < until:
            time.sleep(0.5)
        if have < count:
            note(f"the Ray cluster has {have} of {count} hosts after {seconds:.0f} s; going on with these")
        yield


def _check_same(address: str) -> None:
    """Check that this process's Ray may be that of the address; raise ClusterError otherwise."""
    host, _, port = address.rpartition(":")
    if address == "auto" or address.startswith("ray://"):  # that of a client is not told by the cluster
        return
    here = str(ray.get_runtime_context().gcs_address)
    own, _, own_port = here.rpartition(":")
    try:
        place = socket.gethostbyname(host.strip("[]"))
    except OSError:
        place = host
    if port != own_port or not (place == own or place.startswith("127.")):
        words = f"has no effect, because this process is connected to the Ray cluster at {here}"
        raise ClusterError(f"[hosting] address = '{address}': {words}; remove it, or call ray.shutdown() first")


def _connect(to: Cluster, cpus: int) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    place = "this machine" if to.address is None else f"'{to.address}'"
    with tempfile.TemporaryDirectory() as workshop:
        try:
            if to.address is None:
                with _alone():
                    ray.init("local", **quiet, **_here(cpus))
                return
            used = _check_listening(to.address)
            _use_token(used)
            modules = [str(build_wheel(Path(workshop)))] if to.package == "wheel" else []
            ray.init(to.address, **quiet, runtime_env={"py_modules": modules} if modules else None)
        except Exception as error:  # Ray raises bare ones too
            ray.shutdown()
            raise ClusterError(connection_error(place, error)) from error


@contextmanager
def _alone() -> Iterator[None]:
    """Restrict a Ray that starts within to 127.0.0.1, and its files, such as the token, to this user.

    Ray replaces a local address by that of the network, unless its constants say that no other host will join.
    """
    constants, before = ray._private.ray_constants, os.umask(0o077)
    joined, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = joined
        os.umask(before)


def _here(cpus: int) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # The workers import what this process can import: an objective may stand beside the user's own script.
    paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path if not path.startswith(sys.base_prefix))
    environment = {"env_vars": {"PYTHONPATH": paths}}
    return {"num_cpus": max(cores, cpus), "include_dashboard": False, "runtime_env": environment}


def _check_listening(address: str) -> str | None:
    """Check that the address that Ray will use accepts connections, because Ray itself would try for minutes; return it."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and not (host and port.isdigit()):
        raise ValueError(f"write {ADDRESSES}, for example 10.0.0.1:6379 or ray://10.0.0.1:10001")
    used: str | None = address.removeprefix("ray://")
    if used == address:  # Ray replaces a local address by that of the network, and "auto" by the last one on this machine
        used = ray._private.services.canonicalize_bootstrap_address(address)
    if used is None or (error := no_answer(used, _CONNECT_TIMEOUT)) is None:
        return None if address.startswith("ray://") else used  # a client is served by a process of the cluster
    taken = "" if used == address.removeprefix("ray://") else f" to {used}, by which Ray replaces it"
    remedy = "check that the head node runs, that this is its port (6379, for ray:// 10001), and that no firewall blocks it"
    raise ConnectionError(f"no connection{taken} ({error}); {remedy}; {_ELSEWHERE}")


def _use_token(address: str | None) -> None:
    """Make this process send its token, unless the environment disables that; PermissionError for a cluster without tokens.

    Ray 2.60 sends it by default only for "auto". It connects a process that has a token to a cluster without, and then ends
    each of its actors, since the head cannot call the process.
    """
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        ray._raylet.Config.initialize("")  # type: ignore[attr-defined]  # it was read when Ray was imported
    if address is None or os.environ["RAY_AUTH_MODE"].lower() != "token":
        return
    code = f"import ray; ray._raylet.GcsClient(address={address!r}).get_all_node_info(timeout={_CONNECT_TIMEOUT})"
    without = {**os.environ, "RAY_AUTH_MODE": "disabled"}  # which this process cannot be for a moment
    with suppress(subprocess.TimeoutExpired):  # `ray.init` says why
        asked = subprocess.run([sys.executable, "-c", code], env=without, capture_output=True, timeout=3 * _CONNECT_TIMEOUT)
        if asked.returncode == 0:
            remedy = "start it with RAY_AUTH_MODE=token, or set RAY_AUTH_MODE=disabled here if its network is private"
            raise PermissionError(f"serves anyone, since it was started without a token; {remedy}")


def connection_error(place: str, error: BaseException) -> str:
    """Return why a cluster cannot be reached, with the remedy."""
    # Ray wraps authentication errors, so the whole chain is searched.
    causes = [error]
    while (inner := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(inner)
    said = " ".join(str(error).split())
    refused = [str(cause) for cause in causes if "AuthenticationError" in type(cause).__name__ or "AuthToken" in str(cause)]
    if any("no authentication token was found" in words or "couldn't find" in words for words in refused):
        return (
            f"the Ray cluster at {place}: this process has no token; {_TOKEN}; or set RAY_AUTH_MODE=disabled if it needs none"
        )
    if refused:
        return f"the Ray cluster at {place} rejected this process's token; {_TOKEN}"
    if isinstance(error, PermissionError):
        return f"the Ray cluster at {place} {said}"
    if "Version mismatch" in said:
        return f"the Ray cluster at {place} has other versions: {said}"
    if "Could not find any running Ray instance" in said:
        remedy = "start Ray, run on a host of the cluster, or set ray://HOST:10001"
        return f"no Ray cluster at {place}: Ray does not run on this host; {remedy}"
    if "ray client connection timeout" in said:
        remedy = "check the port of Ray's client server (10001) and the cluster's token"
        return f"no Ray cluster at {place}: the port is open, but Ray's client gets no answer; {remedy}"
    if place == "this machine":
        return f"Ray did not start on {place}: {said}; the machine may be too busy: repeat the command when it is less so"
    if "ray[client]" in said or isinstance(error, ImportError):
        return f'the Ray cluster at {place}: ray:// requires the Ray client; run pip install "ray[client]" ({said})'
    return f"no Ray cluster at {place}: {said}"


def check_hosts(folder: Path, plugins: Mapping[str, str], head: Head) -> None:
    """Check that every host has this process's versions and plug-ins, and sees the folder; ClusterError names others."""
    _refuse([(host, fault) for host, faults in faults_of_hosts(folder, plugins, head) for fault in faults])


def _refuse(wrong: Sequence[tuple[str, str]]) -> None:
    if wrong:
        raise ClusterError("; ".join(f"host {host}: {fault}" for host, fault in wrong))


def lacking(address: str, folder: Path, more: Callable[[], list[str]]) -> list[tuple[str, list[str]]]:
    """Return the hosts of a cluster, each with what it lacks to run studies in a folder, and with the lines of `more` there.

    ClusterError when the cluster cannot be reached.
    """
    with _connection(Cluster(address), 0, lambda words: None):
        head = Head(str(getattr(ray.get_runtime_context(), "gcs_address", "")))
        return faults_of_hosts(folder, {}, head, more)
