"""All that changes in a run between agents, as plain data: what a snapshot of the coordinator holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.base import Inbound
from fedbo.coordinator.events import MessageReceived
from fedbo.coordinator.exchange import Rounds


@dataclass(slots=True)
class AgentStep:
    """The step that an agent is at.

    `inbox` came with it, `speaks` says whether a message is asked for. `parts` are the lengths of its decision and of each
    of its points, which cost `costs` and are evaluated `pulls` times; `left` is what was left of their sum at time `since`.
    `trail` has (time, work done, pace) whenever the pace changed; a pace of 0 is a pause. One that was `timed` before is begun
    again, and a `void` one will be. `report` waits for retries to take their time. `order` is what the agent was told last.
    """

    inbox: tuple[Inbound, ...]
    speaks: bool
    begun: float
    timed: bool = False
    costs: tuple[float, ...] | None = None
    pulls: tuple[int, ...] | None = None
    parts: tuple[float, ...] = ()
    left: float = math.inf
    since: float = 0.0
    trail: list[tuple[float, float, float]] | None = None
    void: bool = False
    report: StepReport | None = None
    order: StepRequest | None = None

    def set_pace(self, now: float, before: float, after: float) -> None:
        """Work on at another pace from now on."""
        if not self.parts:  # how long it takes is not known yet
            return
        if self.trail is None:
            self.trail = [(self.begun, 0.0, before)]
        self.left = max(0.0, self.left - (now - self.since) * before)
        self.since = now
        self.trail.append((now, sum(self.parts) - self.left, after))

    def times(self, now: float) -> tuple[float, ...]:
        """Give when its first evaluation began and when each of them ended, the last one now."""
        times, done = [], 0.0
        for part in self.parts[:-1]:
            done += part
            times.append(self.begun + done if self.trail is None else _time(self.trail, done))
        return (*times, now)


def _time(trail: list[tuple[float, float, float]], done: float) -> float:
    """Give when so much of the work was done."""
    for place, (time, before, pace) in enumerate(trail):
        after = trail[place + 1][1] if place + 1 < len(trail) else math.inf
        if pace > 0 and done <= after:
            return time + (done - before) / pace
    return trail[-1][0]


@dataclass(slots=True)
class CoreState:
    """All that changes in a run between agents; lists are indexed by agent.

    - `step` is the number of an agent's step, `steps` those who work with their step, `lease` counts how often an agent was
      given work: a result that comes on an older lease is discarded. `base` is the age of the exchange when its step began,
      `evaluated` counts the points begun and `again` those begun once more, `t_n` its observations, `saved_t_n` those of its
      last checkpoint, and `pulled` its evaluations by what counts.
    - `inbox` are messages that wait for an agent's next step, `heard` the numbers of the answers that it has had.
    - An agent in `waiting` stands still until an answer with at least this number; one in `away` is absent before a step,
      one in `ready` would begin its step but for what is in its way, one in `leaving` has done its work, one in `ended` too,
      or is lost for good, and one in `forgetful` has lost what it learned since its checkpoint.
    - Those in `lost` have ended because they are lost for good.
    - `blocked` counts what keeps an agent from working and `cut` what cuts it off; those in `off` are known not to be there.
      `pace` is how fast it works, `asked` who was asked to send, `lasted` how long the last step of an agent took.
    - `awaited` are the messages under way by (agent, step), as they were sent last, `repeated` the answers that were sent more
      than once by (agent, number), with how often. `seen` are the steps whose message took effect, `newest` is the base of each
      agent's newest message or -1, `previous` its previous message, where a fault may replay it.
    - `down` counts what keeps the coordinator down, `free` is when its link will be free, `overdue` whether the open round's
      deadline has passed, `events` counts the events handled, `server` is the coordinator half of the algorithm and `door` the
      `DoorState` of messages that are private. `disclosed` counts the messages that their senders have hidden themselves.
    - The run came further last at the event `reached`, at the time `moved`; `restarts` counts how often each agent has begun
      its step again since then.
    """

    step: list[int]
    lease: list[int]
    base: list[int]
    evaluated: list[int]
    again: list[int]
    t_n: list[int]
    saved_t_n: list[int]
    pulled: list[int]
    inbox: list[list[Inbound]]
    heard: list[set[int]]
    seen: list[set[int]]
    newest: list[int]
    blocked: list[int]
    cut: list[int]
    pace: list[float]
    server: Any
    rounds: Rounds = field(default_factory=Rounds)
    steps: dict[int, AgentStep] = field(default_factory=dict)
    waiting: dict[int, float] = field(default_factory=dict)
    away: set[int] = field(default_factory=set)
    ready: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    forgetful: set[int] = field(default_factory=set)
    off: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    lasted: dict[int, float] = field(default_factory=dict)
    awaited: dict[tuple[int, int], MessageReceived] = field(default_factory=dict)
    repeated: dict[tuple[int, int], int] = field(default_factory=dict)
    previous: dict[int, MessageReceived] = field(default_factory=dict)
    down: int = 0
    free: float = 0.0
    overdue: bool = False
    events: int = 0
    door: Any = None
    disclosed: int = 0
    reached: int = 0
    moved: float = 0.0
    restarts: dict[int, int] = field(default_factory=dict)

    @property
    def idle(self) -> int:
        """Count the events since the run came further."""
        return self.events - self.reached

    def advance(self, now: float) -> None:
        """Note that the run came further: a step was begun or finished, a message has been dealt with, an agent goes on."""
        self.reached, self.moved = self.events, now
        if self.restarts:
            self.restarts = {}


def fresh_state(n_agents: int, server: Any) -> CoreState:
    """Give the state before anything has happened."""
    zeros = [[0] * n_agents for _ in range(7)]
    return CoreState(
        step=zeros[0],
        lease=zeros[1],
        base=zeros[2],
        evaluated=zeros[3],
        again=[0] * n_agents,
        t_n=zeros[4],
        saved_t_n=[0] * n_agents,
        pulled=[0] * n_agents,
        inbox=[[] for _ in range(n_agents)],
        heard=[set() for _ in range(n_agents)],
        seen=[set() for _ in range(n_agents)],
        newest=[-1] * n_agents,
        blocked=zeros[5],
        cut=zeros[6],
        pace=[1.0] * n_agents,
        server=server,
    )


class ProtocolError(RuntimeError):
    """An algorithm broke its own declaration, or left an agent waiting."""


class EndlessError(RuntimeError):
    """A run that would never end."""
