"""The workers of a cluster: `result.placements` agrees with the events, and the timeline has a row for each worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.collections import PolyCollection

from fedbo.execution.runner import run_study
from fedbo.plots.plot import View, figure_of
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
    rows = result.placements.to_pylist()
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
