"""Lines of the event log about messages, answers, rounds, links, and the coordinator itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.logged.kinds import logged_as

Direction = Literal["up", "down"]
LossReason = Literal["fault", "partition", "coordinator_down"]
MissReason = Literal["agent_ended", "given_up"]
RefusalReason = Literal[
    "forged",
    "unknown_agent",
    "undeclared",
    "duplicate",
    "malformed",
    "stale",
    "unusable",
    "not_sampled",
    "superseded",
    "budget_spent",
    "given_up",
]
REASONS: Final[Mapping[LossReason | MissReason | RefusalReason, str]] = {
    "fault": "The fault at place `fault` of the study's list.",
    "partition": "A partition separated the agent from the coordinator.",
    "coordinator_down": "The coordinator was down.",
    "agent_ended": "The agent had ended.",
    "given_up": "Its last transmission was not acknowledged, after `attempts`.",
    "forged": "It was sent in the name of `claimed_agent`.",
    "unknown_agent": "There is no agent of this number.",
    "undeclared": "The algorithm declares no messages.",
    "duplicate": "The message had taken effect, or the agent had this answer.",
    "malformed": "It is not as declared; `message` says why.",
    "stale": "Its `staleness` was above the `bound`.",
    "unusable": "The algorithm raised the error in `message`.",
    "not_sampled": "The agent was not asked in this round.",
    "superseded": "The coordinator held a newer message of this agent.",
    "budget_spent": "The privacy budget was spent.",
}


@logged_as("cut")
class LinkCut(NamedTuple):
    """A partition separates an agent from the coordinator."""

    time: float
    agent: int
    step: int


@logged_as("joined")
class LinkJoined(NamedTuple):
    """A partition of an agent ends."""

    time: float
    agent: int
    step: int


@logged_as("down")
class CoordinatorDown(NamedTuple):
    """The coordinator goes down."""

    time: float
    round: int
    agent: int = COORDINATOR


@logged_as("up")
class CoordinatorUp(NamedTuple):
    """The coordinator is back."""

    time: float
    round: int
    agent: int = COORDINATOR


@logged_as("falsified")
class MessageFalsified(NamedTuple):
    """The next message of an agent is falsified by one or more lies."""

    time: float
    agent: int
    step: int
    lies: tuple[str, ...]
    copied_agent: int | None = None
    copied_step: int | None = None


@logged_as("sent")
class MessageSent(NamedTuple):
    """An agent transmits the message of a step, for the first time or `again`."""

    time: float
    agent: int
    step: int
    bytes: int
    again: bool = False


@logged_as("lost")
class TransmissionLost(NamedTuple):
    """A message on its way `up`, or an answer on its way `down`, is lost."""

    time: float
    agent: int
    direction: Direction
    reason: LossReason | None
    bytes: int
    step: int | None = None
    answer: int | None = None
    fault: int | None = None


@logged_as("arrived")
class MessageArrived(NamedTuple):
    """A message reaches the coordinator and takes effect, with its `staleness`."""

    time: float
    agent: int
    step: int
    bytes: int
    staleness: int | None


@logged_as("late")
class MessageLate(NamedTuple):
    """A message reaches the coordinator after its `round` has closed, and is dropped."""

    time: float
    agent: int
    step: int
    bytes: int
    round: int


@logged_as("rejected")
class TransmissionRejected(NamedTuple):
    """A message is refused or given up, or an agent refuses a copied answer."""

    time: float
    agent: int
    reason: RefusalReason
    step: int | None = None
    answer: int | None = None
    claimed_agent: int | None = None
    staleness: int | None = None
    bound: int | None = None
    attempts: int | None = None
    message: str | None = None


@logged_as("discarded")
class ReportDiscarded(NamedTuple):
    """The report of a step arrives after its lease has expired."""

    time: float
    agent: int
    step: int


@logged_as("unmasked")
class SumUnmasked(NamedTuple):
    """With secure aggregation, the sum of the closing round is unmasked."""

    time: float
    round: int
    bytes: int
    answering: int
    cohort: int
    needed: int
    agent: int = COORDINATOR


@logged_as("aborted")
class SumAborted(NamedTuple):
    """With secure aggregation, too few agents answer to unmask the sum of the closing round."""

    time: float
    round: int
    bytes: int
    answering: int
    cohort: int
    needed: int
    agent: int = COORDINATOR


@logged_as("round")
class RoundClosed(NamedTuple):
    """A round closes or a buffer is answered, with answers of so many `bytes`."""

    time: float
    round: int
    bytes: int
    agent: int = COORDINATOR


@logged_as("drawn")
class AgentDrawn(NamedTuple):
    """An idle agent gets its turn; `answer` is the number of its step."""

    time: float
    agent: int
    answer: int
    bytes: int


@logged_as("delivered")
class AnswerDelivered(NamedTuple):
    """An answer reaches its agent."""

    time: float
    agent: int
    answer: int
    bytes: int


@logged_as("missed")
class AnswerMissed(NamedTuple):
    """An answer never reaches its agent: it is given up, or the agent has ended."""

    time: float
    agent: int
    answer: int
    reason: MissReason
    bytes: int = 0
    attempts: int | None = None
