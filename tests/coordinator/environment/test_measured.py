"""Measured durations: drawn by their own law, replayed in order, by agent or pooled; and capacities of devices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.duration_blocks import durations
from fedbo.coordinator.environment.measured import Empirical
from fedbo.coordinator.environment.traces import Capacity, read_capacities
from fedbo.settings.errors import SettingError

TABLE = "agent,duration\n7,1.0\n3,10.0\n7,2.0\n3,20.0\n7,3.0\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "durations.csv"
    path.write_text(TABLE)
    return str(path)


def test_replayed_durations_come_in_their_order_and_again(file: str) -> None:
    length = durations(lambda agent: Empirical(file, order="replayed"), "evaluation time", Streams(1))
    assert [length(0, number) for number in (0, 1, 2, 65)] == [10.0, 20.0, 10.0, 20.0]
    assert [length(1, number) for number in range(5)] == [1.0, 2.0, 3.0, 1.0, 2.0]
    assert [length(2, number) for number in range(3)] == [10.0, 20.0, 10.0]  # two workers were measured: the first again


def test_pooled_durations_are_those_of_all(file: str) -> None:
    length = durations(lambda agent: Empirical(file, order="replayed", pooled=True, mean=1.0), "evaluation time", Streams(1))
    found = [length(4, number) for number in range(5)]
    assert found == pytest.approx(np.array([1.0, 10.0, 2.0, 20.0, 3.0]) * 5 / 36)


def test_drawn_durations_follow_what_was_measured_of_the_agent(file: str) -> None:
    """Chi-square over 3,000 draws of agent 1, seed 5: false alarm 1e-5; agents have draws of their own."""
    length = durations(lambda agent: Empirical(file), "evaluation time", Streams(5))
    found = np.array([length(1, number) for number in range(3_000)])
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == [1.0, 2.0, 3.0]
    assert stats.chisquare(counts).pvalue > 1e-5
    assert [length(3, number) for number in range(50)] != found[:50].tolist()
    assert set(Empirical(file).draw(np.random.default_rng(0), 500)) == {1.0, 2.0, 3.0, 10.0, 20.0}


def test_a_change_of_the_file_is_seen(file: str) -> None:
    assert Empirical(file, order="replayed").of(0)(np.random.default_rng(0), 0, 2).tolist() == [10.0, 20.0]
    Path(file).write_text("agent,duration\n0,4.0\n")
    assert Empirical(file, order="replayed").of(0)(np.random.default_rng(0), 0, 2).tolist() == [4.0, 4.0]


@pytest.mark.parametrize(("text", "needed"), [
    ("agent,duration\n0,-1.0\n", "file has duration = -1 in row 1; durations must be at least 0 and finite"),
    ("agent,duration\n0,inf\n", "file has duration = inf in row 1; durations must be at least 0 and finite"),
    ("agent,time\n0,1\n", "file has columns agent, time; it must have duration, each once"),
    ("agent,duration\n0.5,1\n", "file has a column agent of type double; it must hold whole numbers or strings"),
    ("agent,duration\nphone,1\n,2\n", "file has no agent in row 2; give every row an id there"),
    ("duration\n", "file has no rows; give at least one with duration"),
])  # fmt: skip
def test_wrong_durations_are_told_by_column_and_row(text: str, needed: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.csv").write_text(text)
    with pytest.raises(SettingError, match="file") as told:
        Empirical(str(tmp_path / "wrong.csv"))
    assert str(told.value).startswith(needed)


SWF = """; Version: 2.2
  1  0  5  30  4 -1 -1 4 60 -1 1 17 1 1 1 1 -1 -1
  2  3  0  40  1 -1 -1 1 60 -1 1  5 1 1 1 1 -1 -1
  3  9  1  50  2 -1 -1 2 60 -1 1 17 1 1 1 1 -1 -1
"""


def test_a_log_in_the_standard_workload_format_gives_the_run_times_of_each_user(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    jobs = Empirical(str(path), column="run", by="user", order="replayed")
    assert [jobs.of(agent)(np.random.default_rng(0), 0, 3).tolist() for agent in range(2)] == [[40, 40, 40], [30, 50, 30]]
    path.write_text(SWF.replace("30  4", "-1  4"))  # an unknown time
    with pytest.raises(SettingError, match="file has run = -1 in row 1; durations must be at least 0 and finite"):
        Empirical(str(path), column="run", by="user")
    path.write_text("1 2 3\n")
    with pytest.raises(SettingError, match=r"file cannot be read as swf \(.*\)"):
        Empirical(str(path), column="run")


def test_ids_may_be_strings_in_the_order_of_their_letters(tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("agent,duration\nphone b,2.0\nphone a,1.0\n")
    measured = Empirical(str(tmp_path / "times.csv"))
    assert [measured.of(agent)(np.random.default_rng(0), 0, 1).tolist() for agent in range(3)] == [[1.0], [2.0], [1.0]]


def test_a_file_or_named_data_is_needed(file: str) -> None:
    with pytest.raises(SettingError, match="file is missing; set either file or data"):
        Empirical()
    with pytest.raises(SettingError, match="file is missing; set either file or data"):
        Empirical(file, "pai-1")
    with pytest.raises(SettingError, match="no data 'pai-5'; did you mean 'pai-"):
        Empirical(data="pai-5")


def test_capacities_are_read_in_the_order_of_the_clients(tmp_path: Path) -> None:
    path = tmp_path / "devices.json"
    path.write_text(
        json.dumps({"10": {"computation": 40.0, "communication": 8.0}, "9": {"computation": 20, "communication": 1}})
    )
    assert read_capacities(path) == (Capacity(20.0, 1.0), Capacity(40.0, 8.0))
    path.write_text(json.dumps({"1": {"computation": 0, "communication": 8.0}}))
    with pytest.raises(SettingError, match="has computation = 0 for client 1; it must be a number above 0"):
        read_capacities(path)
