"""The coordinator of a run whose agents are at sites: the event loop of real time with mailboxes in place of processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from fedbo.actors.hosts import Hosts, WallClockState
from fedbo.algorithms.base import Private
from fedbo.coordinator.runtime.actor import Run, RunProgress
from fedbo.coordinator.runtime.snapshots import RunParts, Snapshotter
from fedbo.execution.runner import Runner
from fedbo.execution.workers import InProcess, Interrupted, JobRunner, LocalCoordinator
from fedbo.sites.hosts import Mailboxes, RemoteSites
from fedbo.sites.mask_rounds import MaskRounds
from fedbo.sites.outbox import Journal, JournalRecords
from fedbo.study.study import Study

_POLL = 0.1  # seconds between two looks at whether a site is there
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
        # What is private is published with noise, so the messages before it are not kept.
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
            aggregator = parts.core.rules.aggregator
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
