"""`fedbo demo sites`: six processes with keys of their own, and a replay without a difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedbo.cli import main
from fedbo.sites import demo
from fedbo.sites.audit import read_audit
from fedbo.sites.errors import SitesError
from fedbo.sites.folders import ServiceFolder


@pytest.mark.long
def test_a_coordinator_and_five_sites_run_and_their_record_replays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "ITERATIONS", 2)
    assert main(["demo", "sites", "--folder", str(tmp_path / "demo"), "--quiet", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = [name for name, _, _ in demo.SITES]
    assert told["same"] and [*told["sites"]] == names
    expected = [f"agent {agent}: 5 evaluations, 0 of them failed" for agent in range(len(names))]
    assert [words.splitlines()[0] for words in told["sites"].values()] == expected
    roster = ServiceFolder(tmp_path / "demo" / "vaccine.sites").roster()
    assert [entry.name for entry in roster.entries] == names and len({entry.key for entry in roster.entries}) == len(names)
    for name in names:
        (log,) = (tmp_path / "demo" / name).glob("runs/*/audit.jsonl")
        assert sum(record["event"] == "sent" for record in read_audit(log)) >= 3
    assert main(["show", told["directory"]]) == 0
    assert main(["demo", "sites", "--folder", str(tmp_path / "demo")]) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.long
def test_a_site_that_fails_ends_the_demonstration_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arranged = demo._arranged

    def spoiled(folder: Path) -> tuple[Path, Path, int]:
        found = arranged(folder)
        (folder / "east" / "policy.toml").write_text("studies = []")
        return found

    monkeypatch.setattr(demo, "_arranged", spoiled)
    with pytest.raises(SitesError, match="the site 'east' ended: .*studies does not list the study 'vaccine'"):
        demo.demo_sites(tmp_path / "demo", quiet=True)
