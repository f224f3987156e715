"""The state of an exchange: its rounds, who takes part in them, and who waits."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Rounds:
    """The state of an exchange; agents are given by their numbers.

    - `number` counts the rounds closed, or under an asynchronous mode the occasions of answering.
    - `age` does so too, or counts the agents that were answered then.
    - `opened` is when the open round began.
    - `active` take part in the study.
    - `missing` are those whom the open round waits for, `reported` those who wait for it to close.
    - `messages` counts what took effect in the open round.
    - `buffer` holds the senders not yet answered.
    - `waiting` maps an agent that waits for an answer to the least number of that answer; None as long as it has no number.
    - `left` says whether somebody has left since the last answer, where the method waits for others.
    - `unmasking` is how long the answers of the last one waited for the shares that took the masks off its sum.
    - `deadline_passed` says whether the open round has lasted as long as it may.
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

    def close(self, now: float, by: int) -> None:
        """Go on to the next round, which makes what was sent before older `by` so much."""
        if self.reported:
            self.reported = set()
        if self.buffer:
            self.buffer = []
        self.messages, self.left = 0, False
        self.number, self.opened = self.number + 1, now
        self.age += by
