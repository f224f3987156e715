"""Messages that agents hide themselves: one evaluation moves one number of all that is sent, or the run is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest

from fedbo.actors.agent import HostedAgent
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.task import StepRequest, Task
from fedbo.algorithms.bandits import fed_pne
from fedbo.algorithms.base import Algorithm, Array, Disclosure, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.objectives.functions import Quadratic
from fedbo.privacy.ledger import local_entry

PULLS = 5000


@dataclass
class Counted:
    """Rewards by the order in which they are drawn, number `changed` another one; beyond `edge` each point's first raises."""

    changed: int
    edge: float
    best_value: float | None = None
    drawn: int = 0
    tried: set[float] = field(default_factory=set)

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        if x[0] > self.edge and x[0] not in self.tried:
            self.tried.add(float(x[0]))
            raise RuntimeError("no reward")
        number, self.drawn = self.drawn, self.drawn + 1
        return 0.1 if number == self.changed else 0.3 + 0.01 * (number % 50)

    def score(self, x: Array) -> float:
        return 0.5


@dataclass(frozen=True)
class CountedFederation(Quadratic):
    made: Any = field(default_factory=lambda: Counted(-1, 1.0))

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> Any:
        return self.made


def hidden() -> Algorithm:
    return entry("dp_fed_pne").make(epsilon=1.0, branching=8)


def sent(policy: Policy, changed: int, edge: float) -> Array:
    """Give the hidden means `(8,)` that an agent sends after its first phase; the noise is the same in every world."""
    federation = CountedFederation(agents=3, noise=0.0, made=Counted(changed, edge))
    problem = Problem(2, 3, (0, 1, 2), 0, PULLS, pulls=PULLS)
    agent = HostedAgent(Task(federation, hidden(), problem, Streams(4), policy=policy), 1)
    report = agent.work(StepRequest(1, 1))
    assert report is not None and report.payload is not None
    return np.asarray(report.payload["means"])


def most_moved(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> int:
    """Give how many numbers of a message one reward moves at most, where no points fail, half of them, or all but one."""
    counts = []
    monkeypatch.setattr(fed_pne, "hiding", lambda purpose, numbers: purpose)  # the same noise, whatever it hides
    for edge, changed in product((1.0, 0.5, 0.1), (0, 1, 8, 30)):
        one, other = sent(policy, -1, edge), sent(policy, changed, edge)
        counts.append(int((~np.isclose(one, other, rtol=0, atol=0, equal_nan=True)).sum()))
    return max(counts)


@pytest.mark.parametrize("retries", [0, 1, 5])
@pytest.mark.parametrize("failure", ["avoid", "drop"])
def test_where_evaluations_fail_a_reward_moves_one_hidden_mean(
    failure: str, retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value in place of a failed one would be made of other rewards, and would be in several means."""
    assert most_moved(Policy(retries, failure), monkeypatch) == 1


def test_an_entry_of_a_hidden_message_has_its_epsilon_and_the_deviation_of_its_noise() -> None:
    found = local_entry(3, 7, Disclosure(numbers=4, sensitivity=0.5, scale=0.25), 2.0)
    assert (found.norms, found.noise_multiplier, found.numbers, found.release) == ([2.0], 0.5, 4, 7)
    assert found.noise == pytest.approx([math.sqrt(2.0) * 0.25])  # a Laplace law with this scale
