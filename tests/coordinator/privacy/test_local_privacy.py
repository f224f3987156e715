"""Messages that agents hide themselves: one evaluation moves one number of all that is sent, or the run is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from small_runs import Setting

from fedbo.actors.agent import HostedAgent
from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.task import StepRequest, Task
from fedbo.algorithms.bandits import fed_pne
from fedbo.algorithms.base import Algorithm, Array, Disclosure, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.privacy.ledger import local_entry
from fedbo.coordinator.privacy.local import unkept_promise
from fedbo.objectives.functions import Quadratic

FAILURES = ("drop", "worst", "stop")
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
def test_where_nothing_is_told_in_place_of_what_failed_a_reward_moves_one_mean(
    retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert most_moved(Policy(retries, "drop"), monkeypatch) == 1


def test_the_worst_value_in_place_of_failed_ones_moves_several_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a reward would cost several times what the ledger says: the reason for refusing it."""
    assert most_moved(Policy(0, "worst"), monkeypatch) == 8


def test_a_policy_is_separate_only_where_that_is_declared() -> None:
    assert [failure for failure in FAILURES if Policy(failure=failure).separate] == ["drop", "stop"]
    unknown = Policy()
    object.__setattr__(unknown, "failure", "mean of the others")
    assert not unknown.separate and unkept_promise(hidden(), unknown)


def test_a_run_is_refused_in_which_a_reward_would_enter_several_hidden_means() -> None:
    setting = Setting(hidden(), policy=Policy(2, "worst"))
    with pytest.raises(ValueError, match="failure = 'worst' tells in place of a failed value another one, .* take \"drop\""):
        setting.core()
    assert not unkept_promise(entry("fed_pne").make(), setting.policy), "nothing is hidden"
    assert not unkept_promise(entry("dp_fts").make(), setting.policy), "the aggregator hides an agent's whole message"
    for failure in ("drop", "stop"):
        assert not unkept_promise(hidden(), replace(setting.policy, failure=failure))


def test_an_entry_of_a_hidden_message_has_its_epsilon_and_the_deviation_of_its_noise() -> None:
    found = local_entry(3, 7, Disclosure(numbers=4, sensitivity=0.5, scale=0.25), 2.0)
    assert (found.norms, found.noise_multiplier, found.numbers, found.release) == ([2.0], 0.5, 4, 7)
    assert found.noise == pytest.approx([math.sqrt(2.0) * 0.25])  # a Laplace law with this scale
