"""Traces from files: what they say about each agent, and what is said of a file that will not do."""

from __future__ import annotations

import json
import os
import pickle
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.availability import Changes, Trace
from fedbo.coordinator.environment.traces import cycling, once, read_fedscale, read_windows

ROWS = {"agent": [2, 0, 2, 0], "start": [7.0, 0.0, 1.0, 4.5], "end": [9.0, 4.0, 3.5, 6.0]}
WINDOWS = {0: ((0.0, 4.0), (4.5, 6.0)), 2: ((1.0, 3.5), (7.0, 9.0))}


def _csv(folder: Path, *lines: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _json(folder: Path, clients: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(clients if isinstance(clients, str) else json.dumps(clients), encoding="utf-8")
    return path


def _client(active: list[Any], inactive: list[Any], finish_time: Any) -> dict[str, Any]:
    return {"active": active, "inactive": inactive, "finish_time": finish_time, "duration": 1, "model": "a phone"}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_windows_are_read_from_either_format_in_any_order_beside_other_columns(tmp_path: Path, suffix: str) -> None:
    table, path = pa.table({"site": ["a"] * 4, **ROWS}), tmp_path / f"trace.{suffix}"
    (pacsv.write_csv if suffix == "csv" else pq.write_table)(table, path)
    assert read_windows(path) == read_windows(str(path)) == WINDOWS


def test_whole_numbers_will_do_as_times_and_a_folder_gives_no_columns(tmp_path: Path) -> None:
    folder = tmp_path / "agent=5"
    folder.mkdir()
    pq.write_table(pa.table({"agent": [1], "start": [2], "end": [3]}), folder / "trace.parquet")
    assert read_windows(folder / "trace.parquet") == {1: ((2.0, 3.0),)}


@pytest.mark.parametrize("ids", [{0: 0, 2: 1}, {0: 100, 2: 200}, {0: -7, 2: 3}])
def test_agents_of_a_table_leave_and_return_by_the_order_of_its_ids_which_repeat(tmp_path: Path, ids: dict[int, int]) -> None:
    pacsv.write_csv(pa.table({**ROWS, "agent": [ids[agent] for agent in ROWS["agent"]]}), tmp_path / "trace.csv")
    trace = Trace(str(tmp_path / "trace.csv"))
    change = Changes(lambda agent: trace, Streams(1))
    for agent in (0, 2):
        assert [change(agent, number) for number in range(5)] == [4.0, 4.5, 6.0, inf, inf]
        assert [change(agent + 1, number) for number in range(6)] == [0.0, 1.0, 3.5, 7.0, 9.0, inf]
    assert not trace.absences(np.random.default_rng(1), 5).any()


def test_ids_may_be_strings_and_a_window_without_an_end_lasts_for_ever(tmp_path: Path) -> None:
    path = _csv(tmp_path, "agent,start,end", "phone b,1,3", "phone a,2,", "phone b,7,")
    trace = Trace(str(path))
    assert read_windows(path) == {"phone a": ((2.0, inf),), "phone b": ((1.0, 3.0), (7.0, inf))}
    change = Changes(lambda agent: trace, Streams(1))
    assert [change(0, number) for number in range(3)] == [0.0, 2.0, inf] and trace.ids == 2
    assert [change(3, number) for number in range(5)] == [0.0, 1.0, 3.0, 7.0, inf]


def test_windows_that_touch_are_one_presence(tmp_path: Path) -> None:
    windows = read_windows(_csv(tmp_path, "agent,start,end", "0,3,5", "0,1,3"))
    assert list(once(windows[0])) == [0.0, 1.0, 5.0]


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    path = _csv(tmp_path, "agent,start,end", "0,0,5")
    trace, rng = Trace(str(path)), np.random.default_rng(1)
    stamp = path.stat().st_mtime_ns
    _csv(tmp_path, "agent,start,end", "0,0,7")
    os.utime(path, ns=(stamp, stamp))
    assert list(trace.changes(0, rng)) == [5.0]
    os.utime(path, ns=(stamp, stamp + 1))
    assert list(trace.changes(0, rng)) == [7.0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("agent,start", "0,1"), "^file has columns agent, start; it must have agent, start and end, each once$"),
        (("agent,start,end,end", "0,1,2,3"), "^file has columns agent, start, end, end; it must have .*, each once$"),
        (("agent,start,end",), "^file has no rows; give at least one with agent, start and end$"),
        (("agent,start,end", "0,1,2", "0,,4"), "^file has no start in row 2; give every row a number there$"),
        (("agent,start,end", "0,1,2", ",3,4"), "^file has no agent in row 2; give every row an id there$"),
        (("agent,start,end", "0,1,2", "0,x,4"), "^file cannot be read as csv .*Row #3.*'x'.*$"),
        (("agent,start,end", "0,1,2", "0,3"), "^file cannot be read as csv .*Row #3.*$"),
        (("agent,start,end", "0,1,2", "0,inf,inf"), "^file has agent 0, start inf, end inf in row 2; start must be finite$"),
        (
            ("agent,start,end", "phone,1,", "phone,3,4"),
            "^file has overlapping windows of agent phone: row 2 starts at 3.0, before row 1 ends at inf; merge them$",
        ),
        (
            ("agent,start,end", "0,-1,2"),
            "^file has agent 0, start -1.0, .* row 1; times must be at least 0, the start of the study",
        ),
        (("agent,start,end", "0,1,2", "4,3,3"), "^file has agent 4, start 3.0, end 3.0 in row 2; start must be below end$"),
        (
            ("agent,start,end", "7,5,9", "3,1,6", "7,1,6"),
            "^file has overlapping windows of agent 7: row 1 starts at 5.0, before row 3 ends at 6.0; merge them$",
        ),
    ],
)
def test_a_table_that_will_not_do_is_told_in_one_line_with_its_row(tmp_path: Path, lines: list[str], message: str) -> None:
    path = _csv(tmp_path, *lines)
    for read in (read_windows, lambda path: Trace(str(path))):
        with pytest.raises(ValueError, match=message) as caught:
            read(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("agent", [0.0], "^file has a column agent of type double; it must hold whole numbers or strings$"),
        ("start", ["1"], "^file has a column start of type string; it must hold numbers$"),
    ],
)
def test_columns_of_a_parquet_file_must_hold_numbers(tmp_path: Path, column: str, values: list[Any], message: str) -> None:
    path = tmp_path / "trace.parquet"
    pq.write_table(pa.table({"agent": [0], "start": [1.0], "end": [2.0], column: values}), path)
    with pytest.raises(ValueError, match=message):
        read_windows(path)


def test_a_file_that_is_not_there_or_no_table_is_told(tmp_path: Path) -> None:
    missing = r"^file does not exist: .*nowhere\.csv; set the path of a file with a trace$"
    for read in (read_windows, read_fedscale):
        with pytest.raises(FileNotFoundError, match=missing):
            read(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match=missing):
        Trace(str(tmp_path / "nowhere.csv"))
    (tmp_path / "trace.parquet").write_text("no parquet", encoding="utf-8")
    with pytest.raises(ValueError, match=r"^file cannot be read as parquet \(.*\)$"):
        read_windows(tmp_path / "trace.parquet")
    (tmp_path / "trace.txt").write_text("agent,start,end\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"^file ends in '\.txt'; it must be a table in \.csv, \.parquet or \.swf$"):
        read_windows(tmp_path / "trace.txt")
    with pytest.raises(ValueError, match="^format must be one of windows, fedscale, not pickle$"):
        Trace("trace.csv", "pickle")


def test_clients_of_fedscale_are_taken_in_order_of_their_numbers_and_again_in_turn(tmp_path: Path) -> None:
    path = _json(tmp_path, {"10": _client([1], [2], 10), "9": _client([0, 5], [2, 6], 8), "100": _client([], [], 5)})
    assert read_fedscale(path) == ((((0.0, 2.0), (5.0, 6.0)), 8.0), (((1.0, 2.0),), 10.0), ((), 5.0))
    trace = Trace(str(path), "fedscale")
    change = Changes(lambda agent: trace, Streams(1))
    for first, times in enumerate(([2.0, 5.0, 6.0, 8.0, 10.0], [0.0, 1.0, 2.0, 11.0, 12.0], [0.0, inf, inf, inf, inf])):
        for agent in (first, first + 3, first + 300):
            assert [change(agent, number) for number in range(5)] == times


def test_what_lies_behind_the_finish_time_is_never_seen_and_instants_are_no_presence(tmp_path: Path) -> None:
    path = _json(tmp_path, {"1": _client([2, 3, 6, 9, 12], [2, 5, 8, 11, 13], 10)})
    assert read_fedscale(path) == ((((3.0, 5.0), (6.0, 8.0), (9.0, 10.0)), 10.0),)


@given(st.integers(1, 12), st.lists(st.booleans(), min_size=12, max_size=12))
@settings(max_examples=60)
def test_a_cycling_trace_is_the_modulo_of_its_period(period: int, presence: list[bool]) -> None:
    """Every subset of unit intervals in a period, against time modulo the period on a grid over four periods."""
    windows = tuple((float(unit), float(unit + 1)) for unit in range(period) if presence[unit])
    changes = list(islice(cycling(windows, float(period)), 5 * 2 * 12))
    assert changes == sorted(set(changes))
    grid = (np.arange(4 * period * 4) + 0.5) / 4
    expected = np.array(presence)[(grid % period).astype(int)]
    assert ((np.searchsorted(changes, grid, side="right") % 2 == 0) == expected).all()
    if all(presence[:period]):
        assert changes == []
    elif not any(presence[:period]):
        assert changes == [0.0]


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ("{", "^file is not JSON (.*); convert FedScale's pickle as read_fedscale describes$"),
        ([1], "^file contains no JSON object of clients; convert FedScale's pickle as read_fedscale describes$"),
        ({}, "^file contains no JSON object of clients; .*"),
        ({"4": {"active": []}}, "^file is incomplete for client 4; add active, inactive and finish_time$"),
        ({"4": 1}, "^file is incomplete for client 4; .*"),
        ({"4": _client([1], [2], 0)}, "^file has finish_time = 0 for client 4; it must be a number above 0$"),
        ({"4": _client([1], [2], "9")}, "^file has finish_time = '9' for client 4; it must be a number above 0$"),
        (
            {"4": _client([1], ["2"], 9)},
            "^file has invalid times in inactive of client 4; inactive must be a list of finite numbers$",
        ),
        ({"4": _client([float("nan")], [2], 9)}, "^file has invalid times in active of client 4; .* a list of finite numbers$"),
        ({"4": _client([1, 3], [2], 9)}, "^file has 2 active and 1 inactive times for client 4; each .* have both$"),
        ({"4": _client([1, 3], [2, 2.5], 9)}, "^file has interval 1 from 3 to 2.5 for client 4; intervals must start at 0 .*$"),
        ({"4": _client([3, 1], [4, 2], 9)}, "^file has interval 1 from 1 to 2 for client 4; .* sorted in time$"),
        ({"4": _client([-1], [2], 9)}, "^file has interval 0 from -1 to 2 for client 4; intervals must start at 0 or later"),
    ],
)
def test_a_trace_of_fedscale_that_will_not_do_is_told_in_one_line(tmp_path: Path, clients: Any, message: str) -> None:
    path = _json(tmp_path, clients)
    for read in (read_fedscale, lambda path: Trace(str(path), "fedscale")):
        with pytest.raises(ValueError, match=message) as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_a_pickle_is_refused_and_not_loaded(tmp_path: Path) -> None:
    class Loaded:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    (tmp_path / "trace.pkl").write_bytes(pickle.dumps(Loaded()))
    with pytest.raises(ValueError, match="^file is not JSON (.*); convert FedScale's pickle as read_fedscale describes$"):
        read_fedscale(tmp_path / "trace.pkl")
    assert not (tmp_path / "ran").exists()
