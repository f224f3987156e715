"""Runs in real time that have ended and are given a larger budget: they continue where they ended, and a replay agrees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from living import ITERATIONS, STUDY, kinds, observed, once, whole

import fedbo
from fedbo.execution.replay import replay

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.long, pytest.mark.usefixtures("ray_session")]

BARRIER = {"exchange": {"mode": "barrier"}}
PRIVATE = {
    "algorithm": [{"name": "dp_fts", "p": 0.5, "length_scale": 0.2, "noise": 0.01, "features": 20, "noise_multiplier": 1.0}],
    "privacy": {"deltas": [1e-3]},
}
OVERLAPPING = {"evaluation": {"parallel": 2}}


def changed(**changes: Any) -> dict[str, Any]:
    return {**STUDY, "budget": {"iterations": 4}, **changes}


def longer(directory: Path, iterations: int) -> fedbo.Result:
    return fedbo.resume(directory, overrides=[f"budget.iterations={iterations}"])


@pytest.mark.parametrize("changes", [{}, BARRIER, PRIVATE], ids=["immediate", "barrier", "private"])
def test_a_run_is_extended_twice_and_keeps_what_it_observed(changes: dict[str, Any], tmp_path: Path) -> None:
    first = fedbo.run(changed(**changes), out=tmp_path / "run")
    before = first.observations.to_pylist()
    released = [] if first.privacy is None else first.privacy.to_pylist()
    longer(tmp_path / "run", 6)
    longer(tmp_path / "run", ITERATIONS)
    after = whole(tmp_path / "run")
    rows = after.observations.to_pylist()
    assert [row for row in rows if row["step"] <= 4] == before
    assert max(row["finished"] for row in before) < min(row["started"] for row in rows if row["step"] > 4)
    assert kinds(after).count("done") == 9
    assert [entry["budget"]["iterations"] for entry in after.manifest["extended"]] == [4, 6]
    if changes is PRIVATE:
        assert after.privacy is not None and released
        rows = after.privacy.to_pylist()
        assert rows[: len(released)] == released and len(rows) > len(released)


def test_overlapping_evaluations_continue(tmp_path: Path) -> None:
    before = fedbo.run(changed(**OVERLAPPING), out=tmp_path / "run").observations.to_pylist()
    rows = longer(tmp_path / "run", 8).observations.to_pylist()
    keys = [(row["agent"], row["step"], row["query"]) for row in rows]
    assert len(keys) == len(set(keys)) == 3 * (2 + 8)
    assert all(row in rows for row in before)
    assert replay(tmp_path / "run", verify=True, trust=True).same


def test_an_extension_that_is_killed_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    fedbo.run(changed(), out=tmp_path / "run")
    script = f"import fedbo; fedbo.resume({str(tmp_path / 'run')!r}, overrides=['budget.iterations={ITERATIONS}'])"
    path = [str(Path(__file__).parent), *sys.path]
    driver = subprocess.Popen([sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {script}"])
    thread = once(tmp_path / "run", 3 * 6 + 6, driver.kill)
    driver.wait()
    thread.join()
    assert driver.returncode == -9 and observed(tmp_path / "run") >= 24
    fedbo.resume(tmp_path / "run")
    whole(tmp_path / "run")


def test_a_larger_time_continues_what_was_cut_off(tmp_path: Path) -> None:
    first = fedbo.run(changed(budget={"iterations": ITERATIONS, "time": 1.0}), out=tmp_path / "run")
    assert len(first.observations) < 3 * (2 + ITERATIONS)
    fedbo.resume(tmp_path / "run", overrides=["budget.time=100"])
    whole(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fault": [{"kind": "loss", "probability": 0.1}]}, "with planned faults"),
        ({"availability": {"model": "bernoulli", "probability": 0.1}}, "with absences"),
    ],
)
def test_a_run_with_planned_trouble_is_not_extended(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    fedbo.run(changed(**changes), out=tmp_path / "run")
    with pytest.raises(fedbo.errors.StudyError, match=words):
        longer(tmp_path / "run", ITERATIONS)
