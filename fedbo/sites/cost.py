"""What the messages of a site cost its privacy: the most that the public terms of a study allow, and what they have cost."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fedbo.algorithms.base import Disclosure, LocallyPrivate, Private, Problem
from fedbo.coordinator.privacy.gaussian import gaussian_epsilon
from fedbo.sites.terms import last_step
from fedbo.study.defaults import least_delta
from fedbo.study.study import Study

COUNTED = 10**5  # steps that are asked one by one for a message, in some hundredths of a second; a budget may have 2e12


class MessageCost(NamedTuple):
    """The most epsilon that some messages cost, at `delta`: 0 where their sender hides them itself."""

    epsilon: float
    delta: float = 0.0

    def __str__(self) -> str:
        """Return it in words."""
        return f"epsilon {self.epsilon:.4g}" + (f" at delta {self.delta:.3g}" if self.delta else "")


def most_cost(study: Study, agent: int) -> MessageCost | None:
    """Return the most that all messages of an agent can cost; None for messages without noise.

    Beyond `COUNTED` steps each one counts as one with a message.
    """
    sends, steps = study.algorithm[0].make().sends, last_step(study, agent) + 1
    return cost_of(study, sum(map(sends, range(min(steps, COUNTED)))) + max(0, steps - COUNTED))


def cost_of(study: Study, messages: int) -> MessageCost | None:
    """Return the most that so many messages of a site cost, each of another step; None for messages without noise.

    Those that the site hides itself cost what their method discloses. Where the coordinator adds the noise each of them is in
    one release at most, and nothing is gained from sampling, as in `privacy.parquet`. A study whose deltas are weaker than the
    default ones is charged at these.
    """
    algorithm, problem = study.algorithm[0].make(), study.problem_of(study.algorithm[0])
    if isinstance(algorithm, LocallyPrivate) and algorithm.hides:
        found = _disclosure(algorithm, problem)
        return MessageCost(found.epsilon * (messages if found.mechanism == "exponential" else min(1, messages)))
    noise = algorithm.mechanism(problem).noise if isinstance(algorithm, Private) else 0.0
    if not noise:
        return None
    deltas, terms = study.privacy.deltas or (), study.privacy
    delta = min(*deltas, least_delta(problem.n_agents), 1.0)
    most = terms.epsilon_max if terms.epsilon_max is not None and delta in deltas else math.inf
    return MessageCost(min(float(gaussian_epsilon(np.array([math.sqrt(messages) / noise]), delta)[0]), most), delta)


def _disclosure(algorithm: Any, problem: Problem) -> Disclosure:
    """Return what a message of a method discloses, whatever it holds."""
    declared = algorithm.upload(problem)
    blank = {name: np.zeros([size or 1 for size in one.shape], one.dtype) for name, one in declared.items()}
    found: Disclosure = algorithm.disclosure(algorithm.server_init(problem), blank)
    return found
