"""The core that a study asks for: with private messages where its algorithm declares them, and with single evaluations."""

from __future__ import annotations

from functools import partial
from typing import Any

from fedbo.actors.task import Task
from fedbo.coordinator.detection import Detector
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.coordinator.kernel.interruptions import Interruptions
from fedbo.coordinator.kernel.network import Network
from fedbo.coordinator.kernel.rules import Receipt, Rules
from fedbo.coordinator.kernel.server import Server
from fedbo.coordinator.kernel.step_scheduler import StepEvaluations, StepScheduler
from fedbo.coordinator.turns import TurnServer
from fedbo.settings.rooms import optional, optional_or


def assembled(task: Task, exchange: Exchange, environment: Environment, budget: Any = None, key: bytes | None = None) -> Core:
    """Build a core whose receipt and evaluations are those of the study.

    `budget` is that of the privacy room, without which no study has private messages; a secret `key` is for private noise
    without a seed.

    Raises:
        ValueError: the messages of the algorithm cannot be masked, but the budget asks for masks.
    """
    evaluations, private = optional("evaluations") or StepEvaluations, optional("receipt")
    receipt = partial(private, budget=budget, key=key) if private is not None else Receipt
    core = Core(task, exchange, environment, receipt, evaluations, optional("idle_agents"), _server, _interruptions)
    optional_or("listen", None)(core)
    return core


def _interruptions(rules: Rules, server: Server, scheduler: StepScheduler) -> Interruptions:
    return (Detector if rules.environment.detection else Interruptions)(rules, server, scheduler)


def _server(rules: Rules, network: Network) -> Server:
    return (TurnServer if rules.turns else Server)(rules, network)
