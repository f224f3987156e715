"""Rounds whose length follows from the messages, against a simulation of one round in ten lines."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest
from small_runs import Setting
from talking import Talk

from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.environment import AgentModels
from fedbo.coordinator.environment.timing import Constant
from fedbo.coordinator.kernel.exchange import Deadline, Rounds
from fedbo.coordinator.modes import Adaptive


def close_of(times: list[float], quorum: float, factor: float, length: float | None) -> float:
    """Return when a round closes whose messages come at these times, one of each agent that it waits for."""
    times = sorted(times)
    first = times[: math.ceil(quorum * len(times))]
    middle = median(first)
    due = middle + factor * median(abs(one - middle) for one in first)
    if length is not None and length < first[-1]:  # no quorum when it could last no longer
        return max(length, times[0])
    return min(max(due, first[-1]), times[-1])


@pytest.mark.parametrize("length", [None, 0.5])
@pytest.mark.parametrize("factor", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("quorum", [0.2, 0.6, 1.0])
def test_the_first_round_closes_as_a_simulation_of_it_says(quorum: float, factor: float, length: float | None) -> None:
    for seed in range(5):
        lengths = np.random.default_rng(seed).lognormal(0.0, 1.0, 9).tolist()
        models = {agent: AgentModels(evaluation=Constant(one), availability=Always()) for agent, one in enumerate(lengths)}
        setting = Setting(Talk(), exchange=Adaptive(quorum, factor, length), agents=9, initial=1, iterations=2)
        closes = setting.run(world={"exceptions": models}).of("round")[0].time
        assert closes == pytest.approx(close_of(lengths, quorum, factor, length))


def test_the_first_rounds_have_lengths_of_their_own() -> None:
    exchange = Deadline(2.0, lengths=(5.0, 0.5))
    assert [exchange.deadline_of(Rounds(number)) for number in range(4)] == [5.0, 0.5, 2.0, 2.0]
