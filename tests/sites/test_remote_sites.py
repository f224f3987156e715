"""A study at sites makes the decisions of the same study without a network, whatever is killed, lost or doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.actors.storage.rows import read_table
from fedbo.algorithms.streams import Streams
from fedbo.execution.replay import replay
from fedbo.objectives.catalog import catalogue
from tests.sites.direct import World, sites_document

AGENTS = 3
BOX = {"low": [0.0, 0.0], "high": [1.0, 1.0]}


def objectives(name: str, seed: int, **settings: Any) -> list[Any]:
    """Make the objectives of a federation as each site has its own."""
    federation, world = catalogue()[name](**settings), Streams(seed)
    return [
        federation.objective(agent, world.shared("objective"), world.of(agent).rng("objective"))
        for agent in range(federation.n_agents)
    ]


QUADRATIC = {"agents": AGENTS, "noise": 0.01}


def decisions(result: Any) -> list[tuple[Any, ...]]:
    """List what agents decided and observed, without times."""
    rows = result.observations.to_pylist()
    return [
        (row["agent"], row["step"], row["query"], row["origin"], *row["u"], row["value"], row["score"], row["t_n"])
        for row in rows
    ]


def without_network(document: dict[str, Any]) -> Any:
    """Run the same study in virtual time, where it has its objectives itself."""
    here = {key: value for key, value in document.items() if key not in ("sites", "timing")}
    return fedbo.run({**here, "objective": {"name": "quadratic", **QUADRATIC}})


def test_sites_make_the_decisions_of_the_study_without_a_network(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    document = sites_document(BOX, AGENTS, exchange={"mode": "barrier"})
    world = World(document, objectives("quadratic", 4, **QUADRATIC), tmp_path)
    result = world.run()
    assert decisions(result) == decisions(without_network(document))
    assert replay(result.directory, verify=True).same
    assert {number: summary.evaluations for number, summary in world.summaries.items()} == {
        number: 6 for number in range(AGENTS)
    }
    assert max(len(disk.reports) for disk in world.post.disks) <= 1, "sites are told which reports have been taken"


def hindered(folder: Path, seed: int, kills: int) -> int:
    """Run the study with kills of both sides and a third of all calls lost, and check it; return the number of kills."""
    document = sites_document(BOX, AGENTS, exchange={"mode": "barrier"})
    world = World(document, objectives("quadratic", 4, **QUADRATIC), folder, loss=0.3, seed=seed)
    world.site_kills = kills
    result = world.run(coordinator_kills=2 * kills)
    reports = read_table(result.directory / "reports.parquet").to_pylist()
    assert len({(report["agent"], report["step"]) for report in reports}) == len(reports) == AGENTS * 5
    assert decisions(result) == decisions(without_network(document))
    assert replay(result.directory, verify=True).same
    return sum(world.kills.values())


def test_kills_of_either_side_and_lost_calls_lose_no_report_and_count_none_twice(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert hindered(tmp_path, 1, 3) >= 12


@pytest.mark.long
def test_many_kills_lose_no_report_and_count_none_twice(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    kills = 0
    for seed in range(2, 40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        kills += hindered(folder, seed, 5)
    assert kills >= 200
