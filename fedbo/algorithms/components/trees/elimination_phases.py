"""The phases of Fed-PNE: what a client and the server know of the open one, and how the next one is opened.

The states are those of `fed_pne.py`, which says who pulls, sends and answers; here is what makes one phase of another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import Array, Payload
from fedbo.algorithms.components.trees.elimination import Elimination
from fedbo.algorithms.components.trees.missing_clients import MissingPolicy
from fedbo.algorithms.components.trees.partitions import Nodes
from fedbo.surrogates.projected import Lattice


class FedPNEClient(NamedTuple):
    """An agent's state: the phase it is in, its `nodes (K,)` at one `depth`, and their `means (K,)`, NaN where there is none.

    `rounds` says whether it is answered in rounds, `lattice` which points can be evaluated where that is not all of them.
    `planned` counts the pulls it has asked for. A phase is `fresh` until it is asked for; `asked (q, d)` are its points that
    the step at hand pulls, and `to_send` says whether there is something to send. What was `sent (K,)` is sent again bit for
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
    to_send: bool = False
    means: Array | None = None
    sent: Array | None = None
    missing: int = 0


class FedPNEServer(NamedTuple):
    """The coordinator's state: the open phase, its `nodes (K,)` at one `depth`, and the `means (N, K)` that have arrived.

    `there (N,)` says whose have. `depths` are those of all phases so
    far. `best` is the depth and number of the node that is recommended, the best of the last complete phase, and `missing` how
    many `clients` were missing in it. `gone (N,)` says who takes no further part.
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
    """Take in an answer: a new phase is to be pulled, the present one is asked for again, and older ones say nothing."""
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
