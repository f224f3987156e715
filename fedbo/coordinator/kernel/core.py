"""The core: a state machine without input or output for all events between agents, `(state, event, now) -> effects`.

The core knows neither clocks nor processes. A shell feeds it events in order of time and applies its effects: in virtual time
an event queue, in wall-clock time real processes. The parts of the core hold the constants of a run (`Rules`). All
mutable state is in one `CoreState`, which each part gets as an argument and changes in place (decision 001). No part knows
the parts listed after it:

    Network         latency, bandwidth, faults of messages
    Server          which agents have reported, when a round closes, the answers
    StepScheduler   steps that begin, and how long they take, with their evaluations where these may overlap
    AgentProcesses  steps that end, and then a message, the next step, or waiting
    Uplink          messages that arrive at the coordinator
    Downlink        answers that arrive at agents
    Interruptions   agents that pause, resume, or are lost
    Presence        absences in continuous time
    FaultInjector   faults of agents and of the coordinator
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from fedbo.actors.task import StepRequest, Task
from fedbo.coordinator.environment.durations import StepDurations
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.kernel import events
from fedbo.coordinator.kernel.agent_processes import AgentProcesses
from fedbo.coordinator.kernel.downlink import Downlink
from fedbo.coordinator.kernel.events import AvailabilityChanged, Effect, Event, FaultStarted, Message
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.coordinator.kernel.fault_injection import FaultInjector
from fedbo.coordinator.kernel.interruptions import Interruptions, Presence
from fedbo.coordinator.kernel.network import Network
from fedbo.coordinator.kernel.rules import Part, Receipt, Rules
from fedbo.coordinator.kernel.server import IdleAgents, Server
from fedbo.coordinator.kernel.state import AgentRecords, CoreState
from fedbo.coordinator.kernel.step_scheduler import Handler, StepEvaluations, StepScheduler
from fedbo.coordinator.kernel.uplink import Uplink
from fedbo.coordinator.logged.columns import EventColumns, single_lines
from fedbo.coordinator.logged.kinds import EventLine


class Log(Protocol):
    """A receiver of the lines of the event log and the entries of the privacy ledger."""

    def extend(self, records: Iterable[EventLine | EventColumns]) -> None:
        """Append lines in their order."""

    def enter(self, entries: Iterable[Any]) -> None:
        """Append entries of the ledger."""


class Core:
    """The core of one run: its rules, its parts, and its state.

    Ports may be other than plain: the `receipt` of messages, the `evaluations` of a step, the `server`, `assembly` has those
    that a study asks for, and `idle`, which looks at idle agents where these have no events; without it, all is one.
    """

    def __init__(
        self,
        task: Task,
        exchange: Exchange,
        environment: Environment,
        receipt: Callable[[Rules], Receipt] = Receipt,
        evaluations: Callable[[Rules, StepDurations | None], StepEvaluations] = StepEvaluations,
        idle: Callable[[Core], IdleAgents] | None = None,
        server: Callable[[Rules, Network], Server] = Server,
        interruptions_of: Callable[[Rules, Server, StepScheduler], Interruptions] = Interruptions,
    ) -> None:
        if idle is None:
            environment = replace(environment, idle_rows=True)
        self.exchange, self.environment = exchange, environment
        self.rules = rules = Rules(task, exchange, environment, receipt)
        self.state = CoreState(AgentRecords(), rules.algorithm.server_init(rules.problem))
        rules.receipt.start(self.state)
        self.network = network = Network(rules)
        self.server = server(rules, network)
        self.scheduler = scheduler = StepScheduler(rules, self.server, evaluations)
        self.evaluations = scheduler.evaluations
        self.evaluations.start(self.state)
        self.processes = processes = AgentProcesses(rules, network, self.server, scheduler)
        self._uplink = Uplink(rules, network, self.server, processes)
        self._downlink = Downlink(rules, network, processes)
        interruptions = interruptions_of(rules, self.server, scheduler)
        self.presence = Presence(rules, interruptions)
        self.faults = FaultInjector(rules, self.server, interruptions)
        receivers, unrest = (self._uplink, self._downlink), (interruptions, self.presence, self.faults)
        ports = (rules.receipt, self.evaluations)
        self.parts: tuple[Part, ...] = (*ports, network, self.server, scheduler, processes, *receivers, *unrest)
        self._at_events = bool(self.faults.at_events)
        self.handlers: dict[type, Handler] = {
            events.StudyStarted: self._start,
            events.DecisionMade: scheduler.decided,
            events.Finished: self.processes.finished,
            **self.evaluations.handlers,
            **interruptions.handlers,
            events.AgentAvailable: self.processes.available,
            events.MessageAtLink: network.queue_at_link,
            events.MessageReceived: self._uplink.received,
            events.AnswerReceived: self._downlink.received,
            events.AckTimeout: self._ack_timeout,
            events.RoundDeadline: self.server.deadline,
            AvailabilityChanged: self.presence.changed,
            FaultStarted: self.faults.started,
            events.FaultEnded: self.faults.ended,
            events.ProcessDied: interruptions.process_died,
            events.ConnectionChanged: interruptions.connection_changed,
        }
        self.order: Any = (math.inf, 0)  # of the event in hand
        if idle is not None and rules.is_lazy:
            self.server.idle = idle(self)
            self.handlers |= self.server.idle.handlers

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Process one event; return its effects in the order of their application."""
        state = self.state
        state.progress.events += 1
        effects = self.handlers[type(event)](state, event, now)
        if self._at_events:
            effects += self.faults.at_event(state.progress.events)
        return effects

    def drawn_time(self, event: Event) -> float | None:
        """Return when an event that is drawn is due, as an absence or a fault; None for all other events."""
        if isinstance(event, AvailabilityChanged):
            return self.presence.time_of(event)
        if isinstance(event, FaultStarted):
            return self.faults.time_of(event)
        return self.evaluations.time_of(event)

    def _start(self, state: CoreState, event: events.StudyStarted, now: float) -> list[Effect]:
        """Begin the study with all participating agents."""
        rules, present = self.rules, sorted(self.rules.participants)
        if not (rules.idles or rules.turns):
            state.rounds.active.update(present)
        effects = self.presence.start(state, () if rules.is_lazy else present, now)
        effects += self.faults.start(now)
        effects += self.evaluations.first_effects()
        if rules.idles or rules.turns:
            present, woken = self.server.enlist(state, now)
            effects += woken
        effects += self.server.open(state, present, now)
        agents = [state.agents[number] for number in present]
        return effects + [effect for agent in agents for effect in self.processes.request_step(state, agent, 0, now)]

    def _ack_timeout(self, state: CoreState, event: events.AckTimeout, now: float) -> list[Effect]:
        sent = event.transmission
        if isinstance(sent, Message):
            return self._uplink.timed_out(state, sent, now)
        return self._downlink.timed_out(state, sent, now)

    def is_current(self, number: int, lease: int) -> bool:
        """Check whether a finished step with this lease is the current step of its agent; otherwise the lease has expired."""
        agent = self.state.agents[number]
        return agent.lease == lease and agent.current is not None

    @property
    def is_over(self) -> bool:
        """Check whether no agent takes part any more."""
        return bool(self.state.progress.events) and not self.state.rounds.active

    def share_done(self) -> float:
        """Return the used share of the budget: of the rounds where these are counted, otherwise of the targets' own budgets."""
        rules, problem = self.rules, self.rules.problem
        if rules.idles:
            return min(1.0, self.state.rounds.number / (problem.iterations + 1))
        return self.state.agents.total("pulled" if problem.pulls else "step", rules.targets) / rules.task.whole_budget

    def will_recover(self) -> bool:
        """Check whether a temporary interruption, queue or deadline keeps agents from continuing."""
        state, rounds = self.state, self.state.rounds
        agents = (state.agents[number] for number in rounds.active)
        held = any(agent.interruptions and not agent.ended for agent in agents)
        closes = self.exchange.deadline_of(rounds) is not None and not rounds.deadline_passed and rounds.may_be_overdue
        return held or closes or bool(state.outages or self.evaluations.waiting(state))

    def orders(self) -> list[StepRequest]:
        """List the steps that agents work on, for a shell that has lost its hosts and starts again with others."""
        agents = sorted(self.state.agents.every(), key=lambda agent: agent.number)
        steps = (agent.current for agent in agents)
        given = [step.order for step in steps if step is not None and (self.environment.is_real_time or step.segments)]
        return [order for order in given if order is not None]

    def flush_events(self, sink: Callable[[list[Any]], None], in_columns: bool = False) -> None:
        """Pass the lines of the event log since the last call to `sink`, some as columns if it can take these; clear them."""
        sink(self.rules.log if in_columns else single_lines(self.rules.log))
        self.rules.log.clear()

    def flush(self, log: Log) -> None:
        """Pass the events and the entries of the privacy ledger since the last call to `log`, and clear them."""
        self.flush_events(log.extend, in_columns=True)
        log.enter(self.rules.receipt.take_entries())
