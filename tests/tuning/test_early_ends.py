"""A tuning that ends early abandons its running evaluations, however they are hosted, and begins none afterwards."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import fedbo

LONG = 3600.0  # seconds, which no busy machine needs for a run without the evaluations that take them
WAYS: dict[str, dict[str, Any]] = {
    "dedicated": {},
    "limited": {"time_limit": 2 * LONG},
    "resources": {"resources": {"CPU": 1}},
    "parallel": {"parallel": 2},
    "packed": {"study": {"hosting": {"kind": "packed", "workers": 1}}},
    "packed with resources": {"resources": {"CPU": 1}, "study": {"hosting": {"kind": "packed", "workers": 1}}},
}


def napping(config: dict[str, Any]) -> float:
    """Note when it begins and when it ends; the first evaluation ends at once, the others take an hour."""
    notes = Path(config["notes"])
    note(notes, "begun")
    if notes.read_text().count("begun") > 1:
        time.sleep(LONG)
    note(notes, "ended")
    return float(config["x"])


def note(notes: Path, word: str) -> None:
    with notes.open("a") as file:
        file.write(f"{word}\n")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("end", ["seconds", "evaluations", "target", "callback"])
@pytest.mark.parametrize("way", WAYS)
def test_an_early_end_abandons_running_evaluations(way: str, end: str, tmp_path: Path, ray_session: None) -> None:
    if end != "seconds" and way in ("limited", "packed with resources"):
        pytest.skip("ends as the others do")
    ends = {"evaluations": {"evaluations": 1}, "target": {"target": 0.0}, "callback": {}}
    for trial in count():  # with twice the time, where a busy machine had not begun the second evaluation in time
        chosen = ends.get(end, {"seconds": 8.0 * 2**trial})
        notes, out = tmp_path / f"notes{trial}", tmp_path / f"run{trial}"
        notes.touch()
        begun = time.monotonic()
        space = {"x": (0.0, 1.0), "notes": str(notes)}
        given: dict[str, Any] = {**WAYS[way], **chosen, "callbacks": [lambda evaluation: end == "callback"], "out": out}
        result = fedbo.tune(napping, space, algorithm="random", initial=2, iterations=5, **given)
        assert time.monotonic() - begun < LONG
        noted = notes.read_text().split()
        rows = result.observations.to_pylist()
        assert [row["error"] for row in rows] == [None] * noted.count("ended")
        assert noted.count("begun") <= noted.count("ended") + given.get("parallel", 1)  # none begins after the end
        if end != "seconds" or noted.count("begun") > 1:
            break
    assert len(rows) == 1
