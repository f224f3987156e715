"""A study in real time whose machine's time of day is set while it runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import fedbo
from tests.random_studies.power.stories import hosts_here

STUDY: dict[str, Any] = {
    "study": {"name": "clock", "seed": 4},
    "objective": {
        "name": "python_function",
        "function": "tests.random_studies.functions:slow",
        "agents": 2,
        "low": [0.0],
        "high": [1.0],
    },
    "agents": {"initial": 1},
    "budget": {"iterations": 3},
    "algorithm": [{"name": "random"}],
    "timing": {"clock": "wall", "latency": {"model": "constant", "mean": 0.02}},
    "exchange": {"mode": "deadline", "length": 0.1},
    "hosting": {"kind": "dedicated"},
}


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_time_of_day_that_is_set_neither_stops_a_study_nor_lengthens_an_evaluation(
    jump: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time of day a study whose clock was set back waited for as long as it was set back."""
    rightly, first = time.time, time.time()
    monkeypatch.setattr(time, "time", lambda: rightly() + (jump if rightly() - first > 0.3 else 0.0))
    with hosts_here():
        result = fedbo.run(STUDY, out=tmp_path / "run")
    rows = result.observations.to_pylist()
    assert len(rows) == 2 * 4
    assert all(0.0 <= row["finished"] - row["started"] < 60.0 for row in rows)
    assert rightly() - first < 60.0 and max(row["finished"] for row in rows) < 60.0
