"""The tables of one run as rows, with the run's inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbo.actors.storage.rows import OBSERVATIONS, read_table
from fedbo.actors.task import Task
from fedbo.coordinator.environment.environment import Environment
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.coordinator.logged.table import EVENTS
from fedbo.coordinator.runtime.actor import Run
from fedbo.execution import jobs
from fedbo.privacy.ledger import PRIVACY, SPENT
from fedbo.study.study import Study

Row = Mapping[str, Any]
NEAR = 1e-6


@dataclass(frozen=True, slots=True)
class RunTables:
    """The tables of one run, with the run's inputs.

    job: its task, exchange mode and environment.
    ends_early: whether it may end before its agents have used their budgets.
    rows, events, releases, spent: rows of the tables.
    """

    job: Run
    ends_early: bool
    rows: Sequence[Row]
    events: Sequence[Row]
    releases: Sequence[Row] = ()
    spent: Sequence[Row] = ()

    @property
    def task(self) -> Task:
        """Return the task, from which the agents of the run are made."""
        return self.job.task

    @property
    def exchange(self) -> Exchange:
        """Return the exchange mode."""
        return self.job.exchange

    @property
    def environment(self) -> Environment:
        """Return the models and the fault plan."""
        return self.job.environment

    def of(self, *kinds: str) -> list[Row]:
        """List the events of some kinds, in their order."""
        return [event for event in self.events if event["kind"] in kinds]

    def suffers(self, kind: type[Any]) -> bool:
        """Return whether the fault plan has a fault of this kind."""
        return any(isinstance(fault, kind) for fault in self.environment.plan)


_SCHEMAS = {"observations": OBSERVATIONS, "events": EVENTS, "privacy": PRIVACY, "privacy_agents": SPENT}


def runs_of(study: Study, directory: Path) -> Iterator[RunTables]:
    """Read the tables of a study, run by run."""
    read: dict[str, dict[tuple[Any, ...], list[Row]]] = {}
    for name, schema in _SCHEMAS.items():
        path, found = directory / f"{name}.parquet", read.setdefault(name, defaultdict(list))
        table = read_table(path, schema, further=True) if path.exists() else None
        for row in () if table is None else table.to_pylist():
            found[row["cell"], row["algorithm"], row["replicate"]].append(row)
    budgets = {cell.number: cell.study.budget for cell in study.cells()}
    for run in jobs.runs(study, directory / "parts"):
        budget = budgets[run.key.cell]
        ends_early = any(limit is not None for limit in (budget.time, budget.target, budget.evaluations))
        key = (run.key.cell, run.key.algorithm, run.key.replicate)
        yield RunTables(
            job=run,
            ends_early=ends_early,
            rows=read["observations"][key],
            events=read["events"][key],
            releases=read["privacy"][key],
            spent=read["privacy_agents"][key],
        )
