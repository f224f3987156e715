"""When the coordinator answers: exchange modes as policies over one stream of events.

A policy is told who has reported for which round and says which agents are to be answered now. Only agents of whom
messages are expected take part; an absent agent reports at once, with nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol


@dataclass(slots=True)
class Rounds:
    """The state of a policy: the agents that still take part, and for each open round who has reported."""

    active: set[int]
    reported: dict[int, set[int]]


class Exchange(Protocol):
    """A policy of exchange. `waits` says whether an agent that has reported stands still until it is answered."""

    @property
    def waits(self) -> bool: ...

    def report(self, rounds: Rounds, agent: int, number: int) -> Iterable[tuple[int, list[int]]]:
        """Note an agent's report for round `number`; give the rounds that close now and whom to answer."""

    def leave(self, rounds: Rounds, agent: int) -> Iterable[tuple[int, list[int]]]:
        """Note that an agent takes part no more; give the rounds that close now and whom to answer."""


@dataclass(frozen=True, slots=True)
class Immediate:
    """Fully asynchronous: every message is answered as soon as it arrives, and its sender does not wait for the answer."""

    mode: ClassVar[str] = "immediate"
    waits: ClassVar[bool] = False

    def report(self, rounds: Rounds, agent: int, number: int) -> Iterable[tuple[int, list[int]]]:
        """Answer the sender."""
        return ((number, [agent]),)

    def leave(self, rounds: Rounds, agent: int) -> Iterable[tuple[int, list[int]]]:
        """Forget the agent."""
        rounds.active.discard(agent)
        return ()


@dataclass(frozen=True, slots=True)
class Barrier:
    """Lock-step: a round closes when every agent that takes part has reported; all of them wait for it."""

    mode: ClassVar[str] = "barrier"
    waits: ClassVar[bool] = True

    def report(self, rounds: Rounds, agent: int, number: int) -> Iterable[tuple[int, list[int]]]:
        """Note the report; close the round if it was the last."""
        rounds.reported.setdefault(number, set()).add(agent)
        return self._close(rounds, number)

    def leave(self, rounds: Rounds, agent: int) -> Iterable[tuple[int, list[int]]]:
        """Take the agent out; close the rounds that waited for it alone."""
        rounds.active.discard(agent)
        return [closed for number in sorted(rounds.reported) for closed in self._close(rounds, number)]

    def _close(self, rounds: Rounds, number: int) -> list[tuple[int, list[int]]]:
        if not rounds.active <= rounds.reported[number]:
            return []
        return [(number, sorted(rounds.reported.pop(number) & rounds.active))]


MODES: dict[str, type[Immediate] | type[Barrier]] = {m.mode: m for m in (Barrier, Immediate)}
