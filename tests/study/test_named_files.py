"""Every file that a study names has an effect or is refused, also one whose ids, columns or rows match nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.execution.failures import RunError
from fedbo.settings.errors import SettingError
from fedbo.study import files
from fedbo.study.document import with_value
from fedbo.study.settings import StudyError

Rows = list[dict[str, Any]]
STUDY: dict[str, Any] = {
    "study": {"name": "named"},
    "objective": {"name": "quadratic", "agents": 4},
    "agents": {"initial": 1},
    "budget": {"iterations": 4},
    "algorithm": [{"name": "share_best"}],
    "exchange": {"mode": "barrier"},
}
IDS = (100, 200)
TIMES: Rows = [{"agent": agent, "duration": length} for agent, length in zip(IDS, (0.3, 0.7), strict=True)]
PRESENT: Rows = [{"agent": agent, "start": start, "end": start + 2.0} for agent in IDS for start in (1.0, 5.0, 900.0)]
POINTS: Rows = [
    {"agent": agent, "replicate": 0, "point": 0, "x1": 0.1 * number, "x2": 0.9}
    for number, agent in enumerate((100, 200, 300, 400))
]
SEEN: Rows = [{"agent": agent, "replicate": 0, "x1": 0.1, "x2": 0.2, "value": 1.0} for agent in IDS]
JOBS: Rows = [{"submit": start, "start": start, "end": start + 3.0, "cores": 1} for start in (0.0, 0.0, 1.0, 2.0)]
CAPACITIES = {str(agent): {"computation": 50.0 * agent, "communication": 10.0} for agent in IDS}
CLIENTS = {str(agent): {"active": [1, 6], "inactive": [3, 8], "finish_time": 9} for agent in IDS}
WARM = {("agents", "history", "warm_start"): True}
FEDSCALE = {("availability", "model"): "trace", ("availability", "format"): "fedscale"}
Case = tuple[tuple[str, ...], Any, Mapping[tuple[str, ...], Any]]
READERS: dict[str, Case] = {
    "presences": (("availability", "file"), PRESENT, {("availability", "model"): "trace"}),
    "presences, FedScale": (("availability", "file"), CLIENTS, FEDSCALE),
    "durations": (("timing", "evaluation", "file"), TIMES, {("timing", "evaluation", "model"): "empirical"}),
    "latencies": (("timing", "latency", "file"), TIMES, {("timing", "latency", "model"): "empirical"}),
    "background": (("cluster", "background", "file"), JOBS, {("cluster", "worker"): [{"name": "one", "count": 2}]}),
    "devices": (("timing", "devices"), CAPACITIES, {("timing", "evaluation", "model"): "constant"}),
    "initial points": (("agents", "initial_file"), POINTS, {}),
    "history": (("agents", "history", "file"), SEEN, WARM),
}
# What becomes of a file whose ids are not agents: those that count agents by the order of ids have an effect.
REFUSED = {"initial points", "history"}


def written(folder: Path, content: Any) -> str:
    path = folder / ("file.json" if isinstance(content, dict) else "file.csv")
    names = [] if isinstance(content, dict) else list(content[0])
    lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in content)] if names else []
    path.write_text(json.dumps(content) if isinstance(content, dict) else "\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def study_with(case: Case, folder: Path, content: Any) -> dict[str, Any]:
    place, _, others = case
    document: Any = STUDY
    for loc, value in {**others, place: written(folder, content)}.items():
        document = with_value(document, loc, value)
    return dict(document)


def times(document: Mapping[str, Any], out: Path) -> list[Any]:
    """Run a study; return when its agents evaluated which points, and how often they reported."""
    result = fedbo.run(document, out=str(out), progress=False)
    return [result.observations.select(["agent", "phase", "started", "finished", "u"]).to_pylist(), len(result.events)]


def test_every_place_of_a_file_has_a_case() -> None:
    named = {place for place in files._PLACES if place[-1] != "run"}
    assert named == {place for place, _, _ in READERS.values()}


@pytest.mark.parametrize("name", READERS)
def test_a_file_whose_ids_are_no_agents_has_an_effect_or_is_refused(name: str, tmp_path: Path) -> None:
    case = READERS[name]
    document = study_with(case, tmp_path, case[1])
    if name in REFUSED:
        with pytest.raises((StudyError, RunError), match="(100|agent 0, replicate 0)"):
            times(document, tmp_path / "run")
        return
    assert times(document, tmp_path / "run") != times(STUDY, tmp_path / "without")


@pytest.mark.parametrize("name", READERS)
def test_a_file_without_the_columns_that_are_read_is_refused(name: str, tmp_path: Path) -> None:
    case = READERS[name]
    content = case[1]
    if isinstance(content, dict):
        wrong: Any = {agent: {f"{key}s": value for key, value in one.items()} for agent, one in content.items()}
    else:
        wrong = [{f"{key}s": value for key, value in row.items()} for row in content]
    with pytest.raises((StudyError, RunError, SettingError), match="(has columns|is incomplete|has computation)"):
        times(study_with(case, tmp_path, wrong), tmp_path / "run")


@pytest.mark.parametrize("name", ["initial points", "history"])
def test_a_file_whose_rows_belong_to_other_replicates_is_refused(name: str, tmp_path: Path) -> None:
    case = READERS[name]
    rows = [{**row, "agent": number % 4, "replicate": 7} for number, row in enumerate(case[1])]
    with pytest.raises((StudyError, RunError), match="replicate 0"):
        times(study_with(case, tmp_path, rows), tmp_path / "run")


def test_a_column_of_ids_that_is_named_must_be_in_the_file(tmp_path: Path) -> None:
    place, rows, others = READERS["durations"]
    case = (place, rows, {**others, ("timing", "evaluation", "by"): "site"})
    with pytest.raises((StudyError, RunError), match="it must have duration and site"):
        times(study_with(case, tmp_path, rows), tmp_path / "run")
