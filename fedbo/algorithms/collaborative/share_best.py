"""Sharing the best: agents send their incumbents, and the coordinator makes a portfolio or a bounding box of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components import several
from fedbo.algorithms.components.collaborative import Collaborative, CollaborativeState, improvement, in_cells, next_member
from fedbo.algorithms.components.coordinates import from_coordinates, to_coordinates
from fedbo.algorithms.components.inner_search import maximise_posterior
from fedbo.algorithms.components.several import Several
from fedbo.algorithms.components.several_models import improve, unsuitable_for_improvement
from fedbo.algorithms.components.surrogate import evaluable
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf
from fedbo.settings.records import changed
from fedbo.surrogates.fronts import hypervolume, non_dominated

CANDIDATES = 500  # the portfolio is chosen among so many incumbents at most, since each is compared with every other
NARROWEST = 1e-3  # a bounding box is this wide at least


class BestServer(NamedTuple):
    """The coordinator's state: the incumbents of all agents, `x (N, d)` and `value (N,)`, and who has sent one, `held (N,)`.

    With several objectives or bounds each agent has `front` rows, of which it may use fewer.
    """

    x: Array
    value: Array
    held: Array


@dataclass(frozen=True, slots=True)
class ShareBest(Collaborative):
    """Sharing the best; `Collaborative` has the settings that are not named here.

    **A message is an observation**: the best point that an agent has seen, and nothing else. With `cells` it is the middle of
    the cell where that point lies, which tells the point itself only where an input has few values.

    form: "portfolio" evaluates a portfolio of incumbents; "box" searches the smallest box that holds all incumbents (Perrone et
      al. 2019).
    values: send the value of the best point too.
    size: incumbents of a portfolio. Each maximises its gain in sum_n w_n max_m exp(-|x_m - x_n|^2 / (2 `reach`^2)), with the
      maximum over the chosen m. w_n is 1, or with `values` the best value of n less the least of all. The first `size`
      decisions evaluate the members that are new to the agent, in their order.
    margin: width added to the box on every side.
    front: points of a message with several objectives or bounds: feasible ones that no other one dominates, those with the most
      hypervolume first; before there is one, the point that violates the bounds least. Agents then maximise the constrained
      improvement, or that of the hypervolume of two objectives, as `gp_ei` does.
    """

    horizon_use: ClassVar[str] = ""

    form: Annotated[str, OneOf(("portfolio", "box"))] = "portfolio"
    """Portfolio to evaluate first, or bounding box to search."""
    values: bool = False
    """Whether values are sent, which then weigh the agents."""
    size: Annotated[int, Ge(1)] = 5
    """Members of the portfolio."""
    reach: Annotated[float, Gt(0)] = 0.2
    """Distance over which a member counts for another agent."""
    margin: Annotated[float, Ge(0), Le(1)] = 0.1
    """Widening of the box on every side."""
    front: Annotated[int, Ge(1)] = 5
    """Most points of a message where there are several objectives or bounds."""
    cells: Annotated[int, Ge(0)] = 0
    """Cells of an input to whose middles sent points are moved; 0: sent exactly."""

    @property
    def reveals(self) -> Reveals:
        """Return what messages reveal: evaluated points, or closely where they are."""
        return Reveals.COMPUTABLE if self.cells and not self.values else Reveals.OBSERVATIONS

    def handles(self, problem: Problem) -> str:
        """Return why the settings do not suit the objectives and bounds of a problem; empty where they do."""
        if self.form == "box" or self.values or self.earlier_first:
            return "form = 'box', values = true and earlier_first = true are for one objective without bounds"
        return unsuitable_for_improvement(problem)

    def upload(self, problem: Problem) -> Declaration:
        """Declare the best point `(d,)`, optionally with its value; with several metrics at most `front` points `(s, d)`."""
        if several.is_several(problem):
            return {"x": Field((None, problem.dim), low=0.0, high=1.0, longest=self.front)}
        declared = {"x": Field((problem.dim,), low=0.0, high=1.0)}
        return {**declared, "value": Field((1,))} if self.values else declared

    def download(self, problem: Problem) -> Declaration:
        """Declare the portfolio `(s, d)` in order of choice, or the corners of the box, each `(d,)`."""
        if self.form == "portfolio":
            return {"x": Field((None, problem.dim))}
        return {"low": Field((problem.dim,)), "high": Field((problem.dim,))}

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        """Return the state with the observations of an earlier task."""
        if several.is_several(problem):
            return several.begin(problem, lambda alone: self.agent_init(alone, streams))
        return Collaborative.agent_init(self, problem, streams)

    def ask(self, state: Any, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Any]:
        """Decide by the agent's observations and the newest answer."""
        if not isinstance(state, Several):
            return Collaborative.ask(self, state, inbox, streams)
        answer = inbox[-1].payload if inbox else state.states[0].answer
        state = state._replace(states=tuple(own._replace(answer=answer, t=own.t + 1) for own in state.states))
        member = next_member(self.own, state.states[0], self.size, streams)
        if member is not None:
            return member, state
        local = state._replace(states=tuple(own.local for own in state.states))
        decision, local = improve(self.own, local, streams)
        states = [own._replace(local=after) for own, after in zip(state.states, local.states, strict=True)]
        return decision, state._replace(states=tuple(states))

    def pending(self, state: Any, x: Array) -> Any:
        """Record the points that are being evaluated."""
        if isinstance(state, Several):
            return several.noting(state, x, self.pending)
        return Collaborative.pending(self, state, x)

    def avoiding(self, state: Any, x: Array) -> Any:
        """Record the points whose evaluations failed."""
        if isinstance(state, Several):
            return several.avoiding(state, x, self.avoiding)
        return Collaborative.avoiding(self, state, x)

    def tell_outcomes(self, state: Several, x: Array, values: Array, margins: Array) -> Several:
        """Append the metrics of each evaluation."""
        return several.told(state, x, np.hstack([values, margins]), self.tell, self.avoiding)

    def _decide(self, state: CollaborativeState, streams: Streams) -> tuple[Decision, CollaborativeState]:
        answer = state.answer
        if answer is None:
            return self._own_query(state, streams)
        if self.form == "box":
            state = self._fitted(state, streams)
            return self._within(state, answer["low"], answer["high"], streams), state
        member = next_member(self.own, state, self.size, streams)
        return (member, state) if member is not None else self._own_query(state, streams)

    def _within(self, state: CollaborativeState, low: Array, high: Array, streams: Streams) -> Decision:
        """Maximise the own expected improvement over a box of the unit cube."""
        local, name = state.local, self.own.coordinates
        low, high = to_coordinates(np.stack([low, high]), name)
        width = high - low
        if len(local.u):
            posterior = self.own.posterior(local)
            criterion, lengths = improvement(posterior), np.asarray(posterior.hyper.length_scale) / width
            # In v the box is the unit cube; points are rounded afterwards, since a box need not hold any that is evaluable.
            hyper = replace(posterior.hyper, length_scale=tuple(lengths.tolist()))
            inside = posterior._replace(hyper=hyper, x=(posterior.x - low) / width)
            v = maximise_posterior(inside, criterion, changed(local, lattice=None), "plain", streams)
        else:
            v = streams.rng("first point").random(len(low))
        x = evaluable(local, from_coordinates(np.clip(low + width * v, 0.0, 1.0)[None, :], name))
        return self.own.fresh(to_coordinates(x, name)[0], local, streams, "federated")

    def outbox(self, state: Any, streams: Streams) -> tuple[Payload | None, Any]:
        """Send the best point that is known, or with several metrics the best points."""
        if isinstance(state, Several):
            x, values = state.x, state.values
            if state.states[0].t or not len(state.history_x):
                x, values = np.concatenate([state.history_x, x]), np.concatenate([state.history_values, values])
            else:
                x, values = state.history_x, state.history_values
            chosen = best_points(values, state.objectives, np.array(state.references), self.front)
            return ({"x": in_cells(x[chosen], self.cells)} if len(chosen) else None), state
        u, y = self._known(state)
        if not len(y):
            return None, state
        best = int(y.argmax())
        payload = {"x": in_cells(from_coordinates(u[best], self.own.coordinates), self.cells)}
        return {**payload, "value": y[best : best + 1]} if self.values else payload, state

    def server_init(self, problem: Problem) -> BestServer:
        """Start without messages."""
        rows = problem.n_agents * (self.front if several.is_several(problem) else 1)
        return BestServer(np.zeros((rows, problem.dim)), np.zeros(rows), np.zeros(rows))

    @property
    def tells_usefulness(self) -> bool:
        """Check whether messages have values."""
        return self.values

    def usefulness(self, state: BestServer) -> Array:
        """Return the best value that each agent has sent `(N,)`."""
        return np.where(state.held > 0, state.value, np.nan)

    def receive(self, state: BestServer, message: Inbound, now: float) -> BestServer:
        """Store an agent's newest incumbent, moved into the unit cube if it was damaged."""
        if message.payload["x"].ndim == 2:
            first, count = self.front * message.sender, len(message.payload["x"])
            state.x[first : first + count] = np.clip(message.payload["x"], 0.0, 1.0)
            state.held[first : first + self.front] = np.arange(self.front) < count
            return state
        state.x[message.sender] = np.clip(message.payload["x"], 0.0, 1.0)
        state.value[message.sender] = message.payload.get("value", np.zeros(1))[0]
        state.held[message.sender] = 1.0
        return state

    def broadcast(
        self, state: BestServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], BestServer]:
        """Answer all agents with the same box, or with the same portfolio without the recipient's point."""
        rows = len(state.held) // len(staleness_weight)  # of each agent
        weight = state.held * np.repeat(staleness_weight, rows)
        there = np.flatnonzero(weight)
        if not len(there):
            return {}, state
        x = state.x[there]
        if self.form == "box":
            # As wide as the least width also where it lies at a face.
            low = np.clip(x.min(axis=0) - self.margin, 0.0, 1.0 - NARROWEST)
            high = np.clip(np.maximum(x.max(axis=0) + self.margin, low + NARROWEST), 0.0, 1.0)
            return dict.fromkeys(recipients, {"low": low, "high": high}), state
        there = there[:: -(-len(there) // CANDIDATES)]
        above = weight[there] * (state.value[there] - state.value[there].min() if self.values else 1.0)
        chosen = there[greedy_cover(state.x[there], above, self.size + rows, self.reach)]
        return {agent: {"x": state.x[chosen[chosen // rows != agent][: self.size]]} for agent in recipients}, state


def best_points(metrics: Array, objectives: int, references: Array, most: int) -> npt.NDArray[np.int64]:
    """Return the places of at most `most` of the points with `metrics (n, k)`, objectives first, then margins.

    They are feasible and no feasible one dominates them; each next one adds the most hypervolume to those before it. With one
    objective it is the best feasible point. Where no point is feasible it is the one that violates the bounds least.
    """
    known = np.flatnonzero(~np.isnan(metrics).any(axis=1))
    if not len(known):
        return known
    values, violations = metrics[known, :objectives], np.maximum(-metrics[known, objectives:], 0.0).sum(axis=1)
    feasible = np.flatnonzero(violations == 0.0)
    if not len(feasible):
        return known[[int(violations.argmin())]]
    if objectives == 1:
        return known[[int(feasible[values[feasible, 0].argmax()])]]
    left, chosen = feasible[non_dominated(values[feasible])].tolist(), list[int]()
    while left and len(chosen) < most:
        volumes = [hypervolume(values[[*chosen, place]], references) for place in left]
        chosen.append(left.pop(int(np.argmax(volumes))))
    return known[chosen]


def greedy_cover(x: Array, weight: Array, size: int, reach: float) -> npt.NDArray[np.int64]:
    """Choose at most `size` of the points `(n, d)`, one by one, that cover all of them best; return their numbers in order.

    The objective is sum_n weight_n max_m exp(-|x_m - x_n|^2 / (2 reach^2)). A greedy choice reaches at least 1 - 1/e of the
    best choice (Nemhauser et al. 1978). The lower number wins a tie.
    """
    near = np.exp(-0.5 * ((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2) / reach**2)
    chosen: list[int] = []
    covered = np.zeros(len(x))
    for _ in range(min(size, len(x))):
        gain = weight @ np.maximum(near - covered[:, None], 0.0)
        gain[chosen] = -1.0
        chosen.append(int(gain.argmax()))
        covered = np.maximum(covered, near[:, chosen[-1]])
    return np.array(chosen, dtype=np.int64)


ALGORITHMS = {
    "share_best": Entry(
        ShareBest,
        presets={"faithful": {"form": "box", "margin": 0.0, "every": 0}, "coarse": {"every": 1, "cells": 8}},
        summary="agents share their best points, as initial points or as a box to search",
    )
}
