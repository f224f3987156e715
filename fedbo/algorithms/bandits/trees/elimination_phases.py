"""The phases of Fed-PNE: the open phase at a client and at the server, and the start of the next one.

The states are those of `fed_pne.py`, which pulls, sends and answers; this module turns one phase into the next. A server takes
the mean over the clients that responded, with the effective number of clients in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.bandits.trees.elimination import Elimination
from fedbo.algorithms.bandits.trees.partitions import Nodes
from fedbo.algorithms.base import Array, Payload
from fedbo.algorithms.components.centres import Aggregation
from fedbo.surrogates.projected import Lattice


class FedPNEClient(NamedTuple):
    """An agent's state: its phase, and the pulls in it.

    rounds: whether answers come in rounds.
    lattice: which points can be evaluated, if not all.
    phase, depth, nodes `(K,)`: the phase and its nodes, all at one depth.
    best: depth and number of the recommended node.
    fresh: whether the phase has not been asked for yet.
    planned: the pulls asked for so far.
    asked `(q, d)`: points that the current step pulls.
    to_send: whether there is a message to send.
    means `(K,)`: means of the nodes, NaN without a value.
    sent `(K,)`: the sent means, which are repeated bit for bit after a loss.
    missing: number of missing clients when the nodes were chosen.
    """

    rule: Elimination
    rounds: bool
    lattice: Lattice | None
    phase: int
    depth: int
    nodes: Nodes
    best: tuple[int, int] = (0, 0)
    fresh: bool = True
    planned: int = 0
    asked: Array | None = None
    to_send: bool = False
    means: Array | None = None
    sent: Array | None = None
    missing: int = 0


class FedPNEServer(NamedTuple):
    """The coordinator's state: the open phase and the means in it.

    phase, depth, nodes `(K,)`: the open phase and its nodes, all at one depth.
    means `(N, K)`: the received means.
    there `(N,)`: the agents whose means are here.
    gone `(N,)`: the agents that have left.
    depths: the depths of all phases so far.
    best: depth and number of the recommended node, the best of the last complete phase.
    missing: how many `clients` were missing in that phase.
    """

    rule: Elimination
    rounds: bool
    phase: int
    depth: int
    nodes: Nodes
    means: Array
    there: npt.NDArray[np.bool_]
    clients: Nodes
    gone: npt.NDArray[np.bool_]
    depths: tuple[int, ...]
    best: tuple[int, int] = (0, 0)
    missing: int = 0


def enter_phase(state: FedPNEClient, payload: Payload) -> FedPNEClient:
    """Enter the phase of an answer; resend the means if it is the current phase, and ignore older phases."""
    phase, depth, missing = payload["phase"].tolist()
    if phase < state.phase:
        return state
    if phase == state.phase:
        return state._replace(to_send=state.means is not None)
    depth_, number = payload["best"].tolist()
    told = {"phase": phase, "depth": depth, "missing": missing, "nodes": payload["nodes"], "best": (depth_, number)}
    return state._replace(**told, fresh=True, to_send=False, means=None, sent=None, asked=None)


def next_phase(state: FedPNEServer, policy: MissingPolicy) -> FedPNEServer:
    """Close the open phase: eliminate nodes by the means that have arrived, and open the next phase with the children."""
    rule = state.rule
    there = np.flatnonzero(state.there)
    mean, count = policy.mean(state.means[there])
    with np.errstate(divide="ignore"):
        width = rule.width(state.depth, count) + policy.bias(count, rule.clients)
    kept = rule.survivors(state.depth, mean, width)
    best = state.best if np.isnan(mean).all() else (state.depth, int(state.nodes[np.nanargmax(mean)]))
    depth, nodes = rule.descend(state.depth, state.nodes[kept], mean[kept])
    return state._replace(
        phase=state.phase + 1,
        depth=depth,
        nodes=nodes,
        means=np.full((len(state.means), len(nodes)), np.nan),
        there=np.zeros_like(state.there),
        depths=(*state.depths, depth),
        best=best,
        missing=rule.clients - len(there),
    )


POLICIES = ("flag", "wait")


@dataclass(frozen=True, slots=True)
class MissingPolicy:
    """A policy for missing clients.

    - "flag": the mean over the clients that responded, with a report of the number of missing ones. Where clients differ it is
      biased. Suppose no client's function is more than `heterogeneity` z from the mean of all, at any point, and N - n of N
      clients are missing. Then the bias is at most min(1, (N - n) / n) z, since deviations of all clients sum to zero. The
      width grows by that bound.
    - "wait": no client is missing, since a phase ends after all have responded.

    With a robust `aggregation` a centre replaces the mean; it is within z of the mean of all.
    """

    policy: str
    heterogeneity: float
    aggregation: Aggregation = Aggregation()

    def mean(self, means: Array) -> tuple[Array, Array]:
        """Average means `(n, K)` of n clients; return `(K,)`, NaN where no client has one, and their counts.

        A count is the number of clients, or of equally weighted clients with the same scatter.
        """
        there = ~np.isnan(means)
        weights = there.astype(np.float64)
        total, squares = weights.sum(axis=0), (weights**2).sum(axis=0)
        if not self.aggregation.is_mean:
            centre, count, known = np.full(len(total), np.nan), np.zeros(len(total)), total > 0
            centre[known] = self.aggregation.of(means[:, known], weights[:, known])
            count[known] = total[known] ** 2 / squares[known] / self.aggregation.widening**2
            return centre, count
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.nansum(weights * np.where(there, means, 0.0), axis=0) / total
            return mean, np.where(total > 0, total**2 / squares, 0.0)

    def bias(self, n: Array, clients: int) -> Array | float:
        """Bound the bias of a mean over n of N clients."""
        if not self.aggregation.is_mean:
            return self.heterogeneity
        if not self.heterogeneity:
            return 0.0
        with np.errstate(divide="ignore"):
            return np.minimum(1.0, (clients - n) / n) * self.heterogeneity
