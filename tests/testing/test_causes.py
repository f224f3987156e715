"""The laws of causes: an event that is left out, moved or made up is noticed, whatever follows from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from small_runs import Setting, fts

from fedbo.coordinator.environment.faults import Crash, Hang, Loss, NetworkPartition, Slow
from fedbo.coordinator.kernel.exchange import Barrier
from tests.random_studies.invariants import violations_of
from tests.random_studies.run_tables import RunTables

AGENTS = (0, 1)
PLAN = (
    Crash(agents=AGENTS, at=2.0, restart=0.7),
    Hang(agents=AGENTS, at=4.0, duration=0.5),
    Slow(agents=AGENTS, at=5.0, duration=1.0, factor=2.0),
    NetworkPartition(agents=(2, 4), at=3.0, duration=2.0),
    Loss(agents=(3,), probability=0.5),
)


@pytest.fixture(scope="module")
def tables() -> RunTables:
    setting = Setting(fts(), exchange=Barrier(), world={"plan": PLAN})
    return setting.run().tables(setting)


def changed(tables: RunTables, kind: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> RunTables:
    """Return the tables with the second event of a kind changed, or left out."""
    place = [place for place, event in enumerate(tables.events) if event["kind"] == kind][1]
    event = change(dict(tables.events[place]))
    events = [*tables.events[:place], *([] if event is None else [event]), *tables.events[place + 1 :]]
    ordered = sorted(events, key=lambda event: event["time"])
    return replace(tables, events=[{**event, "sequence": number} for number, event in enumerate(ordered)])


def test_a_run_has_causes(tables: RunTables) -> None:
    assert violations_of(tables) == []


@pytest.mark.parametrize("kind", ["crashed", "restarted", "hung", "woke", "slowed", "lost", "finished", "sent", "round", "cut"])
def test_an_event_that_is_left_out_is_noticed(tables: RunTables, kind: str) -> None:
    assert violations_of(changed(tables, kind, lambda event: None)) != []


@pytest.mark.parametrize("kind", ["restarted", "woke", "recovered", "joined", "finished", "arrived"])
def test_an_event_at_another_time_is_noticed(tables: RunTables, kind: str) -> None:
    assert violations_of(changed(tables, kind, lambda event: {**event, "time": event["time"] + 0.3})) != []
