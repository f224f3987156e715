"""What one can ask of a run directory, and the figures drawn from it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from synthetic_run import INITIAL, document, write_run

from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis import curves
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.result import Result
from fedbo.analysis.schemas import EVENTS, OBSERVATIONS
from fedbo.analysis.timeline_bars import MAX_AGENTS, horizon
from fedbo.figures.plot import PlotError, View, figure_of


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return Result.open(write_run(tmp_path_factory.mktemp("runs") / "small", document()))


def test_a_run_is_tables_of_the_declared_columns(result: Result) -> None:
    assert result.observations.schema.equals(OBSERVATIONS)
    assert result.events.schema.equals(EVENTS)
    assert len(result.observations) == 2 * 3 * 6 * (INITIAL + 8)
    assert list(result.observations.to_pandas().columns) == OBSERVATIONS.names


def test_the_best_point_has_its_parameters_by_name(result: Result) -> None:
    alone, together = result.best()
    assert (alone["algorithm"], together["algorithm"]) == ("Alone", "Together")
    assert set(together["configuration"]) == {"C", "gamma"} and 0.1 <= together["configuration"]["C"] <= 10.0
    scores = np.asarray(result.observations["score"])
    assert max(-alone["value"], -together["value"]) == pytest.approx(scores.max())
    assert len(result.best(each="agent")) == 2 * 3 * 6
    with pytest.raises(ResultError, match="each = 'cell': must be 'algorithm', 'agent' or 'all'"):
        result.best(each="cell")


def test_differences_are_to_the_first_algorithm_or_to_the_one_that_is_named(result: Result) -> None:
    alone, together = result.summary()
    assert alone.difference is None and together.difference is not None
    other, _ = result.summary(baseline="Together")
    assert other.difference is not None
    assert other.difference.mean == pytest.approx(-together.difference.mean)
    assert together.federated > 0.3 and together.messages == 8.0 and together.bytes_up == 6400.0
    with pytest.raises(ResultError, match="no algorithm 'Both'; available: Alone, Together"):
        result.summary(baseline="Both")


def test_regret_is_drawn_from_best_values_and_refused_without_them(result: Result) -> None:
    final = [curve.mean[-1] for curve in curves(result, "iteration", regret=True)]
    assert final == pytest.approx([row.final.mean - 0.05 for row in result.summary()])
    unknown = Result(result.directory, result.study, {**result.manifest, "best_values": {}})
    with pytest.raises(ResultError, match="regret of agent 0 is unknown"):
        curves(unknown, regret=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", ["overview", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("curves", "timeline", "trouble"))]
)
def test_figures_are_drawn_without_a_display_and_are_not_empty(result: Result, kind: str, tmp_path: Path) -> None:
    path = result.plot(tmp_path / f"{kind}.png", kind)
    pixels = imread(path)
    assert pixels.shape[1] == 1600 and pixels[..., :3].std() > 0.05


def test_an_overview_names_its_axes_and_every_algorithm(result: Result) -> None:
    figure = figure_of(result, View())
    left, right, below = figure.axes
    (legend,) = figure.subfigs[1].legends
    assert [text.get_text() for text in legend.get_texts()] == ["Alone", "Together", "± 1 standard error"]
    assert left.get_xlabel() == "evaluations of each agent, initial points included"
    assert left.get_ylabel() == "best error, mean over agents\n(lower is better)"
    assert right.get_xlabel() == below.get_xlabel() == "virtual time"
    assert below.get_title("left") == "Timeline of agents: Together, replicate 0"
    assert len(below.get_yticks()) == 6
    assert "pyplot" not in [name.split(".")[-1] for name in sys.modules if name.startswith("fedbo")]


def test_a_figure_goes_into_the_run_directory_unless_told_otherwise(result: Result) -> None:
    assert result.plot(kind="timeline") == result.directory / "timeline.png"


def test_a_figure_that_cannot_be_drawn_is_refused(result: Result, tmp_path: Path) -> None:
    with pytest.raises(
        PlotError, match="no figure 'pie'; available: overview, curves, .*, privacy, optima, fronts, feasible, sweep"
    ):
        result.plot(kind="pie")
    with pytest.raises(PlotError, match="no observations in cell 3; available cells: 0"):
        result.plot(cell=3)
    with pytest.raises(PlotError, match=r"figure\.doc"):
        result.plot(tmp_path / "figure.doc")


def test_one_agent_in_one_replicate_and_more_agents_than_rows_can_both_be_drawn(tmp_path: Path) -> None:
    single = Result.open(write_run(tmp_path / "single", document(agents=1, iterations=1, replicates=1)))
    assert len(figure_of(single, View()).axes) > 1
    many = Result.open(write_run(tmp_path / "many", document(agents=MAX_AGENTS + 5, iterations=1, replicates=1)))
    assert len(figure_of(many, View("timeline")).axes[0].get_yticks()) == MAX_AGENTS


def test_a_time_axis_ends_before_a_straggler_that_takes_far_longer_than_the_rest() -> None:
    assert horizon([9.0, 10.0]) == pytest.approx(10.2)
    assert horizon([10.0] * 40 + [100.0]) == pytest.approx(11.22)


def test_cells_may_differ_in_metric_and_parameters(result: Result) -> None:
    first, second = {"name": "error", "sign": -1, "offset": 0.0}, {"name": "gain", "sign": 1, "offset": 2.0}
    names = [[{"name": "a"}, {"name": "b"}], [{"name": "c"}]]
    mixed = Result(result.directory, result.study, {**result.manifest, "metric": [first, second], "parameters": names})
    assert (mixed.metric().name, mixed.metric(1).offset) == ("error", 2.0)
    assert set(mixed.best()[0]["configuration"]) == {"a", "b"}


def test_a_run_opens_where_its_objective_and_its_files_are_not(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", document(iterations=1))
    text = (folder / "study.toml").read_text(encoding="utf-8")
    gone = text.replace('name = "digits"', 'name = "gone"').replace("initial = 3", 'initial_file = "gone.csv"')
    (folder / "study.toml").write_text(gone, encoding="utf-8")
    assert len(figure_of(Result.open(folder), View()).axes) > 1


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"has no manifest\.json; pass the directory that fedbo run printed"):
        Result.open(tmp_path)
    killed = tmp_path / "killed"
    (killed / "parts").mkdir(parents=True)
    with pytest.raises(ResultError, match=r"has not ended: it has no manifest\.json yet; .* continue with: fedbo resume "):
        Result.open(killed)
    broken = write_run(tmp_path / "broken", document(iterations=1))
    (broken / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(DamagedError, match="manifest.json': is damaged .*; run the study again: fedbo run "):
        Result.open(broken)


def test_a_table_with_an_algorithm_that_the_study_has_not_is_damaged(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", document(iterations=1))
    text = (folder / "study.toml").read_text(encoding="utf-8")
    (folder / "study.toml").write_text(text.replace('label = "Alone"', 'label = "mine"'), encoding="utf-8")
    forged = Result.open(folder)
    assert "mine" in forged.study.labels
    with pytest.raises(DamagedError, match="observations.parquet': is damaged .*'Alone', which the study has not"):
        forged.summary()
