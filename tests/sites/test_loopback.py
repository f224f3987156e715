"""Studies at sites over real sockets on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedbo.execution.replay import replay
from fedbo.study.study import load_study
from tests.sites.direct import sites_document
from tests.sites.loopback import SiteThreads, arrange
from tests.sites.test_remote_sites import AGENTS, BOX, QUADRATIC, decisions, objectives, without_network


def test_sites_over_sockets_make_the_decisions_of_the_study_without_a_network(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    document = sites_document(BOX, AGENTS, exchange={"mode": "barrier"})
    arranged = arrange(load_study(document), tmp_path)
    sites = SiteThreads(arranged, objectives("quadratic", 4, **QUADRATIC))
    result = arranged.serve()
    assert {summary.evaluations for summary in sites.finish().values()} == {6}
    assert decisions(result) == decisions(without_network(document))
    assert replay(result.directory, verify=True).same
