"""The timeline of a run for Perfetto: all evaluations of a run with a cluster, in threads in which nothing overlaps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.analysis import placements
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.grouping import grouped
from fedbo.commands.export.command import export_to_perfetto
from fedbo.execution.runner import run_study
from fedbo.study.study import load_study

STUDY: dict[str, Any] = {
    "study": {"name": "spot", "seed": 2},
    "objective": {"name": "quadratic", "agents": 3},
    "budget": {"iterations": 8},
    "algorithm": [{"name": "random"}],
    "timing": {"evaluation": {"model": "lognormal"}},
    "evaluation": {"parallel": 2},
    "cluster": {"worker": [{"name": "own", "count": 2}, {"name": "spot", "count": 2, "joins": 1.0, "startup": 0.1}]},
    "availability": {"model": "markov", "present": 3.0, "absent": 1.0},
    "fault": [{"kind": "preemption", "workers": "spot", "rate": 0.3, "duration": 1.0}],
}


def test_a_timeline_for_perfetto_has_all_evaluations_in_threads_in_which_nothing_overlaps(tmp_path: Path) -> None:
    result = run_study(load_study(STUDY), tmp_path / "run")
    count = export_to_perfetto(result, tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = trace["traceEvents"]
    assert len(events) == count and trace["displayTimeUnit"] in ("ms", "ns")
    required = {"X": {"ts", "dur", "cat"}, "i": {"ts", "s"}, "M": {"args"}}  # by phase; name, pid and tid in all
    for event in events:
        assert {"name", "ph", "pid", "tid"} | required[event["ph"]] <= event.keys()
        assert event["ph"] != "i" or event["s"] in ("g", "p", "t")
        assert event.get("ts", 0.0) >= 0.0 and event.get("dur", 0.0) >= 0.0
        assert event["ph"] != "M" or event["name"] in ("process_name", "thread_name", "thread_sort_index")
    bars = [event for event in events if event["ph"] == "X"]
    evaluations = sorted((event["args"]["step"], event["ts"], event["dur"]) for event in bars if event["cat"] == "evaluation")
    rows = result.observations.to_pylist()
    expected = sorted((row["step"], 1e6 * row["started"], 1e6 * (row["finished"] - row["started"])) for row in rows)
    assert np.array(evaluations) == pytest.approx(np.array(expected), abs=0.01)
    assert sum(event["cat"] in ("placed", "preempted") for event in bars) == len(placements(result.events))
    threads = grouped(bars, lambda event: (event["pid"], event["tid"]))
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    for thread, own in threads.items():
        assert thread in named
        own.sort(key=lambda event: event["ts"])
        assert all(one["ts"] + one["dur"] <= other["ts"] + 0.01 for one, other in zip(own, own[1:], strict=False))
    assert {"away", "queueing"} <= {event["name"] for event in bars}
    with pytest.raises(FileExistsError, match="already exists; choose another file"):
        export_to_perfetto(result, tmp_path / "trace.json")
    with pytest.raises(ResultError, match="no replicate 3; choose a number from 0 to 0"):
        export_to_perfetto(result, tmp_path / "other.json", None, 3)
