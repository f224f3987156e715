"""Small problems with coupled agents and known joint optima: the two of Krishnamoorthy's text, and convex plants.

The goal is the sum of all agents' objectives at points that satisfy the constraint. Elsewhere the sum may exceed the optimum;
`best_value` is that of one agent alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from fedbo.objectives.base import Array, CountedFederation, Metric, Parameter, require_agent
from fedbo.objectives.space import inside
from fedbo.settings.ranges import Marked

# The quartic's global minimum, and where the sum of both functions is least: (1 + sqrt(33)) / 8, a root of 4 x^2 - x - 2.
QUARTIC_MINIMUM = -2.0377479671
TEXT_OPTIMUM = (1.0 + np.sqrt(33.0)) / 8.0
SHIFTED_OPTIMUM = 0.7351699643
BOXES = {"consensus": (-2.0, 2.0), "shifted": (0.0, 4.0), "allocation": (-4.0, 4.0)}
CENTRES = {"consensus": (0.0, 0.0), "shifted": (2.0, 0.5), "allocation": (0.0, 0.0)}
OPTIMA = {
    "consensus": (TEXT_OPTIMUM, TEXT_OPTIMUM),
    "shifted": (SHIFTED_OPTIMUM, SHIFTED_OPTIMUM),
    "allocation": (TEXT_OPTIMUM, -TEXT_OPTIMUM),
}


@dataclass(frozen=True, eq=False)
class Toy:
    """Minus x^4 + x^3 - 2 x^2 - 2 x (agent 0) or minus x^2 / 2 (agent 1), about a centre, plus noise of variance `noise`."""

    agent: int
    centre: float
    noise: float
    parameters: tuple[Parameter, ...] = field(repr=False)

    @property
    def best_value(self) -> float:
        """Return the largest value of this agent alone."""
        return -QUARTIC_MINIMUM if self.agent == 0 else 0.0

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(1,)`."""
        return self.score(x) + float(np.sqrt(self.noise) * rng.standard_normal())

    def score(self, x: Array) -> float:
        """Return the value without noise."""
        t = float(inside(self.parameters, x)[0]) - self.centre
        return -(t**4 + t**3 - 2.0 * t**2 - 2.0 * t) if self.agent == 0 else -0.5 * t**2


@dataclass(frozen=True)
class ADMMToy(Marked):
    """Krishnamoorthy's two coupled agents with one parameter each, to be minimised together.

    problem: "consensus" on [-2, 2] as in the text's (8) and (9); "shifted" on [0, 4] with the functions moved by 2 and 0.5 as
      its author ran it; or "allocation" on [-4, 4], where x_1 + x_2 = 0.
    noise: variance of an observation.
    """

    random_per_replicate: ClassVar[bool] = False
    metric: ClassVar[Metric] = Metric("value", sign=-1)

    problem: Literal["consensus", "shifted", "allocation"] = "consensus"
    """Consensus on [-2, 2], shifted on [0, 4], or allocation on [-4, 4]."""
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0
    """Variance of an observation."""

    @property
    def n_agents(self) -> int:
        """Count the agents."""
        return 2

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return x in the problem's range."""
        low, high = BOXES[self.problem]
        return (Parameter("x", low, high),)

    @property
    def joint_optimum(self) -> Array:
        """Return the points `(2, 1)` that minimise the sum subject to the constraint."""
        return np.array(OPTIMA[self.problem])[:, None]

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Toy:
        """Build one agent's function; nothing is drawn."""
        require_agent(agent, 2)
        return Toy(agent, CENTRES[self.problem][agent], self.noise, self.parameters)


@dataclass(frozen=True, eq=False)
class Plant:
    """Minus a convex cost: (x - wish)' shape (x - wish) / 2 + log cosh of `bend`' (x - wish), plus noise."""

    wish: Array
    shape: Array
    bend: Array
    noise: float
    parameters: tuple[Parameter, ...] = field(repr=False)
    best_value: float = 0.0

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return one noisy value at x `(d,)`."""
        return self.score(x) + float(np.sqrt(self.noise) * rng.standard_normal())

    def score(self, x: Array) -> float:
        """Return the value without noise."""
        gap = inside(self.parameters, x) - self.wish
        slope = self.bend @ gap
        return -float(0.5 * gap @ self.shape @ gap + np.logaddexp(slope, -slope) - np.log(2.0))


@dataclass(frozen=True)
class Plants(CountedFederation):
    """Plants that share utilities, each with a convex cost of its part.

    Wishes are uniform in [0.2, 0.9] of the range of every utility. Costs have curvatures of 1 to 5 over the capacity squared in
    every direction and a bend that makes them non-quadratic. Everything comes from the shared stream, so that the joint
    optimum can be computed.

    dimensions: number of utilities.
    capacity: upper end of the range [0, capacity] of every utility.
    noise: variance of an observation.
    """

    random_per_replicate: ClassVar[bool] = True
    metric: ClassVar[Metric] = Metric("cost", sign=-1)

    agents: Annotated[int, Ge(1)] = 10
    """Number of agents."""
    dimensions: Annotated[int, Ge(1)] = 1
    """Number of utilities d."""
    capacity: Annotated[float, Gt(0.0), Lt(np.inf)] = 1.0
    """Upper end of each utility."""
    noise: Annotated[float, Ge(0.0), Lt(np.inf)] = 0.0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return d utilities u1, u2, … in [0, capacity]."""
        return tuple(Parameter(f"u{i + 1}", 0.0, self.capacity) for i in range(self.dimensions))

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Plant:
        """Build one plant."""
        require_agent(agent, self.agents)
        d, n = self.dimensions, self.agents
        wishes, turns = shared_rng.uniform(0.2, 0.9, (n, d)), shared_rng.standard_normal((n, d, d))
        curvatures, bends = shared_rng.uniform(1.0, 5.0, (n, d)), shared_rng.uniform(-1.5, 1.5, (n, d))
        axes = np.linalg.qr(turns[agent])[0]
        shape = (axes * curvatures[agent]) @ axes.T / self.capacity**2
        return Plant(self.capacity * wishes[agent], shape, bends[agent] / self.capacity, self.noise, self.parameters)


FEDERATIONS = {"admm_toy": ADMMToy, "plants": Plants}
