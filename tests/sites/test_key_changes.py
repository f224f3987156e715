"""Keys that change while a study runs: rotated, revoked and replaced, the study makes the decisions that it makes without."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedbo.sites.audit import read_audit
from fedbo.sites.documents import Approval, SiteRequest
from fedbo.sites.errors import SitesError
from fedbo.sites.folders import REQUEST, ServiceFolder, SiteFolder
from fedbo.sites.join import join_study
from fedbo.sites.work import SiteSummary
from fedbo.study.study import load_study
from tests.sites.direct import sites_document
from tests.sites.loopback import Arranged, arrange
from tests.sites.test_remote_sites import AGENTS, BOX, QUADRATIC, decisions, objectives, without_network

SECONDS = 0.2  # of an evaluation, so that the study is still at work when a key changes


class Slowly:
    """An objective that takes some time; `begun` is set at the third evaluation."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.calls, self.begun = inner, 0, threading.Event()
        self.best_value = inner.best_value

    def evaluate(self, x: Any, rng: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            self.begun.set()
        time.sleep(SECONDS)
        return self.inner.evaluate(x, rng)

    def score(self, x: Any) -> Any:
        return self.inner.score(x)


def rotated(arranged: Arranged) -> None:
    """Rotate the key of agent 0 while the earlier one is at work."""
    approval = Approval.read(arranged.approvals[0])
    site, service = SiteFolder.of(arranged.approvals[0]), ServiceFolder(arranged.service)
    site.rotate(approval)
    second = service.approve(SiteRequest.read(site.path / REQUEST))
    site.accept(second, approval.fingerprint)


def lost_and_replaced(arranged: Arranged) -> None:
    """Revoke the key of agent 0, and approve another one of the same folder in its place, as after a theft."""
    site, service = SiteFolder.of(arranged.approvals[0]), ServiceFolder(arranged.service)
    approval = Approval.read(arranged.approvals[0])
    service.revoke(0)
    (site.path / "site.key").unlink()
    (site.path / REQUEST).unlink()
    SiteFolder.create(site.path, "site-0")
    site.accept(service.approve(SiteRequest.read(site.path / REQUEST), 0), approval.fingerprint)


@pytest.mark.slow
@pytest.mark.parametrize("change", [rotated, lost_and_replaced])
def test_a_key_changes_while_the_study_runs(change: Callable[[Arranged], None], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    document = sites_document(BOX, AGENTS, exchange={"mode": "barrier"})
    arranged = arrange(load_study(document), tmp_path)
    slow = [Slowly(each) for each in objectives("quadratic", 4, **QUADRATIC)]
    summaries: dict[int, SiteSummary] = {}
    refusals: list[str] = []

    def work(agent: int) -> None:
        while agent not in summaries and len(refusals) < 10:
            try:
                summaries[agent] = join_study(arranged.approvals[agent], slow[agent], patience=60.0)
            except SitesError as error:  # its user looks why, and joins again with what is in its folder then
                refusals.append(f"{agent}: {error}")

    def change_key() -> None:
        assert slow[0].begun.wait(60)
        change(arranged)

    threads = [threading.Thread(target=work, args=(agent,), daemon=True) for agent in range(AGENTS)]
    threads.append(threading.Thread(target=change_key, daemon=True))
    for thread in threads:
        thread.start()
    result = arranged.serve()
    for thread in threads:
        thread.join(60)
    assert refusals and all(line.startswith("0: ") and "revoked" in line for line in refusals), refusals
    assert decisions(result) == decisions(without_network(document))
    assert {summary.evaluations for summary in summaries.values()} == {6}
    entries = ServiceFolder(arranged.service).roster().entries
    assert [(entry.agent, entry.state) for entry in entries if entry.agent == 0] == [(0, "revoked"), (0, "active")]
    recorded = [record["roster"] for record in read_audit(arranged.service / "audit.jsonl") if record["event"] == "roster"]
    assert recorded == sorted(recorded) and recorded[-1] == ServiceFolder(arranged.service).roster().number
