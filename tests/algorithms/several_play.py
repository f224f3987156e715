"""Agents of a method in lock-step with several objectives or bounds, and problems for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedbo.algorithms.base import Array, Decision, Problem
from fedbo.algorithms.catalog import entry
from fedbo.testing.lockstep import Lockstep

METHODS = ("gp_ei", "ts", "fts", "fed_prior", "dp_fts_de", "share_best")
REFERENCES = (-1.2, -1.2)
Measure = Callable[[Array, int], tuple[Array, Array]]


def slope_in_circle(x: Array, agent: int) -> tuple[Array, Array]:
    """Give a slope, to be maximised inside a circle about the middle; its optimum is on the circle, as all agents agree."""
    return x.sum(axis=1, keepdims=True), 0.09 - ((x - 0.5) ** 2).sum(axis=1, keepdims=True)


def two_bowls(x: Array, agent: int) -> tuple[Array, Array]:
    """Give two bowls with their tops at two corners; the front is the line between them. There is no bound."""
    tops = np.array([[0.1 + 0.05 * agent] * x.shape[1], [0.9] * x.shape[1]])
    return -((x[:, None] - tops) ** 2).sum(axis=2), np.empty((len(x), 0))


class SeveralPlay(Lockstep):
    """The same as `Lockstep`, with the metrics of each evaluation told; `lost` says which are not known."""

    def __init__(self, method: Any, problem: Problem, measure: Measure, seed: int = 0) -> None:
        super().__init__(method, problem, lambda decision, streams: np.zeros(0), seed)
        self.measure, self.lost = measure, lambda step, agent: ()

    def tell(self, agent: int, decision: Decision) -> None:
        """Evaluate a decision and report the metrics to the agent."""
        values, margins = self.measure(decision.x, agent)
        known = np.hstack([values, margins])
        known[:, list(self.lost(self.step, agent))] = np.nan
        self.observed[agent].append((decision.x, known))
        m = values.shape[1]
        self.states[agent] = self.algorithm.tell_outcomes(self.states[agent], decision.x, known[:, :m], known[:, m:])  # type: ignore[attr-defined]

    def metrics(self, agent: int) -> Array:
        """Return all metrics that an agent was told."""
        return np.vstack([known for _, known in self.observed[agent]])


def problem_of(measure: Measure, agents: int = 2, dim: int = 2, initial: int = 4, rounds: int = 4) -> Problem:
    """Return the problem of these metrics."""
    values, margins = measure(np.full((1, dim), 0.5), 0)
    m, c = values.shape[1], margins.shape[1]
    several = {"references": REFERENCES, "weights": (1.0,) * m} if m > 1 else {}
    return Problem(dim, agents, tuple(range(agents)), initial, rounds, objectives=m, constraints=c, **several)


def played(name: str, measure: Measure, seed: int = 0, rounds: int = 4, settings: Any = None, **problem: Any) -> SeveralPlay:
    """Play a method from the catalogue for a few rounds."""
    play = SeveralPlay(entry(name).make(**(settings or {})), problem_of(measure, rounds=rounds, **problem), measure, seed)
    play.begin()
    play.exchange()
    play.run(rounds)
    return play
