"""The workers of a cluster: `fedbo.analysis.placements` agrees with the events, and the timeline has a row for each worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from fedbo.analysis import placements, trouble, trouble_by_agent
from fedbo.analysis.result import Result
from fedbo.analysis.timeline_bars import EVALUATION_KINDS, evaluation_bars
from fedbo.execution.runner import run_study
from fedbo.figures.marks import add_bars
from fedbo.figures.plot import View, figure_of
from fedbo.study.study import load_study

STUDY: dict[str, Any] = {
    "study": {"name": "spot", "seed": 2},
    "objective": {"name": "quadratic", "agents": 3},
    "budget": {"iterations": 8},
    "algorithm": [{"name": "random"}],
    "timing": {"evaluation": {"model": "lognormal"}},
    "evaluation": {"parallel": 2},
    "cluster": {"worker": [{"name": "own", "count": 2}, {"name": "spot", "count": 2, "joins": 1.0, "startup": 0.1}]},
    "fault": [{"kind": "preemption", "workers": "spot", "rate": 0.3, "duration": 1.0}],
}


def test_placements_and_the_rows_of_workers_are_what_happened(tmp_path: Path) -> None:
    result = run_study(load_study(STUDY), tmp_path / "run")
    rows = placements(result.events).to_pylist()
    counts = {kind: result.events["kind"].to_pylist().count(kind) for kind in ("placed", "preempted", "worker_preempted")}
    assert len(rows) == counts["placed"] and sum(row["preempted"] for row in rows) == counts["preempted"] > 0
    assert all(row["queued_at"] <= row["started_at"] <= row["ended_at"] for row in rows)
    ended = {(row["agent"], row["step"], row["query"]): row["ended_at"] for row in rows if not row["preempted"]}
    for row in result.observations.to_pylist():
        assert ended[row["agent"], row["step"], row["query"]] == row["finished"]
    for worker in range(4):  # of one CPU each
        spans = sorted((row["started_at"], row["ended_at"]) for row in rows if row["worker"] == worker)
        assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))
    figure = figure_of(result, View("timeline"))
    assert len(figure.axes) == 2
    below = figure.axes[1]
    assert [label.get_text() for label in below.get_yticklabels()] == ["own 0", "own 1", "spot 2", "spot 3"]
    words = [text.get_text() for text in below.get_legend().get_texts()]
    assert words == ["empty", "evaluation", "stopped by a preemption", "away", "an evaluation waits"]
    drawn = sum(len(one.get_paths()) for one in below.collections if isinstance(one, PolyCollection))
    assert drawn >= 4 + len(rows)
    _overlapping_evaluations_are_in_lanes(result)
    _queueing_is_no_decision(result)


def _overlapping_evaluations_are_in_lanes(result: Result) -> None:
    """Two evaluations of each agent run at once: all are drawn, and no bars of evaluations cover each other."""
    kinds, lanes = evaluation_bars(result.observations, result.events, {agent: agent for agent in range(3)})
    assert lanes == 2
    spans = sorted(bar for kind in EVALUATION_KINDS for bar in kinds[kind])
    assert len(spans) == len(result.observations) and {round(row) for row, _, _ in spans} == {0, 1, 2}
    assert all(end <= begin for (row, _, end), (other, begin, _) in zip(spans, spans[1:], strict=False) if row == other)


def _queueing_is_no_decision(result: Result) -> None:
    """Decisions take no time here: what no evaluation covers is queueing for workers, or work that a preemption stopped."""
    kinds, _ = evaluation_bars(result.observations, result.events, {agent: agent for agent in range(3)})
    assert kinds["deciding"] == [] and kinds["queueing"] and kinds["work lost"]
    time = figure_of(result, View("trouble", panels=["time"])).axes[0]
    assert "queueing" in [text.get_text() for text in time.get_legend().get_texts()]
    rows = trouble(result)
    total = sum(getattr(rows[0], state) for state in ("evaluating", "queueing", "waiting", "away", "down"))
    queueing = sum(end - begin for _, begin, end in kinds["queueing"]) / 3
    widths = [patch.get_width() for patch in time.patches]
    assert widths[4] == pytest.approx(100 * queueing / total) and rows[0].queueing == pytest.approx(queueing)
    lost = sum(end - begin for _, begin, end in kinds["work lost"]) / 3
    assert rows[0].lost_to_preemption == pytest.approx(lost) and widths[2] == pytest.approx(100 * lost / total)


def test_short_bars_have_no_edges_and_no_seams(tmp_path: Path) -> None:
    axes = Figure(figsize=(4, 2), dpi=100).subplots()
    axes.set_xlim(0, 1000)
    bars = [(0.0, float(at), at + 1.0) for at in range(0, 600)] + [(0.0, 700.0, 900.0), (1.0, 0.0, 1.0)]
    add_bars(axes, bars, 0.36, facecolor="blue", edgecolor="white", linewidth=0.5)
    long, short = axes.collections
    assert len(long.get_paths()) == 1 and long.get_edgecolor().tolist() == [[1.0, 1.0, 1.0, 1.0]]
    assert len(short.get_paths()) == 2 and not len(short.get_edgecolor())  # 600 that touch are one
    assert short.get_paths()[0].get_extents().width == pytest.approx(600)


def test_an_agent_that_crashes_before_it_begins_has_waited_for_no_worker(tmp_path: Path) -> None:
    crashed = {"fault": [{"kind": "crash", "agents": [1], "at": 0.0}]}
    result = run_study(load_study(STUDY | crashed), tmp_path / "run")
    assert set(result.observations["agent"].to_pylist()) == {0, 2}
    waited = {row.agent: row.queueing for row in trouble_by_agent(result)}
    assert waited[1] == 0.0 and max(waited.values()) > 0.0
