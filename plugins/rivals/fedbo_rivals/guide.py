"""Guided Bayesian optimisation, GUIDE-FBO (Wei, Li and Wang 2026): agents share where their optima may be.

Each agent sends one Gaussian. It is given a few of the others' and widens its own posterior there (docs/guide.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge, Le

from fedbo.algorithms.base import Array, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components import surrogate
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo_rivals.guidance import Gaussians, draw_without_replacement, log_weights, prototypes
from fedbo_rivals.guide_agent import SILENT, GuideAgent, GuideState, gaussians_declared

LEAST = 1e-6  # share and variance of a received Gaussian
MOST = 10.0  # standard deviations that a value is from 0 at most


class GuideServer(NamedTuple):
    """The coordinator's state: the newest message of every agent.

    share `(N,)`: 0 without a message.
    mean, variance `(N, d)`, value `(N,)`: the Gaussian, and the value at its mean.
    """

    share: Array
    mean: Array
    variance: Array
    value: Array


@dataclass(frozen=True, slots=True)
class Guide(GuideAgent):
    """Guided Bayesian optimisation; `GuideAgent` has the settings that are not named here.

    A message has 2 d + 2 numbers. The coordinator clusters the newest message of each agent and answers with up to `received`
    of the clusters' Gaussians, drawn without replacement by share times exp(value / tau). Nothing adds up over rounds, so
    messages may be late, lost or old.

    send_when: send only if the Hellinger distance of the Gaussian to the last one sent is at least this; 0 sends always.
    """

    horizon_use: ClassVar[str] = ""

    received: Annotated[int, Ge(1)] = 5
    """Most Gaussians in an answer."""
    send_when: Annotated[float, Ge(0), Le(1)] = 0.0
    """Least change of the Gaussian, as a Hellinger distance, for a new message."""

    @property
    def reveals(self) -> Reveals:
        """Return what messages reveal: each has more numbers than the observation that changed it."""
        return Reveals.NOTHING if self.control in SILENT else Reveals.COMPUTABLE

    def upload(self, problem: Problem) -> Declaration | None:
        """Declare share, mean `(d,)`, variance `(d,)` and value."""
        if self.control in SILENT:
            return None
        inside = Field((problem.dim,), low=0.0, high=1.0)
        return {"share": Field((1,), low=0.0, high=1.0), "mean": inside, "variance": inside, "value": Field((1,))}

    def download(self, problem: Problem) -> Declaration | None:
        """Declare the weights `(p,)`, means and variances `(p, d)` of the Gaussians."""
        return None if self.control in SILENT else gaussians_declared(problem.dim)

    def outbox(self, state: GuideState, streams: Streams) -> tuple[Payload | None, GuideState]:
        """Send the heaviest Gaussian of the places where the optimum may be, if it has changed enough."""
        if self.control in SILENT:
            return None, state
        optimum = self._optimum(state, streams)
        if optimum is None:
            return None, state
        one, value = np.array([optimum.share]), np.array([optimum.value])
        payload = {"share": one, "mean": optimum.mean, "variance": optimum.variance, "value": value}
        if not self.send_when:
            return payload, state
        if state.sent is not None and hellinger(payload, state.sent) < self.send_when:
            return None, state
        return payload, state._replace(sent=payload)

    def server_init(self, problem: Problem) -> GuideServer:
        """Start without messages."""
        n, d = problem.n_agents, problem.dim
        return GuideServer(np.zeros(n), np.zeros((n, d)), np.ones((n, d)), np.zeros(n))

    def receive(self, state: GuideServer, message: Inbound, now: float) -> GuideServer:
        """Store an agent's newest message, moved into its range if it was damaged."""
        sender, sent = message.sender, message.payload
        state.share[sender] = np.clip(sent["share"][0], LEAST, 1.0)
        state.mean[sender] = np.clip(sent["mean"], 0.0, 1.0)
        state.variance[sender] = np.clip(sent["variance"], LEAST, 1.0)
        state.value[sender] = np.clip(sent["value"][0], -MOST, MOST)
        return state

    def broadcast(
        self, state: GuideServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], GuideServer]:
        """Answer each agent with a few of the clusters to which others have contributed."""
        weight = state.share * staleness_weight
        there = np.flatnonzero(weight > 0)
        if not len(there):
            return {}, state
        merged, place = prototypes(Gaussians(weight[there], state.mean[there], state.variance[there], state.value[there]))
        members, heights = np.bincount(place), log_weights(merged)
        payloads: dict[int, Payload] = {}
        for agent in recipients:
            # A cluster of the recipient alone would confirm what it believes; the paper does not say whether it is sent.
            others = members - np.bincount(place[there == agent], minlength=len(members)) > 0
            choice = np.flatnonzero(others)
            if not len(choice):
                continue
            rng = streams.of(agent).rng("guides of the coordinator")
            chosen = choice[draw_without_replacement(heights[choice], self.received, rng)]
            relative = np.exp(heights[chosen] - heights[chosen].max())
            payloads[agent] = {"weight": relative, "mean": merged.mean[chosen], "variance": merged.variance[chosen]}
        return payloads, state


def hellinger(new: Payload, old: Payload) -> float:
    """Return the Hellinger distance of two messages' Gaussians with diagonal covariances, in [0, 1]."""
    one, other = (np.maximum(payload["variance"], LEAST) for payload in (new, old))
    both = one + other
    overlaps = 0.25 * np.log(4.0 * one * other / both**2) - 0.25 * (new["mean"] - old["mean"]) ** 2 / both
    return float(np.sqrt(max(1.0 - np.exp(overlaps.sum()), 0.0)))


# As published: the process on plain inputs, fitted anew for every observation, and 500 draws among 1,000 candidates.
FAITHFUL = {
    **surrogate.FAITHFUL,
    "surrogate": "robust",
    "refit": 1,
    "acquisition": "ucb",
    "draws": 500,
    "features": 500,
    "candidates": 1000,
}


def _entry(control: str, summary: str) -> Entry:
    return Entry(Guide, {"control": control}, {"faithful": FAITHFUL}, summary)


ENTRY = _entry("none", "agents share Gaussians of their likely optima, and search there with a wider posterior")
ALONE = _entry("alone", "guide without messages")
CENTRE = _entry("centre", "control for guide: one wide Gaussian in the middle, sent by nobody")
NOISE = _entry("noise", "control for guide: every message has a uniform place for its mean")
SHUFFLED = _entry("shuffled", "control for guide: every message is turned by a random symmetry of the cube")
