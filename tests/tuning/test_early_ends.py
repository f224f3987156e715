"""A tuning that ends early abandons its running evaluations, however they are hosted, and begins none afterwards."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.callbacks import Evaluation

LIMIT, LONG = 15.0, 300.0  # seconds
WAYS: dict[str, dict[str, Any]] = {
    "dedicated": {},
    "limited": {"time_limit": 2 * LONG},
    "resources": {"resources": {"CPU": 1}},
    "parallel": {"parallel": 2},
    "packed": {"study": {"hosting": {"kind": "packed", "workers": 1}}},
    "packed with resources": {"resources": {"CPU": 1}, "study": {"hosting": {"kind": "packed", "workers": 1}}},
}


def napping(config: dict[str, Any]) -> float:
    """Note when it begins; the first evaluation ends at once, the others take minutes."""
    notes = Path(config["notes"])
    with notes.open("a") as file:
        file.write(f"{time.time()}\n")
    if len(notes.read_text().splitlines()) > 1:
        time.sleep(LONG)
    return float(config["x"])


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("end", ["seconds", "evaluations", "target", "callback"])
@pytest.mark.parametrize("way", WAYS)
def test_an_early_end_abandons_running_evaluations(way: str, end: str, tmp_path: Path, ray_session: None) -> None:
    if end != "seconds" and way in ("limited", "packed with resources"):
        pytest.skip("ends as the others do")
    ended = list[float]()

    def stops(evaluation: Evaluation) -> bool:
        ended.append(time.time())
        return end == "callback"

    ends = {"seconds": {"seconds": LIMIT}, "evaluations": {"evaluations": 1}, "target": {"target": 0.0}, "callback": {}}
    space = {"x": (0.0, 1.0), "notes": str(tmp_path / "notes")}
    given: dict[str, Any] = {**WAYS[way], **ends[end], "callbacks": [stops], "out": tmp_path / "run"}
    begun = time.time()
    result = fedbo.tune(napping, space, algorithm="random", initial=2, iterations=5, **given)
    assert time.time() - begun < LONG / 2
    rows = result.observations.to_pylist()
    assert len(rows) == 1 and rows[0]["error"] is None
    starts = [float(line) for line in (tmp_path / "notes").read_text().split()]
    assert max(starts) < begun + LIMIT + 30 if end == "seconds" else max(starts) < ended[0] + 5
