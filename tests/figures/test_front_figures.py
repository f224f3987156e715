"""Fronts and feasible shares: the figures against the outcomes of a run, and their part of the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

import fedbo
from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.agent_fronts import agent_fronts, exact_fronts, feasible_traces
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.result import Result
from fedbo.figures.fronts import FrontPanel, front_figures
from fedbo.figures.layout import PlotError
from fedbo.figures.page.page import render_page
from fedbo.figures.plot import View, figure_of
from fedbo.objectives.base import Array

METRICS = [
    {"name": "f1", "mode": "min", "reference": 140.0},
    {"name": "f2", "mode": "min", "reference": 50.0},
    {"name": "g1", "at_most": 25.0},
    {"name": "g2", "at_least": 7.7},
]


def study(**more: Any) -> dict[str, Any]:
    return {
        "study": {"name": "bowls", "seed": 3},
        "objective": {"name": "bnh", "agents": 2},
        "metric": METRICS,
        "budget": {"iterations": 12},
        "algorithm": [{"name": "random", "label": "first"}, {"name": "random", "label": "second", "queries": 2}],
        **more,
    }


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return fedbo.run(study(), out=tmp_path_factory.mktemp("runs") / "run")


def brute(values: Array) -> list[list[float]]:
    """Give the rows to be minimised that no other one dominates."""
    return sorted(row.tolist() for row in values if not ((values <= row).all(axis=1) & (values < row).any(axis=1)).any())


def test_fronts_are_of_feasible_outcomes_that_no_other_dominates(result: Result) -> None:
    fronts = agent_fronts(result, RunKey(0, "second", 0))
    rows = [row for row in result.observations.to_pylist() if row["algorithm"] == "second"]
    assert [front.agent for front in fronts] == [0, 1, None] and any(not row["feasible"] for row in rows)
    for front in fronts:
        mine = [row for row in rows if row["feasible"] and front.agent in (None, row["agent"])]
        expected = brute(np.array([[row["metric.f1"], row["metric.f2"]] for row in mine]))
        assert sorted(front.values[front.best].tolist()) == expected


def test_no_outcome_is_better_than_the_exact_front_which_is_that_of_the_published_limits_only(
    result: Result, tmp_path: Path
) -> None:
    exact = exact_fronts(result, 0, 0)
    assert set(exact) == {0, 1, None} and np.array_equal(exact[0], exact[None])  # each agent has the published front
    for front in agent_fronts(result, RunKey(0, "first", 0)):
        known = exact[front.agent]
        for row in front.values[front.best]:
            assert ((known <= row + 0.6).all(axis=1)).any()  # 513 points of it are less than this apart
    other = [*METRICS[:2], {"name": "g1", "at_most": 20.0}, METRICS[3]]
    changed = fedbo.run(study(metric=other), out=tmp_path / "changed")
    assert exact_fronts(changed, 0, 0) == {}
    assert "exact front" not in [text.get_text() for text in legend_of(changed)]


def legend_of(found: Result) -> list[Any]:
    figure = figure_of(found, View("fronts"))
    return [text for part in (figure, *figure.subfigs) for legend in part.legends for text in legend.get_texts()]


@pytest.mark.parametrize("signs", [(-1, -1), (-1, 1), (1, -1), (1, 1)])
def test_a_staircase_says_what_is_attained_at_every_place(signs: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    points = rng.random((40, 2))
    kept = np.array([not (((signs * points) >= signs * row).all(axis=1) & (points != row).any(axis=1)).any() for row in points])
    front = points[kept][np.argsort(points[kept][:, 0])]
    figure = FrontPanel(None, ("a", "b"), signs, ((0.0, 1.0), (0.0, 1.0)), True, {}, np.empty((0, 2)))
    places, levels = figure.levels(front).T
    assert (np.diff(places) >= 0.0).all()
    for x in rng.random(50):
        reached = [row[1] for row in points if signs[0] * row[0] >= signs[0] * x]
        step = int(np.searchsorted(places, x, side="right")) - 1
        if reached and step >= 0:
            best = max(reached) if signs[1] > 0 else min(reached)
            assert levels[step] == best


def test_figures_show_the_front_of_every_agent_and_of_all_with_the_exact_one(result: Result) -> None:
    figure = figure_of(result, View("fronts"))
    assert [axes.get_title("left") for axes in figure.axes] == ["All agents", "Agent 0", "Agent 1"]
    assert [text.get_text() for text in legend_of(result)] == ["first", "second", "dominated or infeasible", "exact front"]
    axes = figure.axes[1]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("f2, to minimise", "f1, to minimise")
    assert axes.get_xlim()[1] == 50.0 and axes.get_ylim()[1] == 140.0  # the references
    front = front_figures(result, 0)[1].outcomes["first"][1]
    drawn = [line.get_xydata() for line in axes.lines if line.get_marker() == "o"]
    assert any(np.array_equal(points, front) for points in drawn)
    assert len({(to_hex(line.get_color()), line.get_marker()) for line in axes.lines if line.get_marker() in ("o", "s")}) == 2


def test_the_feasible_share_is_that_of_the_evaluations_so_far(result: Result) -> None:
    rows = [row for row in result.observations.to_pylist() if (row["algorithm"], row["agent"]) == ("first", 1)]
    rows.sort(key=lambda row: row["finished"])
    (trace,) = [one for one in feasible_traces(result, 0) if (one.algorithm, one.agent) == ("first", 1)]
    assert trace.best.tolist() == [np.mean([row["feasible"] for row in rows[: n + 1]]) for n in range(len(rows))]
    figure = figure_of(result, View("feasible"))
    assert [axes.get_title("left") for axes in figure.axes] == [
        "Feasible share against evaluations",
        "Feasible share against time",
    ]


def test_a_report_has_fronts_that_can_be_read_and_hidden(result: Result) -> None:
    page = render_page([result])
    assert "<h2>Hypervolume so far</h2>" in page and "<h2>Fronts</h2>" in page and "<h2>Feasible evaluations</h2>" in page
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    panels = json.loads(found.group(1))["panels"]
    fronts = [panel for key, panel in panels.items() if "-r" in key]
    assert [[one["label"] for one in panel["series"]] for panel in fronts] == [["first", "second", "exact front"]] * 3
    assert all(one["x"] == sorted(one["x"]) for panel in fronts for one in panel["series"])
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    pale = [len(re.findall(r'="s[01]"', one)) for one in drawn if 's2"' in one]
    assert len(pale) == 3 and min(pale) >= 4  # of two algorithms at least what is dominated and the points of the front


def test_studies_of_one_objective_have_no_fronts_and_without_limits_no_feasible_share(tmp_path: Path) -> None:
    plain = fedbo.run(study(metric=[], objective={"name": "quadratic", "agents": 2}), out=tmp_path / "plain")
    with pytest.raises(PlotError, match="no figure 'fronts' of cell 0: the study has one objective; draw the curves"):
        figure_of(plain, View("fronts"))
    with pytest.raises(PlotError, match="no figure 'feasible' of cell 0: the study has no limits; draw the curves"):
        figure_of(plain, View("feasible"))
    with pytest.raises(ResultError, match="no fronts of cell 0: its study has one objective"):
        agent_fronts(plain, RunKey(0, "first", 0))
    assert "<h2>Fronts</h2>" not in render_page([plain])
