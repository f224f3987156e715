"""A method as a plain author writes it, in a file of its own and without columns, for random studies.

Its settings choose what such methods do differently: decisions of one or several points or as many as suit, with a note or not;
messages after some steps, with an array of the state itself or of any length; a coordinator that refuses, or answers some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Le

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import check
from fedbo.settings.trust import admit


class State(NamedTuple):
    """An agent's best point `x (d,)`, the value there, the length of its next step, and the lengths that it was told."""

    x: Array
    value: float
    length: Array
    told: list[float]


@dataclass(frozen=True, slots=True)
class Climb:
    """Random steps of a length that grows after a success and shrinks after a failure; agents share its median."""

    points: Annotated[int, Ge(0), Le(3)] = 1
    """Points of each decision; 0 for one or two, as suits."""
    length: Annotated[float, Gt(0), Le(1)] = 0.2
    every: Annotated[int, Ge(1)] = 1
    """Steps for each message."""
    long: bool = False
    """Whether messages and answers have any length."""
    noted: bool = False
    """Whether some decisions have a note."""
    refuses: bool = False
    """Whether the coordinator refuses some messages."""
    shy: bool = False
    """Whether it answers only some agents."""
    reveals = "computable"

    def __post_init__(self) -> None:
        check(self)

    @property
    def queries(self) -> int | None:
        """Return the number of points of a decision."""
        return self.points or None

    def sends(self, step: int) -> bool:
        """Send after some steps."""
        return step % self.every == 0

    def upload(self, problem: Problem) -> Declaration | None:
        """Declare lengths of steps."""
        return {"length": Field((None if self.long else 1,))}

    download = upload

    def agent_init(self, problem: Problem, streams: Streams) -> State:
        """Start at a drawn point."""
        return State(streams.rng("start").random(problem.dim), -np.inf, np.array([self.length]), [])

    def ask(self, state: State, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, State]:
        """Take random steps from the best point, of the newest length that was told, if any."""
        told = [*state.told, *(float(one.payload["length"][-1]) for one in inbox if len(one.payload["length"]))]
        length = np.array([told[-1]]) if inbox and told else state.length
        rng = streams.rng("step")
        count = self.points or 1 + int(rng.random() < 0.3)
        x = np.clip(state.x + length[0] * rng.standard_normal((count, len(state.x))), 0.0, 1.0)
        note = "far" if self.noted and length[0] > 0.25 else ""
        return Decision(x, "federated" if inbox else "own", note=note), state._replace(length=length, told=told[-5:])

    def tell(self, state: State, x: Array, y: Array) -> State:
        """Learn values; larger ones are better."""
        if not len(y):
            return state
        best = int(np.argmax(y))
        if y[best] > state.value:
            return state._replace(x=x[best], value=float(y[best]), length=np.minimum(1.5 * state.length, 1.0))
        return state._replace(length=0.9 * state.length)

    def outbox(self, state: State, streams: Streams) -> tuple[Payload | None, State]:
        """Send the length, which is an array of the state, or all that it was told too."""
        return {"length": np.array([*state.told, *state.length]) if self.long else state.length}, state

    def server_init(self, problem: Problem) -> dict[int, float]:
        """Start without messages; the state is each agent's newest length, which changes in place."""
        return {}

    def receive(self, state: dict[int, float], message: Inbound, now: float) -> dict[int, float]:
        """Keep an agent's newest length, unless the message is refused."""
        if self.refuses and (message.sender + message.step) % 4 == 3:
            raise ValueError(f"step {message.step} is not welcome")
        state[message.sender] = float(message.payload["length"][-1])
        return state

    def broadcast(
        self, state: dict[int, float], recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], dict[int, float]]:
        """Answer with the median of the lengths, or all of them."""
        known = np.array([state[agent] for agent in sorted(state)] or [self.length])
        answer = known if self.long else np.array([np.median(known)])
        return {
            agent: {"length": answer} for agent in recipients if not self.shy or (agent in state) != (agent % 3 == 1)
        }, state


OWN = f"{__name__}:Climb"
admit([OWN])  # in every process that draws studies
