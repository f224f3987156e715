"""Events that the core receives, and effects that it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from fedbo.actors.task import DecisionSize, StepReport, StepRequest
from fedbo.algorithms.base import Inbound, Payload


class StudyStarted(NamedTuple):
    """The study begins."""


class DecisionMade(NamedTuple):
    """An agent has decided on the points of its step; the coordinator sees only their `choice`, without coordinates."""

    agent: int
    lease: int
    choice: DecisionSize


@dataclass(slots=True)
class Finished:
    """An agent's step is over; the shell adds the agent's report before the core sees it."""

    agent: int
    lease: int
    report: StepReport | None = None


class EvaluationEnded(NamedTuple):
    """A separately scheduled evaluation has ended: point `point` of step `step`; a point of -1 is the decision."""

    agent: int
    step: int
    point: int
    lease: int


class StepDue(NamedTuple):
    """Enough of an agent's evaluations have ended for its step to be over."""

    agent: int
    lease: int


@dataclass(slots=True)
class Message:
    """A message of an agent, on its way or received.

    `sender` is the real sender, `claimed_sender` the sender that it names, `base` the round in which its step began, and `sent`
    the time. (`claimed_sender`, `step`) is its idempotency key: a second message with the same key changes nothing. `attempt`
    counts its transmissions.
    """

    sender: int
    claimed_sender: int
    step: int
    base: int
    sent: float
    payload: Payload
    attempt: int = 0


@dataclass(slots=True)
class Answer:
    """Answer `number` of the coordinator to an agent; without a payload it only ends the agent's wait."""

    agent: int
    inbound: Inbound | None
    number: int
    attempt: int = 0


class MessageAtLink(NamedTuple):
    """A message has reached the coordinator's own link and waits there for its turn."""

    message: Message


@dataclass(slots=True)
class MessageReceived:
    """A message has reached the coordinator."""

    message: Message


@dataclass(slots=True)
class AnswerReceived:
    """An answer has reached its agent."""

    answer: Answer


class AckTimeout(NamedTuple):
    """A transmission was not acknowledged in time, so it is repeated or given up."""

    transmission: Message | Answer


class AgentAvailable(NamedTuple):
    """An agent that was absent before a step is back."""

    agent: int


class AvailabilityChanged(NamedTuple):
    """An agent leaves, when `number` is even, or returns."""

    agent: int
    number: int


class BeliefChanged(NamedTuple):
    """The coordinator takes an agent for dead, or believes it again, unless the agent has changed since silence `number`."""

    agent: int
    number: int
    dead: bool


class RoundDeadline(NamedTuple):
    """The deadline of a round, as it was after so many `arrivals`."""

    number: int
    arrivals: int = 0


class FaultStarted(NamedTuple):
    """Fault `fault` of the plan begins for the `number`-th time; `agent` is COORDINATOR where it hits all agents."""

    fault: int
    agent: int
    number: int


class FaultEnded(NamedTuple):
    """A fault's effect on an agent is over."""

    fault: int
    agent: int


class ProcessDied(NamedTuple):
    """In real time: an agent's process has died without a planned fault."""

    agent: int


class ConnectionChanged(NamedTuple):
    """In real time: an agent's site has not been heard of for the length of its lease, or is back."""

    agent: int
    away: bool


class PlacementDue(NamedTuple):
    """Evaluations that wait for a worker of a cluster are placed; this is the last event of its instant."""


class JobDue(NamedTuple):
    """A part of a job of a cluster's background load enters the queue; with a `lease` it has ended."""

    part: int
    lease: int = 0


class WorkersChanged(NamedTuple):
    """The workers of class `group` of a cluster join, or leave for good."""

    group: int
    joins: bool


class WorkerPreempted(NamedTuple):
    """Fault `fault` of the plan takes a worker of a cluster away for the `number`-th time, perhaps `warned` before."""

    fault: int
    worker: int
    number: int
    warned: bool = False


class WorkerReturned(NamedTuple):
    """A preempted worker is back."""

    fault: int
    worker: int


Event = (
    StudyStarted
    | DecisionMade
    | Finished
    | EvaluationEnded
    | StepDue
    | PlacementDue
    | JobDue
    | MessageAtLink
    | MessageReceived
    | AnswerReceived
    | AckTimeout
    | AgentAvailable
    | AvailabilityChanged
    | BeliefChanged
    | RoundDeadline
    | FaultStarted
    | FaultEnded
    | ProcessDied
    | ConnectionChanged
    | WorkersChanged
    | WorkerPreempted
    | WorkerReturned
)

# Events that happen by themselves: a run in which nothing else is left to happen is over.
BACKGROUND: Final = frozenset(
    (AvailabilityChanged, RoundDeadline, FaultStarted, FaultEnded, WorkersChanged, WorkerPreempted, WorkerReturned, JobDue)
)
MESSAGES: Final = frozenset((MessageAtLink, MessageReceived, AnswerReceived, AckTimeout))


class Ask(NamedTuple):
    """Effect: ask an agent for its decision; the shell returns the number of points and their repetitions (`DecisionMade`)."""

    order: StepRequest


@dataclass(slots=True)
class Commit:
    """Effect: the agent's last step counts.

    `times (q + 1,)` holds the start of its first evaluation and the end of each; empty where the agent measured them.
    """

    agent: int
    times: tuple[float, ...]


class ProcessControl(NamedTuple):
    """Effect, in real time only: control a process. `what` is "kill", "hold" (until `value`) or "slow" (by `value`)."""

    agent: int
    what: str
    value: float = 0.0


@dataclass(slots=True)
class After:
    """Effect: schedule an event after a delay; in virtual time at `time`, if set. `order` is its place among others then."""

    delay: float
    event: Event
    time: float | None = None
    order: tuple[float, int] | None = None


Effect = StepRequest | Ask | Commit | ProcessControl | After
