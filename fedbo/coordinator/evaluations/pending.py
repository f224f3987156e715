"""The state of evaluations that are scheduled one by one, as plain data: part of a snapshot of the coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Key = tuple[int, int]
DECISION = -1  # the point of what is no evaluation but the decision itself


class EvaluationRequest(NamedTuple):
    """A request for an evaluation of point `point` of step `step`, which costs `cost` and is evaluated `pulls` times.

    Where evaluations may stop early it is for the segment from fidelity `since` to `fidelity`, which is 0 where they do not.
    """

    step: int
    point: int
    cost: float = 1.0
    pulls: int = 1
    since: int = 0
    fidelity: int = 0


@dataclass(slots=True)
class PendingEvaluation:
    """An evaluation that is waiting, under way, or has ended, or a decision.

    - `length` is how long one pull takes at pace 1.
    - `started` and `finished` are when it began and ended.
    - `remaining` is what was left of it at the time `since`, at pace 1.
    - `lease` is the number of its end in the event queue: an older one is void.
    - `in_time` says whether it takes no longer than it may.
    - On a cluster `work` is how long all its pulls take on a worker of speed 1, as far as they are not done; it came into the
      queue at the time `queued` with the `number`, and is on a `worker`, or on none, which is -1.
    - Where evaluations may stop early, one is `held` at a rung, on its place and its worker, until its agent says what becomes
    of it; its present leg began at the time `leg`, which is None in the first segment of a leg.
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

    @property
    def key(self) -> Key:
        """Give its step and its point."""
        return self.request.step, self.request.point

    @property
    def begun(self) -> float:
        """Give when its present leg began."""
        return self.started if self.leg is None else self.leg


@dataclass(slots=True)
class AgentEvaluations:
    """The evaluations of one agent.

    - `waiting` and `running` are by step and point, in the order in which they were decided on and begun.
    - `deciding` is the decision under way, if it takes time, and `decided` what will be evaluated after it.
    - `ended` are those that the agent has not learned from in a step that is over, in the order of their ends.
    - `heard` counts those of them that it has been told of, `asked` those that it is being told of; None when it is not asked.
    - `pending` counts those that were pending when the present step had been decided on, `pulled` all that the budget counts.
    - `leases` counts the ends that were scheduled.
    - `saved` were pending at the agent's last checkpoint.
    - `paused` wait at a rung; `paused_before` did when the present step was decided on, `paused_saved` at the last checkpoint.
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

    def forget(self, step: int) -> None:
        """Forget what was decided in a step, which begins again."""
        self.waiting = {key: one for key, one in self.waiting.items() if key[0] != step}
        self.running = {key: one for key, one in self.running.items() if key[0] != step}
        self.ended = [one for one in self.ended if one.request.step != step]
        self.paused = {key: one for key, one in self.paused.items() if key[0] != step}
        self.deciding, self.decided, self.heard, self.asked = None, [], 0, None

    def unlearn(self) -> None:
        """Take back what was made of the ends that the agent was told of in its present step, which begins again.

        An evaluation is again at the first of these ends, and one that went on from a pause is paused.
        """
        ends = dict[Key, PendingEvaluation]()
        for one in self.ended:
            ends.setdefault(one.key, one)
        self.paused = dict(self.paused_before)
        again = {*ends, *self.paused}
        self.ended = [one for one in ends.values() if one.key not in self.paused]
        self.waiting = {key: one for key, one in self.waiting.items() if key not in again}
        self.running = {key: one for key, one in self.running.items() if key not in again}

    def left(self, told: int) -> list[EvaluationRequest]:
        """List what is pending for an agent that has been told of the first `told` ends."""
        running = (one for one in self.running.values() if not one.held)
        return [one.request for one in (*self.ended[told:], *running, *self.waiting.values())]
