"""Both state machines under random schedules of faults: every report counts once, and the table is that without a network."""

from __future__ import annotations

from collections import Counter

import pytest
from schedules import BY_NAME, QUIET, Schedule, faults_of

from fedbo.sites.sequences import REPEATED


def _run(seeds: range) -> Counter[str]:
    """Run schedules, and count what happened in them."""
    seen = Counter[str]()
    for seed in seeds:
        schedule = Schedule(seed)
        schedule.run()
        assert faults_of(schedule) == [], f"seed {seed}"
        every = [process for processes in schedule.sites.values() for process in processes]
        seen["requests"] += len(schedule.history)
        seen["processes"] += len(every) - schedule.agents
        seen["older copies"] += sum(process.stale for process in every)
        seen["carried out again"] += sum(count > 1 for count in schedule.carried.values())
        seen["late ends"] += schedule.time > QUIET
        seen.update(why for _, why in schedule.refusals)
    return seen


@pytest.mark.parametrize("schedules", [60, pytest.param(100, marks=pytest.mark.long)])
def test_every_report_counts_once_in_random_schedules(schedules: int) -> None:
    seen = _run(range(schedules))
    # The faults did happen, and each intruder was refused by name.
    for what in ("processes", "older copies", "carried out again", REPEATED, BY_NAME[0], "its body is not the signed one"):
        assert seen[what] > schedules / 10, what
    assert seen["requests"] > 50 * schedules


@pytest.mark.long
@pytest.mark.parametrize("part", range(100))
def test_every_report_counts_once_in_ten_thousand_random_schedules(part: int) -> None:
    _run(range(1000 + 100 * part, 1100 + 100 * part))
