"""Worlds from measurements in a study: durations from a file or named data, and devices with a speed and a bandwidth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.coordinator.environment.measured import NAMED
from fedbo.coordinator.environment.timing import SpeedClasses
from fedbo.objectives.datasets.data import DataMissingError, locate
from fedbo.study.document import StudyError
from fedbo.study.environment.models import environment_of
from fedbo.study.study import load_study

DEVICES = {
    "5": {"computation": 50.0, "communication": 16.0},
    "6": {"computation": 100.0, "communication": 8.0},
    "7": {"computation": 400.0, "communication": 4.0},
}


def document(**changes: Any) -> dict[str, Any]:
    return {
        "study": {"name": "measured"},
        "objective": {"name": "quadratic", "agents": 5},
        "budget": {"iterations": 6},
        "algorithm": [{"name": "random"}],
        **changes,
    }


@pytest.fixture
def devices(tmp_path: Path) -> str:
    (tmp_path / "devices.json").write_text(json.dumps(DEVICES))
    return str(tmp_path / "devices.json")


def test_a_run_has_the_durations_of_the_file_and_its_hash_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "durations.csv").write_text("worker,seconds\n0,1\n0,2\n1,5\n")
    measured = {"model": "empirical", "file": "durations.csv", "column": "seconds", "by": "worker", "order": "replayed"}
    (tmp_path / "study.toml").write_text(load_study(document()).to_toml())
    study = load_study(
        tmp_path / "study.toml", [f"timing.evaluation={{{', '.join(f'{k} = {v!r}' for k, v in measured.items())}}}"]
    )
    found = fedbo.run(study, out=tmp_path / "run").observations.to_pandas()
    for agent, expected in enumerate(([1, 2] * 5, [5] * 10, [1, 2] * 5)):
        mine = found[found.agent == agent]
        assert (mine.finished - mine.started).tolist() == pytest.approx(expected[: len(mine)])
    before = study.digest()
    (tmp_path / "durations.csv").write_text("worker,seconds\n0,1\n0,2\n1,6\n")
    assert study.digest() != before


@pytest.mark.parametrize("name", NAMED)
def test_named_data_are_found_and_written_by_their_name(name: str) -> None:
    try:
        folder = locate("pai")
    except DataMissingError as missing:
        pytest.skip(str(missing))
    study = load_study(document(timing={"evaluation": {"model": "empirical", "data": name, "mean": 2.0}}))
    shown = study.document()["timing"]["evaluation"]
    assert shown["data"] == name and "file" not in shown
    assert load_study(study.document()).digest() == study.digest()
    made = environment_of(study).common.evaluation
    assert made is not None and Path(str(getattr(made, "file", ""))).parent == folder
    drawn = made.draw(np.random.default_rng(1), 20_000)
    # Normal approximation, seed 1: false alarm below 1e-5.
    assert abs(drawn.mean() - 2.0) < 4.5 * drawn.std() / np.sqrt(len(drawn))


def test_devices_give_agents_a_speed_and_a_bandwidth(devices: str) -> None:
    groups = [{"name": "wired", "agents": [1], "bandwidth": 1e6}, {"name": "even", "agents": [3], "speed": {"factors": [1.0]}}]
    world = environment_of(load_study(document(timing={"devices": devices}, group=groups)))
    assert [world.of(agent).speed for agent in range(5)] == [SpeedClasses((f,)) for f in (0.5, 1.0, 4.0, 1.0, 1.0)]
    assert [world.of(agent).bandwidth for agent in range(5)] == [2000.0, 1e6, 500.0, 2000.0, 1000.0]


def test_devices_make_evaluations_and_messages_take_longer(devices: str, tmp_path: Path) -> None:
    algorithm = [{"name": "fts", "own": {"features": 20, "refit": 1000}}]
    study = document(algorithm=algorithm, timing={"devices": devices}, objective={"name": "quadratic", "agents": 3})
    result = fedbo.run(load_study(study), out=tmp_path / "run")
    rows, events = result.observations.to_pandas(), result.events.to_pandas()
    lengths = (rows.finished - rows.started).groupby(rows.agent).mean()
    assert lengths.tolist() == pytest.approx([0.5, 1.0, 4.0])
    first = events[(events.step == 0) & events.kind.isin(["sent", "arrived"])].set_index(["agent", "kind"])
    for agent, rate in enumerate((2000.0, 1000.0, 500.0)):
        took = first.time[agent, "arrived"] - first.time[agent, "sent"]
        assert took == pytest.approx(first.bytes[agent, "sent"] / rate)


def complaint(**changes: Any) -> str:
    with pytest.raises(StudyError) as told:
        load_study(document(**changes))
    return str(told.value).removeprefix("study: ")


def test_wrong_measurements_are_told_in_one_line(devices: str, tmp_path: Path) -> None:
    def of(**settings: Any) -> dict[str, Any]:
        return {"timing": {"evaluation": {"model": "empirical", **settings}}}

    assert complaint(**of()) == "[timing] evaluation: file is missing; set either file or data"
    assert "evaluation.data = 'pai-9': no data 'pai-9'; did you mean 'pai-4'?" in complaint(**of(data="pai-9"))
    assert "does not exist: " in complaint(**of(file=str(tmp_path / "none.csv")))
    (tmp_path / "times.txt").touch()
    assert "ends in '.txt'; it must be a table in .csv, .parquet or .swf" in complaint(**of(file=str(tmp_path / "times.txt")))
    both = {"timing": {"devices": devices, "speed": {"factors": [1.0, 2.0]}}}
    assert complaint(**both) == "[timing] speed: cannot be combined with devices, which set speeds; remove one of them"
    wide = {"timing": {"devices": devices}, "network": {"bandwidth": 100.0}}
    assert complaint(**wide) == (
        "[network] bandwidth = 100.0: cannot be combined with [timing] devices, which set it; remove one of them"
    )
    assert "does not exist: " in complaint(timing={"devices": str(tmp_path / "none.json")})
    Path(devices).write_text('{"1": {"computation": 3.0}}')
    assert "has communication = None for client 1; it must be a number above 0" in complaint(timing={"devices": devices})


def log_linear(*slopes: float, **more: Any) -> dict[str, Any]:
    return {"model": "log_linear", "slopes": list(slopes), **more}


def test_log_linear_durations_are_those_of_their_points(tmp_path: Path) -> None:
    groups = [{"name": "slow", "agents": [1], "speed": {"factors": [3.0]}}]
    study = document(
        timing={"evaluation": log_linear(1.5, -0.5, mean=2.0)}, group=groups, objective={"name": "quadratic", "agents": 2}
    )
    for row in fedbo.run(load_study(study), out=tmp_path / "run").observations.to_pylist():
        length = 2.0 * np.exp(1.5 * (row["u"][0] - 0.5) - 0.5 * (row["u"][1] - 0.5)) * (3.0 if row["agent"] == 1 else 1.0)
        assert row["finished"] - row["started"] == pytest.approx(length)


def test_wrong_slopes_are_told_in_one_line() -> None:
    assert "slopes = [1.0]: must be one number for each of the 2 parameters" in complaint(
        timing={"evaluation": log_linear(1.0)}
    )
    assert "slopes = [60.0, 0.0]: must be numbers from -50 to 50" in complaint(timing={"evaluation": log_linear(60.0, 0.0)})
    assert "only evaluations have costs" in complaint(timing={"latency": log_linear(1.0, 1.0)})
    group = [{"name": "some", "agents": [0], "evaluation": log_linear(1.0, 1.0)}]
    assert "has slopes that apply to all agents; set it in [timing]" in complaint(group=group)
