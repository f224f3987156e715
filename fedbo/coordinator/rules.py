"""The constants of a run between agents, in one place for all parts of the core."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from fedbo.actors.task import Task
from fedbo.algorithms.streams import COORDINATOR
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.exchange import Exchange
from fedbo.coordinator.privacy.aggregator import PrivateAggregator
from fedbo.coordinator.rounds import Rounds


class Part(Protocol):
    """A part of the core."""

    @property
    def is_plain(self) -> bool:
        """Check whether its rules, as this run sets them, are among those that windows repeat."""


class Rules:
    """The task, the exchange mode, the environment and the private aggregation of a run, and the log that its parts write.

    - `streams`: those of the coordinator.
    - `targets`: the agents that optimise.
    - `log`: the lines since the last flush.
    - `sends_dummies`: whether agents that are not sampled send a dummy message.
    - `participants`: the agents that take part from the start, which are the targets and agents that send a message before.
    - `idles`: whether agents that are not sampled in a round are idle; a study then has one round more than iterations.
    - `more_up`, `more_down`: the bytes that messages and answers have beyond their declaration.
    """

    def __init__(self, task: Task, exchange: Exchange, environment: Environment, aggregator: PrivateAggregator | None) -> None:
        self.task, self.exchange, self.environment, self.aggregator = task, exchange, environment, aggregator
        self.algorithm, self.problem, self.streams = task.algorithm, task.problem, task.streams.of(COORDINATOR)
        self.upload, self.download = self.algorithm.upload(self.problem), self.algorithm.download(self.problem)
        targets = self.problem.targets
        self.targets: Collection[int] = targets if isinstance(targets, range) else frozenset(targets)
        # Who is not asked sends a dummy message then, which takes as long as any: nothing that happens, but for what is in the
        # releases, depends on who was asked, neither when rounds close nor who is late. Amplification by sampling needs that.
        self.sends_dummies = aggregator is not None and not aggregator.no_amplification
        self.is_synchronous = exchange.is_synchronous
        everybody = self.upload is not None and self.algorithm.sends(0)
        self.participants: Collection[int] = range(self.problem.n_agents) if everybody else self.targets
        self.idles = self.is_synchronous and exchange.selection.idles and self.upload is not None
        self.log: list[Any] = []  # EventLine or EventColumns
        self.more_up, self.more_down = 0, 0
        masks = None if aggregator is None else aggregator.secure_aggregation
        if aggregator is not None and masks is not None:
            (declared,) = (self.upload or {}).values()
            length = declared.shape[0]
            assert length is not None, "what is masked is of one length"
            self.more_up, self.more_down = masks.added_bytes(aggregator.mechanism, length, len(self.participants))

    def staleness(self, rounds: Rounds, base: int) -> int:
        """Count the rounds since round `base`; without rounds, as many answers as there are targets count as one."""
        passed = rounds.age - base
        return passed if self.is_synchronous else passed // len(self.targets)
