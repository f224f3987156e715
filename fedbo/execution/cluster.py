"""The connection to a Ray cluster: its address and token, the installation of the package, and the check of all hosts."""

from __future__ import annotations

import logging
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedbo.actors.late_ray import ray
from fedbo.execution.directory import versions
from fedbo.execution.head import ADDRESSES, LOOKED_EVERY, Head, no_answer
from fedbo.execution.wheel import build_wheel, fingerprint
from fedbo.settings.errors import FedboError
from fedbo.settings.plugins import used

_CONNECT_TIMEOUT = 10.0  # seconds until a host that does not answer counts as absent
_INSTALL_TIMEOUT = 180.0  # seconds that hosts have to install the wheel and start a process
_SHARE_TIMEOUT = 5.0  # seconds until a new file shows on every host's view of a shared folder
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
    """

    address: str | None = None
    package: Package = "wheel"
    plugins: Mapping[str, str] = field(default_factory=dict)


_users: list[Cluster] = []  # those for whom this process has connected itself


@contextmanager
def connected(to: Cluster, cpus: int, folder: Path, note: Callable[[str], None] = lambda words: None) -> Iterator[Head]:
    """Connect this process to a cluster, unless it is connected, and disconnect in the end; hosts must see `folder`.

    `note` is called with a line before that. ClusterError when the cluster cannot be reached, refuses the token or has fewer
    CPUs than `cpus`, or when one of its hosts has other versions or does not see the folder. The last of several threads
    disconnects.
    """
    with _connection(to, cpus, note):
        head = Head(str(getattr(ray.get_runtime_context(), "gcs_address", "")))  # a client is not told it
        have = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
        if have < cpus:  # an actor that is never scheduled would be waited for without end
            raise ClusterError(f"[hosting] workers = {cpus}: the Ray cluster has {have} CPUs; set at most {have}")
        if to.address is not None:
            check_hosts(folder, to.plugins, head)
        yield head


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
            _check_listening(to.address)
            _use_token()
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


def _check_listening(address: str) -> None:
    """Check that the address that Ray will use accepts connections, because Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and not (host and port.isdigit()):
        raise ValueError(f"write {ADDRESSES}, for example 10.0.0.1:6379 or ray://10.0.0.1:10001")
    used: str | None = address.removeprefix("ray://")
    if used == address:  # Ray replaces a local address by that of the network, and "auto" by the last one on this machine
        used = ray._private.services.canonicalize_bootstrap_address(address)
    if used is None or (error := no_answer(used, _CONNECT_TIMEOUT)) is None:
        return
    taken = "" if used == address.removeprefix("ray://") else f" to {used}, by which Ray replaces it"
    remedy = "check that the head node runs, that this is its port (6379, for ray:// 10001), and that no firewall blocks it"
    raise ConnectionError(f"no connection{taken} ({error}); {remedy}; {_ELSEWHERE}")


def _use_token() -> None:
    """Make this process send its token, unless the environment disables that. Ray 2.60 sends it by default only for "auto"."""
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        ray._raylet.Config.initialize("")  # type: ignore[attr-defined]  # it was read when Ray was imported


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
    mark = folder / f".seen-{os.urandom(4).hex()}"
    mark.touch()
    try:
        ours, wrong = {**versions(), **plugins, "package": fingerprint()}, []
        for host, found in _asked(str(mark), tuple(plugins), head):
            wrong += [f"host {host}: {fault}" for fault in host_problems(found, ours, folder)]
        if wrong:
            raise ClusterError("; ".join(wrong))
    finally:
        mark.unlink(missing_ok=True)


def _asked(mark: str, plugins: tuple[str, ...], head: Head) -> Iterator[tuple[str, Any]]:
    """Yield every living host with its facts, or with its error."""
    nodes = _living()
    ask = ray.remote(num_cpus=0, max_retries=0)(_host_facts)
    on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    calls = {node: ask.options(scheduling_strategy=on_node(node, soft=False)).remote(mark, plugins) for node in nodes}
    until, left = time.monotonic() + _INSTALL_TIMEOUT, list(calls.values())
    while left and time.monotonic() < until:
        head.check()
        _, left = ray.wait(left, num_returns=len(left), timeout=LOOKED_EVERY)
    living = _living()
    for node, call in calls.items():
        try:
            yield nodes[node], ray.get(call, timeout=0)
        except Exception as error:
            if node in living:  # else it has left the cluster meanwhile
                yield nodes[node], error


def _living() -> dict[str, str]:
    """Return the addresses of the cluster's present hosts, by their Ray node ids."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: node["NodeManagerAddress"] for node in nodes if node["Alive"]}


def _host_facts(mark: str, plugins: tuple[str, ...]) -> dict[str, str | bool]:
    """Return the versions of this host and of plug-ins, and whether it sees a file and can write beside it."""
    until = time.monotonic() + _SHARE_TIMEOUT
    while not (seen := os.path.exists(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    writes = seen and os.access(os.path.dirname(mark), os.W_OK)
    here = used((group, name) for group, _, name in (each.partition(".") for each in plugins))
    return {**versions(), **here, "package": fingerprint(), "seen": seen, "writes": writes}


def host_problems(found: Any, ours: dict[str, str], folder: Path) -> Iterator[str]:
    """Yield the problems of a host, from its facts or its error, compared with this process."""
    if isinstance(found, Exception):
        yield _why(found)
        return
    other = [name for name, value in ours.items() if found.get(name) != value and name != "package"]
    if other:
        there = ", ".join(f"{name} {found[name]}" if name in found else f"no {name}" for name in other)
        here = ", ".join(f"{name} {ours[name]}" for name in other)
        yield f"has {there}, but this process has {here}; install the same versions on all hosts"
    elif found["package"] != ours["package"]:
        yield 'has a different fedbo from this process; install the same one there, or set [hosting] package = "wheel"'
    if not found["seen"]:
        yield f"does not see '{folder}'; set --out to a folder that all hosts share"
    elif not found["writes"]:
        yield f"cannot write to '{folder}'; run Ray there as a user with write permission"


def _why(error: Exception) -> str:
    cause: BaseException = error
    while isinstance(cause, ray.exceptions.RayTaskError):
        cause = cause.cause
    words = " ".join(str(cause).split())[:400]
    if isinstance(cause, ray.exceptions.GetTimeoutError):
        return f"has not answered within {_INSTALL_TIMEOUT:.0f} s; check its load, or remove it from the cluster"
    if "No module named 'fedbo" in words:
        return 'does not have fedbo; install it there, or set [hosting] package = "wheel"'
    if "No module named" in words:
        return f"lacks a package that fedbo needs ({words}); install it there"
    return f"cannot start a process: {words}"
