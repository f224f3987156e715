"""Hosts in this process that lose calls as Ray does over a network: later calls are carried out all the same."""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle
import pytest
from ray.exceptions import ActorUnavailableError

from fedbo.actors import remote
from fedbo.actors.host import Host
from fedbo.coordinator.kernel import engine
from fedbo.coordinator.runtime import actor, snapshots

PREPARATION = ("load", "connect", "collect_rarely")  # a host that never starts tests nothing


@dataclass(frozen=True)
class Reply:
    """The result of a call, or the error that Ray or the call raised."""

    value: Any = None
    error: Exception | None = None


class LossyHost:
    """A host actor that loses a share of its calls: half of them before they are carried out, half with their result."""

    def __init__(self, draws: random.Random, share: float) -> None:
        self._host, self._draws, self._share = Host(), draws, share

    def __getattr__(self, method: str) -> Any:
        return type("Method", (), {"remote": staticmethod(partial(self._call, method))})

    def _call(self, method: str, *arguments: Any) -> Reply:
        drawn = 1.0 if method in PREPARATION else self._draws.random()
        lost = Reply(error=ActorUnavailableError("the call was lost", None))
        if drawn < self._share / 2:
            return lost
        try:
            found = Reply(_copied(getattr(self._host, method)(*_copied(arguments))))
        except Exception as error:
            found = Reply(error=error)
        return lost if drawn < self._share else found


class LossyRay:
    """What the coordinator uses of Ray."""

    def __init__(self, draws: random.Random) -> None:
        self._draws = draws

    def get(self, reply: Reply) -> Any:
        if reply.error is not None:
            raise reply.error
        return reply.value

    def wait(self, replies: list[Reply], timeout: float) -> tuple[list[Reply], list[Reply]]:
        """Return each reply as one that has arrived or not by chance, since the order of arrival is not certain either."""
        return (replies, []) if self._draws.random() < 0.8 else ([], replies)

    def kill(self, host: LossyHost) -> None:
        """Do nothing: nobody calls the host again."""


def lose_calls(monkeypatch: pytest.MonkeyPatch, seed: int, share: float) -> None:
    """Make hosts of coordinators in this process lose this share of their calls, drawn by the seed."""
    draws = random.Random(seed)
    for module in (remote, actor):
        monkeypatch.setattr(module, "ray", LossyRay(draws))
    monkeypatch.setattr(actor, "start_hosts", lambda count, labels: [LossyHost(draws, share) for _ in range(count)])
    monkeypatch.setattr(remote.RayHosts, "_connect", lambda self: None)
    monkeypatch.setattr(snapshots, "_CHECK", 0.0)
    monkeypatch.setattr(engine, "PROGRESS_INTERVAL", float("inf"))  # else draws depend on the clock


def _copied(values: Any) -> Any:
    return pickle.loads(cloudpickle.dumps(values))
