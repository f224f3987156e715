"""Crashed, hung and slow agents of whom the coordinator hears by missing heartbeats; times are worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from small_runs import Setting
from talking import Talk

from fedbo.coordinator.detection import Detection
from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.faults import Crash, Hang, Slow
from fedbo.coordinator.environment.timing import Constant
from fedbo.coordinator.kernel.exchange import Barrier, Immediate
from fedbo.coordinator.selection import Selection
from fedbo.settings.errors import SettingError


def run(*plan: Any, exchange: Any = None, detection: Detection | None = None) -> Any:
    """Run four agents with steps of length 1, whose heartbeats come at i, i + 1/4, i + 1/2 and i + 3/4."""
    world = {"plan": plan, "detection": detection or Detection(1.0, 2.0)}
    setting = Setting(Talk(), exchange=exchange or Barrier(), agents=4, initial=1, iterations=8, evaluation=Constant(1.0))
    return setting.run(availability=Always(), latency=Constant(0.0), world=world)


def first(ran: Any, kind: str) -> Any:
    return ran.of(kind)[0]


@pytest.mark.parametrize("fault", [Crash((1,), at=2.6), Crash((1,), at=2.6, restart=50.0), Hang((1,), at=2.6, duration=50.0)])
def test_a_round_waits_for_a_dead_agent_until_its_heartbeats_are_missed(fault: Any) -> None:
    """Its last heartbeat came at 2.25, so it is taken for dead at 4.25; the round that began at 2 closes then."""
    ran = run(fault)
    assert first(ran, "suspected").time == pytest.approx(4.25) and first(ran, "suspected").agent == 1
    closes = [one.time for one in ran.of("round")]
    assert closes[:4] == pytest.approx([1.0, 2.0, 4.25, 5.25])


def test_a_short_crash_is_not_noticed() -> None:
    ran = run(Crash((1,), at=2.6, restart=1.0))
    assert not ran.of("suspected") and [one.time for one in ran.of("round")][2] == pytest.approx(4.6)


def test_a_slow_agent_is_taken_for_dead_and_believed_again() -> None:
    """Half as fast it sends a heartbeat in 2.5, which the time-out of 2 takes for none; it is normal again from 6 on."""
    ran = run(Slow((2,), at=3.0, factor=2.5, duration=3.0))
    assert [(one.kind, one.agent, one.time) for one in ran.records if one.kind in ("suspected", "trusted")] == [
        ("suspected", 2, 4.5),
        ("trusted", 2, 6.5),
    ]
    late = [one for one in ran.of("arrived") if one.agent == 2 and one.staleness]
    assert late, "its message came while the others had gone on"
    assert len(ran.of("done")) == 4


def test_the_turn_of_a_dead_agent_goes_to_another() -> None:
    """With one turn at a time the crash at 0.5 stops all until the dead agent's last heartbeat is two units old."""
    exchange = Immediate(selection=Selection(concurrency=1))
    agent = first(run(exchange=exchange), "started").agent
    ran = run(Crash((agent,), at=0.5), exchange=exchange)
    begins = [one for one in ran.of("started") if one.time > 0.5]
    heard = (0.0, 0.25, 0.5, -0.25)[agent]
    assert begins[0].time == pytest.approx(heard + 2.0) and begins[0].agent != agent
    assert len(ran.of("done")) == 3


def test_a_timeout_below_the_interval_is_refused() -> None:
    with pytest.raises(SettingError, match="at least the heartbeat"):
        Detection(2.0, 1.0)
