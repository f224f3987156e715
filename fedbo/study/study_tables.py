"""The tables of a study as one record, which checks read before there is a `Study`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fedbo.objectives.base import Federation
from fedbo.study.agents.tables import AgentsTable, Points, read_points
from fedbo.study.base import OfRoom, Table
from fedbo.study.document import Document
from fedbo.study.environment.tables import (
    AvailabilityTable,
    DetectionTable,
    ExchangeTable,
    FaultTable,
    GroupTable,
    NetworkTable,
    TimingTable,
)
from fedbo.study.metric_table import MetricTable
from fedbo.study.tables import (
    AlgorithmTable,
    BudgetTable,
    EvaluationTable,
    Header,
    HostingTable,
    ObjectiveTable,
    RecordTable,
    RecoveryTable,
)


class StudyTables(Table):
    """All tables of a study file, each valid on its own; `Study` adds the cells of its sweep."""

    study: Header
    objective: ObjectiveTable
    agents: AgentsTable = AgentsTable()
    budget: BudgetTable
    metric: Annotated[tuple[MetricTable, ...], Field(strict=False)] = ()
    algorithm: Annotated[tuple[AlgorithmTable, ...], Field(strict=False, min_length=1)]
    timing: TimingTable = TimingTable()
    network: NetworkTable = NetworkTable()
    availability: AvailabilityTable = AvailabilityTable()
    group: Annotated[tuple[GroupTable, ...], Field(strict=False)] = ()
    exchange: ExchangeTable = ExchangeTable()
    evaluation: EvaluationTable = EvaluationTable()
    cluster: Annotated[Any, OfRoom("cluster")] = OfRoom("cluster").default
    stopping: Annotated[Any, OfRoom("stopping")] = OfRoom("stopping").default
    privacy: Annotated[Any, OfRoom("privacy")] = OfRoom("privacy").default
    detection: DetectionTable | None = None
    fault: Annotated[tuple[FaultTable, ...], Field(strict=False)] = ()
    record: RecordTable = RecordTable()
    recovery: RecoveryTable = RecoveryTable()
    hosting: HostingTable = HostingTable()
    sites: Annotated[Any, OfRoom("sites")] = OfRoom("sites").default
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the algorithms, in the order of the file."""
        return tuple(table.title for table in self.algorithm)

    @property
    def targets(self) -> Sequence[int]:
        """Return the agents that optimise, ascending; a range if they are all agents, since there may be a million."""
        given = self.agents.targets
        return range(self.federation().n_agents) if given == "all" else tuple(sorted(given))

    @property
    def has_secure_noise(self) -> bool:
        """Check whether private noise comes from a key that is deleted, so that no run can be repeated."""
        return getattr(self.privacy, "secure_noise", False)

    def federation(self) -> Federation:
        """Return the federation, without added noise."""
        federation: Federation = self.objective.make()
        return federation

    def initial_points(self) -> Points | None:
        """Read the initial file: points `(n, d)` of the unit cube for each (agent, replicate); None without a file."""
        if self.agents.initial_file is None:
            return None
        dim = len(self.federation().parameters)
        return read_points(Path(self.agents.initial_file), dim, self.targets, self.study.replicates)

    def document(self) -> Document:
        """Return the study as plain tables, numbers and strings, which `load_study` accepts."""
        return {key: value for key, value in self.model_dump(mode="json", exclude_none=True).items() if value}
