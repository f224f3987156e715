"""The figure of a sweep: its curves, baseline, levels and times against raw rows, and where its legends are."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from synthetic_run import document, write_run
from test_plots import legends, plain, words

from fedbo.analysis import curves
from fedbo.analysis.comparison import short, target_of, times_to_target
from fedbo.analysis.result import Result
from fedbo.figures.layout import PAGE, Look
from fedbo.figures.page.about import asked, chips
from fedbo.figures.plot import View, figure_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Result:
    study = document(agents=4, replicates=3, objective__alpha=[0.1, 0.3, 0.5])
    return Result.open(write_run(tmp_path_factory.mktemp("runs") / "swept", study, troubled=True))


def test_a_sweep_has_a_line_for_each_cell_and_a_row_for_its_time_to_the_level(swept: Result) -> None:
    figure = figure_of(swept, View("sweep"))
    count, time, size, reach = figure.axes
    assert count.get_xlabel() == "evaluations of each agent, initial points included"
    assert (time.get_xlabel(), plain(size.get_xlabel())) == (
        "virtual time",
        "KiB sent and received by each agent",
    )
    assert count.get_ylabel() == size.get_ylabel() == "best error, mean over agents\n(lower is better)"
    for axes, by in ((count, "evaluations"), (time, "time"), (size, "bytes")):
        for curve in (curve for curve in curves(swept, by, 400) if curve.algorithm == "Together"):
            (line,) = named(axes, f"cell {curve.cell}")
            assert line.get_ydata()[-1] == pytest.approx(curve.mean[-1])
    assert reach.get_title("left") == "Time for Together to reach the final error of Alone"
    assert [text.get_text() for text in reach.get_yticklabels()] == ["0.1", "0.3", "0.5"]
    assert "objective.alpha" in words(figure) and "final minus first" in words(figure)


def named(axes: Any, gid: str) -> list[Any]:
    return [line for line in axes.lines if line.get_gid() == gid]


def early_mean(result: Result, cell: int, time: float) -> float:
    """Average Together's best scores, of agents then of replicates; who has none yet counts with its first."""
    best: dict[int, dict[int, float]] = {}
    for row in sorted(result.observations.to_pylist(), key=lambda row: row["finished"]):
        if (row["cell"], row["algorithm"], row["error"]) == (cell, "Together", None):
            mine = best.setdefault(row["replicate"], {})
            if row["agent"] not in mine or row["finished"] <= time:
                mine[row["agent"]] = max(row["score"], mine.get(row["agent"], -np.inf))
    return float(np.mean([np.mean(list(mine.values())) for mine in best.values()]))


def test_curves_against_time_begin_where_half_of_the_agents_have_an_incumbent(swept: Result) -> None:
    axes = figure_of(swept, View("sweep")).axes[1]
    assert axes.get_xscale() == "log"
    for cell in range(3):
        (line,) = named(axes, f"cell {cell}")
        x, y = line.get_xdata(), line.get_ydata()
        firsts: dict[tuple[int, int], float] = {}
        for row in swept.observations.to_pylist():
            if (row["cell"], row["algorithm"], row["error"]) == (cell, "Together", None):
                key = row["replicate"], row["agent"]
                firsts[key] = min(row["finished"], firsts.get(key, np.inf))
        assert x[0] == sorted(firsts.values())[5] < max(firsts.values())  # the sixth of twelve
        assert y[::40] == pytest.approx([-early_mean(swept, cell, time) for time in x[::40]])


def test_a_sweep_says_once_how_long_a_cell_takes(swept: Result) -> None:
    """The geometric mean: no ratio of restricted times, and no place where the mean curve reaches the level beside it."""
    figure = figure_of(swept, View("sweep", level=0.11))
    assert "ratio to first" not in words(figure)
    assert not [line for axes in figure.axes for line in axes.lines if str(line.get_gid()).startswith("crossing")]
    found = times_to_target(swept, target_of(swept, "Together", 0.11))
    assert all(short(one.mean.mean) in words(figure) for one in found if one.mean is not None)


def test_the_baseline_is_one_grey_line_or_one_for_each_cell(swept: Result) -> None:
    figure = figure_of(swept, View("sweep"))
    finals = [row.final.mean for row in swept.summary() if row.algorithm == "Alone"]
    for axes in figure.axes[:2]:
        assert [line.get_ydata()[-1] for line in named(axes, "baseline")] == pytest.approx(finals)
        assert [line.get_ydata()[0] for line in named(axes, "level")] == pytest.approx(finals)
    assert {"Alone, in the cell's colour", "the final error of Alone"} <= set(words(figure).splitlines())
    same = figure_of(Same.of(swept), View("sweep"))
    assert [len(named(axes, "baseline")) for axes in same.axes[:3]] == [1, 1, 0]
    assert [len(named(axes, "level")) for axes in same.axes[:3]] == [1, 1, 1]
    assert "Alone" in words(same).splitlines() and "in the cell's colour" not in words(same)
    itself = figure_of(swept, View("sweep", algorithm="Alone"))
    assert not any(named(axes, "baseline") for axes in itself.axes) and "Alone" not in words(itself).splitlines()


class Same(Result):
    """A result in which the baseline is what it is in the first cell, in all cells."""

    @classmethod
    def of(cls, other: Result) -> Result:
        """Give it for another result."""
        same = cls(other.directory, other.study, other.manifest)
        first = [trace for trace in other.traces if (trace.cell, trace.algorithm) == (0, "Alone")]
        rest = [trace for trace in other.traces if trace.algorithm != "Alone"]
        cells = sorted({trace.cell for trace in rest})
        alone = [replace(trace, cell=cell) for cell in cells for trace in first]
        same.traces = sorted([*alone, *rest], key=lambda trace: (trace.cell, trace.algorithm))
        return same


def test_the_legend_is_in_the_order_of_the_file(tmp_path: Path) -> None:
    modes = ["barrier", {"mode": "buffered", "k": 2}, "immediate"]
    exchange = [mode if isinstance(mode, dict) else {"mode": mode} for mode in modes]
    study = document(agents=2, iterations=2, replicates=2, exchange=exchange)
    figure = figure_of(Result.open(write_run(tmp_path / "run", study)), View("sweep"))
    (legend,) = legends(figure)
    shown = [text.get_text() for text in legend.get_texts()]
    assert [word for word in shown if word.startswith("exchange")] == [
        "exchange = barrier", "exchange = buffered, k 2", "exchange = immediate",
    ]  # fmt: skip
    assert "Alone, in the cell's colour" in shown and figure.axes[0].get_legend() is None


def test_the_figure_of_the_readme_has_todays_labels(tmp_path: Path) -> None:
    """A figure has its labels as its description: those of `examples/stragglers_landmine.toml` are those of a small run."""
    example = tomllib.loads((ROOT / "examples/stragglers_landmine.toml").read_text())
    study = {**document(agents=5, iterations=12, replicates=2), "sweep": example["sweep"]}
    study["algorithm"] = [{"name": "random", "label": one["label"]} for one in example["algorithm"]]
    path = Result.open(write_run(tmp_path / "run", study)).plot(tmp_path / "small.png", "sweep")
    assert isinstance(path, Path)
    small, shown = (Image.open(one).text["Description"] for one in (path, ROOT / "docs/images/stragglers.png"))
    sides = [text.replace("KiB", "bytes").replace("MiB", "bytes").split("\n") for text in (small, shown)]
    assert sides[0][:-1] == sides[1][:-1]
    legends = [{*side[-1].split("; ")} - {"some replicates count up to their end"} for side in sides]
    assert legends[0] - {"TS alone, in the cell's colour"} == legends[1] - {"TS alone"}


def test_a_narrow_figure_is_no_higher_than_a_page_and_names_its_axes_without_titles(swept: Result) -> None:
    figure = figure_of(swept, View("sweep", look=Look(width=3.5, title=False)))
    assert figure.get_size_inches()[1] <= PAGE + 1e-9
    assert plain(figure.axes[3].get_xlabel()) == "virtual time to the final error of Alone"
    assert all(axes.get_title("left") == "" for axes in figure.axes)


@pytest.mark.parametrize("key", ["exchange__mode", "exchange"])
def test_what_a_sweep_sets_is_told_as_swept(key: str, tmp_path: Path) -> None:
    modes = ["barrier", "immediate"]
    study = document(
        agents=2, iterations=2, replicates=1, **{key: [{"mode": one} for one in modes] if key == "exchange" else modes}
    )
    study["sweep"]["budget.iterations"] = [2, 3]
    result = Result.open(write_run(tmp_path / "run", study))
    assert {"exchange: swept", "budget: swept"} <= set(chips(result)) and "2 iterations" not in chips(result)
    facts = dict(asked(result))
    assert (facts["exchange"], facts["budget"]) == ("swept, virtual time", "swept")
    assert "iterations after" not in words(figure_of(result, View("curves", cell=3)))


@pytest.mark.long
def test_times_that_span_much_have_a_logarithmic_axis_and_partial_means_are_hatched(swept: Result) -> None:
    for level, scale in ((None, "linear"), (0.1, "log"), (0.08, "log")):  # the last for its wide intervals
        reach = figure_of(swept, View("sweep", level=level)).axes[3]
        found = times_to_target(swept, target_of(swept, "Together", level))
        means = [one.mean for one in found if one.mean is not None]
        times = [time for one in found for time in one.reached.values()]
        assert reach.get_xscale() == scale
        boxes = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in reach.patches]
        assert boxes == [pytest.approx((mean.low, mean.high)) for mean in means]
        parts = [len(one.reached) < 3 for one in found if one.mean is not None]
        assert [bar.get_hatch() is not None for bar in reach.patches] == parts
        assert reach.get_xlim()[0] < min(times) and reach.get_xlim()[1] > max(times)


def test_a_level_that_no_replicate_reaches_is_shown_as_such(swept: Result) -> None:
    assert words(figure_of(swept, View("sweep", level=0.001))).count("not reached") == 3
    assert "0 of 3" in words(figure_of(swept, View("sweep", level=0.001)))


def test_an_algorithm_that_sends_nothing_is_said_to(swept: Result) -> None:
    assert "Alone sends nothing" in words(figure_of(swept, View("sweep", algorithm="Alone")))


def test_a_sweep_shows_the_algorithm_whose_setting_is_swept(tmp_path: Path) -> None:
    """Without a choice; where no algorithm's own setting is swept it is the main one, as before."""
    study = document(agents=2, iterations=1, replicates=1)
    study["algorithm"] = [{"name": "random", "label": "Alone"}, {"name": "fts", "label": "A"}, {"name": "fts", "label": "B"}]
    study["sweep"] = {"algorithm.B.features": [10, 20]}
    result = Result.open(write_run(tmp_path / "run", study))
    assert target_of(result, None).algorithm == "B" and target_of(result, "A").algorithm == "A"
    assert figure_of(result, View()).axes[0].get_title("left").replace("\n", " ").startswith("B: best error")
