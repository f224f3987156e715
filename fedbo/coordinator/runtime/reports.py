"""The reports that sites sent to the coordinator of a run, as a table, and the replay of the coordinator from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from fedbo.actors.hosts import Hosts
from fedbo.actors.storage.evaluations import column
from fedbo.actors.storage.rows import RunKey, schema_of, write_table
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.task import DecisionSize, StepReport, StepRequest
from fedbo.actors.unsent import Ends
from fedbo.algorithms.base import Declaration
from fedbo.algorithms.messages import DUMMY, decode, encode
from fedbo.coordinator.assembly import assembled
from fedbo.coordinator.errors import ReplayError
from fedbo.coordinator.kernel.engine import RecordedEvent, RunHooks
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.runtime.actor import Run
from fedbo.coordinator.runtime.event_log import EventLog
from fedbo.coordinator.runtime.replay_log import replay_events
from fedbo.coordinator.runtime.snapshots import RunParts, Snapshotter

_COUNTS = ("agent", "lease", "step", "queries", "t_n", "pulled")
# A row of `reports.parquet` but for the run's key.
REPORTS = pa.schema(
    [
        *schema_of(RunKey),
        column("agent", pa.int32()),
        column("number", pa.int64()),
        *(column(name, pa.int64()) for name in _COUNTS[1:]),
        column("failed", pa.list_(pa.string())),
        column("message", pa.binary(), nullable=True),
    ]
)


def write_reports(reports: Sequence[StepReport], key: RunKey, upload: Declaration | None, path: Path) -> str:
    """Write the reports that count, with their messages as `upload` declares them, if set; return the SHA-256 of the file."""
    columns: dict[str, list[object]] = {name: [value] * len(reports) for name, value in zip(key._fields, key, strict=True)}
    columns |= {name: [getattr(report, name) for report in reports] for name in _COUNTS}
    columns["number"] = columns["lease"]
    columns["failed"] = [list(report.failed) for report in reports]
    messages = [None if upload is None else report.payload for report in reports]
    columns["message"] = [one if one is None else encode(one, upload or {}) if one else b"" for one in messages]
    return write_table(pa.table(columns, schema=REPORTS), path)


def read_reports(table: pa.Table, key: RunKey, upload: Declaration | None) -> list[StepReport]:
    """Return the reports of a run from the table of a study."""
    found = []
    for row in table.to_pylist():
        if tuple(row[name] for name in key._fields) == key:
            message = row["message"]
            payload = None if message is None else decode(message, upload or {}) if message else DUMMY
            report = StepReport(row["agent"], row["step"], row["queries"], payload, row["lease"])
            report.t_n, report.pulled, report.failed = row["t_n"], row["pulled"], tuple(row["failed"])
            found.append(report)
    return found


class ReportedHosts(Hosts):
    """Agents of which only their reports are known: each request has the report that answered it."""

    def __init__(self, reports: Iterable[StepReport]) -> None:
        self._reports = {(report.agent, report.lease): report for report in reports}
        self._leases: dict[int, int] = {}

    def submit(self, request: StepRequest) -> None:
        """Note the lease of the request."""
        self._leases[request.agent] = request.lease

    def report(self, agent: int) -> StepReport:
        """Return the report that answered the agent's last request; ReplayError if there is none."""
        lease = self._leases.get(agent, -1)
        try:
            return self._reports[agent, lease]
        except KeyError:
            raise ReplayError(f"agent {agent}: no report of lease {lease} is known; check reports.parquet") from None

    def decide(self, request: StepRequest) -> DecisionSize:
        """Raise ReplayError: decisions are not known."""
        raise ReplayError(f"agent {request.agent}: its decisions stayed at its site")

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Do nothing: the agent is at its site."""

    def flush(self, ends: Ends | None = None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def best(self) -> dict[int, float]:
        """Return nothing."""
        return {}

    def best_values(self) -> dict[int, float | None]:
        """Return nothing."""
        return {}

    def snapshot(self, number: int, whole: bool) -> None:
        """Do nothing."""

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Return no file."""
        return {}

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Return no file: what sites released is no work of the coordinator."""
        return {}


def replay_reports(run: Run, record: Sequence[RecordedEvent], reports: Iterable[StepReport]) -> None:
    """Replay the coordinator of a run, whose agents were at sites, in virtual time, and write its tables.

    Raises:
        ReplayError: a recorded event could not happen.
    """
    snapshots = Snapshotter(RunFolder.of(run.folder, run.key), math.inf, None)
    core = assembled(run.task, run.exchange, run.environment, run.budget)
    parts = RunParts(core, EventQueue(), EventLog(snapshots.home), ReportedHosts(reports))
    replay_events(core, parts.hosts, RunHooks(parts.event_log.extend), parts.queue, record)
    snapshots.finish(parts, ended=True)
