"""Sites that fall silent count as away once their lease has run out, and go on with the order they hold when they are back."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedbo.execution.replay import replay
from tests.sites.direct import World, sites_document
from tests.sites.test_remote_sites import AGENTS, BOX, QUADRATIC, decisions, objectives, without_network

LEASE = 1.0  # seconds


class Slow:
    """An objective that waits a little, so that a cut meets the middle of a study."""

    best_value = None

    def __init__(self, inner: Any, gate: threading.Event, seconds: float = 0.03) -> None:
        self._inner, self._gate, self._seconds, self.calls = inner, gate, seconds, 0

    def evaluate(self, x: Any, rng: Any) -> Any:
        self.calls += 1
        if self.calls == 5:
            self._gate.set()
        time.sleep(self._seconds)
        return self._inner.evaluate(x, rng)

    def score(self, x: Any) -> Any:
        return self._inner.score(x)


def kinds_of(result: Any, *kinds: str) -> list[str]:
    """List the events of these kinds of agent 1, whose site is cut off."""
    return [row["kind"] for row in result.events.to_pylist() if row["kind"] in kinds and row["agent"] == 1]


def cut_world(folder: Path, mode: str, seconds: float, lease: float = LEASE) -> tuple[World, dict[str, Any]]:
    """Make a world whose site 1 is cut off for so many seconds once it has begun its third step."""
    document = sites_document(BOX, AGENTS, exchange={"mode": mode}, budget={"iterations": 8})
    document["sites"] = {**document["sites"], "lease": lease}
    gate = threading.Event()
    own = objectives("quadratic", 4, **QUADRATIC)
    own[1] = Slow(own[1], gate)
    world = World(document, own, folder)

    def cut() -> None:
        gate.wait(60)
        world.post.cut.add(1)
        time.sleep(seconds)
        world.post.cut.discard(1)

    threading.Thread(target=cut, daemon=True).start()
    return world, document


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["barrier", pytest.param("immediate", marks=pytest.mark.long)])
def test_a_silent_site_counts_as_away_until_it_is_back(tmp_path: Path, monkeypatch: Any, mode: str) -> None:
    monkeypatch.chdir(tmp_path)
    world, _ = cut_world(tmp_path, mode, 2.5 * LEASE)
    result = world.run()
    assert kinds_of(result, "absent", "returned") == ["absent", "returned"]
    assert {summary.evaluations for summary in world.summaries.values()} == {10}
    assert not kinds_of(result, "crashed", "discarded")
    assert replay(result.directory, verify=True).same


@pytest.mark.long
def test_other_sites_finish_their_rounds_without_a_site_that_is_away(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    world, _ = cut_world(tmp_path, "barrier", 3 * LEASE)
    rows = world.run().events.to_pylist()
    (left,) = [row["time"] for row in rows if row["kind"] == "absent" and row["agent"] == 1]
    (back,) = [row["time"] for row in rows if row["kind"] == "returned" and row["agent"] == 1]
    others = {row["agent"] for row in rows if row["kind"] == "done" and left < row["time"] < back}
    assert others == {0, 2}


@pytest.mark.long
def test_a_cut_shorter_than_the_lease_changes_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    world, document = cut_world(tmp_path, "barrier", 0.3, lease=60.0)
    result = world.run()
    assert kinds_of(result, "absent") == []
    assert decisions(result) == decisions(without_network(document))


@pytest.mark.long
def test_a_site_that_is_away_when_the_coordinator_is_killed_is_still_away_afterwards(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    world, _ = cut_world(tmp_path, "immediate", 5 * LEASE)
    died: list[float] = []

    def kill() -> None:
        while 1 not in world.post.cut:
            time.sleep(0.01)
        time.sleep(2 * LEASE)  # site 1 is away by now
        server = world.post.server
        assert server is not None
        server.dies_in = 0
        died.append(time.monotonic())

    threading.Thread(target=kill, daemon=True).start()
    result = world.run()
    assert died and world.kills["coordinator"] == 1
    assert kinds_of(result, "absent", "returned") == ["absent", "returned"]
    assert {summary.evaluations for summary in world.summaries.values()} == {10}
    assert replay(result.directory, verify=True).same
