"""Runs in virtual time that end when a value is reached, or when enough evaluations were made."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from small_runs import BOTH_MODES, Setting, fts

from fedbo.actors.evaluation.policy import Policy
from fedbo.actors.task import EarlyEnd, Task
from fedbo.coordinator.kernel.exchange import Exchange


@dataclass(frozen=True)
class Ending(Setting):
    """A run that may end early."""

    target: float | None = None
    evaluations: int | None = None

    def task(self) -> Task:
        return replace(super().task(), early_end=EarlyEnd(self.target, self.evaluations))


both = pytest.mark.parametrize("exchange", BOTH_MODES, ids=lambda mode: mode.mode)
one_or_three = pytest.mark.parametrize("places", [1, 3])


@both
@one_or_three
def test_a_run_that_ends_early_is_the_beginning_of_one_that_does_not(exchange: Exchange, places: int) -> None:
    policy = Policy(parallel=places)
    whole = Ending(fts(), exchange=exchange).run(policy=policy)
    some = Ending(fts(), exchange=exchange).run(policy=policy, evaluations=17)
    assert [row.t_n for row in some.rows] and some.records == whole.records[: len(some.records)]
    by_end = sorted(row.finished for row in some.rows)
    assert 17 <= len(by_end) < 17 + 2  # all initial points of an agent come at once where it has one place
    assert some.records[-1].time == some.outcome.time >= by_end[-1] - 1e-9  # an agent may be absent when one ends


@both
@one_or_three
def test_a_run_ends_with_the_step_that_reaches_its_target(exchange: Exchange, places: int) -> None:
    policy = Policy(parallel=places)
    whole = Ending(fts(), exchange=exchange).run(policy=policy)
    values = sorted((row.finished, row.outcome.value) for row in whole.rows)
    target = max(value for _, value in values[: len(values) // 2])
    some = Ending(fts(), exchange=exchange).run(policy=policy, target=target)
    assert sum(row.outcome.value >= target for row in some.rows) == 1
    assert some.records == whole.records[: len(some.records)]
