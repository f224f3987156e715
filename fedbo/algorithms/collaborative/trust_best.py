"""Judged incumbents, a method of ours: agents send their best points, and each agent judges by itself whose to evaluate.

An agent's own surrogate decides about the points of others, so a sender whose function is another one loses trust as soon as
the agent has evaluated near its points. Values are never sent: scales and levels of agents do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Origin, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.collaborative import Collaborative, CollaborativeState, in_cells
from fedbo.algorithms.components.coordinates import distances, from_coordinates, to_coordinates
from fedbo.algorithms.components.surrogate import Surrogate, evaluable
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf
from fedbo.surrogates.gp import predict
from fedbo.surrogates.projected import SAME_POINT


class IncumbentServer(NamedTuple):
    """The coordinator's state: the newest incumbent of every agent, `x (N, d)`, and who has sent one, `held (N,)`."""

    x: Array
    held: Array


@dataclass(frozen=True, slots=True)
class TrustBest(Collaborative):
    """Judged incumbents; `Collaborative` has the settings that are not named here.

    **A message is an observation**: the best point that an agent has seen, without its value. The answer holds the newest
    incumbents of all other agents. Every `turn`-th decision, beginning with the first, evaluates one of those that are new to
    the agent. It is the one with the largest upper confidence bound of the agent's own Gaussian process, mean plus `beta`
    standard deviations. All other decisions are the agent's own.

    pay: the largest share of the agent's evaluations that may go to points of others that are no better than its best; one that
      is better costs nothing. Points that are being evaluated count as no better.
    control: "noise" sends a uniform point in the place of the incumbent, and "uniform" evaluates uniform points in the place of
      incumbents. "alone" sends nothing.
    """

    horizon_use: ClassVar[str] = ""
    own: Surrogate = field(default_factory=lambda: Surrogate(surrogate="suited", refit=1))
    every: Annotated[int, Ge(0), "0 means once, before the start"] = 1
    turn: Annotated[int, Ge(1)] = 2
    """Interval of decisions that evaluate another agent's incumbent."""
    beta: Annotated[float, Ge(0)] = 2.0
    """Standard deviations of the bound by which incumbents are judged."""
    pay: Annotated[float, Gt(0), Le(1)] = 1.0
    """Most of all evaluations that may go to points of others in vain."""
    cells: Annotated[int, Ge(0)] = 0
    """Cells of an input to whose middles sent points are moved; 0: sent exactly."""
    control: Annotated[str, OneOf(("none", "noise", "uniform", "alone"))] = "none"
    """Control of an experiment, fixed by the algorithm's name."""

    @property
    def reveals(self) -> Reveals:
        """Return what messages reveal: evaluated points, or closely where they are."""
        if self.control == "alone":
            return Reveals.NOTHING
        return Reveals.COMPUTABLE if self.cells else Reveals.OBSERVATIONS

    def sends(self, step: int) -> bool:
        """Return True before the start, and after every `every`-th iteration; False for the control "alone"."""
        return self.control != "alone" and Collaborative.sends(self, step)

    def upload(self, problem: Problem) -> Declaration | None:
        """Declare the best point `(d,)`."""
        if self.control == "alone":
            return None
        return {"x": Field((problem.dim,), low=0.0, high=1.0)}

    def download(self, problem: Problem) -> Declaration | None:
        """Declare the incumbents of the others `(k, d)`."""
        if self.control == "alone":
            return None
        return {"x": Field((None, problem.dim), low=0.0, high=1.0, longest=problem.n_agents)}

    def _decide(self, state: CollaborativeState, streams: Streams) -> tuple[Decision, CollaborativeState]:
        if state.answer is None or (state.t - 1) % self.turn or not self._affords(state):
            return self._own_query(state, streams)
        local, name = state.local, self.own.coordinates
        if self.control == "uniform":
            x = evaluable(local, streams.rng("uniform instead").random((1, local.dim)))
            return self._of_others(to_coordinates(x, name)[0], state, streams, "uniform")
        offered = to_coordinates(evaluable(local, state.answer["x"]), name)
        taken, none = local.taken, np.zeros(len(offered), np.int64)
        fresh = distances(taken, none, none + len(taken), offered) >= SAME_POINT
        if not fresh.any():
            return self._own_query(state, streams)
        offered = offered[fresh]
        if len(local.u):
            state = self._fitted(state, streams)
            mean, variance = predict(self.own.posterior(state.local), offered)
            offered = offered[int((mean + self.beta * np.sqrt(variance)).argmax())][None, :]
        return self._of_others(offered[0], state, streams, "federated")

    def _affords(self, state: CollaborativeState) -> bool:
        """Return whether one more evaluation in vain would keep the share of `pay`."""
        under_way = 0 if state.told is None else len(state.told)
        return state.lost + under_way + 1 <= self.pay * (len(state.local.y) + under_way + 1)

    def _of_others(
        self, u: Array, state: CollaborativeState, streams: Streams, origin: Origin
    ) -> tuple[Decision, CollaborativeState]:
        """Decide for a point of others, and note it until its value is there."""
        decision = self.own.fresh(u, state.local, streams, origin)
        told = decision.x if state.told is None else np.concatenate([state.told, decision.x])
        return decision, state._replace(told=told)

    def tell(self, state: CollaborativeState, x: Array, y: Array) -> CollaborativeState:
        """Append the observations, and count the points of others that were no better than the agent's best."""
        best, (is_told, state) = np.max(state.local.y, initial=-np.inf), _returned(state, x)
        return Collaborative.tell(self, state._replace(lost=state.lost + int((y[is_told] <= best).sum())), x, y)

    def avoiding(self, state: CollaborativeState, x: Array) -> CollaborativeState:
        """Record the points whose evaluations failed; those of others were in vain."""
        is_told, state = _returned(state, x)
        return Collaborative.avoiding(self, state._replace(lost=state.lost + int(is_told.sum())), x)

    def outbox(self, state: CollaborativeState, streams: Streams) -> tuple[Payload | None, CollaborativeState]:
        """Send the best point that is known."""
        u, y = self._known(state)
        if not len(y):
            return None, state
        x = from_coordinates(u[int(y.argmax())], self.own.coordinates)
        if self.control == "noise":
            x = evaluable(state.local, streams.rng("noise").random((1, len(x))))[0]
        return {"x": in_cells(x, self.cells)}, state

    def server_init(self, problem: Problem) -> IncumbentServer:
        """Start without messages."""
        return IncumbentServer(np.zeros((problem.n_agents, problem.dim)), np.zeros(problem.n_agents))

    def receive(self, state: IncumbentServer, message: Inbound, now: float) -> IncumbentServer:
        """Store an agent's newest incumbent, moved into the unit cube if it was damaged."""
        state.x[message.sender] = np.clip(message.payload["x"], 0.0, 1.0)
        state.held[message.sender] = 1.0
        return state

    def broadcast(
        self, state: IncumbentServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], IncumbentServer]:
        """Answer each agent with the others' incumbents."""
        there = np.flatnonzero(state.held * staleness_weight)
        payloads = {agent: {"x": state.x[there[there != agent]]} for agent in recipients}
        return {agent: payload for agent, payload in payloads.items() if len(payload["x"])}, state


def _returned(state: CollaborativeState, x: Array) -> tuple[npt.NDArray[np.bool_], CollaborativeState]:
    """Return which of the points `x (n, d)` are of others and were under way, and the state without these."""
    if state.told is None or not len(state.told):
        return np.zeros(len(x), np.bool_), state
    same = np.abs(x[:, None, :] - state.told[None, :, :]).max(axis=2) < SAME_POINT
    return same.any(axis=1), state._replace(told=state.told[~same.any(axis=0)])


def _entry(control: str, summary: str) -> Entry:
    return Entry(
        TrustBest,
        {"control": control},
        presets={"careful": {"turn": 1, "pay": 0.25, "earlier_first": True}, "coarse": {"cells": 8}},
        summary=summary,
    )


ALGORITHMS = {
    "trust_best": _entry("none", "agents share their best points, and each judges by its own surrogate whose to evaluate"),
    "trust_best_alone": _entry("alone", "trust_best without messages"),
    "trust_best_noise": _entry("noise", "control for trust_best: every message is a uniform point"),
    "trust_best_uniform": _entry("uniform", "control for trust_best: uniform points instead of the others' best points"),
}
