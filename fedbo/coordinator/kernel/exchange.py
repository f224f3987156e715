"""Exchange modes: when the coordinator answers, the weight of late messages, and the choice of agents that send.

Under a synchronous mode an agent that has reported waits until the open round closes, and the coordinator answers all agents
that have reported by then. A round expects the chosen agents, except those that the coordinator knows to be away.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol

from annotated_types import Ge, Gt

from fedbo.coordinator.selection import Selection
from fedbo.coordinator.staleness import Staleness
from fedbo.settings.ranges import Marked, OneOf


@dataclass(slots=True)
class Rounds:
    """The state of an exchange; agents are identified by their numbers.

    - `number`: the number of closed rounds, or of answering occasions under an asynchronous mode.
    - `opened`: the time at which the open round began.
    - `active`: the agents that take part in the study.
    - `missing`: the agents that the open round waits for; `reported`: those that wait for it to close.
    - `messages`: the number of messages that took effect in the open round.
    - `buffer`: the senders not yet answered.
    - `waiting`: the least number of the answer that each waiting agent waits for; None until that answer has a number.
    - `left`: whether an agent has left since the last answer, where the method waits for others.
    - `unmasking`: how long the answers of the last round waited for the shares that unmask its sum.
    - `deadline_passed`: whether the open round has reached its maximum length.
    - `expected`: how many agents the open round waited for when it opened; `arrivals`: when their messages took effect, since
      then, where the exchange asks for that.
    - `turns`: the `Turns` of agents, where only some of them work at once.
    - `is_heard`: whether a message took effect in the open round, or none is expected; `least` that many must, so that it may
      close at its deadline.
    """

    number: int = 0
    opened: float = 0.0
    active: set[int] = field(default_factory=set)
    missing: set[int] = field(default_factory=set)
    reported: set[int] = field(default_factory=set)
    messages: int = 0
    buffer: list[int] = field(default_factory=list)
    waiting: dict[int, int | None] = field(default_factory=dict)
    left: bool = False
    unmasking: float = 0.0
    deadline_passed: bool = False
    is_heard: bool = False
    least: int = 0
    expected: int = 0
    arrivals: list[float] = field(default_factory=list)
    turns: Any = None

    @property
    def may_be_overdue(self) -> bool:
        """Check whether the open round closes once its maximum length is over.

        A message that takes no effect, of an earlier round above all, does not end a round for those that it asks.
        """
        return self.is_heard and self.messages >= self.least and bool(self.reported)

    def close(self, now: float) -> None:
        """Open the next round."""
        if self.reported:
            self.reported = set()
        if self.buffer:
            self.buffer = []
        self.messages, self.left, self.is_heard, self.arrivals = 0, False, False, []
        self.number, self.opened = self.number + 1, now

    def remove(self, agents: Collection[int]) -> None:
        """Remove agents that take part no more."""
        for members in (self.active, self.missing, self.reported):
            members.difference_update(agents)


class Exchange(Protocol):
    """An exchange mode: whether agents wait for rounds, when a round closes, and the treatment of late messages."""

    @property
    def mode(self) -> str: ...

    @property
    def is_synchronous(self) -> bool: ...

    @property
    def accepts_late(self) -> bool:
        """Check whether a message that arrives after its round has closed takes effect in the open round."""

    def deadline_of(self, rounds: Rounds) -> float | None:
        """Return after which time the open round closes with the reports so far, or None; asked anew if the mode `adapts`."""

    @property
    def oldest(self) -> int | None:
        """Return the maximum age of a message on its way, in rounds: a round stays open that would make one older."""

    @property
    def staleness(self) -> Staleness: ...

    @property
    def selection(self) -> Selection: ...

    def should_close(self, rounds: Rounds) -> bool:
        """Check whether the open round closes now, or the buffer is answered."""


LATE = ("drop", "carry")  # what is done with messages after their round


class Answers:
    """Modes without rounds, where no agent waits: every message is answered at once, or all senders once there are `k`."""

    __slots__ = ()
    is_synchronous: ClassVar[bool] = False
    accepts_late: ClassVar[bool] = True
    oldest: ClassVar[int | None] = None
    k: int | None = None
    """Messages after which the coordinator answers, or a share of the agents that are asked."""

    def deadline_of(self, rounds: Rounds) -> None:
        """Return None: there are no rounds."""

    def should_close(self, rounds: Rounds) -> bool:
        """Answer when there are `k` messages; senders whose message took no effect are answered with the others."""
        return bool(rounds.buffer) if self.k is None else rounds.messages >= self.k


class InRounds:
    """Modes with rounds: one closes with its first `k` messages, after `length`, or when no expected agent is missing.

    A message that comes later is dropped, or takes effect in the open round, as `late` says; its sender waits for that one.
    With `oldest` a round also waits for agents whose message would otherwise be older than so many rounds.
    """

    __slots__ = ()
    is_synchronous: ClassVar[bool] = True
    k: int | None = None
    """Messages after which a round closes, or a share of the agents that are asked."""
    length: float | None = None
    """Units of time after which a round closes."""
    minimum: int = 1
    """Messages without which a round goes on beyond its length."""
    late: str = "carry"
    """Whether late messages are dropped or take effect in the open round."""
    oldest: int | None = None
    """Rounds for which a round waits for agents at work. Default: none."""

    def deadline_of(self, rounds: Rounds) -> float | None:
        """Return the length of a round, None without a limit."""
        return self.length

    @property
    def accepts_late(self) -> bool:
        """Check whether a late message takes effect in the open round."""
        return self.late == "carry"

    def should_close(self, rounds: Rounds) -> bool:
        """Close with `k` messages, or when no agent is missing that could still send one."""
        return bool(rounds.reported) and ((self.k is not None and rounds.messages >= self.k) or not rounds.missing)

    def reveals(self, sampling: str) -> str:
        """Return what reveals the sampled agents.

        Nothing does if all agents that begin a round also end it, since agents that are not sampled send empty messages.
        Nothing does under a deadline either, if late messages are dropped and each agent has a coin of its own. A limit of `k`
        messages does.
        """
        if self.k is not None:
            return "the first k messages keep others out"
        if self.minimum > 1:
            return "a round that waits for a least number of messages shows how many were sampled"
        if self.length is None:
            return "" if sampling in ("poisson", "fixed") else f"nothing is known of sampling '{sampling}'"
        if sampling != "poisson":
            return "an agent whose answer came late was drawn for another round, and among others"
        return "a late message is carried over into a round that was sampled anew" if self.accepts_late else ""


@dataclass(frozen=True, slots=True)
class Immediate(Answers):
    """Fully asynchronous: every message is answered as soon as it arrives, and its sender does not wait for the answer."""

    mode: ClassVar[str] = "immediate"
    staleness: Staleness = Staleness()
    selection: Selection = Selection()


@dataclass(frozen=True, slots=True)
class Buffered(Marked, Answers):
    """Semi-asynchronous: the coordinator answers once it has `k` messages, all their senders at once; no agent waits."""

    mode: ClassVar[str] = "buffered"
    k: Annotated[int, Ge(1)] = 5
    staleness: Staleness = Staleness()
    selection: Selection = Selection()


@dataclass(frozen=True, slots=True)
class Barrier(InRounds):
    """Lock-step: a round closes when every agent that is asked and there has reported; all of them wait for it."""

    mode: ClassVar[str] = "barrier"
    staleness: Staleness = Staleness()
    """Weight of late messages."""
    selection: Selection = Selection()
    """Which agents are asked to send."""


@dataclass(frozen=True, slots=True)
class Deadline(Marked, InRounds):
    """Rounds of bounded length: one closes when no agent is missing, or after `length` with those that have reported.

    It goes on beyond that until `minimum` messages have taken effect, one by default.
    """

    mode: ClassVar[str] = "deadline"
    length: Annotated[float, Gt(0)] = 2.0
    late: Annotated[str, OneOf(LATE)] = "drop"
    staleness: Staleness = Staleness()
    selection: Selection = Selection()
    minimum: Annotated[int, Ge(1)] = 1
    lengths: tuple[Annotated[float, Gt(0)], ...] = ()
    """Lengths of the first rounds; those that follow have `length`."""

    def deadline_of(self, rounds: Rounds) -> float:
        """Return the length of the open round."""
        return self.lengths[rounds.number] if rounds.number < len(self.lengths) else self.length


@dataclass(frozen=True, slots=True)
class FirstK(Marked, InRounds):
    """Over-selection: a round closes with its first `k` messages; the others are late, as under a deadline.

    With a `length` it also closes after that, with those that have reported.
    With `oldest` it also waits for agents whose message would otherwise be older than so many rounds (Chang et al. 2016's
    partial barrier with bounded delay): 0 waits for all that have begun.
    """

    mode: ClassVar[str] = "first_k"
    k: Annotated[int, Ge(1)] = 5
    late: Annotated[str, OneOf(LATE)] = "drop"
    staleness: Staleness = Staleness()
    selection: Selection = Selection()
    oldest: Annotated[int, Ge(0)] | None = None
    length: Annotated[float, Gt(0)] | None = None
