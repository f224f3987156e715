"""Several runs side by side, and which runs cannot be compared."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic_run import document, write_run

from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.analysis.result import Result
from fedbo.cli import OK, WRONG_INPUT, main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "one", document(agents=3, iterations=3))
    write_run(root / "two", document(agents=3, iterations=6))
    other = document(agents=3, iterations=3)
    write_run(root / "seeded", {**other, "study": {**other["study"], "seed": 9}})
    write_run(root / "more", document(agents=4, iterations=3))
    return root


def test_each_algorithm_is_set_against_the_same_one_of_the_first_run(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    runs = [str(folder / name) for name in ("one", "two", "seeded")]
    assert main(["compare", *runs, "--format", "csv"]) == OK
    frame = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert frame.run.tolist() == ["one", "one", "two", "two", "seeded", "seeded"]
    finals = {name: [row.final.mean for row in Result.open(folder / name).summary()] for name in ("one", "two")}
    assert frame.final_mean[2:4].tolist() == finals["two"]
    assert np.allclose(frame.difference_mean[2:4], np.subtract(finals["two"], finals["one"]))
    assert frame.difference_mean[[0, 1, 4, 5]].isna().all()
    assert main(["compare", *runs]) == OK
    text = capsys.readouterr().out
    assert "minus one [95 %]" in text and "The seeds differ" in text and f"{finals['two'][0]:.4g}" in text


def renamed(folder: Path, metric: dict[str, Any]) -> Path:
    write_run(folder, document(agents=3, iterations=3))
    write_manifest(folder, {**read_manifest(folder), "metric": metric})
    return folder


def test_what_cannot_be_compared_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    gain = renamed(tmp_path / "gain", {"name": "gain", "sign": 1, "offset": 0.0})
    cases = [
        ([folder / "one"], "a single run cannot be compared"),
        ([folder / "one", folder / "one"], "is passed twice"),
        ([folder / "one", folder / "more"], "'one' has objective.agents = 3, 'more' has 4"),
        ([folder / "one", gain], "'one' has metric = 'error to minimise', 'gain' has 'gain to maximise'"),
    ]
    for runs, words in cases:
        assert main(["compare", *map(str, runs)]) == WRONG_INPUT
        error = capsys.readouterr().err
        assert words in error and len(error.splitlines()) == 1
