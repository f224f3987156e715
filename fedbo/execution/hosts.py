"""What the hosts of a Ray cluster lack to run a study: each is asked for its versions, its plug-ins and a shared folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedbo.actors.late_ray import ray
from fedbo.actors.nodes import announce_leaving, leaving
from fedbo.execution.directory import versions
from fedbo.execution.head import LOOKED_EVERY, Head
from fedbo.execution.wheel import fingerprint
from fedbo.settings.logs import say
from fedbo.settings.plugins import used
from fedbo.settings.shown import shown

_INSTALL_TIMEOUT = 180.0  # seconds that hosts have to install the wheel and start a process
LEAVES = "leave-"  # how a file begins that announces that a host leaves
_SHARE_TIMEOUT = 5.0  # seconds until a new file shows on every host's view of a shared folder


def faults_of_hosts(
    folder: Path, plugins: Mapping[str, str], head: Head, more: Callable[[], list[str]] = list
) -> list[tuple[str, list[str]]]:
    """Return every host with its problems."""
    mark = folder / f".seen-{os.urandom(4).hex()}"
    mark.touch()
    try:
        ours = {**versions(), **plugins, "package": fingerprint()}
        asked = _asked(str(mark), tuple(plugins), head, more)
        return [(host, [*host_problems(found, ours, folder)]) for host, found in asked]
    finally:
        mark.unlink(missing_ok=True)


def _asked(mark: str, plugins: tuple[str, ...], head: Head, more: Callable[[], list[str]]) -> Iterator[tuple[str, Any]]:
    """Yield every living host with its facts, or with its error."""
    nodes = living()
    calls = {node: _ask(node, mark, plugins, more) for node in nodes}
    until, left = time.monotonic() + _INSTALL_TIMEOUT, list(calls.values())
    while left and time.monotonic() < until:
        head.check()
        _, left = ray.wait(left, num_returns=len(left), timeout=LOOKED_EVERY)
    present = living()
    for node, call in calls.items():
        if not isinstance(found := _facts(call), Exception) or node in present:  # else it has left the cluster meanwhile
            yield nodes[node], found


def _ask(node: str, *what: Any) -> Any:
    """Ask a host for its facts, and return the reference of its answer."""
    ask = ray.remote(num_cpus=0, max_retries=0)(_host_facts)
    on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    return ask.options(scheduling_strategy=on_node(node, soft=False)).remote(*what)


class HostWatch:
    """Watches the hosts of a cluster during a run: those that join later are asked as the first ones were.

    A file `leave-HOST` in `folder`, or in the one above it, announces to Ray that a host leaves.
    """

    def __init__(self, folder: Path, plugins: Mapping[str, str]) -> None:
        self._folder, self._plugins, self._known = folder, tuple(plugins), set(living())
        self._ours = {**versions(), **plugins, "package": fingerprint()}
        self._asked, self._announced = dict[str, tuple[str, Path, Any]](), dict[Path, Any]()
        self._looked, self._none_stays = time.monotonic(), False

    def wrong(self) -> list[tuple[str, str]]:
        """Look now and then; return what hosts lack that have joined meanwhile, each with its address."""
        if time.monotonic() - self._looked < LOOKED_EVERY:
            return []
        self._looked = time.monotonic()
        self._announce()
        present = living() if ray.is_initialized() else {}
        none_stays = bool(present) and present.keys() <= leaving().keys()
        if none_stays and not self._none_stays:
            say("every host of the Ray cluster leaves it; the run is saved, and goes on once another host has joined")
        self._none_stays = none_stays
        for node, address in present.items():
            if node not in self._known:
                mark = self._folder / f".seen-{os.urandom(4).hex()}"
                mark.touch()
                self._asked[node] = address, mark, _ask(node, str(mark), self._plugins, list)
                self._known.add(node)
        found = list[tuple[str, str]]()
        for node, (address, mark, call) in list(self._asked.items()):
            if ray.wait([call], timeout=0)[0]:
                mark.unlink(missing_ok=True)
                del self._asked[node]
                if node in living():  # else it has left meanwhile
                    found += [(address, fault) for fault in host_problems(_facts(call), self._ours, self._folder)]
        return found

    def close(self) -> None:
        """Remove the files by which hosts are asked."""
        for _, mark, _ in self._asked.values():
            mark.unlink(missing_ok=True)

    def _announce(self) -> None:
        """Tell Ray which hosts leave, by the files, and print what comes of it."""
        for path in {*self._folder.glob(f"{LEAVES}*"), *self._folder.parent.glob(f"{LEAVES}*")} - self._announced.keys():
            self._announced[path] = ray.remote(num_cpus=0)(announce_leaving).remote(path.name.removeprefix(LEAVES))
        for path, call in self._announced.items():
            if call is not None and ray.wait([call], timeout=0)[0]:
                self._announced[path], found = None, _facts(call)
                wrong = [" ".join(str(found).split())[:300]] if isinstance(found, Exception) else found
                say(shown("; ".join([f"{path}: {fault}" for fault in wrong] or [f"{path}: its agents move to other hosts"])))


def _facts(call: Any) -> Any:
    try:
        return ray.get(call, timeout=0)
    except Exception as error:
        return error


def living() -> dict[str, str]:
    """Return the addresses of the cluster's present hosts, by their Ray node ids."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {node["NodeID"]: node["NodeManagerAddress"] for node in nodes if node["Alive"]}


def _host_facts(mark: str, plugins: tuple[str, ...], more: Callable[[], list[str]]) -> dict[str, Any]:
    """Return the versions of this host and of plug-ins, whether it sees a file and can write beside it, and more lines."""
    until = time.monotonic() + _SHARE_TIMEOUT
    while not (seen := os.path.exists(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    writes = seen and os.access(os.path.dirname(mark), os.W_OK)
    here = used((group, name) for group, _, name in (each.partition(".") for each in plugins))
    return {**versions(), **here, "package": fingerprint(), "seen": seen, "writes": writes, "more": more()}


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
    yield from found["more"]


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
