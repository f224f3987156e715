"""The state of evaluations that are scheduled one by one, as plain data: part of a snapshot of the coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Key = tuple[int, int]
DECISION = -1  # the point of what is no evaluation but the decision itself


class EvaluationRequest(NamedTuple):
    """A request for an evaluation of point `point` of step `step`, which costs `cost` and is evaluated `pulls` times.

    Where evaluations may stop early it covers the segment from fidelity `since` to `fidelity`; otherwise `fidelity` is 0.
    """

    step: int
    point: int
    cost: float = 1.0
    pulls: int = 1
    since: int = 0
    fidelity: int = 0


@dataclass(slots=True)
class PendingEvaluation:
    """An evaluation that is waiting, running or ended, or a decision.

    - `length`: the duration of one pull at pace 1.
    - `started` and `finished`: when it began and ended.
    - `remaining`: what was left of it at the time `since`, at pace 1.
    - `lease`: the number of its end in the event queue; an end with an older number is void.
    - `in_time`: whether it stays within the time limit.
    - On a cluster, `work` is the remaining duration of all its pulls on a worker of speed 1. It has waited since
      the time `queued`, its last preemption if there was one, with the `number`, and runs on `worker`; -1 is none.
    - `copied`: the time that its other copy took on a worker, once it has ended.
    - Where evaluations may stop early, one is `held` at a rung, on its place and its worker, until its agent decides. Its
      present leg began at the time `leg`, which is None in the first segment of a leg.
    """

    request: EvaluationRequest
    length: float
    started: float = 0.0
    finished: float = 0.0
    remaining: float = 0.0
    since: float = 0.0
    lease: int = 0
    in_time: bool = True
    work: float = 0.0
    queued: float = 0.0
    number: int | None = None
    worker: int = -1
    held: bool = False
    leg: float | None = None
    copied: float = 0.0

    @property
    def key(self) -> Key:
        """Return its step and its point."""
        return self.request.step, self.request.point

    @property
    def begun(self) -> float:
        """Return the time at which its present leg began."""
        return self.started if self.leg is None else self.leg


@dataclass(slots=True)
class AgentEvaluations:
    """The evaluations of one agent.

    - `waiting` and `running`: by step and point, in the order of decision and of start.
    - `copies`: copies of running ones, by keys of their own.
    - `deciding`: the decision in progress, if it takes time; `decided`: the evaluations that follow it.
    - `ended`: those that no finished step has learned from, in the order of their ends.
    - `heard`: how many of them the agent knows; `asked`: how many it is being notified of, None if it is not being notified.
    - `pending`: the number pending right after the decision of the present step; `pulled`: all that the budget counts.
    - `leases`: the number of scheduled ends.
    - `saved`: those pending at the agent's last checkpoint.
    - `paused`: those that wait at a rung, now; `paused_before` at the decision of the present step, `paused_saved` at the last
      checkpoint.
    - `spent`: the time of the agent's evaluations, with those of the present step that it knows.
    - `times`: the start and the end of the present step's only evaluation, where its agent is not told.
    """

    waiting: dict[Key, PendingEvaluation] = field(default_factory=dict)
    running: dict[Key, PendingEvaluation] = field(default_factory=dict)
    deciding: PendingEvaluation | None = None
    decided: list[PendingEvaluation] = field(default_factory=list)
    ended: list[PendingEvaluation] = field(default_factory=list)
    heard: int = 0
    asked: int | None = None
    pending: int = 0
    pulled: int = 0
    leases: int = 0
    saved: tuple[EvaluationRequest, ...] = ()
    paused: dict[Key, PendingEvaluation] = field(default_factory=dict)
    paused_before: dict[Key, PendingEvaluation] = field(default_factory=dict)
    paused_saved: dict[Key, PendingEvaluation] = field(default_factory=dict)
    spent: float = 0.0
    times: tuple[float, ...] = ()
    copies: dict[Key, PendingEvaluation] = field(default_factory=dict)

    def forget(self, step: int) -> None:
        """Forget the decisions of a step, which begins again."""
        self.waiting = {key: one for key, one in self.waiting.items() if key[0] != step}
        self.running = {key: one for key, one in self.running.items() if key[0] != step}
        self.ended = [one for one in self.ended if one.request.step != step]
        self.paused = {key: one for key, one in self.paused.items() if key[0] != step}
        self.deciding, self.decided, self.heard, self.asked = None, [], 0, None

    def unlearn(self) -> None:
        """Undo the agent's verdicts on the ends of its present step, which begins again.

        An evaluation returns to the first of these ends, and one that was resumed from a pause is paused again.
        """
        ends = dict[Key, PendingEvaluation]()
        for one in self.ended:
            ends.setdefault(one.key, one)
        self.paused = dict(self.paused_before)
        again = {*ends, *self.paused}
        self.ended = [one for one in ends.values() if one.key not in self.paused]
        self.waiting = {key: one for key, one in self.waiting.items() if key not in again}
        self.running = {key: one for key, one in self.running.items() if key not in again}

    def left(self) -> list[EvaluationRequest]:
        """List the pending evaluations of an agent that knows of no end."""
        running = [one for one in self.running.values() if not one.held]
        return [one.request for one in (*self.ended, *running, *self.waiting.values())]

    def count(self, told: int) -> int:
        """Count the pending evaluations of an agent that knows the first `told` ends."""
        held = sum([one.held for one in self.running.values()])
        return len(self.ended) - told + len(self.running) - held + len(self.waiting)
