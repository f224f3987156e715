"""Groups that take their share by the agents' objectives, data or histories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fedbo
from fedbo.actors.agent import objective_of
from fedbo.algorithms.streams import Streams
from fedbo.execution.jobs import runs
from fedbo.execution.replay import replay
from fedbo.study.environment.measures import measure
from fedbo.study.environment.models import members_in
from fedbo.study.study import Study, load_study


def study(by: str, **changes: Any) -> Study:
    group = {"name": "rare", "share": 0.3, "by": by, "speed": {"factors": [3.0]}}
    tables = {
        "study": {"name": "unlike", "seed": 4, "replicates": 2},
        "objective": {"name": "quadratic", "agents": 10, "spread": 0.5},
        "budget": {"iterations": 2},
        "algorithm": [{"name": "random"}],
        "group": [group],
    }
    return load_study({**tables, **changes})


def centres(asked: Study, replicate: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    world = Streams(asked.study.seed, replicate)
    objectives: list[Any] = [objective_of(asked.federation(), agent, world) for agent in range(10)]
    return np.array([objective.centre for objective in objectives])


def largest(values: Any, count: int = 3) -> tuple[int, ...]:
    return tuple(sorted(np.argsort(values)[-count:].tolist()))


def test_a_group_takes_those_whose_optimum_lies_highest_or_furthest_from_the_mean_in_each_replicate() -> None:
    for replicate in range(2):
        where = centres(study("x1"), replicate)
        assert members_in(study("x1"), replicate) == {"rare": largest(where[:, 0])}
        far = measure(study("distance"), "distance", replicate)
        assert np.abs(far - np.linalg.norm(where - where.mean(axis=0), axis=1)).max() < 0.1  # a design of 1,024 points
        assert members_in(study("distance"), replicate) == {"rare": largest(far)}
    assert members_in(study("x1"), 0) != members_in(study("x1"), 1)
    assert members_in(study("number"), 1) == {"rare": (7, 8, 9)}


def test_difficulty_is_how_far_a_uniform_point_is_from_the_best_one() -> None:
    asked = study("difficulty", objective={"name": "quadratic", "agents": 10, "dimensions": 1, "spread": 1.0})
    found, (centre,) = measure(asked, "difficulty", 0), np.array([centres(asked, 0)[:, 0]])
    exact = (centre**2 - centre + 1.0 / 3.0) / np.maximum(centre, 1.0 - centre) ** 2
    assert np.abs(found - exact).max() < 2e-3


def test_a_group_takes_those_with_the_most_data_or_the_longest_history(tmp_path: Path) -> None:
    digits = study("data", objective={"name": "digits", "agents": 10, "partition": "quantity"})
    world = Streams(4, 0)
    sizes = [len(objective_of(digits.federation(), agent, world).label) for agent in range(10)]  # type: ignore[attr-defined]
    assert set(sizes[agent] for agent in members_in(digits, 0)["rare"]) == set(sorted(sizes)[-3:])
    file = tmp_path / "history.csv"
    file.write_text("agent,x1,x2,value\n" + "".join(f"{agent},0.5,0.5,1\n" for agent in (1, 4, 4, 6, 6, 8, 8)))
    assert members_in(study("history", agents={"history": {"file": str(file)}}), 0) == {"rare": (4, 6, 8)}


def test_lists_and_shares_without_a_measure_come_first_and_a_second_measure_takes_of_the_rest() -> None:
    groups = [
        {"name": "high", "share": 0.2, "by": "x1"},
        {"name": "last", "share": 0.2},
        {"name": "listed", "agents": [0]},
        {"name": "rest", "share": 0.5, "by": "x2"},
    ]
    asked = study("x1", group=groups)
    found, where = members_in(asked, 1), centres(asked, 1)
    assert found["last"] == (8, 9) and found["listed"] == (0,)
    assert found["high"] == tuple(agent + 1 for agent in largest(where[1:8, 0], 2))
    assert sorted(agent for agents in found.values() for agent in agents) == list(range(10))


def test_every_replicate_has_the_environment_of_its_own_groups_and_a_replay_too(tmp_path: Path) -> None:
    faults = [{"kind": "crash", "agents": "rare", "at": 4.0, "restart": 1.0}]
    asked = study("x1", fault=faults)
    for run in runs(asked, Path("parts")):
        rare = members_in(asked, run.key.replicate)["rare"]
        assert tuple(agent for agent in range(10) if run.environment.of(agent).speed.factors == (3.0,)) == rare
        assert run.environment.plan[0].agents == rare  # type: ignore[union-attr]
    result = fedbo.run(asked, out=tmp_path / "run")
    ended = result.observations.to_pandas().groupby(["replicate", "agent"]).finished.max()
    for replicate in range(2):
        assert largest(ended[replicate]) == members_in(asked, replicate)["rare"]
    assert replay(result.directory, verify=True).same is True
