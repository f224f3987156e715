"""Flows in a ring of nodes: each node knows its supply and the costs at its ends of two edges, and no other's.

A node chooses the flows on both edges. That neighbours agree on the flow between them is a linear constraint, one row for each
edge: the second application in Krishnamoorthy's text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Lt

from fedbo.objectives.base import Array, Metric, Parameter, require_agent
from fedbo.objectives.space import inside
from fedbo.settings.ranges import Marked

FLOWS = (Parameter("inflow", -1.0, 1.0), Parameter("outflow", -1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Node:
    """Minus the cost of flows (a, b): 2 (a - b + supply)^2 for the imbalance, and r f^2 + q f^4 for each edge's half."""

    supply: float
    linear: Array
    steep: Array
    noise: float
    parameters: tuple[Parameter, ...] = field(default=FLOWS, repr=False)
    best_value: float | None = None

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(2,)`."""
        return self.score(x) + float(np.sqrt(self.noise) * rng.standard_normal())

    def score(self, x: Array) -> float:
        """Return the value without noise."""
        flow = inside(self.parameters, x)
        left = flow[0] - flow[1] + self.supply
        return -float(2.0 * left**2 + self.linear @ flow**2 + self.steep @ flow**4)


@dataclass(frozen=True)
class NetworkFlow(Marked):
    """A ring of nodes with supplies, each of which decides on its two flows.

    Edge i leads from node i to the next. `noise` is the variance of an observation. All draws come from the shared stream, so
    that the joint optimum can be computed.
    """

    random_per_replicate: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = FLOWS
    metric: ClassVar[Metric] = Metric("cost", sign=-1)

    nodes: Annotated[int, Ge(3)] = 4
    """Nodes of the ring."""
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Variance of an observation."""

    @property
    def n_agents(self) -> int:
        """Count the nodes."""
        return self.nodes

    @property
    def matrices(self) -> Array:
        """Return C_i `(N, N, 2)` with sum of C_i x_i = 0: on every edge the outflow equals the inflow."""
        c = np.zeros((self.nodes, self.nodes, 2))
        for node in range(self.nodes):
            c[node, node - 1, 0] = -1.0
            c[node, node, 1] = 1.0
        return c

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Node:
        """Build one node."""
        require_agent(agent, self.nodes)
        supplies = shared_rng.uniform(-0.8, 0.8, self.nodes)
        supplies -= supplies.mean()
        linear, steep = shared_rng.uniform(0.1, 0.5, self.nodes), shared_rng.uniform(0.1, 1.0, self.nodes)
        edges = [agent - 1, agent]
        return Node(float(supplies[agent]), linear[edges], steep[edges], self.noise)


FEDERATIONS = {"network_flow": NetworkFlow}
