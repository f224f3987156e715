"""Figures of the search space: their numbers against the table of trials, and importances where the truth is known."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from test_plots import words

import fedbo
from fedbo.analysis.comparison import target_of
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.result import Result
from fedbo.figures.kinds.search import LINES, ParameterColumn, SearchTrials, _parallel, importances
from fedbo.figures.plot import PlotError, View, figure_of
from fedbo.study.study import Study


def taste(configuration: dict[str, Any]) -> float:
    """Return a loss that depends on `lr` above all; one value of `n` fails."""
    if configuration["n"] == 7:
        raise ValueError("no seven")
    return float((math.log10(configuration["lr"]) + 3) ** 2 + 0.1 * (configuration["opt"] == "sgd"))


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Run a small search in a space with a logarithmic axis, categories, a condition and failures."""
    from ConfigSpace import Categorical, ConfigurationSpace, EqualsCondition, Float, Integer

    space = ConfigurationSpace(seed=0)
    opt, momentum = Categorical("opt", ["adam", "sgd"]), Float("momentum", (0.0, 1.0))
    space.add([Float("lr", (1e-5, 1e-1), log=True), opt, Integer("n", (1, 9)), momentum])
    space.add(EqualsCondition(momentum, opt, "sgd"))
    objective = {"name": "typed_function", "function": "test_search_plots:taste", "agents": 2, "direction": "minimise"}
    study = {
        "study": {"name": "typed"},
        "objective": {**objective, "metric_name": "loss", "space": json.dumps(space.to_serialized_dict())},
        "budget": {"iterations": 12},
        "algorithm": [{"name": "random", "label": "A"}, {"name": "random", "label": "B"}],
    }
    return fedbo.run(study, out=tmp_path_factory.mktemp("runs") / "typed")


def test_the_history_has_every_trial_and_the_best_so_far(typed: Result) -> None:
    figure = figure_of(typed, View("history"))
    axes = figure.axes[0]
    rows = sorted(typed.trials().to_arrow().to_pylist(), key=lambda row: row["finished"])
    for place, label in enumerate(("A", "B")):
        value = [math.nan if row["value"] is None else row["value"] for row in rows if row["algorithm"] == label]
        dots, best, failed = axes.lines[3 * place : 3 * place + 3]
        np.testing.assert_array_equal(dots.get_ydata(), value)
        np.testing.assert_array_equal(best.get_ydata(), np.fmin.accumulate(value))
        assert len(failed.get_xdata()) == np.isnan(value).sum()
    assert {row["status"] for row in rows} == {"complete", "failed"} and "failed" in words(figure)


def test_slices_have_a_panel_for_each_parameter_on_its_own_scale(typed: Result) -> None:
    axes = figure_of(typed, View("slices", algorithms=["A", "B"])).axes
    assert [one.get_xlabel() for one in axes] == ["lr", "n", "opt", "momentum"]
    assert [one.get_xscale() for one in axes] == ["log", "linear", "linear", "linear"]
    assert sorted(text.get_text() for text in axes[2].get_xticklabels()) == ["adam", "sgd"]
    rows = [row for row in typed.trials().to_arrow().to_pylist() if row["value"] is not None and row["momentum"] is not None]
    assert sorted(axes[3].collections[0].get_offsets()[:, 0].tolist()) == sorted(row["momentum"] for row in rows)
    assert len(figure_of(typed, View("slices", panels=["lr"])).axes) == 1


@pytest.mark.parametrize("kind", ["slices", "parallel", "importance"])
def test_one_method_is_drawn_unless_others_are_asked_for_and_named(typed: Result, kind: str) -> None:
    main = target_of(typed, None).algorithm
    assert f"{main} (2 agents together)" in words(figure_of(typed, View(kind))).splitlines()
    assert "A, B (2 agents together)" in words(figure_of(typed, View(kind, algorithms=["A", "B"]))).splitlines()


def test_many_lines_are_thinned_evenly_by_value() -> None:
    axes = Figure().subplots()
    _parallel(axes, drawn(1000))
    ends = sorted(float(line[-1, 1]) for line in axes.collections[0].get_segments())  # type: ignore[attr-defined]
    assert len(ends) == LINES and ends[0] == 0.0 and ends[-1] == 1.0


def test_parallel_coordinates_have_a_line_for_each_trial_with_a_value(typed: Result) -> None:
    figure = figure_of(typed, View("parallel", algorithms=["A", "B"]))
    (axes,) = figure.axes
    lines = axes.collections[0].get_segments()
    good = [row for row in typed.trials().to_arrow().to_pylist() if row["value"] is not None]
    assert len(lines) == len(good) and [text.get_text() for text in axes.get_xticklabels()][-1] == "loss"
    value = np.array([row["value"] for row in good])
    ends = sorted(float(line[-1, 1]) for line in lines)
    assert ends == pytest.approx(sorted((value - value.min()) / (value.max() - value.min())))
    assert {"best value", "worst value"} <= set(words(figure).splitlines())
    assert min(line[:, 1].min() for line in lines) < 0 and "not active" in axes.get_xlabel()


def drawn(count: int) -> SearchTrials:
    """Draw trials of two agents of unlike levels, whose value depends on the first of three parameters."""
    rng = np.random.default_rng(3)
    x, agent = rng.random((count, 3)), np.arange(count) % 2
    columns = [ParameterColumn(name, x[:, place], False, None) for place, name in enumerate("abc")]
    value = np.sin(3 * x[:, 0]) + 100.0 * agent
    return SearchTrials(columns, value, ["A"] * count, [0] * count, agent, "loss", -1)


def test_importance_finds_the_parameter_that_matters_whatever_the_levels_of_agents() -> None:
    shares, errors, explained = importances(drawn(60))
    assert shares.sum() == pytest.approx(1.0) and shares[0] > 0.9 and (errors >= 0).all() and explained > 0.8
    with pytest.raises(PlotError, match="requires at least 10 evaluations with a value, got 9; run more"):
        importances(drawn(9))


def test_a_run_without_any_value_has_no_picture_of_its_search(typed: Result, tmp_path: Path) -> None:
    barren = Result(typed.directory, typed.study, typed.manifest)
    table = typed.observations
    errors = table.column("error").combine_chunks().fill_null("failed")
    barren.observations = table.set_column(table.column_names.index("error"), table.schema.field("error"), errors)
    for kind in ("history", "importance", "slices", "parallel"):
        with pytest.raises(PlotError, match=f"no figure '{kind}' of cell 0: no evaluation has a value"):
            barren.plot(tmp_path / "x.png", kind)


@pytest.mark.parametrize("kind", ["optima", "regret"])
def test_a_function_that_was_handed_over_is_missed_in_one_line(typed: Result, kind: str, tmp_path: Path) -> None:
    document = typed.study.document()
    given = Study.model_validate({**document, "objective": {**document["objective"], "function": "given:taste"}})
    gone = Result(typed.directory, given, typed.manifest, trust=True)
    with pytest.raises(
        ResultError,
        match="regret and optima require the objective, whose function is not available here; name it as module:function",
    ):
        gone.plot(tmp_path / "x.png", kind)
