"""Small worlds for the tests of this room: a free objective, few agents, every source of trouble switched on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fedbo.actors.agent import Task
from fedbo.actors.host import InlineHosts
from fedbo.algorithms.base import Algorithm, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.availability import Availability, Bernoulli
from fedbo.coordinator.core import Core, World
from fedbo.coordinator.engine import Outcome, Watch, run_virtual
from fedbo.coordinator.events import Record
from fedbo.coordinator.exchange import Barrier, Exchange, Immediate
from fedbo.coordinator.timing import Constant, Lognormal, Timing
from fedbo.objectives.functions import Quadratic

FTS = {"own": None, "every": 1, "length_scale": 0.3, "noise": 0.01, "features": 20, "p": 0.5}


@dataclass(frozen=True)
class Setting:
    """A run that a test can vary by a word or two."""

    algorithm: Algorithm
    agents: int = 5
    targets: tuple[int, ...] | None = None
    iterations: int = 6
    initial: int = 2
    seed: int = 1
    exchange: Exchange = Immediate()
    evaluation: Timing = Lognormal(1.0, 0.8)
    latency: Timing = Constant(0.1)
    availability: Availability = Bernoulli(0.2, 1.5)

    def task(self) -> Task:
        targets = tuple(range(self.agents)) if self.targets is None else self.targets
        problem = Problem(2, self.agents, targets, self.initial, self.iterations)
        return Task(Quadratic(agents=self.agents), self.algorithm, problem, Streams(self.seed))

    def core(self) -> Core:
        task = self.task()
        world = World(self.evaluation, self.latency, self.availability)
        return Core(self.algorithm, task.problem, self.exchange, world, task.streams)

    def run(self, **changes: Any) -> Ran:
        setting = replace(self, **changes)
        core, records = setting.core(), []
        hosts = InlineHosts(setting.task(), range(setting.agents))
        outcome = run_virtual(core, hosts, Watch(records.extend))
        return Ran(core, hosts, [Record(*line) for line in records], outcome)


@dataclass(frozen=True)
class Ran:
    """What a run left: its core, its agents, its event log."""

    core: Core
    hosts: InlineHosts
    records: list[Record]
    outcome: Outcome

    @property
    def rows(self) -> list[Any]:
        agents = self.hosts.host.agents
        return [row for number in sorted(agents) for row in agents[number].rows]

    def of(self, kind: str) -> list[Record]:
        return [record for record in self.records if record.kind == kind]


def fts(**settings: Any) -> Algorithm:
    """A federated algorithm that decides in a blink: random features alone, no fits."""
    from fedbo.algorithms.ts import TS

    return entry("fts").make(**{**FTS, "own": TS(refit=1000, features=20), **settings})


BOTH_MODES = [Immediate(), Barrier()]
