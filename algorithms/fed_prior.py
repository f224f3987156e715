"""A federated prior by empirical Bayes, a method of our own: agents learn from each other what such functions look like.

Every agent sends the posterior mean of its own Gaussian process at design points that all know. The coordinator gives each the
mean of what the others have sent, and the directions in which they differ: a prior, from which the agent's function departs by
a process of its own (docs/algorithms/fed_prior.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge

from fedbo.algorithms.base import Array, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.centres import Aggregation, robust_moments
from fedbo.algorithms.components.coordinates import design_points
from fedbo.algorithms.components.prior_agent import MOST, PriorAgent, PriorState
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.learned_prior import LearnedPrior, interpolation_length, learned_prior


class PriorServer(NamedTuple):
    """The coordinator's state: the newest message of every agent: `values (N, M)`, `certainty (N,)`, `stretch (N,)`.

    The certainty of an agent that has sent nothing is 0.
    """

    values: Array
    certainty: Array
    stretch: Array


@dataclass(frozen=True, slots=True)
class FedPrior(PriorAgent):
    """Bayesian optimisation with a prior that agents learn from each other; `PriorAgent` has the settings not named here.

    A message is the posterior mean of the agent's own Gaussian process at about `points` design points, in the units of the
    values, and its certainty, the share of the prior variance that its observations have removed there. What is answered is the
    mean of the others, weighted by certainty, and at most `directions` directions in which they differ.
    With a robust `aggregation` that mean is a centre, and directions are about it, of messages no further away than the median.
    """

    directions: Annotated[int, Ge(0)] = 30
    aggregation: Aggregation = Aggregation()

    def upload(self, problem: Problem) -> Declaration | None:
        """The posterior mean at the design points `(M,)`, its certainty, and how much speaks for stretched coordinates."""
        if self.control == "alone":
            return None
        m = len(design_points(self.points, problem.dim))
        return {"values": Field((m,)), "certainty": Field((1,), observed=False), "stretch": Field((1,), observed=False)}

    def download(self, problem: Problem) -> Declaration | None:
        """The mean `(M,)` and the directions `(r, M)`, the largest first, of what the others have sent, and their choice."""
        if self.control == "alone":
            return None
        m = len(design_points(self.points, problem.dim))
        return {"mean": Field((m,)), "directions": Field((None, m)), "stretch": Field((1,))}

    def _learned(self, answer: Payload, local: LocalState, design: Array) -> LearnedPrior:
        return learned_prior(design, answer["mean"], answer["directions"], interpolation_length(*design.shape))

    def outbox(self, state: PriorState, streams: Streams) -> tuple[Payload | None, PriorState]:
        """Write a message about all that is known."""
        known, state = self._known(state, streams)
        if known is None:
            return None, state
        values, certainty, stretch = known
        return {"values": values, "certainty": np.array([certainty]), "stretch": np.array([stretch])}, state

    def server_init(self, problem: Problem) -> PriorServer:
        """Begin without messages."""
        n, m = problem.n_agents, len(design_points(self.points, problem.dim))
        return PriorServer(np.zeros((n, m)), np.zeros(n), np.zeros(n))

    def receive(self, state: PriorServer, message: Inbound, now: float) -> PriorServer:
        """Keep an agent's newest message."""
        state.values[message.sender] = message.payload["values"]
        state.stretch[message.sender] = np.clip(message.payload["stretch"][0], -MOST, MOST)
        state.certainty[message.sender] = np.clip(message.payload["certainty"][0], 0.0, 1.0)
        return state

    def broadcast(
        self, state: PriorServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], PriorServer]:
        """Answer each with mean and directions of the others, by weighted sums from which its own share is taken."""
        weight = state.certainty * staleness_weight
        if not weight.any():
            return {}, state
        centre = weight @ state.values / weight.sum()
        apart = state.values - centre
        products = (apart * weight[:, None]).T @ apart
        payloads: dict[int, Payload] = {}
        for agent in recipients:
            left, squares = weight.sum() - weight[agent], (weight**2).sum() - weight[agent] ** 2
            if not left > 1e-9:
                continue
            if self.aggregation.is_mean:
                own, off = apart[agent], -weight[agent] * apart[agent] / left
                spread = products - weight[agent] * np.outer(own, own) - left * np.outer(off, off)
                mean = centre + off
            else:
                others = np.where(np.arange(len(weight)) == agent, 0.0, weight)
                mean, spread = robust_moments(self.aggregation, state.values, others)
            freedom = left - squares / left
            payloads[agent] = {
                "mean": mean,
                "directions": self._directions(spread, freedom, left),
                "stretch": np.array([weight @ state.stretch - weight[agent] * state.stretch[agent]]),
            }
        return payloads, state

    def _directions(self, spread: Array, freedom: float, total: float) -> Array:
        """Give the largest principal directions `(r, M)` of a sum of squares `(M, M)`, with their standard deviations."""
        if freedom <= 1e-9 * total or not self.directions:
            return np.empty((0, len(spread)))
        values, vectors = np.linalg.eigh(spread / freedom)
        kept = np.flatnonzero(values > 1e-9 * max(values[-1], 0.0))[-self.directions :][::-1]
        return np.asarray((vectors[:, kept] * np.sqrt(values[kept])).T)


def _entry(control: str, summary: str) -> Entry:
    return Entry(FedPrior, {"control": control}, summary=summary)


ALGORITHMS = {
    "fed_prior": _entry("none", "Bayesian optimisation with a prior learned from what others have seen"),
    "fed_prior_alone": _entry("alone", "the agent half of fed_prior without messages"),
    "fed_prior_noise": _entry("noise", "control for fed_prior: every message is a draw from the sender's own prior"),
    "fed_prior_shuffled": _entry("shuffled", "control for fed_prior: every message has its values in another order"),
    "fed_prior_uniform": _entry("uniform", "control for fed_prior: uniform points instead of federated queries"),
}
