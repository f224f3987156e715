"""Agents at sites, as the event loop of real time sees them: each process is a mailbox, which its site empties and fills."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from fedbo.actors.hosts import Hosts, News, WallClockState
from fedbo.actors.storage.rows import Row, write_rows
from fedbo.actors.storage.run_folder import PROVISIONAL, RunFolder
from fedbo.actors.task import DecisionSize, StepReport, StepRequest
from fedbo.actors.unsent import Ends
from fedbo.algorithms.base import Declaration
from fedbo.coordinator.runtime.reports import write_reports
from fedbo.sites.mask_rounds import MaskRounds
from fedbo.sites.release import SiteReport


class Mailboxes(Protocol):
    """The mailboxes of all sites, which a server fills and empties from a thread of its own."""

    def order(self, agent: int, request: StepRequest) -> None:
        """Put a request into the mailbox of an agent, in place of the one before; its number is its lease."""

    def withdraw(self, agent: int) -> None:
        """Withdraw the request from the mailbox of an agent."""

    def arrived(self, timeout: float) -> list[SiteReport]:
        """Return the reports that have arrived, after `timeout` seconds at most; a site repeats those not `taken`."""

    def taken(self, agent: int, lease: int) -> None:
        """Acknowledge a report, which need not be sent again."""

    def refuse(self, agent: int, why: str) -> None:
        """Record that a report of an agent does not count."""

    def heard(self, agent: int) -> float | None:
        """Return when an agent's site was heard of, by the monotonic clock; None if not since this process began."""

    def end(self, agent: int, counted: int) -> None:
        """Announce the end of the study to an agent's site, with its last step that counts."""


class _Held(NamedTuple):
    """A report that a planned fault holds back until `due`, by the monotonic clock."""

    due: float
    report: SiteReport


class RemoteSites(Hosts):
    """Agents at their sites. A site is away once it has not been heard of for the length of its lease.

    A report counts if it answers the open request of its agent; any other is acknowledged and dropped. It is acknowledged once
    the event loop has recorded it on the disk, so a kill loses no report and counts none twice. Planned crashes, hangs and
    slow-downs are played here: a site goes on, but its report is dropped or held back. `upload` declares the messages that are
    kept for a replay; with None the table of reports has none. `masks`: the rounds of secure aggregation, if there are any.
    """

    def __init__(
        self,
        mailboxes: Mailboxes,
        home: RunFolder,
        agents: Sequence[int],
        lease: float,
        upload: Declaration | None,
        live: WallClockState | None = None,
    ) -> None:
        self.live = live or WallClockState({}, {}, {})
        self._mailboxes, self._home, self._agents = mailboxes, home, agents
        self._lease, self._upload = lease, upload
        self._begun = self._listening = time.monotonic()
        self._open: dict[int, StepRequest] = {}
        self._asked: dict[int, float] = {}
        self._held: list[_Held] = []
        self._given: list[SiteReport] = []
        self._heard: dict[int, StepReport] = {}
        self._best: dict[int, float] = {}
        self._rows: list[Row] = []
        self._reports: list[StepReport] = []
        self._written: dict[str, str] = {}
        self.masks: MaskRounds | None = None

    def begin(self, epoch: float) -> None:
        """Start the clock of the study, which was 0 at `epoch`."""
        self._listening = time.monotonic()
        self._begun = self._listening - (time.time() - epoch)

    def clock(self) -> float:
        """Return the time of the study."""
        return time.monotonic() - self._begun

    def reached(self) -> float:
        """Return 0, since evaluations are recorded at sites; the record has the time of the last report."""
        return 0.0

    def are_all_here(self) -> bool:
        """Return whether every site has been heard of since this process began."""
        return all(self._mailboxes.heard(agent) is not None for agent in self._agents)

    def submit(self, request: StepRequest) -> None:
        """Put a request into its agent's mailbox. The event that caused it is on the disk."""
        self._open[request.agent] = request
        self._asked[request.agent] = time.monotonic()
        self._mailboxes.order(request.agent, request)

    def ready(self, timeout: float) -> News:
        """Return the reports that count and arrive within `timeout` seconds, and the sites that are there or away."""
        for report in self._given:  # the event loop has recorded them
            self._mailboxes.taken(report.agent, report.lease)
        self._given = self._due()
        if not self._given:
            waits = [timeout, *(held.due - time.monotonic() for held in self._held)]
            for report in self._mailboxes.arrived(max(0.0, min(waits))):
                self._receive(report)
            self._given = self._due()
        for report in self._given:
            self.heard(report)
        if self.masks is not None:
            self.masks.turn()
        away = frozenset(agent for agent in self._agents if not self.is_there(agent))
        heard = frozenset(agent for agent in self._agents if self._mailboxes.heard(agent) is not None)
        return News(reports=[*self._given], dead=[], present=heard - away, away=away)

    def _receive(self, report: SiteReport) -> None:
        """Hold a report until it is due, or drop one that does not answer the open request of its agent."""
        agent, order = report.agent, self._open.get(report.agent)
        if order is None or order.lease != report.lease:  # the request was ended by a planned fault
            self._mailboxes.taken(agent, report.lease)
            return
        if order.step != report.step:
            self._mailboxes.refuse(agent, f"a report of step {report.step} does not answer the order for step {order.step}")
            self._mailboxes.taken(agent, report.lease)
            return
        if any(held.report.agent == agent for held in self._held):  # the same one again
            return
        now = time.monotonic()
        slowed = (self.live.slowed.get(agent, 1.0) - 1.0) * (now - self._asked[agent])
        until = self._begun + self.live.held.get(agent, 0.0)
        self._held.append(_Held(max(now + slowed, until), report))

    def _due(self) -> list[SiteReport]:
        """Return the reports that nothing holds back any longer."""
        now = time.monotonic()
        due = [held.report for held in self._held if held.due <= now]
        self._held = [held for held in self._held if held.due > now]
        return due

    def is_there(self, agent: int) -> bool:
        """Return whether an agent's site was heard of within its lease, or may still be since this process began."""
        last = self._mailboxes.heard(agent)
        return time.monotonic() - (self._listening if last is None else last) <= self._lease

    def heard(self, report: StepReport) -> None:
        """Note a report that the coordinator has received: its agent has no open request any more."""
        self._heard[report.agent] = report
        self._open.pop(report.agent, None)

    def commit(self, agent: int, times: tuple[float, ...]) -> None:
        """Count the agent's last step, with the rows that its site has released."""
        report = self._heard.pop(agent)
        self.live.counted[agent] = report.step
        self._reports.append(report)
        rows = report.released if isinstance(report, SiteReport) else ()
        self._rows += rows
        scores = [row.outcome.score for row in rows if row.error is None]
        if scores:
            self._best[agent] = max(scores + [self._best.get(agent, scores[0])])

    def busy(self) -> bool:
        """Return whether any agent has an open request."""
        return bool(self._open)

    def kill(self, agent: int) -> None:
        """End an agent's step as a crash would: its site goes on, but the report is dropped."""
        self._mailboxes.withdraw(agent)
        self._open.pop(agent, None)
        for held in self._held:
            if held.report.agent == agent:
                self._mailboxes.taken(agent, held.report.lease)
        self._held = [held for held in self._held if held.report.agent != agent]

    def hold(self, agent: int, until: float) -> None:
        """Hold an agent's reports back until this time."""
        self.live.held[agent] = max(until, self.live.held.get(agent, 0.0))

    def slow(self, agent: int, factor: float) -> None:
        """Hold reports back so that steps take so many times as long as at the site."""
        self.live.slowed[agent] = factor

    def flush(self, ends: Ends | None = None) -> None:
        """Do nothing, since no request is buffered."""

    def close(self) -> None:
        """Do nothing: the server, which sites still ask, ends later."""

    def best(self) -> dict[int, float]:
        """Return the best released score of every agent that has released one."""
        return dict(self._best)

    def best_values(self) -> Mapping[int, float | None]:  # type: ignore[override]
        """Return no optimum, since objectives are at sites."""
        return {}

    def decide(self, request: StepRequest) -> DecisionSize:
        """Raise RuntimeError: only virtual time asks for a decision alone."""
        raise RuntimeError("a site decides and evaluates in one step")

    def report(self, agent: int) -> StepReport:
        """Raise RuntimeError: only virtual time waits for one report."""
        raise RuntimeError("the reports of sites arrive when they are ready")

    def snapshot(self, number: int, whole: bool) -> None:
        """Write the rows and reports since the last snapshot; sites keep the agents."""
        self._written = self._write(number)

    def written(self, wait: bool = False) -> dict[str, str] | None:
        """Return the files of the snapshot."""
        return self._written

    def finish(self, number: int, kind: str = "observations") -> dict[str, str]:
        """Write the remaining rows and reports, and tell the sites that the study has ended unless it is to continue."""
        if kind == PROVISIONAL:  # the last snapshot has them all
            return {}
        written = self._write(number)
        for agent in self._agents:
            self._mailboxes.end(agent, self.live.counted.get(agent, -1))
        return written

    def _write(self, number: int) -> dict[str, str]:
        rows, self._rows = self._rows, []
        reports, self._reports = self._reports, []
        written = dict[str, str]()
        if rows:
            path = self._home.table("observations", number)
            written[path.name] = write_rows(sorted(rows, key=lambda row: row.agent), self._home.key, path)
        if reports:
            path = self._home.table("reports", number)
            written[path.name] = write_reports(reports, self._home.key, self._upload, path)
        return written
