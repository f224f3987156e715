"""The data of the page that moves through the time of a run."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import document, write_run

from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.finished_run import fault_names
from fedbo.analysis.grouping import one_run
from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.analysis.result import Result
from fedbo.cli import OK, WRONG_INPUT, main
from fedbo.execution.runner import run_study
from fedbo.figures.page import moments_data
from fedbo.figures.page.moments import DOING, FATES, moments_of
from fedbo.figures.page.moments_data import COLOURS, FEW, Shown, moments_part
from fedbo.figures.page.page import render_page
from fedbo.study.study import load_study

BIG = 4_000_000  # bytes of a report with 100 agents and 50 iterations


def data_of(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return dict(json.loads(found))


def searching(agents: int, iterations: int) -> dict[str, Any]:
    """Give the made-up study with methods that have a surrogate."""
    return {
        **document(agents, iterations, 1),
        "algorithm": [{"name": "ts", "label": "Alone"}, {"name": "fts", "label": "Together"}],
    }


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return Result.open(write_run(tmp_path_factory.mktemp("runs") / "run", searching(6, 8), troubled=True))


def test_the_columns_are_those_of_the_run(troubled: Result) -> None:
    found = data_of(render_page([troubled]))["moments"]["r0-c0-t0"]
    traces = [one for one in troubled.traces if (one.algorithm, one.replicate) == ("Together", 0)]
    events = one_run(troubled.events, 0, "Together", 0)
    run = moments_of(events, traces, troubled.metric(0), fault_names(troubled.study))
    assert found["agents"] == list(run.agents) and found["end"] == pytest.approx(run.end)
    assert set(COLOURS) == set(DOING) == set(found["doing"])
    for agent, (times, doing, steps) in zip(run.agents, found["lives"], strict=True):
        own = run.lives[agent]
        assert times == pytest.approx([one.time for one in own], rel=1e-4) and steps == [one.step for one in own]
        assert [found["doing"][each] for each in doing] == [one.doing for one in own]
    sent = found["sent"]
    assert [found["agents"][row] for row in sent["agent"]] == [one.agent for one in run.transmissions]
    assert [FATES[fate] for fate in sent["fate"]] == [one.fate for one in run.transmissions]
    assert [found["words"][why] for why in sent["why"]] == [one.why for one in run.transmissions]
    assert "partition" in found["words"]
    assert len(found["log"]["time"]) == len(run.log) and found["log"]["time"] == sorted(found["log"]["time"])
    assert found["ticks"] == pytest.approx(run.ticks, rel=1e-4)
    for agent, (times, _, values) in zip(run.agents, found["bests"], strict=True):
        assert len(times) == len(run.bests[agent]) and values == pytest.approx(
            [one.value for one in run.bests[agent]], rel=1e-3
        )


def test_maps_of_beliefs_are_bytes_between_their_ends(troubled: Result) -> None:
    found = data_of(render_page([troubled]))["moments"]["r0-c0-t0"]
    assert found["beliefs"] and [one["name"] for one in found["inputs"]] == ["C", "gamma"]
    for belief in found["beliefs"].values():
        assert belief["name"] == "posterior draw" and 1 <= len(belief["moments"]) <= 12
        for one in belief["moments"]:
            assert one["count"] == len(one["values"]) <= len(belief["points"])
            for drawn in one["maps"]:
                shares = np.frombuffer(base64.b64decode(drawn["bytes"]), np.uint8)
                assert len(shares) == drawn["side"] ** 2 and (shares.min(), shares.max()) == (0, 255)


def test_a_belief_of_one_input_has_its_numbers(tmp_path: Path) -> None:
    study = {**searching(2, 2), "objective": {"name": "double_sine", "agents": 2}, "algorithm": [{"name": "gp_ei"}]}
    result = run_study(load_study(study), tmp_path / "run")
    (found,) = data_of(render_page([result]))["moments"].values()
    mean, spread, acquisition = found["beliefs"]["0"]["moments"][0]["maps"]
    assert len(mean["values"]) == len(spread["values"]) == len(acquisition["values"]) == mean["side"]
    assert min(spread["values"]) >= 0 and found["beliefs"]["0"]["name"] == "expected improvement"


def test_a_private_run_shows_no_values_of_single_agents(troubled: Result) -> None:
    part = moments_part(troubled, RunKey(0, "Together", 0), Shown(agents=False))
    assert part.data is not None
    assert (
        all(own == [[], [], []] for own in part.data["bests"])
        and part.data["beliefs"] == {}
        and "private" in part.data["without"]
    )
    assert part.data["sent"]["agent"] == [] and {one[4] for one in part.data["rounds"]} == {"withheld"}
    kinds = {part.data["sentences"][kind] for kind in part.data["log"]["kind"]}
    assert (
        not any(word in sentence for sentence in kinds for word in ("message", "answer", "failed")) and "starts step #" in kinds
    )
    manifest = {**troubled.manifest, "reveals": {"Together": "noisy sums"}}
    private = Result(troubled.directory, troubled.study, manifest)
    (found,) = data_of(render_page([private]))["moments"].values()
    assert all(own == [[], [], []] for own in found["bests"]) and found["beliefs"] == {}
    (asked,) = data_of(render_page([private], agents=True))["moments"].values()
    assert asked["beliefs"] and any(own[2] for own in asked["bests"])


def test_of_many_agents_four_have_beliefs_unless_others_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", searching(10, 2))
    (found,) = data_of(render_page([Result.open(folder)]))["moments"].values()
    assert 2 <= len(found["beliefs"]) <= 4 and "fedbo report RUN --belief AGENT" in found["without"]
    assert main(["report", str(folder), "--belief", "3", "--belief", "5"]) == OK
    (found,) = data_of((folder / "report.html").read_text())["moments"].values()
    assert set(found["beliefs"]) == {"3", "5"}
    assert main(["report", str(folder), "--belief", "77"]) == WRONG_INPUT
    assert "no such agent; choose from 0 to 9" in capsys.readouterr().err
    write_manifest(folder, {**read_manifest(folder), "reveals": {"Together": "noisy sums"}})
    assert main(["report", str(folder), "--belief", "3"]) == WRONG_INPUT
    assert "is private; add --agents" in capsys.readouterr().err


def test_a_method_without_such_a_surrogate_has_best_values_alone(tmp_path: Path) -> None:
    result = Result.open(write_run(tmp_path / "run", document(3, 2, 1)))
    (found,) = data_of(render_page([result]))["moments"].values()
    assert found["beliefs"] == {} and "the surrogate of random cannot be computed anew" in found["without"]
    assert all(own[2] for own in found["bests"])


def test_a_run_of_too_many_events_says_so(troubled: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbo.figures.page.page.MOST", 10)
    page = render_page([troubled])
    assert data_of(page)["moments"] == {} and "too many to move through its time" in page
    assert moments_data.MOST > 10


@pytest.mark.long
def test_several_runs_have_beliefs_only_if_they_are_asked_for(troubled: Result, tmp_path: Path) -> None:
    other = Result.open(write_run(tmp_path / "run", searching(2, 2)))
    one, two = data_of(render_page([other, troubled]))["moments"].values()
    assert one["beliefs"] == two["beliefs"] == {}
    one, two = data_of(render_page([other, troubled], beliefs=[1]))["moments"].values()
    assert set(one["beliefs"]) == set(two["beliefs"]) == {"1"}


def test_a_sweep_can_be_moved_through_in_every_cell(tmp_path: Path) -> None:
    study = document(agents=2, iterations=2, objective__alpha=[0.1, 0.3])
    page = render_page([Result.open(write_run(tmp_path / "run", study))])
    assert set(data_of(page)["moments"]) == {"r0-c0-t0", "r0-c1-t0"}


@pytest.mark.long
def test_a_hundred_agents_of_fifty_iterations_fit_into_four_megabytes(tmp_path: Path) -> None:
    result = Result.open(write_run(tmp_path / "run", searching(100, 50), troubled=True))
    page = render_page([result])
    (found,) = data_of(page)["moments"].values()
    assert len(found["agents"]) == 100 and len(found["log"]["time"]) > 20_000
    belief = max(len(json.dumps(one)) for one in found["beliefs"].values())
    assert len(page.encode()) + FEW * belief < BIG
