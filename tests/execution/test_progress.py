"""What one sees while a study runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fedbo.actors.storage.rows import RunKey
from fedbo.execution.notices import Evaluation
from fedbo.execution.progress import LineProgress, LiveProgress, RowInfo, progress_for
from fedbo.tuning.progress import TuningProgress

ROWS = [RowInfo(0, "TS", 2, "error"), RowInfo(0, "FTS", 2, "error")]


def test_without_a_terminal_there_is_a_line_when_an_algorithm_is_done_and_never_twice() -> None:
    stream = io.StringIO()
    lines = LineProgress(stream)
    lines.start(ROWS)
    lines.update(RunKey(0, "TS", 0), 10, 10, 0.3)
    lines.update(RunKey(0, "TS", 1), 5, 10, 0.1)
    assert stream.getvalue() == ""
    for _ in range(2):
        lines.update(RunKey(0, "TS", 1), 10, 10, 0.1)
    lines.finish()
    assert stream.getvalue() == "TS: 100%, best error 0.2 (all 50%, 0 s, 0 s left)\n"


def test_without_a_terminal_there_is_a_line_every_so_often() -> None:
    stream = io.StringIO()
    lines = LineProgress(stream, every=0.0)
    lines.start(ROWS)
    lines.update(RunKey(0, "FTS", 0), 4, 10, None)
    assert stream.getvalue().startswith("FTS: 20% (all 10%, 0 s, ")


@pytest.mark.parametrize("hours", [0.01, 1.0, 24.0, 500.0])
def test_a_run_of_any_length_prints_some_forty_lines(hours: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    plain, tuned = io.StringIO(), io.StringIO()
    lines, tuning = LineProgress(plain), TuningProgress(Console(file=tuned), 20_001, True)
    lines.start(ROWS)
    for turn in range(20_000):
        now = turn * hours * 3600 / 20_000
        lines.update(RunKey(0, "TS", 0), turn, 20_001, None)
        tuning(Evaluation(0, turn, {"x": 0.5}, 1.0, None, now, now))
    lines.update(RunKey(0, "TS", 1), 20_001, 20_001, None)
    for stream in (plain, tuned):
        assert 3 <= len(stream.getvalue().splitlines()) <= 50


def test_no_time_is_told_before_a_twentieth_is_done() -> None:
    stream = io.StringIO()
    lines = LineProgress(stream, every=0.0)
    lines.start(ROWS)
    lines.update(RunKey(0, "FTS", 0), 1, 10, None)
    assert stream.getvalue() == "FTS: 5% (all 2%, 0 s)\n", "compiling and imports are most of what has been"


def test_on_a_terminal_there_is_a_bar_for_each_algorithm_and_one_for_all() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    bars = progress_for(console)
    assert isinstance(bars, LiveProgress)
    bars.start(ROWS)
    bars.update(RunKey(0, "TS", 0), 10, 10, 0.25)
    bars.finish()
    shown = stream.getvalue()
    assert all(word in shown for word in ("TS", "FTS", "all", "error 0.25", "50 %", "25 %"))


def test_a_stream_that_is_no_terminal_gets_lines() -> None:
    assert isinstance(progress_for(Console(file=io.StringIO()), io.StringIO()), LineProgress)
