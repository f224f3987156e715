"""The mutable state of a run between agents, as plain data: the contents of a coordinator's snapshot."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedbo.actors.lazy_records import LazyRecords
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound
from fedbo.coordinator.environment.lies import SentMessage
from fedbo.coordinator.kernel.events import Message
from fedbo.coordinator.kernel.exchange import Rounds
from fedbo.settings.sums import plain_sum


@dataclass(slots=True)
class AgentStep:
    """The step that an agent works on.

    - `inbox`: the answers that came with it; `speaks`: whether a message is asked for.
    - `begun`: the time of its start, the last one if it was begun again; `timed`: whether its length has been fixed once.
    - `costs`: those of its points, each of which is evaluated `pulls` times, if set.
    - `segments`: the lengths of its decision and of each of its evaluations at pace 1; empty until they are known.
    - `remaining`: what was left of their sum at the time `since`.
    - `pace_history`: (time, work done by then, pace from then on) of every change of pace; a pace of 0 is a pause.
    - `void`: whether it must be begun again when its agent is back.
    - `report`: its report, while retried evaluations take their time.
    - `order`: the last request to the agent.
    """

    inbox: tuple[Inbound, ...] = ()
    speaks: bool = False
    begun: float = 0.0
    timed: bool = False
    costs: tuple[float, ...] | None = None
    pulls: tuple[int, ...] | None = None
    segments: tuple[float, ...] = ()
    remaining: float = math.inf
    since: float = 0.0
    pace_history: list[tuple[float, float, float]] | None = None
    void: bool = False
    report: StepReport | None = None
    order: StepRequest | None = None

    def set_pace(self, now: float, before: float, after: float) -> None:
        """Change the pace from now on."""
        if not self.segments:  # how long it takes is not known yet
            return
        if self.pace_history is None:
            self.pace_history = [(self.begun, 0.0, before)]
        self.remaining = max(0.0, self.remaining - (now - self.since) * before)
        self.since = now
        self.pace_history.append((now, plain_sum(self.segments) - self.remaining, after))

    def times(self, now: float) -> tuple[float, ...]:
        """Return the start of its first evaluation and the end of each, the last one now."""
        if len(self.segments) == 2 and self.pace_history is None:
            return (self.begun + self.segments[0], now)
        times, done = [], 0.0
        for segment in self.segments[:-1]:
            done += segment
            times.append(self.begun + done if self.pace_history is None else _time_of(self.pace_history, done))
        return (*times, now)


def _time_of(pace_history: list[tuple[float, float, float]], done: float) -> float:
    """Return the time at which this amount of work was done."""
    for place, (time, before, pace) in enumerate(pace_history):
        after = pace_history[place + 1][1] if place + 1 < len(pace_history) else math.inf
        if pace > 0 and done <= after:
            return time + (done - before) / pace
    return pace_history[-1][0]


@dataclass(slots=True)
class AgentFaults:
    """The effects of faults on one agent.

    - `pace`: its speed.
    - `needs_restore`: whether it has lost what it learned since its checkpoint, and has not begun again.
    - `partitions`: the number of network partitions that cut it off.
    - `previous_message`: the last one that it sent, where a fault may replay it.
    - `retransmissions`: how often an answer was sent again, by its number.
    - `disconnected`: whether its site is away.
    """

    pace: float = 1.0
    needs_restore: bool = False
    partitions: int = 0
    previous_message: Message | None = None
    retransmissions: dict[int, int] = field(default_factory=dict)
    disconnected: bool = False


@dataclass(slots=True)
class AgentRecord:
    """The coordinator's record of one agent.

    Its work
    - `number`: the agent's own.
    - `step`: the number of its step; `current`: that step while the agent works on it.
    - `lease`: the number of its work requests; a result on an older lease is discarded.
    - `next_evaluation`: the next number of an evaluation; `next_repetition`: that of one repeated after a crash or a failure.
    - `t_n`: its observations; `saved_t_n`: those of its last checkpoint; `pulled`: its evaluations that the budget counts.
    - `last_duration`: the duration of its last step.
    - `interruptions`: the number of absences, crashes and hangs that keep it from working.
    - `faults`: the effects of faults on it, None before the first one.
    - `evaluations`: the `AgentEvaluations`, where they are scheduled one by one.
    - `spent`: the time of its evaluations, where the budget limits it; infinite after its last decision.
    - `asleep`: entries of the event queue that wait until it is asked or looked at; None if that never was.

    Its part in the study
    - `absent`: it is away before a step. `ready`: it would begin its step but for an interruption.
    - `ended`: it has done its work, or is lost. `lost`: it is lost for good.
    - `known_offline`: the coordinator knows that it is away, so that no round waits for it.

    Its messages
    - `asked`: it was asked to send in its present round.
    - `base`: the age of the exchange when its step began; `newest_base`: that of its newest message, or -1.
    - `reported`: when that message arrived, or -1.
    - `inbox`: answers that wait for its next step.
    - `unacknowledged`: its messages on their way by step, as they were sent last.
    - `unheard`: its last message was given up, or refused.
    - `steps_accepted`: the steps whose message took effect; `received_answers`: the numbers of its answers. Both are ascending
      lists: with twenty numbers a set takes eight times the memory.
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
    evaluations: Any = None
    absent: bool = False
    ready: bool = False
    ended: bool = False
    lost: bool = False
    known_offline: bool = False
    unheard: bool = False
    asked: bool = False
    base: int = 0
    newest_base: int = -1
    reported: float = -1.0
    inbox: list[Inbound] = field(default_factory=list)
    unacknowledged: dict[int, Message] = field(default_factory=dict)
    steps_accepted: list[int] = field(default_factory=list)
    received_answers: list[int] = field(default_factory=list)
    spent: float = 0.0
    asleep: list[Any] | None = None

    @property
    def pace(self) -> float:
        """Return its speed."""
        return 1.0 if self.faults is None else self.faults.pace

    @property
    def needs_restore(self) -> bool:
        """Return whether it has lost what it learned since its checkpoint, and has not begun again."""
        return self.faults is not None and self.faults.needs_restore

    @property
    def is_cut_off(self) -> bool:
        """Return whether a network partition cuts it off."""
        return self.faults is not None and self.faults.partitions > 0

    @property
    def is_disconnected(self) -> bool:
        """Return whether its site is away."""
        return self.faults is not None and self.faults.disconnected

    def own_faults(self) -> AgentFaults:
        """Return its mutable fault effects, created on first use."""
        if self.faults is None:
            self.faults = AgentFaults()
        return self.faults


def has(numbers: list[int], number: int) -> bool:
    """Check whether a number is in an ascending list."""
    if not numbers or number > numbers[-1]:
        return False
    return numbers[bisect_left(numbers, number)] == number


def enter(numbers: list[int], number: int) -> None:
    """Insert a number into an ascending list, nearly always at its end."""
    if not numbers or number > numbers[-1]:
        numbers.append(number)
    else:
        insort(numbers, number)


class AgentColumns(Protocol):
    """Columns in place of the records of some agents."""

    def leave(self, number: int) -> AgentRecord | None:
        """Return the record of an agent that leaves the columns; None if it is not inside."""

    def leave_all(self) -> None:
        """Move all agents out of the columns."""

    def __contains__(self, number: int) -> bool:
        """Check whether an agent is inside."""

    def ask(self, agents: Sequence[int], chosen: Collection[int]) -> None:
        """Note which of these agents, of whom some may not be inside, are asked for a message."""

    def total(self, name: str) -> int:
        """Return the sum of a number of the agents inside, which all optimise."""


class AgentRecords(LazyRecords[AgentRecord]):
    """The records of all agents, some of which may be in `columns`."""

    columns: AgentColumns | None = None

    def __init__(self) -> None:
        super().__init__(AgentRecord)

    def __missing__(self, number: int) -> AgentRecord:
        record = None if self.columns is None else self.columns.leave(number)
        if record is None:
            return super().__missing__(number)
        self[number] = record
        return record

    def every(self) -> Iterator[AgentRecord]:
        """Return all existing records, without marking them as accessed."""
        if self.columns is not None:
            self.columns.leave_all()
        return super().every()

    def total(self, name: str, numbers: Collection[int]) -> int:
        """Return the sum of a number of these agents, which all that are in columns belong to."""
        known: int = sum(getattr(record, name) for record in super().every() if record.number in numbers)
        return known if self.columns is None else known + self.columns.total(name)

    def ask(self, numbers: Sequence[int], chosen: Collection[int]) -> list[AgentRecord]:
        """Note which of these agents are asked for a message; return the records of those that are not in columns."""
        if self.columns is not None:
            self.columns.ask(numbers, chosen)
        records = [self[number] for number in numbers if self.columns is None or number not in self.columns]
        for record in records:
            record.asked = record.number in chosen
        return records


@dataclass(slots=True)
class ProgressCounter:
    """The progress of a run, which distinguishes a run that advances from one that never would.

    - `events`: the number of handled events.
    - `last_event`: the number of the event of the last progress; `last_time`: its time.
    - `restarts`: how often each agent has begun its step again since then.
    - `evaluations`: the successful evaluations of all agents, where the study ends after a number of them.
    - `is_enough`: whether the study ends early, since it has reached its target.
    """

    events: int = 0
    last_event: int = 0
    last_time: float = 0.0
    restarts: dict[int, int] = field(default_factory=dict)
    evaluations: int = 0
    is_enough: bool = False

    @property
    def idle(self) -> int:
        """Return the number of events since the last progress."""
        return self.events - self.last_event

    def note(self, now: float) -> None:
        """Record progress: a step begins or ends, a message has been processed, or an agent continues."""
        self.last_event, self.last_time = self.events, now
        if self.restarts:
            self.restarts = {}


@dataclass(slots=True)
class CoreState:
    """All mutable state of a run between agents.

    - `agents`: a record of each agent with at least one event, by its number.
    - `server`: the state of the algorithm's coordinator half; `privacy`: the `AggregatorState` where messages are private.
    - `rounds`: the state of the exchange.
    - `progress`: the progress of the run.
    - `outages`: the number of reasons that keep the coordinator down.
    - `link_free_at`: when the coordinator's link will be free.
    - `disclosures`: the number of messages that their senders have made private themselves.
    - `copied`: the newest message that a lying agent may copy.
    - `cluster`: the `ClusterState`, where evaluations queue for workers.
    - `beliefs`: the agents that are silent, where the coordinator hears of it by missing heartbeats, each since an event.
    - `changed`: since when faults hold that a fork has changed, by their places in the plan.
    - `asked`: how often each agent was chosen, where the choice depends on what is known of agents.
    """

    agents: AgentRecords
    server: Any
    privacy: Any = None
    rounds: Rounds = field(default_factory=Rounds)
    progress: ProgressCounter = field(default_factory=ProgressCounter)
    outages: int = 0
    link_free_at: float = 0.0
    disclosures: int = 0
    copied: SentMessage | None = None
    cluster: Any = None
    beliefs: dict[int, int] = field(default_factory=dict)
    changed: dict[int, float] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
