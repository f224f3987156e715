"""The coordinator of a study whose agents are at sites: one process, with snapshots, that continues where it was killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pyarrow.compute as pc

from fedbo.actors.hosts import Hosts, WallClockState
from fedbo.algorithms.base import Private
from fedbo.analysis.result import Result
from fedbo.coordinator.runtime.actor import Run, RunProgress
from fedbo.coordinator.runtime.snapshots import RunParts, Snapshotter
from fedbo.execution.again import has_ended, run_again
from fedbo.execution.progress import Progress
from fedbo.execution.runner import Runner
from fedbo.execution.workers import InProcess, Interrupted, JobRunner, LocalCoordinator
from fedbo.settings.arguments import wrong
from fedbo.settings.interrupts import interrupts
from fedbo.settings.shown import quoted, shown
from fedbo.sites.audit import AuditLog
from fedbo.sites.folders import AUDIT, ServiceFolder
from fedbo.sites.hosts import Mailboxes, RemoteSites
from fedbo.sites.keys import PublicKey
from fedbo.sites.mask_rounds import MaskRounds
from fedbo.sites.outbox import Journal, JournalRecords
from fedbo.sites.server import SyncServer
from fedbo.sites.terms import asked_of, mask_terms, public_terms, sync_terms
from fedbo.sites.wire import HOLD
from fedbo.study.study import Study

_POLL = 0.1  # seconds between two looks at whether sites are there, or know that the study has ended
MASKS = "masks.journal"
MakeMasks = Callable[[JournalRecords, Callable[[int], bool]], MaskRounds]


class StudyClock:
    """The clock of a study, which stands at 0 until its coordinator has started it."""

    def __init__(self) -> None:
        self.sites: RemoteSites | None = None

    def __call__(self) -> float:
        """Return the time of the study, in seconds."""
        return 0.0 if self.sites is None else self.sites.clock()


class SitesCoordinator(LocalCoordinator):
    """A coordinator whose agents are at sites; it begins once all of them have been heard of."""

    def __init__(
        self,
        boxes: tuple[Mailboxes, StudyClock],
        lease: float,
        masks: MakeMasks | None,
        interrupted: Interrupted,
        report: Callable[[RunProgress], None],
    ) -> None:
        super().__init__(interrupted, report)
        self._boxes, self._lease, self._masks = boxes, lease, masks

    def _host(self, run: Run, snapshots: Snapshotter, live: WallClockState | None) -> Hosts:
        mailboxes, clock = self._boxes
        algorithm, problem = run.task.algorithm, run.task.problem
        # Private methods publish noisy sums, so the messages before the noise are not kept.
        upload = None if isinstance(algorithm, Private) else algorithm.upload(problem) or {}
        clock.sites = RemoteSites(mailboxes, snapshots.home, range(problem.n_agents), self._lease, upload, live)
        return clock.sites

    def _drive(self, run: Run, parts: RunParts, snapshots: Snapshotter) -> None:
        sites = self._boxes[1].sites
        assert sites is not None, "they are there before they are driven"
        assert (run.budget.secure_aggregation is None) == (self._masks is None), "masks are those of the study"
        if self._masks is None:
            self._drive_once_here(run, parts, snapshots, sites)
            return
        with closing(Journal(snapshots.home.path / MASKS)) as journal:
            sites.masks = self._masks(journal, sites.is_there)
            aggregator = parts.core.rules.receipt.aggregator
            assert aggregator is not None, "the study was checked"
            aggregator.site_sums = sites.masks
            self._drive_once_here(run, parts, snapshots, sites)

    def _drive_once_here(self, run: Run, parts: RunParts, snapshots: Snapshotter, sites: RemoteSites) -> None:
        fresh = not parts.queue.events and not any(True for _ in snapshots.events_since())
        while fresh and not sites.are_all_here():
            self._note_progress(run, parts.core, parts.hosts)
            if self._stopped:
                parts.queue.stopped = True
                return
            time.sleep(_POLL)
        super()._drive(run, parts, snapshots)


def sites_runner(mailboxes: Mailboxes, clock: StudyClock, lease: float, masks: MakeMasks | None = None) -> Runner:
    """Return the runner of a study whose sites have these mailboxes; `masks` makes its rounds of secure aggregation."""

    @contextmanager
    def runner(study: Study, folder: Path) -> Iterator[JobRunner]:
        yield InProcess(partial(SitesCoordinator, (mailboxes, clock), lease, masks))

    return runner


FAREWELL = 60.0  # seconds in which sites that are there ask again, and are told that the study has ended


def address_of(listen: str) -> tuple[str, int]:
    """Return the host and the port of "HOST:PORT"; ArgumentError for anything else."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 2**16:
        raise wrong("listen", listen, "write HOST:PORT, for example 0.0.0.0:7443")
    return host.strip("[]"), int(port)


def serve_study(
    study: Study, listen: str, service: ServiceFolder, out: Path | None = None, progress: Progress | None = None
) -> Result:
    """Serve a study to its sites until it has ended, and return its results.

    `out` is the folder of the run, by default `run` in the folder of the service; an interrupted run there is continued. Sites
    that have not heard of the end are told for a minute. Raises SitesError where the sites were approved for other terms,
    and the errors of `run_study`.
    """
    service.check_terms(public_terms(study))
    host, port = address_of(listen)
    clock, terms, directory = StudyClock(), sync_terms(study), out or service.path / "run"
    with closing(service.audit()) as audit:
        audit.on_refused = _shown_once(service, progress)
        lease = asked_of(study).lease
        hold = min(HOLD, lease / 3)  # an idle site is heard of no more often than its requests are answered
        server = SyncServer(service.path, service.key, service.digest, terms, service.roster, audit, clock, hold=hold)
        server.start(host, port, service.server_context())
        try:
            if has_ended(directory, study):
                result = Result.open(directory)
                for agent, step in _counted(result).items():
                    server.end(agent, step)
            else:
                masks = _masks(study, service, server, audit)
                runner = sites_runner(server, clock, lease, masks)
                result = run_again(study, directory, (), progress, runner)
            _say_farewell(server, terms.agents)
            return result
        finally:
            server.close()


def _shown_once(service: ServiceFolder, progress: Progress | None) -> Callable[[str, int | None], None]:
    """Return what shows the first refusal of each agent: how many lines there are is not up to strangers."""
    names = {entry.agent: entry.name for entry in service.roster().entries if entry.state == "active"}

    def refused(why: str, agent: int | None) -> None:
        name = None if agent is None else names.pop(agent, None)
        if progress is not None and name is not None:
            where = quoted(service.path / AUDIT)
            progress.note(f"agent {agent}, site {name}: a request was refused: {shown(why)}; {where} has the others")

    return refused


def _masks(study: Study, service: ServiceFolder, server: SyncServer, audit: AuditLog) -> MakeMasks | None:
    """Return what makes the rounds of secure aggregation; None for a study without."""
    terms = mask_terms(study, service.digest)

    def keys() -> dict[int, PublicKey]:
        roster = service.roster()
        known = {agent: roster.key_of(agent) for agent in range(study.federation().n_agents)}
        return {agent: key for agent, key in known.items() if key is not None}

    def refused(why: str, agent: int) -> None:
        audit.refused(why, agent=agent)

    if terms is None:
        return None
    lease = asked_of(study).lease
    return lambda records, is_there: MaskRounds(terms, records, server, keys, is_there, lease, refused)


def _counted(result: Result) -> dict[int, int]:
    """Return the last step that counts of each agent of a run that has ended."""
    agents = range(result.study.federation().n_agents)
    events = result.events.filter(pc.equal(result.events["kind"], "finished"))
    last = events.group_by("agent").aggregate([("step", "max")]).to_pylist()
    return dict.fromkeys(agents, -1) | {row["agent"]: row["step_max"] for row in last}


def _say_farewell(server: SyncServer, agents: int) -> None:
    """Wait until every site knows that the study has ended, or does not ask any more."""
    until = time.monotonic() + FAREWELL
    with interrupts() as interrupted:
        while time.monotonic() < until and not interrupted() and not all(map(server.told, range(agents))):
            time.sleep(_POLL)
