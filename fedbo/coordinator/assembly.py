"""The core that a study asks for: with private messages where its algorithm declares them, and with single evaluations."""

from __future__ import annotations

from fedbo.actors.task import Task
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.coordinator.kernel.rules import Rules
from fedbo.coordinator.kernel.step_scheduler import StepEvaluations
from fedbo.coordinator.privacy.aggregator import PrivateAggregator
from fedbo.coordinator.privacy.budget import DEFAULT_BUDGET, PrivacyBudget
from fedbo.coordinator.privacy.receipt import PrivateReceipt, receipt_of
from fedbo.settings.rooms import optional


def assembled(
    task: Task,
    exchange: Exchange,
    environment: Environment,
    budget: PrivacyBudget = DEFAULT_BUDGET,
    key: bytes | None = None,
) -> Core:
    """Build a core whose receipt and evaluations are those of the study. A secret `key` is for private noise without a seed.

    Raises:
        ValueError: the messages of the algorithm cannot be masked, but the budget asks for masks.
    """
    evaluations = optional("evaluations") or StepEvaluations
    return Core(task, exchange, environment, lambda rules: receipt_of(rules, budget, key), evaluations)


def aggregator_of(rules: Rules) -> PrivateAggregator | None:
    """Return the aggregator of private messages; None where messages are not private."""
    return rules.receipt.aggregator if isinstance(rules.receipt, PrivateReceipt) else None
