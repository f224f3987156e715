"""The tables of one run as rows, beside the part of the study that it carried out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Federation
from fedbo.study.study import Study
from fedbo.study.tables import AlgorithmTable

Row = Mapping[str, Any]
NEAR = 1e-6


@dataclass(frozen=True, slots=True)
class RunTables:
    """The tables of one run: one cell, one algorithm, one replicate; `study` is the cell's own."""

    study: Study
    federation: Federation
    table: AlgorithmTable
    replicate: int
    rows: Sequence[Row]
    events: Sequence[Row]
    releases: Sequence[Row]
    spent: Sequence[Row]

    @property
    def streams(self) -> Streams:
        """Give the random streams of the run."""
        return Streams(self.study.study.seed, self.replicate)

    def of(self, *kinds: str) -> list[Row]:
        """List the events of some kinds, in their order."""
        return [event for event in self.events if event["kind"] in kinds]

    def suffers(self, kind: type[Any]) -> bool:
        """Say whether the fault plan has a fault of this kind."""
        return any(isinstance(fault.make(), kind) for fault in self.study.fault) and not self.table.centralised


def runs_of(study: Study, directory: Path) -> Iterator[RunTables]:
    """Read the tables of a study, run by run."""
    read: dict[str, dict[tuple[Any, ...], list[Row]]] = {}
    for name in ("observations", "events", "privacy", "privacy_agents"):
        path, found = directory / f"{name}.parquet", read.setdefault(name, defaultdict(list))
        for row in pq.read_table(path).to_pylist() if path.exists() else ():
            found[row["cell"], row["algorithm"], row["replicate"]].append(row)
    for cell in study.cells():
        federation = cell.study.federation()
        for table in cell.study.algorithm:
            for replicate in range(cell.study.study.replicates):
                key = (cell.number, table.title, replicate)
                yield RunTables(
                    study=cell.study,
                    federation=federation,
                    table=table,
                    replicate=replicate,
                    rows=read["observations"][key],
                    events=read["events"][key],
                    releases=read["privacy"][key],
                    spent=read["privacy_agents"][key],
                )
