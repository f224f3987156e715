"""What `fedbo show` and `fedbo plot` make of trouble and of sweeps."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import document, write_run

from fedbo.analysis import compare, trouble
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.analysis.result import Result
from fedbo.cli import OK, WRONG_INPUT, main


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> str:
    study = document(agents=4, iterations=8, objective__alpha=[0.1, 0.3])
    return str(write_run(tmp_path_factory.mktemp("runs") / "swept", study, troubled=True))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == OK
    return capsys.readouterr().out


def test_trouble_is_a_table_for_each_cell(capsys: pytest.CaptureFixture[str], swept: str) -> None:
    shown = printed(capsys, "show", swept, "--trouble")
    assert "objective.alpha = 0.1" in shown and "objective.alpha = 0.3" in shown
    row = trouble(Result.open(swept))[1]
    assert f"{row.utilisation:.0%}" in shown and f"{row.staleness:.2g} (max {row.max_staleness:g})" in shown
    assert "means over replicates; useful to down: virtual time" in shown and "best error" not in shown


def test_trouble_comes_in_json_too(capsys: pytest.CaptureFixture[str], swept: str) -> None:
    facts = json.loads(printed(capsys, "show", swept, "--trouble", "--format", "json"))
    assert [(row["cell"], row["algorithm"]) for row in facts["trouble"]] == [
        (0, "Alone"), (0, "Together"), (1, "Alone"), (1, "Together"),
    ]  # fmt: skip
    row = trouble(Result.open(swept))[3]
    assert facts["trouble"][3]["utilisation"] == row.utilisation and facts["trouble"][0]["staleness"] is None
    assert "trouble" not in json.loads(printed(capsys, "show", swept, "--format", "json"))


def test_a_sweep_is_shown_cell_by_cell(capsys: pytest.CaptureFixture[str], swept: str) -> None:
    shown = printed(capsys, "show", swept)
    gap = compare(Result.open(swept), (1, 0), "Together")
    assert "Together, cell by cell" in shown and str(gap.final) in shown
    assert gap.ratio is not None and f"× {gap.ratio}" in shown
    assert "the final value of Alone in the same cell and replicate" in shown
    other = printed(capsys, "show", swept, "--algorithm", "Alone", "--level", "0.001")
    assert "Alone, cell by cell" in other and other.count("not reached") == 2 and "0 of 3" in other


def test_the_cells_come_in_json_too(capsys: pytest.CaptureFixture[str], swept: str) -> None:
    first, second = json.loads(printed(capsys, "show", swept, "--format", "json", "--level", "0.12"))["cells"]
    gap = compare(Result.open(swept), (1, 0), "Together", level=0.12)
    assert first["against_first"] is None and first["level"] == 0.12 and len(first["times"]) == 3
    against = second["against_first"]
    assert gap.final is not None and against["final"]["mean"] == gap.final.mean
    assert gap.ratio is not None and against["ratio"]["low"] == gap.ratio.low and against["pairs"] == gap.pairs
    assert second["time"]["mean"] == pytest.approx(math.exp(np.mean(np.log(second["times"]))))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--regret"], marks=pytest.mark.long),
        pytest.param(["--kind", "trouble"], marks=pytest.mark.long),
        ["--kind", "sweep", "--regret", "--level", "0.1", "--algorithm", "Alone"],
    ],
    ids=lambda options: options[-1],
)
def test_plot_takes_a_kind_a_level_an_algorithm_and_regret(
    capsys: pytest.CaptureFixture[str], swept: str, tmp_path: Path, options: list[str]
) -> None:
    path = tmp_path / "figure.png"
    assert printed(capsys, "plot", swept, *options, "--out", str(path)) == f"{path}\n"
    assert path.exists()


def test_what_cannot_be_drawn_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", document(agents=2, iterations=1, replicates=1))
    manifest = read_manifest(folder)
    write_manifest(folder, {**manifest, "best_values": {}})
    for options, line in (
        (["--regret"], "the regret of agent 0 is unknown, because its optimum is unknown\n"),
        (["--kind", "sweep"], "no figure 'sweep' of this run: it has one cell; draw the curves, or run a sweep\n"),
    ):
        assert main(["plot", str(folder), *options]) == WRONG_INPUT
        assert capsys.readouterr().err == line
