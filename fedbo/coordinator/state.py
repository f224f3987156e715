"""All that changes in a run between agents, as plain data: what a snapshot of the coordinator holds."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Any

from fedbo.actors.lazy_records import LazyRecords
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound
from fedbo.coordinator.environment.lies import SentMessage
from fedbo.coordinator.evaluations.pending import AgentEvaluations
from fedbo.coordinator.events import Message
from fedbo.coordinator.rounds import Rounds
from fedbo.settings.sums import plain_sum


@dataclass(slots=True, init=False)
class AgentStep:
    """The step that an agent works on.

    - `inbox` came with it, and `speaks` says whether a message is asked for.
    - It began at the time `begun`, the last time if it was begun again; it was `timed` when its length had been fixed once.
    - `costs` are those of its points, which are evaluated `pulls` times each, where either is given.
    - `segments` are the lengths of its decision and of each of its evaluations at pace 1; empty until they are known.
    - `remaining` is what was left of their sum at the time `since`.
    - `pace_history` has (time, work done by then, pace from then on) of every change of pace; a pace of 0 is a pause.
    - `void` says that it must be begun again when its agent is back.
    - `report` waits for evaluations that are retried to take their time.
    - `order` is what the agent was told last.
    """

    inbox: tuple[Inbound, ...]
    speaks: bool
    begun: float
    timed: bool
    costs: tuple[float, ...] | None
    pulls: tuple[int, ...] | None
    segments: tuple[float, ...]
    remaining: float
    since: float
    pace_history: list[tuple[float, float, float]] | None
    void: bool
    report: StepReport | None
    order: StepRequest | None

    # One by `dataclass` is never compiled, and a compiled class whose arguments have no default cannot be read from a snapshot.
    def __init__(self, inbox: tuple[Inbound, ...] = (), speaks: bool = False, begun: float = 0.0) -> None:
        self.inbox, self.speaks, self.begun = inbox, speaks, begun
        self.timed = self.void = False
        self.costs = self.pulls = self.pace_history = self.report = self.order = None
        self.segments, self.remaining, self.since = (), math.inf, 0.0

    def set_pace(self, now: float, before: float, after: float) -> None:
        """Work on at another pace from now on."""
        if not self.segments:  # how long it takes is not known yet
            return
        if self.pace_history is None:
            self.pace_history = [(self.begun, 0.0, before)]
        self.remaining = max(0.0, self.remaining - (now - self.since) * before)
        self.since = now
        self.pace_history.append((now, plain_sum(self.segments) - self.remaining, after))

    def times(self, now: float) -> tuple[float, ...]:
        """Give when its first evaluation began and when each of them ended, the last one now."""
        if len(self.segments) == 2 and self.pace_history is None:
            return (self.begun + self.segments[0], now)
        times, done = [], 0.0
        for segment in self.segments[:-1]:
            done += segment
            times.append(self.begun + done if self.pace_history is None else _time_of(self.pace_history, done))
        return (*times, now)


def _time_of(pace_history: list[tuple[float, float, float]], done: float) -> float:
    """Give when so much of the work was done."""
    for place, (time, before, pace) in enumerate(pace_history):
        after = pace_history[place + 1][1] if place + 1 < len(pace_history) else math.inf
        if pace > 0 and done <= after:
            return time + (done - before) / pace
    return pace_history[-1][0]


@dataclass(slots=True)
class AgentFaults:
    """What faults have done to one agent.

    - `pace` is how fast it works.
    - `needs_restore` says that it has lost what it learned since its checkpoint, and has not begun again.
    - `partitions` counts the network partitions that cut it off.
    - `previous_message` is the last one that it sent, where a fault may replay it.
    - `retransmissions` counts how often an answer was sent again, by its number.
    """

    pace: float = 1.0
    needs_restore: bool = False
    partitions: int = 0
    previous_message: Message | None = None
    retransmissions: dict[int, int] = field(default_factory=dict)


FAULT_FIELDS = ("pace", "needs_restore", "partitions", "previous_message", "retransmissions")
# The fields of an `AgentRecord` in snapshots of earlier versions.
EARLIER = (
    *("number", "step", "current", "lease", "next_evaluation", "next_repetition", "t_n", "saved_t_n", "pulled"),
    *("last_duration", "pace", "interruptions", "needs_restore", "evaluations", "absent", "ready", "ended", "lost"),
    *("known_offline", "unheard", "asked", "base", "newest_base", "partitions", "inbox", "unacknowledged"),
    *("previous_message", "steps_accepted", "received_answers", "retransmissions"),
)


@dataclass(slots=True)
class AgentRecord:
    """What the coordinator keeps of one agent.

    Its work
    - `number` is the agent's own.
    - `step` is the number of its step, and `current` that step while the agent works on it.
    - `lease` counts how often it was given work: a result on an older lease is discarded.
    - `next_evaluation` numbers its evaluations, `next_repetition` those that are made again after a crash or a failure.
    - `t_n` counts its observations, `saved_t_n` those of its last checkpoint, `pulled` its evaluations that the budget counts.
    - `last_duration` is how long its last step took.
    - `interruptions` counts what keeps it from working: absences, crashes and hangs.
    - `faults` are what faults have done to it, None before the first one.
    - `evaluations` are those that are scheduled one by one.

    Its part in the study
    - `absent`: it is away before a step. `ready`: it would begin its step but for an interruption.
    - `ended`: it has done its work, or is lost. `lost`: it is lost for good.
    - `known_offline`: the coordinator knows that it is not there, so that no round waits for it.

    Its messages
    - `asked`: it was asked to send in its present round.
    - `base` is the age of the exchange when its step began, `newest_base` that of its newest message, or -1.
    - `inbox` are answers that wait for its next step.
    - `unacknowledged` are its messages under way by step, as they were sent last.
    - `unheard`: its last message was given up, or refused.
    - `steps_accepted` are the steps whose message took effect, `received_answers` the numbers of the answers that it has had,
      in ascending order: of twenty numbers a set takes eight times as much.
    """

    number: int
    step: int = 0
    current: AgentStep | None = None
    lease: int = 0
    next_evaluation: int = 0
    next_repetition: int = 0
    t_n: int = 0
    saved_t_n: int = 0
    pulled: int = 0
    last_duration: float | None = None
    interruptions: int = 0
    faults: AgentFaults | None = None
    evaluations: AgentEvaluations | None = None
    absent: bool = False
    ready: bool = False
    ended: bool = False
    lost: bool = False
    known_offline: bool = False
    unheard: bool = False
    asked: bool = False
    base: int = 0
    newest_base: int = -1
    inbox: list[Inbound] = field(default_factory=list)
    unacknowledged: dict[int, Message] = field(default_factory=dict)
    steps_accepted: list[int] = field(default_factory=list)
    received_answers: list[int] = field(default_factory=list)

    @property
    def pace(self) -> float:
        """Return how fast it works."""
        return 1.0 if self.faults is None else self.faults.pace

    @property
    def needs_restore(self) -> bool:
        """Return whether it has lost what it learned since its checkpoint, and has not begun again."""
        return self.faults is not None and self.faults.needs_restore

    @property
    def is_cut_off(self) -> bool:
        """Return whether a network partition cuts it off."""
        return self.faults is not None and self.faults.partitions > 0

    def own_faults(self) -> AgentFaults:
        """Return what faults have done to it, to be changed."""
        if self.faults is None:
            self.faults = AgentFaults()
        return self.faults

    @classmethod
    def earlier_fields(cls) -> tuple[str, ...]:
        """List its fields in snapshots of earlier versions."""
        return EARLIER

    @classmethod
    def of_earlier(cls, values: dict[str, Any]) -> AgentRecord:
        """Make a record of the fields of earlier versions."""
        faults = AgentFaults(**{name: values.pop(name) for name in FAULT_FIELDS})
        return cls(faults=None if faults == AgentFaults() else faults, **values)


def has(numbers: list[int], number: int) -> bool:
    """Say whether a number is among ascending ones."""
    if not numbers or number > numbers[-1]:
        return False
    return numbers[bisect_left(numbers, number)] == number


def enter(numbers: list[int], number: int) -> None:
    """Put a number among ascending ones, nearly always at their end."""
    if not numbers or number > numbers[-1]:
        numbers.append(number)
    else:
        insort(numbers, number)


@dataclass(slots=True)
class ProgressCounter:
    """How far a run has come: what tells one that goes on from one that never would.

    - `events` counts the events handled.
    - `last_event` is the number of the event at which the run came further last, `last_time` its time.
    - `restarts` counts how often each agent has begun its step again since then.
    - `evaluations` counts the successful ones of all agents, where the study ends after so many.
    - `is_enough` says that the study ends early, since it has reached what it was to reach.
    """

    events: int = 0
    last_event: int = 0
    last_time: float = 0.0
    restarts: dict[int, int] = field(default_factory=dict)
    evaluations: int = 0
    is_enough: bool = False

    @property
    def idle(self) -> int:
        """Count the events since the run came further."""
        return self.events - self.last_event

    def note(self, now: float) -> None:
        """Note that the run came further: a step was begun or finished, a message has been dealt with, an agent goes on."""
        self.last_event, self.last_time = self.events, now
        if self.restarts:
            self.restarts = {}


@dataclass(slots=True)
class CoreState:
    """All that changes in a run between agents.

    - `agents` has a record of each agent that something has happened to, by its number.
    - `server` is the state of the algorithm's coordinator half, `privacy` the `AggregatorState` where messages are private.
    - `rounds` is the state of the exchange.
    - `progress` says how far the run is.
    - `outages` counts what keeps the coordinator down.
    - `link_free_at` is when the coordinator's link will be free.
    - `disclosures` counts the messages that their senders have made private themselves.
    - `copied` is the newest message that an agent which lies may copy.
    - `cluster` is the `ClusterState`, where evaluations queue for workers.
    """

    agents: LazyRecords[AgentRecord]
    server: Any
    privacy: Any = None
    rounds: Rounds = field(default_factory=Rounds)
    progress: ProgressCounter = field(default_factory=ProgressCounter)
    outages: int = 0
    link_free_at: float = 0.0
    disclosures: int = 0
    copied: SentMessage | None = None
    cluster: Any = None
