"""`fedbo validate --time`: the virtual time is that of the run, whether its beginning was all of it or not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedbo.cli import main
from fedbo.execution.runner import run_study
from fedbo.lab.twins import forecasts
from fedbo.study.study import load_study

STUDY = """[study]
name = "queue"
replicates = 2
[objective]
name = "branin"
agents = 4
[budget]
iterations = 12
[[algorithm]]
name = "fts"
features = 20
own = {surrogate = "features", features = 20, refit = 1000}
[timing]
evaluation = {model = "lognormal"}
[evaluation]
parallel = 2
[cluster]
workers = 3
"""


@pytest.mark.parametrize("seconds", [pytest.param(20.0, marks=pytest.mark.long), 0.0])
def test_the_virtual_time_of_a_study_with_a_queue_is_told(
    seconds: float, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "LEAST", seconds)
    monkeypatch.setattr(forecasts, "SECONDS", seconds)
    file = tmp_path / "study.toml"
    file.write_text(STUDY, encoding="utf-8")
    assert main(["validate", str(file), "--time", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["estimate"]["time"]
    run_study(load_study(file), tmp_path / "run")
    events = pq.read_table(tmp_path / "run" / "events.parquet").to_pylist()
    assert told["virtual"] == pytest.approx(max(row["time"] for row in events if row["replicate"] == 0), rel=1e-9)
    assert told["seconds"] > 0


def test_computing_that_grows_with_the_length_of_a_run_is_extrapolated() -> None:
    parts = np.linspace(0.01, 0.25, 25)
    took = 0.5 + 8.0 * parts**2  # an import, and decisions that take longer and longer
    seen = list(zip(took.tolist(), parts.tolist(), strict=True))
    assert forecasts._extrapolated(seen, *seen[-1]) == pytest.approx(8.5, rel=0.01)
    assert forecasts._extrapolated([], 2.0, 0.5) == 4.0


def test_the_time_of_a_study_in_real_time_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "study.toml"
    real = STUDY.partition("[timing]")[0] + '[timing]\nclock = "wall"\n[hosting]\nkind = "dedicated"\n'
    file.write_text(real, encoding="utf-8")
    assert main(["validate", str(file), "--time"]) == 0
    assert "time: unknown, because the study runs in real time" in capsys.readouterr().out
