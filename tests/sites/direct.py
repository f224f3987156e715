"""A coordinator and its sites in one process, joined by mailboxes in memory that may lose, double and forget.

What a mailbox of the real server keeps on its disk is kept here in `Post`, which outlives a coordinator and its sites.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbo.actors.task import StepRequest
from fedbo.analysis.result import Result
from fedbo.execution.again import run_again
from fedbo.sites.release import SiteReport
from fedbo.sites.serve import StudyClock, sites_runner
from fedbo.sites.terms import asked_of, load_terms, public_terms
from fedbo.sites.work import SiteSummary, SiteWork
from fedbo.study.study import Study, load_study


class Killed(KeyboardInterrupt):
    """The end of a process by kill -9: nothing is written any more, unlike after other errors."""


@dataclass
class SiteDisk:
    """What a site has on its disk: the order it holds, the highest lease it has seen, and reports that are not acknowledged."""

    order: StepRequest | None = None
    seen: int = 0
    reports: dict[int, SiteReport] = field(default_factory=dict)
    ended: int | None = None


class Post:
    """How sites reach the coordinator; `loss` is the share of exchanges that fail, before or after they count."""

    def __init__(self, agents: int, loss: float = 0.0, seed: int = 0) -> None:
        self.disks = [SiteDisk() for _ in range(agents)]
        self.loss, self.draws, self.lock = loss, random.Random(seed), threading.RLock()
        self.cut: set[int] = set()
        self.server: Server | None = None

    def sync(self, agent: int) -> bool:
        """Exchange all that either side has for the other; return whether it succeeded."""
        with self.lock:
            server, disk = self.server, self.disks[agent]
            if server is None or agent in self.cut or self.draws.random() < self.loss / 2:
                return False
            answer = server.answer(agent, list(disk.reports.values()))
            if self.draws.random() < self.loss / 2:
                return False
            taken, order, ended = answer
            for lease in taken:
                disk.reports.pop(lease, None)
            if order is not None and order.lease > disk.seen:
                disk.seen, disk.order = order.lease, order
            disk.ended = ended if disk.ended is None else disk.ended
            return True


class Server:
    """The mailboxes of one life of a coordinator."""

    def __init__(self, post: Post, clock: Callable[[], float]) -> None:
        self.post, self.clock = post, clock
        self._orders: dict[int, StepRequest] = {}
        self._arrived: list[SiteReport] = []
        self._taken: dict[int, set[int]] = {}
        self._heard: dict[int, float] = {}
        self._ended: dict[int, int] = {}
        self._wake = threading.Condition(post.lock)
        self.dies_in: int | None = None  # calls of the event loop until it is killed
        self.counts: dict[tuple[int, int], int] = {}
        post.server = self

    def _call(self) -> None:
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.post.server = None
                raise Killed

    def answer(self, agent: int, reports: Sequence[SiteReport]) -> tuple[set[int], StepRequest | None, int | None]:
        with self._wake:
            self._heard[agent] = time.monotonic()
            self._arrived += [report for report in reports if report.lease not in self._taken.get(agent, ())]
            self._wake.notify_all()
            return set(self._taken.get(agent, ())), self._orders.get(agent), self._ended.get(agent)

    def order(self, agent: int, request: StepRequest) -> None:
        self._call()
        with self._wake:
            self._orders[agent] = request

    def withdraw(self, agent: int) -> None:
        self._call()
        with self._wake:
            self._orders.pop(agent, None)

    def arrived(self, timeout: float) -> list[SiteReport]:
        self._call()
        with self._wake:
            if not self._arrived:
                self._wake.wait(timeout)
            found, self._arrived = self._arrived, []
            return found

    def taken(self, agent: int, lease: int) -> None:
        self._call()
        with self._wake:
            self._taken.setdefault(agent, set()).add(lease)

    def refuse(self, agent: int, why: str) -> None:
        raise AssertionError(f"a report of agent {agent} was refused: {why}")

    def heard(self, agent: int) -> float | None:
        return self._heard.get(agent)

    def end(self, agent: int, counted: int) -> None:
        with self._wake:
            self._ended[agent] = counted


class DirectOrders:
    """One life of a site's process; it syncs whenever it waits, and once after each report."""

    def __init__(self, post: Post, agent: int, dies_in: int | None = None) -> None:
        self.post, self.agent, self.dies_in = post, agent, dies_in
        self.refused: str | None = None
        self.lost = False

    def _call(self) -> None:
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                raise Killed

    @property
    def ended(self) -> int | None:
        return self.post.disks[self.agent].ended

    def next_order(self, timeout: float) -> StepRequest | None:
        self._call()
        disk = self.post.disks[self.agent]
        until = time.monotonic() + min(timeout, 0.05)
        while (found := disk.order) is None and time.monotonic() < until:
            if not self.post.sync(self.agent):
                time.sleep(0.005)
            if disk.order is None:
                time.sleep(0.001)
        return found

    def evaluating(self, lease: int | None) -> None:
        self._call()

    def report(self, report: SiteReport) -> None:
        self._call()
        disk = self.post.disks[self.agent]
        with self.post.lock:
            disk.reports[report.lease] = report
            if disk.order is not None and disk.order.lease == report.lease:
                disk.order = None
        self._call()
        self.post.sync(self.agent)

    def study_time(self) -> float | None:
        server = self.post.server
        return None if server is None else server.clock()


def sites_document(objective: dict[str, Any], agents: int, **tables: Any) -> dict[str, Any]:
    """Return the document of a study of sites with a box of two parameters."""
    return {
        "study": {"name": "sites", "seed": 4},
        "objective": {"name": "sites", "agents": agents, **objective},
        "agents": {"initial": 2},
        "budget": {"iterations": 4},
        "algorithm": [{"name": "fts", "every": 1, "features": 20}],
        "timing": {"clock": "wall"},
        "sites": {"streams": "study", "share": "observations"},
        **tables,
    }


class World:
    """A study of sites at work: threads of sites with their own folders, and a coordinator in the calling thread."""

    def __init__(
        self, document: dict[str, Any], objectives: Sequence[Any], folder: Path, loss: float = 0.0, seed: int = 0
    ) -> None:
        self.study: Study = load_study(document)
        self.objectives, self.folder = objectives, folder
        self.post = Post(len(objectives), loss, seed)
        self.draws = random.Random(seed)
        self.kills = {"site": 0, "coordinator": 0}
        self.summaries: dict[int, SiteSummary] = {}
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._site, args=(agent,), daemon=True) for agent in range(len(objectives))]
        self.site_kills = 0  # of each site
        self.over = False

    def _site(self, agent: int) -> None:
        try:
            terms, left = public_terms(self.study), self.site_kills
            while not self.over:
                work = SiteWork(load_terms(terms), agent, self.objectives[agent], self.folder / f"site-{agent}", 10_000)
                dies = self.draws.randrange(12) if left else None
                try:
                    self.summaries[agent] = work.run(DirectOrders(self.post, agent, dies))
                    return
                except Killed:
                    left -= 1
                    self.kills["site"] += 1
        except BaseException as error:  # noqa: BLE001 -- whatever ends a thread of a test is shown by the test
            self.errors.append(error)

    def run(self, coordinator_kills: int = 0) -> Result:
        """Run the study to its end, with so many kills of the coordinator at random calls."""
        for thread in self._threads:
            thread.start()
        try:
            return self._serve(coordinator_kills)
        finally:
            for thread in self._threads:
                thread.join(120)
            self.over = True
            if self.errors:
                raise self.errors[0]

    def _serve(self, left: int) -> Result:
        while True:
            clock = StudyClock()
            server = Server(self.post, clock)
            server.dies_in = self.draws.randrange(1, 10) if left > 0 else None
            try:
                runner = sites_runner(server, clock, asked_of(self.study).lease)
                return run_again(self.study, self.folder / "run", (), None, runner)
            except KeyboardInterrupt:
                if server.dies_in is None or server.dies_in >= 0:
                    raise  # of whoever runs the test
                left -= 1
                self.kills["coordinator"] += 1
