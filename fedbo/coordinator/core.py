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

from collections.abc import Callable, Collection
from typing import Any

from fedbo.actors.task import StepRequest, Task
from fedbo.algorithms.base import Private
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.agent_processes import AgentProcesses
from fedbo.coordinator.cluster.placement import WorkerPool
from fedbo.coordinator.downlink import Downlink
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.errors import EndlessError, ProtocolError
from fedbo.coordinator.evaluations.worker_events import WorkerEvents
from fedbo.coordinator.events import (
    AckTimeout,
    AgentAvailable,
    AnswerReceived,
    AvailabilityChanged,
    ConnectionChanged,
    DecisionMade,
    Effect,
    EvaluationEnded,
    Event,
    FaultEnded,
    FaultStarted,
    Finished,
    Message,
    MessageAtLink,
    MessageReceived,
    PlacementDue,
    ProcessDied,
    RoundDeadline,
    StepDue,
    StudyStarted,
    WorkerPreempted,
    WorkerReturned,
    WorkersChanged,
)
from fedbo.coordinator.exchange import Exchange
from fedbo.coordinator.fault_injection import FaultInjector
from fedbo.coordinator.interruptions import Interruptions
from fedbo.coordinator.log import Log
from fedbo.coordinator.logged.columns import single_lines
from fedbo.coordinator.network import Network
from fedbo.coordinator.presence import Presence
from fedbo.coordinator.privacy.aggregator import PrivateAggregator, why_not_amplified
from fedbo.coordinator.privacy.budget import DEFAULT_BUDGET, PrivacyBudget
from fedbo.coordinator.privacy.noise import Secure, Seeded
from fedbo.coordinator.privacy.secure_aggregation import least_cohort, why_not_masked
from fedbo.coordinator.rules import Part, Rules
from fedbo.coordinator.server import Server
from fedbo.coordinator.state import AgentRecords, CoreState
from fedbo.coordinator.step_scheduler import StepScheduler
from fedbo.coordinator.uplink import Uplink

Handler = Callable[[CoreState, Any, float], list[Effect]]


class Core:
    """The core of one run: its rules, its parts, and its state. A secret `key` is for private noise without a seed."""

    def __init__(
        self,
        task: Task,
        exchange: Exchange,
        environment: Environment,
        budget: PrivacyBudget = DEFAULT_BUDGET,
        key: bytes | None = None,
    ) -> None:
        self.exchange, self.environment = exchange, environment
        self.aggregator = _aggregator(task, exchange, environment, budget, key)
        self.rules = rules = Rules(task, exchange, environment, self.aggregator)
        self.state = _first_state(rules)
        self.network = network = Network(rules)
        self.server = Server(rules, network)
        self.scheduler = scheduler = StepScheduler(rules, self.server)
        self.processes = processes = AgentProcesses(rules, network, self.server, scheduler)
        self._uplink = Uplink(rules, network, self.server, processes)
        self._downlink = Downlink(rules, network, processes)
        interruptions = Interruptions(rules, self.server, scheduler)
        self.presence = Presence(rules, interruptions)
        self.faults = FaultInjector(rules, self.server, interruptions)
        receivers, unrest = (self._uplink, self._downlink), (interruptions, self.presence, self.faults)
        self.parts: tuple[Part, ...] = (network, self.server, scheduler, processes, *receivers, *unrest)
        self._at_events = bool(self.faults.at_events)
        self._workers = _workers(rules, scheduler)
        self._handlers: dict[type, Handler] = {
            StudyStarted: self._start,
            DecisionMade: scheduler.decided,
            Finished: self.processes.finished,
            **_of_evaluations(scheduler, self._workers),
            AgentAvailable: self.processes.available,
            MessageAtLink: self._uplink.at_link,
            MessageReceived: self._uplink.received,
            AnswerReceived: self._downlink.received,
            AckTimeout: self._ack_timeout,
            RoundDeadline: self.server.deadline,
            AvailabilityChanged: self.presence.changed,
            FaultStarted: self.faults.started,
            FaultEnded: self.faults.ended,
            ProcessDied: interruptions.process_died,
            ConnectionChanged: interruptions.connection_changed,
        }

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Process one event; return its effects in the order of their application."""
        state = self.state
        state.progress.events += 1
        effects = self._handlers[type(event)](state, event, now)
        if self._at_events:
            effects += self.faults.at_event(state.progress.events)
        return effects

    def drawn_time(self, event: Event) -> float | None:
        """Return when an absence, a fault or a preemption is due; None for all other events."""
        if isinstance(event, AvailabilityChanged):
            return self.presence.time_of(event)
        if isinstance(event, FaultStarted):
            return self.faults.time_of(event)
        if isinstance(event, WorkerPreempted) and self._workers is not None:
            return self._workers.time_of(event)
        return None

    def _start(self, state: CoreState, event: StudyStarted, now: float) -> list[Effect]:
        """Begin the study with all participating agents."""
        rules, present = self.rules, sorted(self.rules.participants)
        if not rules.idles:
            state.rounds.active.update(present)
        effects = self.presence.start(state, present, now)
        effects += self.faults.start(now)
        effects += [] if self._workers is None else self._workers.start()
        if rules.idles:
            present = self.server.enlist(state)
        effects += self.server.open(state, present, now)
        agents = [state.agents[number] for number in present]
        return effects + [effect for agent in agents for effect in self.processes.request_step(state, agent, 0, now)]

    def _ack_timeout(self, state: CoreState, event: AckTimeout, now: float) -> list[Effect]:
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
        agents = [agent for agent in self.state.agents.every() if agent.number in rules.targets]
        count = sum(agent.pulled if problem.pulls else agent.step for agent in agents)
        return count / rules.task.whole_budget

    def will_recover(self) -> bool:
        """Check whether a temporary interruption, queue or deadline keeps agents from continuing."""
        state, rounds = self.state, self.state.rounds
        agents = (state.agents[number] for number in rounds.active)
        held = bool(state.outages) or any(agent.interruptions and not agent.ended for agent in agents)
        held = held or (state.cluster is not None and state.cluster.is_waited_for)
        return held or (
            self.exchange.deadline is not None and not rounds.deadline_passed and rounds.is_heard and bool(rounds.reported)
        )

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
        if self.aggregator is not None:
            log.enter(self.aggregator.entries)
            self.aggregator.entries.clear()
        log.enter(self.processes.disclosures.entries)
        self.processes.disclosures.entries.clear()

    def close(self) -> None:
        """Check that the run may end here.

        Raises:
            EndlessError: evaluations wait for a worker, or agents for the answer of lost agents or undelivered messages.
            ProtocolError: an agent still waits for an answer for another reason.
        """
        waiting, cluster = self.state.rounds.waiting, self.state.cluster
        if cluster is not None and cluster.is_waited_for:
            words = f"evaluations of {_named(cluster.queues)} wait for a worker that will never be available"
            raise EndlessError(f"{words}; make workers stay or return ([[cluster.worker]] leaves, [[fault]] duration)")
        if not waiting:
            return
        words = f"{_named(waiting)} wait for an answer that will never arrive"
        rounds = "use an exchange mode with rounds"
        if lost := [agent.number for agent in self.state.agents.every() if agent.lost]:
            remedy = f"make them return (restart, windows), or {rounds}"
            raise EndlessError(f"{words}, because {_named(lost)} will never return; {remedy}")
        if unheard := [agent.number for agent in self.state.agents.every() if agent.unheard]:
            why = f"because the last message of {_named(unheard)} was rejected or never delivered"
            raise EndlessError(f"{words}, {why}; increase [network] attempts or the bound of [exchange] staleness, or {rounds}")
        raise ProtocolError(words)


def _aggregator(
    task: Task, exchange: Exchange, environment: Environment, budget: PrivacyBudget, key: bytes | None
) -> PrivateAggregator | None:
    """Build the aggregator of private messages; its noise comes from a secret `key`, or from the study's streams."""
    algorithm, problem = task.algorithm, task.problem
    masked = budget.secure_aggregation is not None
    if masked and (wrong := why_not_masked(algorithm, problem, exchange)):
        raise ValueError(f"secure aggregation does not support an algorithm that {wrong}")
    if not isinstance(algorithm, Private):
        return None
    source = Seeded(task.streams.within(task.noise_scope).of(COORDINATOR)) if key is None else Secure(key)
    reason = why_not_amplified(algorithm.mechanism(problem), exchange, environment.is_real_time, masked)
    aggregator = PrivateAggregator(algorithm, problem, budget, source, reason)
    if budget.secure_aggregation is not None:
        aggregator.least = least_cohort(budget.secure_aggregation, algorithm, problem, exchange)
    return aggregator


def _workers(rules: Rules, scheduler: StepScheduler) -> WorkerEvents | None:
    """Build the events of a cluster's workers, or return None without a cluster."""
    evaluations = scheduler.evaluations
    if evaluations is None or evaluations.running.pool is None:
        return None
    return WorkerEvents(evaluations.running, rules.environment.plan, rules.task.streams, rules.log)


def _of_evaluations(scheduler: StepScheduler, workers: WorkerEvents | None) -> dict[type, Handler]:
    """Return the handlers of individually scheduled evaluations and of workers, empty where there are none."""
    one_by_one = scheduler.evaluations
    if one_by_one is None:
        return {}
    handlers: dict[type, Handler] = {EvaluationEnded: one_by_one.ended, StepDue: one_by_one.due}
    if workers is not None:
        handlers |= {WorkersChanged: workers.changed, WorkerPreempted: workers.preempted, WorkerReturned: workers.returned}
        handlers[PlacementDue] = one_by_one.running.place
    return handlers


def _first_state(rules: Rules) -> CoreState:
    """Return the state before the first event."""
    state = CoreState(AgentRecords(), rules.algorithm.server_init(rules.problem))
    if rules.environment.cluster is not None:
        state.cluster = WorkerPool(rules.environment.cluster).fresh()
    if rules.aggregator is not None:
        (declared,) = (rules.upload or {}).values()
        (length,) = declared.shape
        assert length is not None, "what is weighed and summed is of one length"
        state.privacy = rules.aggregator.fresh(length)
    return state


def _named(agents: Collection[int]) -> str:
    """Format the numbers of the first few agents."""
    return f"agents {', '.join(map(str, sorted(agents)[:5]))}" + (" and others" if len(agents) > 5 else "")
