"""The shared part of collaborative Bayesian optimisation: the agent's surrogate, an earlier task, the newest answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge

from fedbo.algorithms.base import Array, Decision, Inbound, Origin, Payload, Problem
from fedbo.algorithms.components.coordinates import distance, to_coordinates
from fedbo.algorithms.components.inner_search import maximise_acquisition, maximise_posterior
from fedbo.algorithms.components.surrogate import LocalState, Surrogate, evaluable, first_point
from fedbo.algorithms.gp import incumbent
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import Marked
from fedbo.surrogates.acquisition import Criterion
from fedbo.surrogates.gp import Posterior
from fedbo.surrogates.projected import SAME_POINT

Surface = Callable[[Array], tuple[Array, Array]]


class CollaborativeState(NamedTuple):
    """An agent's state.

    local: its observations.
    history_u `(t_n, d)`, history_y `(t_n,)`: an earlier task, points in the surrogate's coordinates.
    answer: the newest answer.
    t: number of its decisions.
    told `(k, d)`: points of others that are being evaluated; lost: how many of those evaluated were no better than its best.
    """

    local: LocalState
    history_u: Array
    history_y: Array
    answer: Payload | None = None
    t: int = 0
    told: Array | None = None
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Collaborative(Marked, ABC):
    """The settings and the agent half that such methods share; a method declares its messages and its decisions.

    own: the agent's Gaussian process.
    every: send a new message before the first and after every k-th iteration; 0 sends one before the first only.
    earlier_first: evaluate the best point of the agent's own earlier task first, if there is one.
    """

    queries: ClassVar[int | None] = 1

    own: Surrogate = field(default_factory=Surrogate)
    """The agent's own surrogate: a table of its settings."""
    every: Annotated[int, Ge(0), "0 means once, before the start"] = 5
    """Iterations between two messages; 0: one message before the first."""
    earlier_first: bool = False
    """Whether the first decision evaluates the best point of the agent's own earlier task."""

    @abstractmethod
    def _decide(self, state: CollaborativeState, streams: Streams) -> tuple[Decision, CollaborativeState]:
        """Choose the next point; there may be neither an observation nor an answer."""

    def sends(self, step: int) -> bool:
        """Return True before the start, and after every `every`-th iteration."""
        return step == 0 if not self.every else step % self.every == 0

    def agent_init(self, problem: Problem, streams: Streams) -> CollaborativeState:
        """Return the state with the observations of an earlier task."""
        known = problem.history_x if problem.history_x is not None else np.empty((0, problem.dim))
        values = problem.history_y if problem.history_y is not None else np.empty(0)
        return CollaborativeState(self.own.begin(problem), to_coordinates(known, self.own.coordinates), values)

    def ask(self, state: CollaborativeState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, CollaborativeState]:
        """Decide by the agent's observations and the newest answer."""
        for message in inbox:
            state = state._replace(answer=message.payload)
        local = state.local
        state = state._replace(local=local.cautious(), t=state.t + 1)
        if self.earlier_first and state.t == 1 and len(state.history_y):
            u = state.history_u[int(state.history_y.argmax())]
            return self.own.fresh(u, state.local, streams, "own"), state._replace(local=local)
        decision, after = self._decide(state, streams)
        return decision, after._replace(local=local.fitted_by(after.local))

    def pending(self, state: CollaborativeState, x: Array) -> CollaborativeState:
        """Record the points that are being evaluated."""
        return state._replace(local=self.own.noting(state.local, x))

    def avoiding(self, state: CollaborativeState, x: Array) -> CollaborativeState:
        """Record the points whose evaluations failed."""
        return state._replace(local=self.own.noting_failed(state.local, x))

    def tell(self, state: CollaborativeState, x: Array, y: Array) -> CollaborativeState:
        """Append the observations."""
        return state._replace(local=self.own.observed(state.local, x, y))

    def _known(self, state: CollaborativeState) -> tuple[Array, Array]:
        """Return the points `(n, d)`, in coordinates, and values `(n,)` behind a message.

        Before the first iteration they are those of an earlier task alone, if there was one.
        """
        if not state.t and len(state.history_y):
            return state.history_u, state.history_y
        return np.concatenate([state.history_u, state.local.u]), np.concatenate([state.history_y, state.local.y])

    def _fitted(self, state: CollaborativeState, streams: Streams) -> CollaborativeState:
        return state._replace(local=self.own.fit(state.local, streams))

    def _own_query(self, state: CollaborativeState, streams: Streams) -> tuple[Decision, CollaborativeState]:
        """Maximise the expected improvement under the own surrogate; without observations the point is uniform."""
        if not len(state.local.u):
            return Decision(first_point(state.local, streams), "own"), state
        state = self._fitted(state, streams)
        posterior = self.own.posterior(state.local)
        u = maximise_posterior(posterior, improvement(posterior), state.local, self.own.coordinates, streams)
        return self.own.fresh(u, state.local, streams, "own"), state

    def _maximise(self, surface: Surface, local: LocalState, streams: Streams, origin: Origin) -> Decision:
        """Decide for the point where an acquisition of coordinates is largest."""
        u = maximise_acquisition(surface, local, self.own.coordinates, streams)
        return self.own.fresh(u, local, streams, origin)


def in_cells(x: Array, cells: int) -> Array:
    """Move points of the unit cube to the middles of cells, of which each input has so many; 0 leaves them where they are."""
    return x if not cells else (np.minimum(np.floor(x * cells), cells - 1) + 0.5) / cells


def improvement(posterior: Posterior) -> Criterion:
    """Return the expected improvement over the largest posterior mean at observed points and at those under way."""
    return Criterion(incumbent(posterior, "mean", len(posterior.x)))


def next_member(own: Surrogate, state: CollaborativeState, size: int, streams: Streams) -> Decision | None:
    """Decide for the first member of a portfolio `x` that is new to the agent; None after the first `size` decisions."""
    local, answer = state.local, state.answer
    if answer is None or state.t > size:
        return None
    for u in to_coordinates(evaluable(local, answer["x"]), own.coordinates):
        if not local.is_near_failure(u) and distance(local.taken, u) >= SAME_POINT:
            return own.fresh(u, local, streams, "federated")
    return None
