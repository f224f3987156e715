"""Sharing the best with local differential privacy: agents vote for common points by an exponential mechanism.

A vote is private before it leaves the agent, so that neither the coordinator nor the sum has to be trusted. The coordinator
makes a portfolio of the votes, as `share_best` does of incumbents (docs/algorithms/collaborative.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le, Lt

from fedbo.algorithms.base import Array, Decision, Declaration, Disclosure, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.collaborative.share_best import greedy_cover
from fedbo.algorithms.components.collaborative import Collaborative, CollaborativeState, next_member
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.learned_prior.prior_space import common_points
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams, hiding
from fedbo.settings.ranges import OneOf
from fedbo.settings.records import changed
from fedbo.surrogates.gp import predict


class VoteServer(NamedTuple):
    """The coordinator's state: the common points `(M, d)`, and the newest vote of each agent `(N,)`, -1 without one."""

    points: Array
    votes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DPShareBest(Collaborative):
    """Sharing the best with local privacy; `Collaborative` has the settings that are not named here.

    A message is the number of one of M common points. Utility is 1 for the `likely` M points with the largest posterior mean,
    and 0 for the others; an exponential mechanism chooses a point with a probability in proportion to exp(`epsilon` utility).
    The number of points of either kind is the same for any data, so a vote is `epsilon`-differentially private for all that an
    agent has observed. An agent without observations votes for any point.

    epsilon: of one vote; several votes of an agent add up.
    points: approximate number of common points, those of `fed_prior`.
    likely: share of the common points that have utility 1; at least one.
    size, reach: those of the portfolio of `share_best`, whose candidates are the voted points, weighted by their votes.
    control: "noise" votes for any point, whatever is known.
    """

    horizon_use: ClassVar[str] = ""
    reveals: ClassVar[Reveals] = Reveals.NOISY_SUMS

    every: Annotated[int, Ge(0), "0 means once, before the start"] = 0
    epsilon: Annotated[float, Gt(0), Lt(inf)] = 2.0
    """Privacy parameter of each vote."""
    points: Annotated[int, Ge(2), Le(1000)] = 100
    """Common points M; in two inputs the largest square number below."""
    likely: Annotated[float, Gt(0), Lt(1)] = 0.1
    """Share of the common points that a vote prefers."""
    size: Annotated[int, Ge(1)] = 5
    """Members of the portfolio."""
    reach: Annotated[float, Gt(0)] = 0.3
    """Distance over which a member counts for another vote."""
    control: Annotated[str, OneOf(("none", "noise"))] = "none"
    """Control of an experiment, fixed by the algorithm's name."""

    @property
    def hides(self) -> bool:
        """Return True: every vote is private."""
        return True

    def disclosure(self, state: VoteServer, payload: Payload) -> Disclosure:
        """Return the disclosure of a vote."""
        return Disclosure(1, sensitivity=1.0, scale=1.0 / self.epsilon, mechanism="exponential")

    def upload(self, problem: Problem) -> Declaration:
        """Declare the number of a common point `(1,)`."""
        return {"vote": Field((1,), low=0.0, high=len(common_points(self.points, problem.dim, problem.lattice)) - 1.0)}

    def download(self, problem: Problem) -> Declaration:
        """Declare the portfolio `(s, d)`, in order of choice."""
        return {"x": Field((None, problem.dim), low=0.0, high=1.0, longest=self.size)}

    def _decide(self, state: CollaborativeState, streams: Streams) -> tuple[Decision, CollaborativeState]:
        member = next_member(self.own, state, self.size, streams)
        return (member, state) if member is not None else self._own_query(state, streams)

    def outbox(self, state: CollaborativeState, streams: Streams) -> tuple[Payload, CollaborativeState]:
        """Vote for one of the common points."""
        ranked = self._ranked(state, streams)
        rng = streams.rng(hiding("vote", ranked.astype(np.float64)))
        likely = len(ranked) if self.control == "noise" else max(1, round(self.likely * len(ranked)))
        return {"vote": np.array([float(vote(ranked, likely, self.epsilon, rng))])}, state

    def _ranked(self, state: CollaborativeState, streams: Streams) -> npt.NDArray[np.int64]:
        """Return the numbers of the common points `(M,)`, the largest posterior mean first, and equal ones in any order."""
        local, (u, y) = state.local, self._known(state)
        points = common_points(self.points, local.dim, local.lattice)
        order = streams.rng("order of equals").permutation(len(points))
        if not len(y):
            return order
        known = self.own.fit(changed(local, u=u, y=y, waiting=None), streams)
        mean = predict(self.own.posterior(known), to_coordinates(points, self.own.coordinates))[0]
        return order[np.argsort(-mean[order], kind="stable")]

    def server_init(self, problem: Problem) -> VoteServer:
        """Start without votes."""
        points = common_points(self.points, problem.dim, problem.lattice)
        return VoteServer(points, np.full(problem.n_agents, -1))

    def receive(self, state: VoteServer, message: Inbound, now: float) -> VoteServer:
        """Store an agent's newest vote, moved to the nearest number if it was damaged."""
        state.votes[message.sender] = round(float(np.clip(message.payload["vote"][0], 0, len(state.points) - 1)))
        return state

    def broadcast(
        self, state: VoteServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], VoteServer]:
        """Send the portfolio of all votes to all recipients."""
        sent = state.votes >= 0
        votes = np.bincount(state.votes[sent], staleness_weight[sent], len(state.points)).astype(np.float64)
        there = np.flatnonzero(votes)
        if not len(there):
            return {}, state
        chosen = there[greedy_cover(state.points[there], votes[there], self.size, self.reach)]
        return dict.fromkeys(recipients, {"x": state.points[chosen]}), state


def vote(ranked: npt.NDArray[np.int64], likely: int, epsilon: float, rng: np.random.Generator) -> int:
    """Choose one of the numbers `ranked (M,)`: each of the first `likely` is exp(epsilon) times as likely as each other.

    All orders have the same normaliser, so no number is more than exp(epsilon) times as likely by one order as by another.
    """
    others = (len(ranked) - likely) * exp(-epsilon)
    first = rng.random() * (likely + others) < likely
    return int(rng.choice(ranked[:likely] if first else ranked[likely:]))


ALGORITHMS = {
    "dp_share_best": Entry(
        DPShareBest,
        {"control": "none"},
        summary="share_best with local differential privacy: every agent votes for a common point",
    ),
    "dp_share_best_noise": Entry(DPShareBest, {"control": "noise"}, summary="control for dp_share_best: votes for any point"),
}
