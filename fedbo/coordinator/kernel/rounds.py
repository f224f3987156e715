"""The state of an exchange: its rounds, and the agents that take part or wait."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Rounds:
    """The state of an exchange; agents are identified by their numbers.

    - `number`: the number of closed rounds, or of answering occasions under an asynchronous mode.
    - `age`: the same, or the number of agents that were answered then.
    - `opened`: the time at which the open round began.
    - `active`: the agents that take part in the study.
    - `missing`: the agents that the open round waits for; `reported`: those that wait for it to close.
    - `messages`: the number of messages that took effect in the open round.
    - `buffer`: the senders not yet answered.
    - `waiting`: the least number of the answer that each waiting agent waits for; None until that answer has a number.
    - `left`: whether an agent has left since the last answer, where the method waits for others.
    - `unmasking`: how long the answers of the last round waited for the shares that unmask its sum.
    - `deadline_passed`: whether the open round has reached its maximum length.
    - `is_heard`: whether a message took effect in the open round, or none is expected, so that it may close at its deadline.
    """

    number: int = 0
    age: int = 0
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

    @property
    def is_overdue(self) -> bool:
        """Check whether the open round closes because its maximum length is over.

        A message that takes no effect, of an earlier round above all, does not end a round for those that it asks.
        """
        return self.deadline_passed and self.is_heard and bool(self.reported)

    def close(self, now: float, by: int) -> None:
        """Open the next round, which adds `by` to the age of earlier messages."""
        if self.reported:
            self.reported = set()
        if self.buffer:
            self.buffer = []
        self.messages, self.left, self.is_heard = 0, False, False
        self.number, self.opened = self.number + 1, now
        self.age += by

    def close_each(self, now: float, count: int) -> None:
        """Close rounds of one message each, one after the other, the last one now."""
        self.buffer, self.messages, self.left = [], 0, False
        self.number, self.opened, self.age = self.number + count, now, self.age + count

    def hear(self, senders: Sequence[int], counted: int, synchronous: bool) -> None:
        """Record messages that close no round, of which so many took effect, and the others are dummies in time."""
        self.messages += counted
        self.is_heard |= bool(senders)
        if synchronous:
            self.reported.update(senders)
            self.missing.difference_update(senders)
        else:
            self.buffer.extend(senders)

    def remove(self, agents: Collection[int]) -> None:
        """Remove agents that take part no more."""
        for members in (self.active, self.missing, self.reported):
            members.difference_update(agents)
