"""What the core is told and what it wants done: events, effects, and the lines of the event log."""

from __future__ import annotations

from typing import NamedTuple

from fedbo.actors.agent import Order, Report
from fedbo.algorithms.base import Inbound, Payload


class Began(NamedTuple):
    """The study begins."""


class Decided(NamedTuple):
    """An agent has decided how many points its step will evaluate."""

    agent: int
    queries: int


class Finished(NamedTuple):
    """An agent's step is over; the shell adds the agent's report before the core sees it."""

    agent: int
    report: Report | None = None


class Arrived(NamedTuple):
    """A message reached the coordinator's door.

    `source` is who really sent it, `sender` who it says it is, and `sent` when. (`sender`, `step`) is its idempotency key:
    a second message with the same key changes nothing.
    """

    source: int
    sender: int
    step: int
    sent: float
    payload: Payload


class Delivered(NamedTuple):
    """The coordinator's answer reached an agent; without a payload it only lets the agent go on."""

    agent: int
    inbound: Inbound | None


class Returned(NamedTuple):
    """An absent agent is back."""

    agent: int


Event = Began | Decided | Finished | Arrived | Delivered | Returned


class Ask(NamedTuple):
    """Effect: an agent shall decide now, and the shell shall say how many points (`Decided`)."""

    order: Order


# An effect is a step to begin (which takes as long as its evaluations), a decision to be waited for, or an event that shall
# happen after a delay.
Effect = Order | Ask | tuple[float, Event]
Line = tuple[float, str, int, int, int, str]


class Record(NamedTuple):
    """A line of the event log with its names; the core itself writes plain tuples, for speed."""

    time: float
    kind: str
    agent: int
    step: int
    bytes: int
    detail: str
