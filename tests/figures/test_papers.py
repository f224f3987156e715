"""Figures for papers: sizes, fonts, chosen algorithms and panels, axes of others, and legends that lie on nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib import rc_context
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from synthetic_run import document, write_run
from test_plots import legends, plain, words

from fedbo.analysis import curves
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.result import Result
from fedbo.figures.cells import SHADES
from fedbo.figures.layout import Look
from fedbo.figures.plot import PlotError, View, draw_on, figure_of
from fedbo.figures.style import FAINT, INK, PALE, colour_at, on_dark, style_at
from fedbo.figures.timeline import EVALUATING
from fedbo.lab.fork.figure import fork_figure
from fedbo.lab.fork.result import Fork
from fedbo.settings.errors import ArgumentError


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Write a small troubled run of a sweep."""
    study = document(
        agents=5, iterations=4, replicates=2, objective__alpha=[0.1, 0.3, 0.5], exchange__mode=["immediate", "barrier"]
    )
    return Result.open(write_run(tmp_path_factory.mktemp("runs") / "swept", study, troubled=True))


def boxes(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    """Give the places of all legends, titles, panels and names of axes, in pixels."""
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    for number, legend in enumerate([*legends(figure), *(axes.get_legend() for axes in figure.axes if axes.get_legend())]):
        yield f"legend {number}", legend.get_window_extent(renderer)
    for axes in figure.axes:
        name = plain(axes.get_title("left"))
        yield f"panel {name}", axes.get_window_extent(renderer)
        texts = {"title": axes._left_title, "x": axes.xaxis.label, "y": axes.yaxis.label}  # type: ignore[attr-defined]
        yield from ((f"{what} of {name}", text.get_window_extent(renderer)) for what, text in texts.items() if text.get_text())
    for part in figure.subfigs[:1]:
        yield from ((f"head {number}", text.get_window_extent(renderer)) for number, text in enumerate(part.texts))


@pytest.mark.parametrize(
    "kind", ["overview", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("trouble", "sweep", "optima"))]
)
@pytest.mark.parametrize("width", [3.5, *(pytest.param(width, marks=pytest.mark.long) for width in (2.5, 7.0, None))])
def test_legends_titles_names_and_panels_never_overlap(swept: Result, kind: str, width: float | None) -> None:
    figure = figure_of(swept, View(kind, look=Look(width=width)))
    figure.draw_without_rendering()
    found = list(boxes(figure))
    assert any(name.startswith("legend") for name, _ in found)
    within = figure.bbox.padded(1.0)
    for name, box in found:
        assert within.x0 <= box.x0 and box.x1 <= within.x1 and within.y0 <= box.y0 and box.y1 <= within.y1, name
    shrunk = [(name, Bbox.from_extents(box.x0 + 1, box.y0 + 1, box.x1 - 1, box.y1 - 1)) for name, box in found]
    assert [(a, b) for (a, one), (b, other) in combinations(shrunk, 2) if one.overlaps(other)] == []


def test_twelve_series_can_be_told_apart_in_grey() -> None:
    looks = {(str(style["linestyle"]), style["marker"]) for style in map(style_at, range(12))}
    assert len(looks) == 12
    grey = [float(np.dot(to_rgb(style_at(place)["color"]), (0.299, 0.587, 0.114))) for place in range(12)]
    assert max(grey) < 0.75  # on white


def test_fonts_are_embedded_as_true_type_and_chosen(swept: Result, tmp_path: Path) -> None:
    path = swept.plot(tmp_path / "paper.pdf", "curves", width=3.5, font="DejaVu Serif", title=False, panels=["evaluations"])
    data = path.read_bytes()
    assert b"/Subtype /Type3" not in data and b"/Subtype /CIDFontType2" in data
    assert set(re.findall(rb"/BaseFont /(?:[A-Z]{6}\+)?([\w-]+)", data)) == {b"DejaVuSerif"}
    assert b"/MediaBox [ 0 0 252 " in data  # 3.5 inches
    with pytest.raises(PlotError, match="font 'Comic': is not installed; choose another, for example"):
        swept.plot(kind="curves", font="Comic")


@pytest.mark.long
def test_a_figure_has_the_size_that_was_asked_for_and_no_titles_if_none_are_wanted(swept: Result, tmp_path: Path) -> None:
    figure = figure_of(swept, View("curves", look=Look(width=7.0, height=3.0, title=False)))
    assert tuple(figure.get_size_inches()) == (7.0, 3.0) and not figure.subfigs
    assert [axes.get_title("left") for axes in figure.axes] == ["", ""]
    for choice, value in (("width", 300.0), ("height", 0.5), ("font_size", 1.0)):
        with pytest.raises(PlotError, match=f"{choice} = {value:g}: must be between"):
            figure_of(swept, View("curves", look=Look(**{choice: value})))
    with pytest.raises(PlotError, match="the panels do not fit; make the figure larger, or the font smaller"):
        swept.plot(tmp_path / "x.png", "trouble", width=2.5, font_size=30.0)
    assert not list(tmp_path.iterdir())
    with pytest.raises(PlotError, match=r"height = 1: is too small for these panels; set at least \d"):
        figure_of(swept, View("curves", look=Look(width=3.5, height=1.0)))


def test_axes_of_others_get_one_panel_in_their_own_style(swept: Result) -> None:
    with rc_context({"font.size": 5.0}):
        axes = Figure().subplots()
        assert swept.plot(kind="curves", cell=1, panels=["cost"], ax=axes, title=False) is axes
        assert axes.xaxis.label.get_fontsize() == 5.0 and axes.get_xlabel() == "virtual time of each agent in evaluations"
    assert [line.get_label() for line in axes.get_legend().get_lines()] == ["Alone", "Together"]
    assert axes.get_title("left") == "" and len(axes.figure.axes) == 1
    with pytest.raises(PlotError, match="ax: requires one panel, got 2; set one in panels"):
        draw_on(swept, axes, View("curves", panels=["time", "bytes"]))
    with pytest.raises(PlotError, match="must be one Axes of matplotlib"):
        swept.plot(kind="curves", ax=[axes])  # type: ignore[call-overload]
    with pytest.raises(ResultError, match="path and ax cannot be combined; set one of them"):
        swept.plot("x.png", ax=axes)  # type: ignore[call-overload]


def test_chosen_algorithms_and_a_replicate_are_what_is_drawn_in_the_same_style(swept: Result) -> None:
    both = figure_of(swept, View("curves", panels=["evaluations"])).axes[0]
    alone = figure_of(swept, View("curves", panels=["evaluations"], algorithms=["Together"], replicate=1)).axes[0]
    (line,) = alone.lines
    assert (line.get_color(), line.get_linestyle()) == (both.lines[1].get_color(), both.lines[1].get_linestyle())
    (trace,) = [one for one in curves(swept, "evaluations") if (one.cell, one.algorithm) == (0, "Together")]
    mine = [one for one in swept.traces if (one.cell, one.algorithm, one.replicate) == (0, "Together", 1)]
    assert line.get_ydata()[-1] == pytest.approx(-np.mean([one.best[-1] for one in mine]))
    assert line.get_ydata()[-1] != pytest.approx(trace.mean[-1])
    with pytest.raises(PlotError, match="no replicate 7; available: 0, 1"):
        figure_of(swept, View("curves", replicate=7))
    with pytest.raises(ResultError, match="no algorithm 'Both'; available: Alone, Together"):
        figure_of(swept, View("curves", algorithms=["Both"]))
    with pytest.raises(
        PlotError, match="figure 'curves' has no panel 'byte'; available: evaluations, time, bytes, epsilon, cost"
    ):
        figure_of(swept, View("curves", panels=["byte"]))


def test_best_points_are_of_the_replicate_that_is_chosen(swept: Result) -> None:
    figure = figure_of(swept, View("optima", replicate=1))
    assert "best point of an agent, replicate 1" in [text.get_text() for text in legends(figure)[0].get_texts()]
    rows = [row for row in swept.observations.to_pylist() if (row["cell"], row["replicate"], row["error"]) == (0, 1, None)]
    best = {row["agent"]: row["x"] for row in sorted(rows, key=lambda row: row["score"])}
    offsets = np.asarray(figure.axes[0].collections[0].get_offsets())
    np.testing.assert_allclose(offsets, [best[agent] for agent in sorted(best)])


@pytest.mark.long
def test_a_file_is_where_the_figure_says_it_is(swept: Result, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"kind": "curves", "width": 2.5, "title": False, "panels": ["time"]}
    assert swept.plot(tmp_path / "x", **chosen) == tmp_path / "x.png"
    assert swept.plot(tmp_path, **chosen) == tmp_path / "curves-time.png"
    names = {View("timeline", 1, algorithm=label).name for label in swept.study.labels}
    assert names == {"timeline-1-Alone", "timeline-1-Together"}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["curves-time.png", "x.png"]
    for ending in ("jpg", "eps", "gif", "doc"):
        with pytest.raises(PlotError, match=rf"x\.{ending}': must end in \.png, \.pdf or \.svg"):
            swept.plot(tmp_path / f"x.{ending}", **chosen)


@pytest.mark.long
def test_a_sweep_is_drawn_as_one_figure_unless_a_cell_is_chosen(swept: Result) -> None:
    assert [axes.get_xlabel() for axes in figure_of(swept, View()).axes][1] == "virtual time"
    assert len(figure_of(swept, View()).axes) == 4 and len(figure_of(swept, View(cell=2)).axes) == 3


def _branch(original: Result, time: float, slower: float) -> Result:
    """Make a branch that forks at a time and whose evaluations take so many times as long from there on."""
    branch = Result(original.directory, original.study, {**original.manifest, "forked": {"at": {"run": time}}})
    table = original.observations
    finished = np.array(table["finished"])
    late = np.where(finished > time, time + slower * (finished - time), finished)
    branch.observations = table.set_column(table.column_names.index("finished"), "finished", pa.array(late))
    branch.traces = [
        replace(one, finished=np.where(one.finished > time, time + slower * (one.finished - time), one.finished))
        for one in original.traces
    ]
    return branch


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_fork_is_drawn_by_the_same_hand_and_shows_what_else_changes(tmp_path: Path, count: int) -> None:
    original = Result.open(write_run(tmp_path / "run", document(agents=3, iterations=5, replicates=2)))
    branches = [_branch(original, 2.0 + place, 3.0) for place in range(count)]
    fork = Fork(
        tmp_path, original, branches, [f"{2 + place}" for place in range(count)], [""] * count, ["timing.evaluation.mean=3.0"]
    )
    figure = fork_figure(fork, look={"width": 3.5})
    figure.draw_without_rendering()
    found = [(name, box.padded(-1.0)) for name, box in boxes(figure)]
    assert [(a, b) for (a, one), (b, other) in combinations(found, 2) if one.overlaps(other)] == []
    costs = figure.axes[2]
    shown = [" ".join(text.get_text().split()) for text in costs.get_yticklabels()]
    assert shown[:2] == ["end of the run", "time to a level that both reach"] and "evaluations" in shown
    ends = [np.mean([max(t.finished[-1] for t in one.traces if (t.algorithm, t.replicate) == ("Alone", r)) for r in (0, 1)])
            for one in (original, branches[0])]  # fmt: skip
    assert costs.lines[0].get_xdata()[0] == pytest.approx(ends[1] / ends[0]) and costs.lines[0].get_xdata()[0] > 1.5
    names = [text.get_text() for text in legends(figure)[0].get_texts()]
    assert [name for name in names if name.startswith("fork at")] == (
        [f"fork at {2 + place}" for place in range(3)] if count > 1 else []
    )
    with pytest.raises(PlotError, match="no cell 3 in"):
        fork_figure(fork, 3)


def test_an_unknown_argument_of_a_figure_is_named_with_the_one_that_was_meant(swept: Result) -> None:
    with pytest.raises(PlotError, match=r"^plot\(\): no argument 'algorithm_s'; did you mean 'algorithms'\? "):
        swept.plot(algorithm_s=["Alone"])  # type: ignore[call-overload]


def contrast(one: Any, other: Any) -> float:
    """Give the ratio of luminances of two colours, as WCAG 2.2 defines it."""
    linear = [[c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(each)] for each in (one, other)]
    low, high = sorted(float(np.dot(rgb, (0.2126, 0.7152, 0.0722))) for rgb in linear)
    return (high + 0.05) / (low + 0.05)


def test_every_colour_stands_out_on_a_dark_page_the_more_the_darker_it_was() -> None:
    paper = on_dark("white")
    shades = [SHADES(step / 10) for step in range(11)]
    for colour in (*map(colour_at, range(24)), *EVALUATING.values(), *shades, "black"):
        if colour != PALE:
            assert contrast(on_dark(colour), paper) > 3.5, colour
    assert contrast(on_dark(INK), paper) > 12 and contrast(on_dark(FAINT), paper) > 5
    assert 1.2 < contrast(on_dark(PALE), paper) < 2  # as on white
    bright = [contrast(on_dark(shade), paper) for shade in shades]
    assert bright == sorted(bright, reverse=True)
    assert on_dark((0.2, 0.4, 0.6, 0.5))[3] == 0.5 and on_dark((1.0, 0.0, 0.0, 0.0)) == "none"


@pytest.mark.parametrize("kind", ["sweep", "overview", "trouble", "optima", "slices"])
def test_a_dark_figure_has_the_same_words_and_nothing_in_the_colours_of_a_light_one(swept: Result, kind: str) -> None:
    light, dark = (figure_of(swept, View(kind, look=Look(dark=dark))) for dark in (False, True))
    assert words(light) == words(dark) and light.get_size_inches().tolist() == dark.get_size_inches().tolist()
    paper = on_dark("white")
    for figure in (light, dark):  # so that all ticks are there
        figure.draw_without_rendering()
    for text in dark.findobj(Text):
        assert contrast(text.get_color(), paper) > 4.5, text.get_text()
    assert {to_hex(axes.get_facecolor()) for axes in dark.axes} == {to_hex(paper)} == {to_hex(dark.get_facecolor())}
    pixels = [np.asarray(figure.canvas.buffer_rgba())[..., :3].mean() / 255 for figure in map(drawn, (light, dark))]
    assert pixels[0] > 0.8 and pixels[1] < 0.25


def drawn(figure: Figure) -> Any:
    """Draw a figure, and return it."""
    figure.canvas.draw()
    return figure


def test_dark_is_a_flag_for_files_whose_words_stay_text(swept: Result, tmp_path: Path) -> None:
    text = Path(swept.plot(tmp_path / "dark.svg", "curves", 0, dark=True)).read_text()
    assert "<text" in text and to_hex(on_dark("white")) in text and "#262b33" not in text.lower()
    with pytest.raises(ArgumentError, match="dark = 'yes': must be True or False"):
        swept.plot(kind="curves", dark="yes")  # type: ignore[call-overload]
    with pytest.raises(PlotError, match="dark: axes of your own keep the style of their figure"):
        swept.plot(kind="curves", ax=Figure().subplots(), panels=["time"], dark=True)
