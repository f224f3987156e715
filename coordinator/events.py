"""What the core is told and what it wants done: events, effects, and the lines of the event log."""

from __future__ import annotations

from typing import NamedTuple

from fedbo.actors.task import DecisionSize, StepReport, StepRequest
from fedbo.algorithms.base import Inbound, Payload


class StudyStarted(NamedTuple):
    """The study begins."""


class DecisionMade(NamedTuple):
    """An agent has decided which points its step will evaluate, of which the coordinator learns no more than `choice`."""

    agent: int
    lease: int
    choice: DecisionSize


class Finished(NamedTuple):
    """An agent's step is over; the shell adds the agent's report before the core sees it."""

    agent: int
    lease: int
    report: StepReport | None = None


class MessageAtLink(NamedTuple):
    """A message reached the coordinator's own link and waits there for its turn."""

    message: MessageReceived


class MessageReceived(NamedTuple):
    """A message reached the coordinator.

    `source` is who really sent it, `sender` who it says it is, `base` the round in which its step began, and `sent` when.
    (`sender`, `step`) is its idempotency key: a second message with the same key changes nothing. `attempt` counts its
    transmissions.
    """

    source: int
    sender: int
    step: int
    base: int
    sent: float
    payload: Payload
    attempt: int = 0


class AnswerReceived(NamedTuple):
    """Answer number `number` of the coordinator reached an agent; without a payload it only lets the agent go on."""

    agent: int
    inbound: Inbound | None
    number: int
    attempt: int = 0


class AckTimeout(NamedTuple):
    """A transmission got no answer in time, so it is repeated or given up."""

    message: MessageReceived | AnswerReceived


class AgentAvailable(NamedTuple):
    """An agent that was absent before a step is back."""

    agent: int


class AvailabilityChanged(NamedTuple):
    """An agent leaves, when `number` is even, or returns."""

    agent: int
    number: int


class RoundDeadline(NamedTuple):
    """The deadline of a round."""

    number: int


class FaultStarted(NamedTuple):
    """Fault `fault` of the plan strikes for the `number`-th time; `agent` is COORDINATOR where it strikes all at once."""

    fault: int
    agent: int
    number: int


class FaultEnded(NamedTuple):
    """What a fault did to an agent is over."""

    fault: int
    agent: int


class ProcessDied(NamedTuple):
    """In real time: an agent's process is gone, although no plan said so."""

    agent: int


Event = (
    StudyStarted
    | DecisionMade
    | Finished
    | MessageAtLink
    | MessageReceived
    | AnswerReceived
    | AckTimeout
    | AgentAvailable
    | AvailabilityChanged
    | RoundDeadline
    | FaultStarted
    | FaultEnded
    | ProcessDied
)

# Events that happen by themselves: a run in which nothing else is left to happen is over.
BACKGROUND = frozenset((AvailabilityChanged, RoundDeadline, FaultStarted, FaultEnded))
MESSAGES = frozenset((MessageAtLink, MessageReceived, AnswerReceived, AckTimeout))


class Ask(NamedTuple):
    """Effect: an agent shall decide now, and the shell shall say how many points and how often (`DecisionMade`)."""

    order: StepRequest


class Commit(NamedTuple):
    """Effect: the agent's last step counts.

    `times (q + 1,)` are when its first evaluation began and when each of them ended; empty where the agent measured them.
    """

    agent: int
    times: tuple[float, ...]


class ProcessControl(NamedTuple):
    """Effect, in real time only: do this to an agent's process. `what` is "kill", "hold" (until `value`) or "slow" (by it)."""

    agent: int
    what: str
    value: float = 0.0


# An effect is a step to begin, a decision to be waited for, a step that counts, something done to a process, or an event that
# shall happen after a delay.
Effect = StepRequest | Ask | Commit | ProcessControl | tuple[float, Event]
EventLine = tuple[float, str, int, int, int, str]


class EventRecord(NamedTuple):
    """A line of the event log with its names; the core itself writes plain tuples, for speed."""

    time: float
    kind: str
    agent: int
    step: int
    bytes: int
    detail: str
