"""What happens between agents: a state machine without input or output, `(state, event, now) -> effects`.

The core knows neither clocks nor processes. A shell feeds it events in order of time and carries out its effects: in
virtual time a heap, in wall-clock time real processes. `Core` holds the rules, which never change during a run, and one
`CoreState`, which is all that does. The rules are in three parts: the steps of agents, the server, and the fault injector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from fedbo.actors.task import StepRequest, Task
from fedbo.algorithms.base import LocallyPrivate, Payload, Private
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.agent_processes import AgentProcesses
from fedbo.coordinator.environment.environment import World
from fedbo.coordinator.events import (
    AckTimeout,
    AgentAvailable,
    AnswerReceived,
    AvailabilityChanged,
    DecisionMade,
    Effect,
    Event,
    EventLine,
    FaultEnded,
    FaultStarted,
    Finished,
    MessageAtLink,
    MessageReceived,
    ProcessDied,
    RoundDeadline,
    StudyStarted,
)
from fedbo.coordinator.exchange import Exchange
from fedbo.coordinator.fault_injection import FaultInjector
from fedbo.coordinator.network import Network
from fedbo.coordinator.privacy.aggregator import DEFAULT_TERMS, PrivacyBudget, PrivateAggregator, charged_whole, unkept
from fedbo.coordinator.privacy.ledger import LedgerEntry, local_entry
from fedbo.coordinator.privacy.noise import Secure, Seeded
from fedbo.coordinator.server import Server
from fedbo.coordinator.state import EndlessError, ProtocolError, fresh_state

if TYPE_CHECKING:
    from fedbo.coordinator.runtime.event_log import EventLog

__all__ = ["Core", "ProtocolError"]


class Core:
    """The rules of one run, its state, and the journal of what happened since the shell last emptied it."""

    def __init__(
        self, task: Task, exchange: Exchange, world: World, terms: PrivacyBudget = DEFAULT_TERMS, key: bytes | None = None
    ) -> None:
        self.algorithm, self.problem, self.exchange, self.world = task.algorithm, task.problem, exchange, world
        if wrong := unkept(task.algorithm, task.policy):
            raise ValueError(f"failure = '{task.policy.failure}' {wrong}")
        self.streams, self.checkpoint = task.streams.of(COORDINATOR), task.checkpoint
        self.upload, self.download = self.algorithm.upload(self.problem), self.algorithm.download(self.problem)
        self.targets = frozenset(self.problem.targets)
        # Asked once: to look whether something keeps a protocol takes longer than to handle an event.
        self._local = self.algorithm if isinstance(self.algorithm, LocallyPrivate) else None
        self.journal: list[EventLine] = []
        self.entries: list[LedgerEntry] = []
        self.state = fresh_state(self.problem.n_agents, self.algorithm.server_init(self.problem))
        self.door = self._door(terms, key)
        self.network = Network(world, task.streams, self.upload, self._tell)
        self.steps, self.desk, self.trouble = AgentProcesses(self, task), Server(self), FaultInjector(self, task.streams)
        self._handlers: dict[type, Callable[[Any, float], list[Effect]]] = {
            StudyStarted: self.steps.began,
            DecisionMade: self.steps.decided,
            Finished: self.steps.finished,
            AgentAvailable: self.steps.returned,
            MessageAtLink: self.desk.reached,
            MessageReceived: self.desk.arrived,
            AnswerReceived: self.desk.delivered,
            AckTimeout: self.desk.unheard,
            RoundDeadline: self.desk.due,
            AvailabilityChanged: self.trouble.changed,
            FaultStarted: self.trouble.struck,
            FaultEnded: self.trouble.healed,
            ProcessDied: self.trouble.died,
        }

    def _door(self, terms: PrivacyBudget, key: bytes | None) -> PrivateAggregator | None:
        """Make the door that private messages pass, and its state; a secret `key` for its noise, or the study's streams."""
        if not isinstance(self.algorithm, Private):
            return None
        assert self.upload is not None
        (declared,) = self.upload.values()
        source = Seeded(self.streams) if key is None else Secure(key)
        whole = charged_whole(self.algorithm.mechanism(self.problem), self.exchange, self.world)
        (length,) = declared.shape
        assert length is not None, "what is weighed and summed is of one length"
        door = PrivateAggregator(self.algorithm, self.problem, terms, source, whole)
        self.state.door = door.fresh(length)
        return door

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in one event; give its effects, in the order in which they are to be carried out."""
        self.state.events += 1
        effects = self._handlers[type(event)](event, now)
        if self.trouble.at_events:
            effects += self.trouble.at_event(self.state.events)
        return effects

    def current(self, event: Finished) -> bool:
        """Say whether the step that has finished is the one that its agent is at; else it has become another's turn."""
        return self.state.lease[event.agent] == event.lease and event.agent in self.state.steps

    @property
    def over(self) -> bool:
        """Say whether nobody takes part any more."""
        return bool(self.state.events) and not self.state.rounds.active

    def stalled(self) -> bool:
        """Say whether somebody is only kept from going on by what will pass by itself."""
        state = self.state
        held = bool(state.down) or any(state.blocked[agent] and agent not in state.ended for agent in state.rounds.active)
        return held or (self.exchange.limit is not None and not state.overdue and bool(state.rounds.reported))

    def orders(self) -> list[StepRequest]:
        """List what agents are at, for a shell that has lost its hosts and begins again with others."""
        steps = self.state.steps
        given = [steps[agent].order for agent in sorted(steps) if self.world.real or steps[agent].parts]
        return [order for order in given if order is not None]

    def pour(self, journal: EventLog) -> None:
        """Hand over all that has been noted, events and releases."""
        journal.extend(self.journal)
        self.journal = []
        if self.door is not None:
            journal.enter(self.door.entries)
            self.door.entries = []
        journal.enter(self.entries)
        self.entries = []

    def disclose(self, agent: int, payload: Payload, now: float) -> None:
        """Enter a message in the privacy ledger that its sender has hidden itself; also one that never arrives has left it."""
        if self._local is None or not payload:
            return
        disclosure = self._local.disclosure(self.state.server, payload)
        if disclosure is not None:
            self.entries.append(local_entry(agent, self.state.disclosed, disclosure, now))
            self.state.disclosed += 1

    def close(self) -> None:
        """Note that nothing else will happen; ProtocolError when an agent still waits for an answer.

        EndlessError where the answer may be due to agents that are lost for good, without which the method cannot go on.
        """
        if not self.state.waiting:
            return
        words = f"{_named(self.state.waiting)} wait for an answer that never comes"
        if not self.state.lost:
            raise ProtocolError(words)
        remedy = "let them come back (restart, windows), or take an exchange mode with rounds"
        raise EndlessError(f"{words}, since {_named(self.state.lost)} are lost for good; {remedy}")

    def _tell(self, line: EventLine) -> None:
        self.journal.append(line)


def _named(agents: Collection[int]) -> str:
    """Name the first few of some agents."""
    return f"agents {', '.join(map(str, sorted(agents)[:5]))}" + (" and others" if len(agents) > 5 else "")
