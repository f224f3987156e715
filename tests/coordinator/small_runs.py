"""Small worlds for the tests of this room: a free objective, few agents, every source of trouble switched on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.hosts import InlineHosts
from fedbo.actors.storage.evaluations import reader
from fedbo.actors.storage.rows import RunKey
from fedbo.actors.task import Task
from fedbo.algorithms.base import Algorithm, Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.environment.availability import Availability, Bernoulli
from fedbo.coordinator.environment.environment import AgentModels, Environment
from fedbo.coordinator.environment.timing import Constant, Lognormal, Timing
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.exchange import LATE, Barrier, Exchange, Immediate
from fedbo.coordinator.logged.kinds import KINDS, EventLine
from fedbo.coordinator.logged.table import LoggedEvent
from fedbo.coordinator.modes import MODES
from fedbo.coordinator.runtime.actor import Run
from fedbo.objectives.functions import Quadratic
from fedbo.privacy.budget import DEFAULT_BUDGET, PrivacyBudget
from tests.random_studies.run_tables import RunTables

FTS = {"own": None, "every": 1, "length_scale": 0.3, "noise": 0.01, "features": 20, "p": 0.5}


def logged(lines: Iterable[EventLine]) -> list[LoggedEvent]:
    """Return the lines of a log as rows of `events.parquet`, without numbers: logs with and without some lines are compared."""
    kinds = {record: kind for kind, record in KINDS.items()}
    return [LoggedEvent(0, "", 0, 0, kind=kinds[type(line)], **line._asdict()) for line in lines]


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
    models: dict[str, Any] = field(default_factory=dict)
    world: dict[str, Any] = field(default_factory=dict)
    policy: Policy = Policy()
    checkpoint: int = 1
    until: float = float("inf")
    budget: PrivacyBudget = DEFAULT_BUDGET

    def task(self) -> Task:
        targets = range(self.agents) if self.targets is None else self.targets
        problem = Problem(2, self.agents, targets, self.initial, self.iterations)
        made = Task(Quadratic(agents=self.agents), self.algorithm, problem, Streams(self.seed))
        return replace(made, policy=self.policy, checkpoint=self.checkpoint)

    def environment(self) -> Environment:
        common = AgentModels(evaluation=self.evaluation, latency=self.latency, availability=self.availability, **self.models)
        return Environment(common, **self.world)

    def core(self) -> Core:
        return assembled(self.task(), self.exchange, self.environment(), self.budget)

    def run(self, **changes: Any) -> Ran:
        setting = replace(self, **changes)
        core, records, agenda = setting.core(), list[Any](), EventQueue()
        hosts = InlineHosts(setting.task(), range(setting.agents))
        run_virtual(core, hosts, RunHooks(records.extend), agenda, setting.until)
        return Ran(core, hosts, logged(records), agenda)


@dataclass(frozen=True)
class Ran:
    """What a run left: its core, its agents, its event log."""

    core: Core
    hosts: InlineHosts
    records: list[LoggedEvent]
    outcome: EventQueue

    @property
    def rows(self) -> list[Any]:
        return self.hosts.host.agents.all_rows()

    def tables(self, setting: Setting) -> RunTables:
        """Return what the run would leave on disk, beside what it was made of."""
        key, task, environment = RunKey(0, "small", 0), setting.task(), setting.environment()
        job = Run(key, task, setting.exchange, environment, Path(), until=setting.until, budget=setting.budget)
        following = self.outcome.next_time()
        ends_early = following is not None and following > setting.until
        events = [{**record._asdict(), "sequence": place} for place, record in enumerate(self.records)]
        rows = [{name: reader(name)(row) for name in row.COLUMNS} for row in self.rows]
        return RunTables(job, ends_early, rows, events)

    def of(self, kind: str) -> list[LoggedEvent]:
        return [record for record in self.records if record.kind == kind]


def fts(**settings: Any) -> Algorithm:
    """A federated algorithm that decides in a blink: random features alone, no fits."""
    from fedbo.algorithms.ts import TS

    return entry("fts").make(**{**FTS, "own": TS(refit=1000, features=20), **settings})


def paired(*values: Sequence[Any]) -> list[Any]:
    """Give all combinations as parameters; all are `long` but a few, among which every pair of values occurs."""
    every = list(product(*(range(len(some)) for some in values)))
    wanted = {pair for one in every for pair in combinations(enumerate(one), 2)}
    chosen = set[tuple[int, ...]]()
    while wanted:
        best = max(every, key=lambda one: len(wanted & {*combinations(enumerate(one), 2)}))
        chosen.add(best)
        wanted -= {*combinations(enumerate(best), 2)}
    return [
        pytest.param(*(some[n] for some, n in zip(values, one, strict=True)), marks=[] if one in chosen else pytest.mark.long)
        for one in every
    ]


def thinned(modes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Give every pair as parameters; all are `long` but one of each mode, and the values take turns."""
    return [
        pytest.param(
            mode,
            value,
            marks=[] if number % len(values) == place else pytest.mark.long,
            id=f"{mode.mode}{'-carry' * (mode.accepts_late and mode.is_synchronous)}-{value}",
        )
        for number, mode in enumerate(modes)
        for place, value in enumerate(values)
    ]


def modes(**settings: Any) -> list[Any]:
    """Give every exchange mode of the catalogue, with what it has of these settings, and each `late` where it has that."""
    found = []
    for declared in MODES.values():
        names = {one.name for one in fields(declared)}
        taken = {name: value for name, value in settings.items() if name in names}
        found += [declared(**taken, late=late) for late in LATE] if "late" in names else [declared(**taken)]
    return found


BOTH_MODES = [Immediate(), Barrier()]
ALL_MODES = modes(k=3, length=1.5)
