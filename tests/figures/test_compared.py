"""The curves of several runs in one figure: whose they are, one legend, units that differ, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread
from synthetic_run import document, write_run
from test_plots import legends, plain, words

import fedbo
from fedbo.analysis import curves
from fedbo.analysis.result import Result
from fedbo.cli import OK, WRONG_INPUT, main
from fedbo.errors import ArgumentError, PlotError
from fedbo.figures.compared import runs_figure
from fedbo.figures.plot import View


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "one", document(agents=3, iterations=3))
    write_run(root / "two", document(agents=3, iterations=6))
    write_run(root / "timed", document(agents=3, iterations=3) | {"timing": {"unit": "min"}})
    write_run(root / "swept", document(agents=3, iterations=3, exchange__mode=["immediate", "barrier"]))
    alone = document(agents=3, iterations=3)
    write_run(root / "alone", alone | {"algorithm": [each for each in alone["algorithm"] if each["label"] == "Alone"]})
    return root


def drawn(folder: Path, *names: str, **options: Any) -> Figure:
    return runs_figure([Result.open(folder / name) for name in names], View("curves", **options))


def entries(figure: Figure) -> list[str]:
    (legend,) = legends(figure)
    return [text.get_text() for text in legend.get_texts()]


def test_each_run_has_the_curves_of_its_own_figure_and_all_share_one_legend(folder: Path) -> None:
    figure = drawn(folder, "one", "two")
    assert [plain(axes.get_xlabel()) for axes in figure.axes] == [
        "evaluations of each agent, initial points included",
        "virtual time",
    ]
    assert entries(figure) == ["one: Alone", "one: Together", "two: Alone", "two: Together", "± 1 standard error"]
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]
    expected = [curve for name in ("one", "two") for curve in curves(Result.open(folder / name), "evaluations", 400)]
    assert len(lines) == 4
    for line, curve in zip(lines, expected, strict=True):
        assert np.array_equal(line.get_ydata(), curve.mean[curve.x >= 3], equal_nan=True)
    assert [to_hex(line.get_color()) for line in lines[:2]] == [to_hex(line.get_color()) for line in lines[2:]]
    assert len({(str(line.get_linestyle()), line.get_marker()) for line in lines}) == 4  # in grey too
    assert "2 runs" in words(figure) and "3 iterations" not in words(figure)  # in which they differ


def test_with_one_algorithm_entries_are_runs_and_eight_runs_differ_in_grey(folder: Path) -> None:
    figure = drawn(folder, "one", "two", algorithms=["Together"], panels=["bytes"])
    assert entries_of_axes(figure) == ["one", "two", "± 1 standard error"]
    first, second = (line for line in figure.axes[0].lines if len(line.get_xdata()) > 1)
    assert to_hex(first.get_color()) != to_hex(second.get_color())
    assert entries(drawn(folder, "one", "alone"))[:3] == ["one: Alone", "one: Together", "alone: Alone"]


def entries_of_axes(figure: Figure) -> list[str]:
    legend = figure.axes[0].get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_units_that_differ_share_no_axis_and_the_head_says_so(folder: Path) -> None:
    figure = drawn(folder, "one", "timed")
    assert len(figure.axes) == 1 and "no time: its units differ" in words(figure)
    with pytest.raises(PlotError, match="no panel 'time'; available: evaluations, bytes"):
        drawn(folder, "one", "timed", panels=["time"])


def test_cells_of_sweeps_are_named_where_they_differ(folder: Path) -> None:
    figure = drawn(folder, "one", "swept", cell=0, algorithms=["Alone"], panels=["evaluations"])
    assert entries_of_axes(figure)[:2] == ["one", "swept, exchange.mode = immediate"]
    with pytest.raises(PlotError, match="no observations in cell 1; available cells: 0"):
        drawn(folder, "one", "swept", cell=1)


def test_the_function_and_the_command_draw_the_same(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [folder / "one", folder / "two"]
    path = fedbo.compare(runs).plot(tmp_path / "own.png", panels=["time"], dark=True, width=4.0)
    command = ["compare", *map(str, runs), "--plot", str(tmp_path), "--panels", "time", "--dark", "--width", "4"]
    assert main(command) == OK
    assert f"figure: {tmp_path / 'compare.png'}" in capsys.readouterr().out
    assert np.array_equal(imread(path), imread(tmp_path / "compare.png")) and imread(path)[..., :3].mean() < 0.2
    assert main([*command, "--format", "json"]) == OK
    assert json.loads(capsys.readouterr().out)["figures"] == [str(tmp_path / "compare.png")]
    assert main([*command, "--format", "csv"]) == OK
    assert "figure" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dark"], "--dark: is for a figure; add --plot FILE, or leave it out"),
        (["--no-title"], "--no-title: is for a figure; add --plot FILE"),
        (["--cell", "0"], "--cell: is for a figure; add --plot FILE"),
        (["--font-size", "8"], "--font-size: is for a figure; add --plot FILE"),
        (["--plot", "x.gif"], "must end in .png, .pdf or .svg"),
        (["--plot", "x.png", "--algorithms", "Alne"], "no algorithm 'Alne'; did you mean 'Alone'?"),
    ],
)
def test_what_makes_no_figure_is_refused_in_one_line(
    folder: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(folder / "one"), str(folder / "two"), *options]) == WRONG_INPUT
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_a_run_without_the_chosen_algorithm_is_named(folder: Path, tmp_path: Path) -> None:
    rows = fedbo.compare([folder / "one", folder / "alone"])
    with pytest.raises(PlotError, match="'alone': has no algorithm Together; leave the run out, or choose others"):
        rows.plot(tmp_path / "x.png", algorithms=["Together"])
    with pytest.raises(PlotError, match="figure 'curves' does not support 'level'"):
        rows.plot(tmp_path / "x.png", level=0.1)
    with pytest.raises(ArgumentError, match="path = 3: must be the path of a file"):
        rows.plot(3)  # type: ignore[arg-type]
    with pytest.raises(PlotError, match="no replicate 9; available: 0, 1, 2"):
        rows.plot(tmp_path / "x.png", replicate=9)
