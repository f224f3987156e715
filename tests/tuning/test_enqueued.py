"""Configurations of the user's own that are evaluated first: `Agent.enqueue`, and `enqueue` of `fedbo.tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.objectives.space import from_unit
from fedbo.tuning.tune import tuning_study

SPACE: dict[str, Any] = {"x": (0.0, 1.0), "model": {"n": (1, 9)}}
FIRST, SECOND = {"x": 0.25, "model": {"n": 3}}, {"x": 0.5, "model": {"n": 7}}


def worth(configuration: dict[str, Any]) -> float:
    return float(configuration["x"])


@pytest.mark.parametrize("name", ["ts", "random"])
def test_an_agent_asks_what_was_enqueued_next_also_after_a_restart(name: str, tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path / "a", SPACE, fedbo.Terms(name)) as agent:
        agent.tell(agent.ask()[0].token, 0.1)
        agent.enqueue(FIRST)
        agent.enqueue({"x": 0.5, "model.n": 7})
        (one,) = agent.ask()
        assert one.configuration == FIRST
        agent.tell(one.token, 0.2)
    (tmp_path / "a" / "state.checkpoint").unlink()  # which only saves working it out again
    with fedbo.Agent(tmp_path / "a", SPACE, fedbo.Terms(name)) as agent:
        two, three = agent.ask(2)
        assert two.configuration == SECOND != three.configuration
        assert len({one.token, two.token, three.token}) == 3
        later = [one.configuration for one in agent.ask(2)]
    (tmp_path / "a" / "state.checkpoint").unlink()
    with fedbo.Agent(tmp_path / "a", SPACE, fedbo.Terms(name)) as agent:
        assert [one.configuration for one in agent.pending()[-2:]] == later


def test_a_tuning_begins_with_what_was_enqueued_and_with_the_random_points_after_it(tmp_path: Path) -> None:
    options: Any = {"enqueue": [FIRST, {"x": 0.5, "model.n": 7}], "out": tmp_path / "run", "seed": 3}
    study = tuning_study(worth, SPACE, 2, options)
    points, space = study.initial_points(), study.federation().lattice
    assert points is not None and study.agents.initial == 3
    for agent in (0, 1):
        found = [space.configuration(x) for x in from_unit(space.parameters, points[agent, 0])]
        assert found[:2] == [{"model.n": 3, "x": 0.25}, {"model.n": 7, "x": 0.5}]
    assert not np.array_equal(points[0, 0][2], points[1, 0][2]), "random points are each agent's own"
    assert study.digest() == tuning_study(worth, SPACE, 2, options).digest()
    more: Any = options | {"enqueue": [FIRST] * 5}
    assert tuning_study(worth, SPACE, 2, more).agents.initial == 5
