"""The figures of trouble and of sweeps: that they are drawn, what their axes say, and that all is where it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.legend import Legend
from synthetic_run import document, write_run

import fedbo
from fedbo.analysis import trouble
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.result import Result
from fedbo.analysis.timeline_bars import within, without
from fedbo.cli import main
from fedbo.figures.cells import MAX_ENTRIES, cell_styles
from fedbo.figures.kinds.disruptions import PanelRows, _staleness
from fedbo.figures.plot import PlotError, View, figure_of
from fedbo.figures.style import COLOURS, PALE, colour_at

Make = Callable[..., Result]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Write a troubled run, swept or not, once for each choice."""
    made: dict[str, Result] = {}

    def run(**choices: Any) -> Result:
        name = str(choices)
        if name not in made:
            made[name] = Result.open(write_run(tmp_path_factory.mktemp("run") / "run", document(**choices), troubled=True))
        return made[name]

    return run


def legends(figure: Figure) -> list[Legend]:
    """List the legends of a figure that belong to all of its panels."""
    return [legend for part in (figure, *figure.subfigs) for legend in part.legends]


def plain(text: str) -> str:
    """Undo the breaks of lines."""
    return text.replace("\n", " ")


def words(figure: Figure) -> str:
    """Give everything that is written on a figure, the panels' titles and legends included."""
    found = [plain(text.get_text()) for part in (figure, *figure.subfigs) for text in part.texts]
    for legend in legends(figure):
        found += [text.get_text() for text in legend.get_texts()]
    for axes in figure.axes:
        found += [plain(one) for one in (axes.get_title("left"), axes.get_xlabel(), axes.get_ylabel())]
        found += [plain(text.get_text()) for text in axes.texts]
        legend = axes.get_legend()
        found += [text.get_text() for text in legend.get_texts()] if legend else []
        found += [text.get_text() for text in axes.get_yticklabels()]
    return "\n".join(found)


def test_the_axis_of_time_names_its_unit_and_a_picture_of_vectors_keeps_its_words(tmp_path: Path) -> None:
    timed = Result.open(write_run(tmp_path / "run", document() | {"timing": {"unit": "min"}}))
    assert (
        "<text" in (drawn := Path(timed.plot(tmp_path / "a.svg", kind="curves")).read_text())
        and ">virtual time [min]<" in drawn
    )
    real = {"timing": {"unit": "min", "clock": "wall"}, "hosting": {"kind": "dedicated"}}
    with pytest.raises(fedbo.errors.StudyError, match=r"\[timing\] unit .*applies to virtual time only"):
        fedbo.load_study(document() | real)


def test_holes_are_cut_out_of_a_span() -> None:
    assert without((0, 10), [(6, 7), (2, 3)]) == [(0, 2), (3, 6), (7, 10)]
    assert without((0, 10), [(-1, 1), (9, 12), (20, 21)]) == [(1, 9)]
    assert within((0, 10), [(-1, 1), (4, 5), (12, 13)]) == [(0, 1), (4, 5)]
    assert without((0, 10), [(0, 10)]) == [] and without((0, 10), [(1, 5), (2, 3)]) == [(0, 1), (5, 10)]


def test_a_timeline_marks_all_that_can_go_wrong(make: Make) -> None:
    result = make(agents=10, iterations=12)
    figure = figure_of(result, View("timeline"))
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    shown = [text.get_text() for text in legend.get_texts()]
    for word in ("failed or forgotten", "work lost", "waiting", "coordinator down", "slowed", "away", "down after a crash"):
        assert word in shown
    assert {"crash", "lost permanently", "hanging", "disconnected"} <= set(shown)
    assert axes.get_xlabel() == "virtual time" and axes.get_ylabel() == "agent, fastest first"


def test_bars_of_evaluations_cover_no_pause(make: Make) -> None:
    result = make(agents=10, iterations=12)
    axes = figure_of(result, View("timeline", algorithm="Alone")).axes[0]
    assert axes.get_title("left") == "Timeline of agents: Alone, replicate 0"
    rows = [row for row in result.events.to_pylist() if (row["algorithm"], row["replicate"]) == ("Alone", 0)]
    place = {int(label.get_text()): number for number, label in enumerate(axes.get_yticklabels())}
    pauses, since = [], dict[int, float]()
    for row in rows:
        if row["kind"] in ("absent", "crashed", "hung") and not row["permanent"]:
            since[row["agent"]] = row["time"]
        elif row["kind"] in ("returned", "restarted", "woke"):
            pauses.append((place[row["agent"]], since.pop(row["agent"]), row["time"]))
    bars = [c for c in axes.collections if isinstance(c, PolyCollection) and c.get_zorder() == 1]
    assert to_hex(bars[0].get_facecolor()[0]) == PALE.lower()
    del bars[0]  # waiting
    spans = [path.vertices for one in bars for path in one.get_paths()]
    boxes = [(round(float(v[:, 1].mean() + 1e-9)), float(v[:, 0].min()), float(v[:, 0].max())) for v in map(_corners, spans)]
    assert len(pauses) > 10 and len(boxes) > 100
    for place_, begin, end in pauses:
        assert not [box for box in boxes if box[0] == place_ and box[1] < end - 1e-9 and box[2] > begin + 1e-9]


def _corners(vertices: Any) -> Any:
    return np.asarray(vertices)[:4]


def test_a_page_of_trouble_has_a_row_for_each_algorithm(make: Make) -> None:
    result = make(agents=10, iterations=12)
    figure = figure_of(result, View("trouble"))
    growth, staleness, time, fate = figure.axes[:4]
    assert (growth.get_xlabel(), growth.get_ylabel()) == ("virtual time", "$t_n$, successful evaluations")
    assert plain(staleness.get_xlabel()) == "rounds closed since the sender started the step"
    assert plain(time.get_xlabel()) == "share of the time of an agent that optimises, %"
    assert plain(fate.get_xlabel()) == "transmissions to the coordinator, in one replicate"
    for axes in (staleness, time, fate):
        assert [text.get_text() for text in axes.get_yticklabels()] == ["Alone", "Together"]
    assert "sends nothing" in words(figure) and "no message took effect" in words(figure)


def test_lines_of_growth_end_at_the_number_of_good_observations(make: Make) -> None:
    result = make(agents=10, iterations=12)
    growth = figure_of(result, View("trouble")).axes[0]
    rows = [row for row in result.observations.to_pylist() if (row["algorithm"], row["replicate"]) == ("Together", 0)]
    good = [sum(row["agent"] == agent and row["error"] is None for row in rows) for agent in range(10)]
    assert sorted(line.get_ydata()[-1] for line in growth.lines if len(line.get_xdata()) > 2) == sorted(good)


def test_bars_of_staleness_have_true_heights_and_dots_say_what_is_too_low() -> None:
    axes = Figure().subplots()
    rows = PanelRows(["A"], ["#000000"], [], [np.repeat([0.0, 1.0, 2.0], [127, 11, 1])], "")
    handles = _staleness(axes, rows)
    heights = [abs(bar.get_height()) for bar in axes.patches]
    assert np.divide(heights, heights[0]) == pytest.approx([1.0, 11 / 127, 1 / 127])
    (dots,) = [line for line in axes.lines if line.get_gid() == "rare"]
    assert dots.get_xdata() == pytest.approx([2.0], abs=0.05) and "some, too few for a bar" in [
        one.get_label() for one in handles
    ]


def test_bars_of_time_and_of_messages_have_the_lengths_of_the_measures(make: Make) -> None:
    result = make(agents=10, iterations=12)
    _, _, time, fate = figure_of(result, View("trouble")).axes[:4]
    rows = trouble(result)
    widths = [[patch.get_width() for patch in axes.patches] for axes in (time, fate)]
    at_work = [sum(widths[0][row:8:2]) for row in range(2)]  # useful, and lost for three reasons
    assert at_work == pytest.approx([100 * row.utilisation for row in rows]) and 0 < widths[0][3] < widths[0][1]
    assert widths[1][:2] == pytest.approx([row.arrived for row in rows])
    assert sum(widths[0]) == pytest.approx(200)


def test_regret_is_drawn_where_optima_are_known_and_refused_elsewhere(make: Make) -> None:
    result = make(agents=4, replicates=3, objective__alpha=[0.1, 0.3, 0.5])
    assert "simple regret, mean over agents" in words(figure_of(result, View("sweep", regret=True)))
    assert "simple regret, mean over agents" in words(figure_of(result, View("curves", cell=1, regret=True)))
    unknown = Result(result.directory, result.study, {**result.manifest, "best_values": {}})
    with pytest.raises(ResultError, match="regret of agent 0 is unknown, because its optimum is unknown"):
        unknown.plot(kind="curves", regret=True)


def labels(handles: Iterable[Artist]) -> list[str]:
    """List what the entries of a legend say."""
    return [str(handle.get_label()) for handle in handles]


def test_cells_have_shades_and_many_numbers_show_some_of_theirs_in_the_legend(make: Make) -> None:
    few = cell_styles(make(agents=4, replicates=3, objective__alpha=[0.1, 0.3, 0.5]), [0, 1, 2])
    assert few.titles == {0: "0.1", 1: "0.3", 2: "0.5"} and labels(few.handles) == ["alpha = 0.1", "alpha = 0.3", "alpha = 0.5"]
    assert len({str(options["color"]) for options in few.lines.values()}) == 3
    many = make(agents=2, iterations=2, replicates=2, objective__alpha=[round(0.1 * step, 1) for step in range(1, 11)])
    chosen = cell_styles(many, list(range(10)))
    shown = labels(chosen.handles)
    assert len(shown) == MAX_ENTRIES and (shown[0], shown[-1]) == ("alpha = 0.1", "alpha = 1")
    assert len({str(options["color"]) for options in chosen.lines.values()}) == 10
    assert "10 cells: objective.alpha" in words(figure_of(many, View("sweep")))


def test_two_swept_keys_are_colours_and_styles_of_lines(make: Make) -> None:
    both = make(agents=2, iterations=2, replicates=2, objective__alpha=[0.1, 0.3, 0.5], exchange__mode=["immediate", "barrier"])
    chosen = cell_styles(both, list(range(6)))
    assert list(chosen.keys) == ["objective.alpha", "exchange.mode"]
    assert labels(chosen.handles) == [*(f"alpha = {value}" for value in (0.1, 0.3, 0.5)), "mode = immediate", "mode = barrier"]
    styles = {(str(options["color"]), str(options["linestyle"])) for options in chosen.lines.values()}
    assert len(styles) == 6 and len({style for _, style in styles}) == 2
    assert chosen.titles[3] == "0.3 · barrier"
    figure_of(both, View("sweep"))


@pytest.mark.long
def test_three_swept_keys_give_every_cell_a_shade_of_its_own(make: Make) -> None:
    keys = {"objective__alpha": [0.1, 0.3], "exchange__mode": ["immediate", "barrier"], "agents__initial": [3, 4]}
    three = make(agents=2, iterations=2, replicates=1, **keys)
    chosen = cell_styles(three, list(range(8)))
    assert len({str(options["color"]) for options in chosen.lines.values()}) == 8
    figure_of(three, View("sweep"))


@pytest.mark.parametrize(
    "kind", ["overview", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("trouble", "timeline", "sweep", "curves"))]
)
@pytest.mark.parametrize("ending", ["png", pytest.param("pdf", marks=pytest.mark.long)])
def test_every_kind_is_drawn_without_a_warning(make: Make, kind: str, ending: str, tmp_path: Path) -> None:
    result = make(agents=4, replicates=3, objective__alpha=[0.1, 0.3, 0.5])
    path = result.plot(tmp_path / f"figure.{ending}", kind, 1)
    if ending == "png":
        pixels = imread(path)
        assert pixels.shape[1] == 1600 and pixels[..., :3].std() > 0.05
    assert path.stat().st_size > 10_000


@pytest.mark.long
def test_the_smallest_run_and_one_where_nothing_succeeded_can_be_drawn(make: Make, tmp_path: Path) -> None:
    tiny = make(agents=1, iterations=1, replicates=1)
    for kind in ("timeline", "trouble", "overview"):
        assert tiny.plot(tmp_path / f"{kind}.pdf", kind).stat().st_size > 10_000
    barren = Result(tiny.directory, tiny.study, tiny.manifest)
    table = tiny.observations
    errors = table.column("error").combine_chunks().fill_null("failed")
    barren.observations = table.set_column(table.column_names.index("error"), table.schema.field("error"), errors)
    assert trouble(barren)[0].barren == 1 and barren.best() == []
    for kind in ("timeline", "trouble", "overview"):
        assert barren.plot(tmp_path / f"barren-{kind}.png", kind).exists()


def test_figures_that_make_no_sense_are_refused(make: Make) -> None:
    plain = make(agents=10, iterations=12)
    with pytest.raises(PlotError, match="it has one cell; draw the curves, or run a sweep"):
        plain.plot(kind="sweep")
    with pytest.raises(PlotError, match="figure 'timeline' does not support 'regret'; use it with: overview, curves, sweep"):
        plain.plot(kind="timeline", regret=True)
    with pytest.raises(PlotError, match="figure 'curves' does not support 'algorithm'; set 'algorithms'"):
        plain.plot(kind="curves", algorithm="Alone")
    with pytest.raises(PlotError, match="figure 'trouble' does not support 'level'; use it with: sweep"):
        plain.plot(kind="trouble", level=0.1)
    for kind in ("overview", "curves"):
        with pytest.raises(PlotError, match="no panel 'epsilon': it has no private algorithm; draw other panels"):
            plain.plot(kind=kind, panels=["epsilon"])
    with pytest.raises(ResultError, match="no algorithm 'Both'; available: Alone, Together"):
        plain.plot(kind="timeline", algorithm="Both")


def test_without_the_room_of_kinds_a_sweep_is_an_overview_and_its_kinds_are_refused(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbo.figures.plot.optional", lambda _: None)
    swept = make(agents=4, replicates=2, objective__alpha=[0.1, 0.5])
    assert "against evaluations" in words(figure_of(swept, View()))
    for kind in ("sweep", "optima", "trouble", "importance"):
        with pytest.raises(PlotError, match=f"figure '{kind}': needs a part of fedbo that is not installed here"):
            figure_of(swept, View(kind))


def test_optima_show_every_agents_best_point_and_rank_the_agents(make: Make) -> None:
    result = make(agents=6, iterations=8)
    figure = figure_of(result, View("optima"))
    left, right = figure.axes
    best = {}
    for row in result.observations.to_pylist():
        if (
            row["replicate"] == 0
            and row["error"] is None
            and row["score"] > best.get(row["agent"], {"score": -np.inf})["score"]
        ):
            best[row["agent"]] = row
    offsets = np.asarray(left.collections[0].get_offsets())
    np.testing.assert_allclose(offsets, [best[agent]["x"] for agent in range(6)])
    assert (left.get_xlabel(), left.get_ylabel(), left.get_xscale(), left.get_yscale()) == ("C", "gamma", "log", "log")
    order = sorted(best, key=lambda agent: -best[agent]["score"])
    assert [label.get_text() for label in right.get_yticklabels()] == [str(agent) for agent in order]
    assert right.get_xlabel() == "error, to minimise" and "best point of an agent, replicate 0" in words(
        right.get_figure(root=True)
    )


@pytest.mark.parametrize(
    ("dimensions", "panels"), [*(pytest.param(*one, marks=pytest.mark.long) for one in ((1, 1), (5, 6))), (3, 3)]
)
def test_optima_of_another_number_of_parameters_are_drawn_in_pairs(dimensions: int, panels: int, tmp_path: Path) -> None:
    study = {
        "study": {"name": "bowl"},
        "objective": {"name": "quadratic", "agents": 3, "dimensions": dimensions},
        "budget": {"iterations": 2},
        "algorithm": [{"name": "random"}],
    }
    result = fedbo.run(study, out=tmp_path / "run")
    figure = figure_of(result, View("optima"))
    assert len(figure.axes) == panels + 1
    assert figure.axes[0].get_xlabel() == "x1"


def test_many_algorithms_have_different_colours() -> None:
    found = [colour_at(place) for place in range(2 * len(COLOURS))]
    assert tuple(found[: len(COLOURS)]) == COLOURS and len(set(found)) == len(found)


@pytest.mark.parametrize("kind", ["overview", "curves", "timeline", "trouble", "sweep"])
def test_every_axis_of_time_and_every_table_says_the_unit_of_the_study(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    study = document(agents=2, iterations=2, replicates=2, objective__alpha=[0.1, 0.3]) | {"timing": {"unit": "h"}}
    result = Result.open(write_run(tmp_path / "run", study, troubled=True))
    panels = {"curves": ["time", "cost"], "sweep": ["time", "cost", "times"]}.get(kind)
    names = [plain(axes.get_xlabel()) for axes in figure_of(result, View(kind, panels=panels)).axes]
    timed = [name for name in names if "time" in name and "share of the time" not in name]
    assert len(timed) >= len(panels or "1") and all(name.startswith("virtual time [h]") for name in timed)
    for command in (["show"], ["show", "--trouble"]):
        assert main([*command, str(result.directory)]) == 0
        assert "virtual time [h]" in " ".join(capsys.readouterr().out.split())


def test_real_time_is_in_seconds_of_the_clock() -> None:
    study = fedbo.load_study(document() | {"timing": {"clock": "wall"}, "hosting": {"kind": "dedicated"}})
    assert study.timing.in_words == "wall-clock seconds"
