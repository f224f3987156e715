"""Fed-PNE and DP-Fed-PNE (Li et al. 2024): all clients pull the nodes of a tree, phase by phase, and agree which to drop.

A client sends one mean for each node of a phase. The coordinator averages them, eliminates nodes that are surely not the best,
and sends the children of the others. The paper's public listing is garbled; docs/algorithms/fed_pne.md has our reading of it
and its open points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedbo.algorithms.bandits.trees.elimination import Elimination
from fedbo.algorithms.bandits.trees.elimination_phases import (
    POLICIES,
    FedPNEClient,
    FedPNEServer,
    MissingPolicy,
    enter_phase,
    next_phase,
)
from fedbo.algorithms.bandits.trees.partitions import CUTS, POINTS, SPLITS, Partition
from fedbo.algorithms.base import Array, Decision, Declaration, Disclosure, Field, Inbound, Payload, Problem, horizon
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.centres import Aggregation
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams, hiding
from fedbo.settings.ranges import Marked, OneOf

ROUNDING = 2.0**-20  # means with noise are rounded to a multiple of this part of its scale


@dataclass(frozen=True, slots=True)
class FedPNE(Marked):
    """Fed-PNE, and with a finite `epsilon` DP-Fed-PNE; see also `Elimination`, `Partition` and `MissingPolicy`.

    delta: 1 / M by default.
    clip: move every reward into [0, 1] before averaging; always on with noise.
    quorum: share of the clients that a phase needs; with `missing` "wait" it needs all of them.
    aggregation: a robust centre replaces the mean of the clients' means, and the width grows with its scatter.

    A phase ends when the exchange's round closes, or later, once the quorum has responded. Without rounds it ends when the
    quorum of the remaining clients has responded, or all of them without a quorum.
    """

    horizon_use: ClassVar[str] = "computes its phases from the budget"

    nu: Annotated[float, Gt(0), Lt(inf)] = 1.0
    """Smoothness: a node at depth h with the maximiser varies by nu rho^h."""
    rho: Annotated[float, Gt(0), Lt(1)] = 0.75
    """Smoothness: decay per depth."""
    c: Annotated[float, Gt(0), Lt(inf)] = 0.1
    """Factor of the confidence width."""
    c1: Annotated[float, Gt(0), Lt(inf)] = 2.0
    """Factor c1 in the logarithm of the confidence, log(c1 T / delta)."""
    delta: Annotated[float, Gt(0), Lt(1)] | None = None
    """Chance of losing the optimum's node. Default: 1 / M."""
    branching: Annotated[int, Ge(2)] = 2
    """Parts of a side that is split."""
    split: Annotated[str, OneOf(SPLITS)] = "turns"
    """Which side is split: each in turn, the longest, or all at once."""
    cuts: Annotated[str, OneOf(CUTS)] = "equal"
    """Equal parts, or random cuts for each node."""
    point: Annotated[str, OneOf(POINTS)] = "centre"
    """Evaluated point of a node: its centre, or a uniform draw."""
    clip: bool = False
    """Whether values are clipped to [0, 1] before they are averaged."""
    missing: Annotated[str, OneOf(POLICIES)] = "flag"
    """Treatment of missing clients, see the page."""
    heterogeneity: Annotated[float, Ge(0), Lt(inf)] = 0.0
    """Bound z on the difference between a client's function and the mean of all."""
    quorum: Annotated[float, Gt(0), Le(1)] | None = None
    """Share of the clients that must respond before a phase ends."""
    aggregation: Aggregation = Aggregation()
    """Mean of the clients' means, or a robust centre."""
    epsilon: Annotated[float, Gt(0)] = 1.0
    """Privacy parameter of each client's Laplace noise."""

    @property
    def reveals(self) -> Reveals:
        """Return what messages reveal: a mean of one evaluation is its value."""
        return Reveals.NOISY_SUMS if self.hides else Reveals.OBSERVATIONS

    @property
    def queries(self) -> None:
        """A phase has as many points as nodes."""
        return None

    def rule(self, problem: Problem) -> Elimination:
        """Return the rule of elimination; ValueError when the budget counts no evaluations."""
        rounds, clients = horizon(problem), len(problem.targets)
        confidence = log(max(self.c1 * rounds / (self.delta or 1.0 / clients), 2.0))
        partition = Partition(problem.dim, self.branching, self.split, self.cuts, self.point)
        return Elimination(
            partition, self.nu, self.rho, c=self.c, log=confidence, clients=clients, rounds=rounds, epsilon=self.epsilon
        )

    def phases(self, problem: Problem) -> int:
        """Bound the number of phases, the one that is cut short included."""
        return self.rule(problem).most_phases

    def sends(self, step: int) -> bool:
        """Return True after every phase."""
        return step > 0

    def upload(self, problem: Problem) -> Declaration:
        """Declare the number of the phase, and a mean for each node; NaN where a client has none."""
        self.rule(problem)
        low, high = (0.0, 1.0) if self.clip and self.epsilon == inf else (-inf, inf)
        return {
            "phase": Field((1,), "int64"),
            "means": Field((None,), finite=False, low=low, high=high, longest=horizon(problem)),
        }

    def download(self, problem: Problem) -> Declaration:
        """Declare the open phase and its nodes.

        The fields are the phase with its depth, the number of clients missing in the last one, depth and number of the
        best node, and the nodes.
        """
        return {"phase": Field((3,), "int64"), "best": Field((2,), "int64"), "nodes": Field((None,), "int64")}

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Return no points."""
        return uniform[:0]

    def agent_init(self, problem: Problem, streams: Streams) -> FedPNEClient:
        """Start with the first phase, which depends on the settings alone."""
        rule = self.rule(problem)
        depth, nodes = rule.start()
        return FedPNEClient(rule, problem.rounds, problem.lattice, phase=1, depth=depth, nodes=nodes)

    def ask(self, state: FedPNEClient, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, FedPNEClient]:
        """Pull the nodes of a new phase, those with the best parents first, cut exactly at T; without one, wait.

        Where rounds go by without a new phase, waiting is pulling the best node, so that time and budget go by as well.
        """
        for message in inbox:
            state = enter_phase(state, message.payload)
        rule, left = state.rule, state.rule.rounds - state.planned
        t = rule.pulls(state.depth)
        clip = (0.0, 1.0) if self.clip or self.epsilon < inf else None
        if state.fresh:
            points = rule.partition.points(state.depth, state.nodes, streams)
            pulls = np.clip(left - t * np.arange(len(points)), 0, t)
            pulls = pulls[pulls > 0]
            asked = points[: len(pulls)].copy()
            asked = asked if state.lattice is None else state.lattice.project(asked)
            whole = len(pulls) == len(points) and int(pulls[-1]) == t
            note = f"phase {state.phase} depth {state.depth}" + (f" missing {state.missing}" if state.missing else "")
            means = np.full(len(state.nodes), np.nan)  # where every node fails nothing is told
            state = state._replace(fresh=False, asked=asked, to_send=whole, means=means, sent=None)
            state = state._replace(planned=state.planned + int(pulls.sum()))
            return Decision(asked, "own" if state.phase == 1 else "federated", pulls, clip, note), state
        points = rule.partition.points(state.best[0], np.array(state.best[1:]), streams)
        pulls = np.array([min(t, left)] if state.rounds and not state.to_send else [], dtype=np.int64)
        state = state._replace(asked=None, planned=state.planned + int(pulls.sum()))
        return Decision(points[: len(pulls)].copy(), "waiting", pulls, clip), state

    def tell(self, state: FedPNEClient, x: Array, y: Array) -> FedPNEClient:
        """Keep the means of the phase; a node that failed has none."""
        asked = state.asked
        if asked is None:
            return state
        means, places = np.full(len(state.nodes), np.nan), iter(range(len(asked)))
        if len(x) == len(asked):
            means[: len(x)] = y
        else:  # told in the order in which they were asked for; two of them may be the same point
            means[[next(place for place in places if (asked[place] == point).all()) for point in x]] = y
        return state._replace(means=means, sent=None, asked=None)

    def outbox(self, state: FedPNEClient, streams: Streams) -> tuple[Payload | None, FedPNEClient]:
        """Send the means of a phase that is complete, with noise that is drawn once."""
        if not state.to_send or state.means is None:
            return None, state
        sent = state.sent
        if sent is None:
            sent = state.means
            if self.epsilon < inf:
                scale = 1.0 / (self.epsilon * state.rule.pulls(state.depth))
                rounding = ROUNDING * 2.0 ** np.floor(np.log2(scale))  # the last bits of noise would tell what it hides
                purpose = hiding("privacy noise", np.round(sent / rounding))
                sent = sent + streams.rng(purpose).laplace(0.0, scale, len(sent))
                sent = np.round(sent / rounding) * rounding
        payload = {"phase": np.array([state.phase]), "means": sent.copy()}
        return payload, state._replace(to_send=False, sent=sent)

    def server_init(self, problem: Problem) -> FedPNEServer:
        """Open the first phase, which every client knows."""
        rule, n = self.rule(problem), problem.n_agents
        depth, nodes = rule.start()
        means, clients = np.full((n, len(nodes)), np.nan), np.array(problem.targets)
        there = np.zeros(n, dtype=bool)
        gone = np.zeros(n, dtype=bool)
        return FedPNEServer(
            rule,
            problem.rounds,
            1,
            depth=depth,
            nodes=nodes,
            means=means,
            there=there,
            clients=clients,
            gone=gone,
            depths=(depth,),
        )

    def receive(self, state: FedPNEServer, message: Inbound, now: float) -> FedPNEServer:
        """Keep means of the open phase, once; those of a phase that has closed come too late."""
        means, sender = message.payload["means"], message.sender
        if int(message.payload["phase"][0]) != state.phase or state.there[sender] or len(means) != len(state.nodes):
            return state
        state.means[sender] = np.where(np.isfinite(means), means, np.nan)
        state.there[sender] = True
        return state

    def left(self, state: FedPNEServer, agent: int) -> FedPNEServer:
        """Stop waiting for this client, unless the policy is to wait for it."""
        state.gone[agent] = True
        return state

    def broadcast(
        self, state: FedPNEServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], FedPNEServer]:
        """Close the phase if enough clients have responded, and send the open phase to the clients that do not know it.

        Under a mode without rounds, the clients whose means arrived earlier are answered too, since they wait.
        """
        told = set(recipients)
        if self._is_complete(state):
            told |= set() if state.rounds else set(np.flatnonzero(state.there).tolist())
            state = next_phase(state, MissingPolicy(self.missing, self.heterogeneity, self.aggregation))
        to = [agent for agent in sorted(told) if not state.there[agent]]  # who has reported without means has lost them
        payload = {
            "phase": np.array([state.phase, state.depth, state.missing]),
            "best": np.array(state.best),
            "nodes": state.nodes.copy(),
        }
        for array in payload.values():  # one for all recipients, since none may write to it
            array.flags.writeable = False
        return dict.fromkeys(to, payload), state

    @property
    def hides(self) -> bool:
        """Return whether means carry noise."""
        return self.epsilon < inf

    def disclosure(self, state: FedPNEServer, payload: Payload) -> Disclosure | None:
        """Return the disclosure of a message: a reward in [0, 1] moves one mean of t by 1 / t at most."""
        if self.epsilon == inf:
            return None
        sensitivity = 1.0 / state.rule.pulls(state.depths[int(payload["phase"][0]) - 1])
        return Disclosure(len(payload["means"]), sensitivity, sensitivity / self.epsilon)

    def _is_complete(self, state: FedPNEServer) -> bool:
        least = self.quorum if self.quorum is not None else 0.0 if state.rounds else 1.0
        least = 1.0 if self.missing == "wait" else least
        there = state.there[state.clients]
        expected = len(there) if state.rounds or self.missing == "wait" else int((there | ~state.gone[state.clients]).sum())
        return int(there.sum()) >= max(1.0, least * expected)


def _entry(summary: str, **fixed: Any) -> Entry:
    theory = {"c": 0.5**0.5, "c1": 2.0, "clip": True}
    return Entry(FedPNE, fixed, {"theory": theory}, summary)


ALGORITHMS = {
    "fed_pne": _entry("Fed-PNE: phased elimination of tree nodes by their means over all clients", epsilon=inf),
    "dp_fed_pne": _entry("DP-Fed-PNE: Fed-PNE with Laplace noise on every mean and wider confidence bounds", clip=True),
}
