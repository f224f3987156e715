"""The agents of a host, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable

from fedbo.actors.agent import HostedAgent


class HostedAgents(dict[int, HostedAgent]):
    """The agents of a host by number; one that was never given anything to do is not made, so that it costs nothing."""

    def __init__(self, make: Callable[[int], HostedAgent]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, number: int) -> HostedAgent:
        agent = self[number] = self._make(number)
        return agent
