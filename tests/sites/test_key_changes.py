"""Keys that change while a study runs: rotated, revoked and replaced, the study makes the decisions that it makes without."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedbo.sites.audit import read_audit
from fedbo.sites.documents import Approval, SiteRequest
from fedbo.sites.errors import SitesError
from fedbo.sites.folders import POLICY, REQUEST, ServiceFolder, SiteFolder
from fedbo.sites.join import join_study
from fedbo.sites.work import SiteSummary
from fedbo.study.study import load_study
from tests.sites.direct import sites_document
from tests.sites.loopback import Arranged, arrange
from tests.sites.test_remote_sites import AGENTS, BOX, QUADRATIC, decisions, objectives, without_network


class Waiting:
    """An objective whose third evaluation has `begun`, and waits until a key is `changed`."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.calls = inner, 0
        self.begun, self.changed = threading.Event(), threading.Event()
        self.best_value = inner.best_value

    def evaluate(self, x: Any, rng: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            self.begun.set()
            assert self.changed.wait(60)
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


def lost_with_its_folder(arranged: Arranged) -> None:
    """Give the place of agent 0 to a new key in a new folder, as after the loss of a disk."""
    service, earlier = ServiceFolder(arranged.service), arranged.approvals[0].parent
    service.revoke(0)
    site = SiteFolder.create(earlier.parent / "new", "site-0")
    (site.path / POLICY).write_bytes((earlier / POLICY).read_bytes())
    approval = service.approve(SiteRequest.read(site.path / REQUEST), 0)
    arranged.approvals[0] = site.accept(approval, approval.fingerprint)


def carried_out(change: Callable[[Arranged], None], arranged: Arranged) -> tuple[Any, dict[int, SiteSummary]]:
    """Carry out a study in which a key changes, whose site joins again; return its results, and what its sites did."""
    own = objectives("quadratic", 4, **QUADRATIC)
    own[0] = waiting = Waiting(own[0])
    summaries: dict[int, SiteSummary] = {}
    refusals: list[str] = []

    def work(agent: int) -> None:
        while agent not in summaries and len(refusals) < 10:
            try:
                summaries[agent] = join_study(arranged.approvals[agent], own[agent], patience=60.0)
            except SitesError as error:  # its user looks why, and joins again with what is in its folder then
                refusals.append(f"{agent}: {error}")

    def change_key() -> None:
        assert waiting.begun.wait(60)
        change(arranged)
        waiting.changed.set()

    threads = [threading.Thread(target=work, args=(agent,), daemon=True) for agent in range(AGENTS)]
    threads.append(threading.Thread(target=change_key, daemon=True))
    for thread in threads:
        thread.start()
    result = arranged.serve()
    for thread in threads:
        thread.join(60)
    assert refusals and all(line.startswith("0: ") and "revoked" in line for line in refusals), refusals
    entries = ServiceFolder(arranged.service).roster().entries
    assert [(entry.agent, entry.state) for entry in entries if entry.agent == 0] == [(0, "revoked"), (0, "active")]
    recorded = [record["roster"] for record in read_audit(arranged.service / "audit.jsonl") if record["event"] == "roster"]
    assert recorded == sorted(recorded) and recorded[-1] == ServiceFolder(arranged.service).roster().number
    return result, summaries


@pytest.mark.slow
@pytest.mark.parametrize("change", [pytest.param(rotated, marks=pytest.mark.long), lost_and_replaced])
def test_a_key_changes_while_the_study_runs(change: Callable[[Arranged], None], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    document = sites_document(BOX, AGENTS, exchange={"mode": "barrier"})
    result, summaries = carried_out(change, arrange(load_study(document), tmp_path))
    assert decisions(result) == decisions(without_network(document))
    assert {summary.evaluations for summary in summaries.values()} == {6}


@pytest.mark.long
@pytest.mark.slow
def test_a_site_that_has_lost_its_folder_goes_on_with_a_new_one(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    document = sites_document(BOX, AGENTS, exchange={"mode": "barrier"})
    result, summaries = carried_out(lost_with_its_folder, arrange(load_study(document), tmp_path))
    assert result.manifest["status"] == "complete"
    # Earlier observations of agent 0 are lost with its folder, but not what it had released.
    assert [summaries[agent].evaluations for agent in range(1, AGENTS)] == [6] * (AGENTS - 1)
    assert 0 < summaries[0].evaluations < 6
    assert len(result.observations) == 6 * AGENTS
