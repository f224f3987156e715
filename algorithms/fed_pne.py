"""Fed-PNE and DP-Fed-PNE (Li et al. 2024): all clients pull the nodes of a tree, phase by phase, and agree which to drop.

A client sends one mean for each node of a phase, and nothing else. The coordinator averages them, eliminates nodes that are
surely not the best, and tells the children of the others. The paper's listing is garbled where it is public; what we take it
to say, and what it leaves open, stands in docs/algorithms/fed_pne.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le, Lt

from fedbo.algorithms.base import Array, Decision, Declaration, Disclosure, Field, Inbound, Payload, Problem, horizon
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.elimination import Elimination
from fedbo.algorithms.components.missing_clients import POLICIES, MissingPolicy, shares
from fedbo.algorithms.components.partitions import CUTS, POINTS, SPLITS, Nodes, Partition
from fedbo.algorithms.settings import OneOf, check
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.projected import Lattice

ROUNDING = 2.0**-20  # means with noise are rounded to a multiple of this part of its scale


class Client(NamedTuple):
    """An agent's state: the phase it is in, its `nodes (K,)` at one `depth`, and their `means (K,)`, NaN where there is none.

    `rounds` says whether it is answered in rounds, `lattice` which points can be evaluated where that is not all of them.
    `planned` counts the pulls it has asked for. A phase is `fresh` until it is asked for; `asked (q, d)` are its points that
    the step at hand pulls, and `speaks` says whether there is something to send. What was `sent (K,)` is sent again bit for
    bit where it was lost. `best` is the depth and number of the node to name, and `missing` how many clients were missing when
    the nodes were chosen.
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
    speaks: bool = False
    means: Array | None = None
    sent: Array | None = None
    missing: int = 0


class FedPNEServer(NamedTuple):
    """The coordinator's state: the open phase, its `nodes (K,)` at one `depth`, and the `means (N, K)` that have arrived.

    `there (N,)` says whose have, and `responded (N,)` in how many phases they came in time. `depths` are those of all phases so
    far. `best` is the depth and number of the node that is recommended, the best of the last complete phase, and `missing` how
    many `clients` were missing in it.
    """

    rule: Elimination
    rounds: bool
    phase: int
    depth: int
    nodes: Nodes
    means: Array
    there: npt.NDArray[np.bool_]
    responded: Nodes
    clients: Nodes
    depths: tuple[int, ...]
    best: tuple[int, int] = (0, 0)
    missing: int = 0


@dataclass(frozen=True, slots=True)
class FedPNE:
    """Fed-PNE, and with a finite `epsilon` DP-Fed-PNE; see also `Elimination`, `Partition` and `MissingPolicy`.

    delta is 1 / M unless given. `clip` moves every reward into [0, 1] before it is averaged; with noise that is always so.

    A phase ends when the exchange's round closes, with whoever has responded, or later, until the share `quorum` of the clients
    has; it waits for all where `missing` is "wait". Without rounds it ends with the share `quorum`, or else with all.
    """

    nu: Annotated[float, Gt(0), Lt(inf)] = 1.0
    rho: Annotated[float, Gt(0), Lt(1)] = 0.75
    c: Annotated[float, Gt(0), Lt(inf)] = 0.1
    c1: Annotated[float, Gt(0), Lt(inf)] = 2.0
    delta: Annotated[float, Gt(0), Lt(1)] | None = None
    branching: Annotated[int, Ge(2)] = 2
    split: Annotated[str, OneOf(SPLITS)] = "turns"
    cuts: Annotated[str, OneOf(CUTS)] = "equal"
    point: Annotated[str, OneOf(POINTS)] = "centre"
    clip: bool = False
    missing: Annotated[str, OneOf(POLICIES)] = "flag"
    heterogeneity: Annotated[float, Ge(0), Lt(inf)] = 0.0
    quorum: Annotated[float, Gt(0), Le(1)] | None = None
    epsilon: Annotated[float, Gt(0)] = 1.0

    def __post_init__(self) -> None:
        check(self)

    @property
    def queries(self) -> None:
        """A phase has as many points as nodes."""
        return None

    def partition(self, dim: int) -> Partition:
        """Give the tree."""
        return Partition(dim, self.branching, self.split, self.cuts, self.point)

    def _missing_policy(self) -> MissingPolicy:
        return MissingPolicy(self.missing, self.heterogeneity)

    def rule(self, problem: Problem) -> Elimination:
        """Give the rule of elimination; ValueError when the budget counts no evaluations."""
        rounds, clients = horizon(problem), len(problem.targets)
        confidence = log(max(self.c1 * rounds / (self.delta or 1.0 / clients), 2.0))
        return self._rule(self.partition(problem.dim), confidence, clients, rounds)

    def _rule(self, partition: Partition, confidence: float, clients: int, rounds: int) -> Elimination:
        return Elimination(partition, self.nu, self.rho, self.c, confidence, clients, rounds, self.epsilon)

    def phases(self, problem: Problem) -> int:
        """Bound the number of phases, the one that is cut short included."""
        return self.rule(problem).most_phases

    def sends(self, step: int) -> bool:
        """After every phase."""
        return step > 0

    def upload(self, problem: Problem) -> Declaration:
        """The number of the phase, and a mean for each node; NaN where a client has none."""
        self.rule(problem)
        return {"phase": Field((1,), "int64"), "means": Field((None,), finite=False)}

    def download(self, problem: Problem) -> Declaration:
        """The phase with its depth and how many were missing in the last one; depth and number of the best node; the nodes."""
        return {"phase": Field((3,), "int64"), "best": Field((2,), "int64"), "nodes": Field((None,), "int64")}

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Take none."""
        return uniform[:0]

    def agent_init(self, problem: Problem, streams: Streams) -> Client:
        """Begin with the first phase, which follows from the settings alone."""
        rule = self.rule(problem)
        return Client(rule, problem.rounds, problem.lattice, 1, *rule.start())

    def ask(self, state: Client, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Client]:
        """Pull the nodes of a new phase, those with the best parents first, cut exactly at T; without one, wait.

        Where rounds go by without a new phase, waiting is pulling the best node, so that time and budget go by as well.
        """
        for message in inbox:
            state = _told(state, message.payload)
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
            state = state._replace(fresh=False, asked=asked, speaks=whole, means=means, sent=None)
            state = state._replace(planned=state.planned + int(pulls.sum()))
            return Decision(asked, "own" if state.phase == 1 else "federated", pulls, clip, note), state
        points = rule.partition.points(state.best[0], np.array(state.best[1:]), streams)
        pulls = np.array([min(t, left)] if state.rounds and not state.speaks else [], dtype=np.int64)
        state = state._replace(asked=None, planned=state.planned + int(pulls.sum()))
        return Decision(points[: len(pulls)].copy(), "waiting", pulls, clip), state

    def tell(self, state: Client, x: Array, y: Array) -> Client:
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

    def outbox(self, state: Client, streams: Streams) -> tuple[Payload | None, Client]:
        """Send the means of a phase that is complete, with noise that is drawn once."""
        if not state.speaks or state.means is None:
            return None, state
        sent = state.sent
        if sent is None:
            sent = state.means
            if self.epsilon < inf:
                scale = 1.0 / (self.epsilon * state.rule.pulls(state.depth))
                rounding = ROUNDING * 2.0 ** np.floor(np.log2(scale))  # the last bits of noise would tell what it hides
                sent = sent + streams.rng("privacy noise").laplace(0.0, scale, len(sent))
                sent = np.round(sent / rounding) * rounding
        payload = {"phase": np.array([state.phase]), "means": sent.copy()}
        return payload, state._replace(speaks=False, sent=sent)

    def server_init(self, problem: Problem) -> FedPNEServer:
        """Open the first phase, which every client knows."""
        rule, n = self.rule(problem), problem.n_agents
        depth, nodes = rule.start()
        means, clients = np.full((n, len(nodes)), np.nan), np.array(problem.targets)
        there, responded = np.zeros(n, dtype=bool), np.zeros(n, dtype=np.int64)
        return FedPNEServer(rule, problem.rounds, 1, depth, nodes, means, there, responded, clients, (depth,))

    def receive(self, state: FedPNEServer, message: Inbound, now: float) -> FedPNEServer:
        """Keep means of the open phase, once; those of a phase that has closed come too late."""
        means, sender = message.payload["means"], message.sender
        if int(message.payload["phase"][0]) != state.phase or state.there[sender] or len(means) != len(state.nodes):
            return state
        state.means[sender] = np.where(np.isfinite(means), means, np.nan)
        state.there[sender] = True
        return state

    def broadcast(
        self, state: FedPNEServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], FedPNEServer]:
        """Close the phase if enough clients have responded, and tell the open one to who does not know it.

        Under a mode without rounds those are told too whose means came earlier: they wait.
        """
        told = set(recipients)
        if self._is_complete(state):
            told |= set() if state.rounds else set(np.flatnonzero(state.there).tolist())
            state = self._close(state)
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
        """Say whether means carry noise."""
        return self.epsilon < inf

    def disclosure(self, state: FedPNEServer, payload: Payload) -> Disclosure | None:
        """Say what a message gives away: a reward in [0, 1] moves one mean of t by 1 / t at most."""
        if self.epsilon == inf:
            return None
        sensitivity = 1.0 / state.rule.pulls(state.depths[int(payload["phase"][0]) - 1])
        return Disclosure(len(payload["means"]), sensitivity, sensitivity / self.epsilon)

    def _is_complete(self, state: FedPNEServer) -> bool:
        least = self.quorum if self.quorum is not None else 0.0 if state.rounds else 1.0
        least = 1.0 if self.missing == "wait" else least
        return int(state.there[state.clients].sum()) >= max(1.0, least * len(state.clients))

    def _close(self, state: FedPNEServer) -> FedPNEServer:
        """Eliminate, and open the next phase."""
        rule, policy = state.rule, self._missing_policy()
        responded = state.responded + state.there
        there = np.flatnonzero(state.there)
        mean, count = policy.mean(state.means[there], shares(responded[there], state.phase))
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
            responded=responded,
            depths=(*state.depths, depth),
            best=best,
            missing=rule.clients - len(there),
        )


def _told(state: Client, payload: Payload) -> Client:
    """Take in a phase: a new one is to be pulled, the present one is asked for again, and older ones say nothing."""
    phase, depth, missing = payload["phase"].tolist()
    if phase < state.phase:
        return state
    if phase == state.phase:
        return state._replace(speaks=state.means is not None)
    depth_, number = payload["best"].tolist()
    told = {"phase": phase, "depth": depth, "missing": missing, "nodes": payload["nodes"], "best": (depth_, number)}
    return state._replace(**told, fresh=True, speaks=False, means=None, sent=None, asked=None)


def _entry(summary: str, **fixed: Any) -> Entry:
    theory = {"c": 0.5**0.5, "c1": 2.0, "clip": True}
    return Entry(FedPNE, fixed, {"theory": theory}, summary)


ALGORITHMS = {
    "fed_pne": _entry("Fed-PNE: phased elimination of the nodes of a tree, by their means over all clients", epsilon=inf),
    "dp_fed_pne": _entry("DP-Fed-PNE: the same with Laplace noise on every mean, and wider confidence for it", clip=True),
}
