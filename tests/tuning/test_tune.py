"""`fedbo.tune`: typed spaces at several sites in real time, evaluations that overlap, early ends, failures, kills, results."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import tuned_functions
from tuned_functions import SPACE

import fedbo
from fedbo.cli import main
from fedbo.execution.notices import Evaluation
from fedbo.execution.replay import replay
from fedbo.tuning.tune import tuning_study

HERE = Path(__file__).parent


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session", "undrawn")
def test_sites_tune_together_and_leave_what_a_simulation_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Evaluation] = []
    out = tmp_path / "run"
    # Three evaluations at once on four processors: two of one site always overlap, in one process less than four would need.
    result = fedbo.tune(
        tuned_functions.meeting, SPACE, 2, iterations=6, parallel=2, metric="loss", mode="min", resources={"CPU": 1.3},
        callbacks=[seen.append], out=out, algorithm={"name": "fts", "p": 0.5},
    )  # fmt: skip
    rows = result.observations.to_pylist()
    keys = [(row["agent"], row["step"], row["query"]) for row in rows]
    assert len(keys) == len(set(keys)) == 2 * (3 + 6), "an evaluation was lost or doubled"
    assert {row["agent"]: row["t_n"] for row in sorted(rows, key=lambda row: row["t_n"])} == {0: 9, 1: 9}
    assert sorted((one.agent, one.number) for one in seen) == [(agent, n) for agent in (0, 1) for n in range(9)]
    best = result.best()[0]
    assert set(best["configuration"]) == set(SPACE) and best["value"] == min(one.value for one in seen if one.value is not None)
    mine = sorted((one for one in seen if one.agent == 0), key=lambda one: one.started)
    assert any(b.started < a.finished for a, b in zip(mine, mine[1:], strict=False)), "none overlapped"
    assert all(one.metrics["seconds"] == 0.05 and one.metrics["loss"] == one.value for one in seen)
    assert json.loads(pq.read_table(out / "evaluations.parquet")["metrics"][0].as_py())["seconds"] == 0.05
    assert main(["show", str(out)]) == 0
    assert "loss" in capsys.readouterr().out
    assert result.plot(kind="overview").is_file()
    assert replay(out, verify=True, trust=True).same
    assert not [path for path in out.rglob("*") if path.suffix in (".pkl", ".pickle")]


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_what_is_prefetched_waits_until_another_evaluation_of_its_agent_has_ended(tmp_path: Path) -> None:
    result = fedbo.tune(
        tuned_functions.alone, SPACE, 2, iterations=6, prefetch=2, metric="loss", mode="min", resources={"CPU": 0.5},
        out=tmp_path / "run", algorithm="ts",
    )  # fmt: skip
    assert len(result.observations) == 2 * (3 + 6)
    assert result.observations["error"].null_count == 2 * (3 + 6)
    assert replay(tmp_path / "run", verify=True, trust=True).same


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("name", ["share_best"])
def test_a_method_that_sends_points_tunes_with_evaluations_under_way(name: str, tmp_path: Path) -> None:
    result = fedbo.tune(
        tuned_functions.loss, SPACE, 2, iterations=4, parallel=2, metric="loss", mode="min", resources={"CPU": 0.5},
        out=tmp_path / "run", algorithm={"name": name, "every": 1},
    )  # fmt: skip
    assert result.observations.num_rows == 2 * (3 + 4)
    assert not any(result.observations["error"].to_pylist())


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_target_and_a_callback_end_a_study_that_then_counts_as_complete(tmp_path: Path) -> None:
    result = fedbo.tune(tuned_functions.waiting, SPACE, 2, iterations=500, parallel=2, target=-8.0, out=tmp_path / "target")
    assert result.manifest["status"] == "complete"
    assert result.best()[0]["value"] >= -8.0
    assert result.observations.num_rows < 200
    count = 0

    def enough(one: Evaluation) -> bool:
        nonlocal count
        count += 1
        return count >= 5

    result = fedbo.tune(
        lambda config: config["n"], SPACE, iterations=5000, callbacks=[enough], out=tmp_path / "call", parallel=2
    )
    assert 5 <= result.observations.num_rows < 5000
    assert count == result.observations.num_rows


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_whatever_fails_hangs_or_dies_is_an_entry_and_the_study_goes_on(tmp_path: Path) -> None:
    result = fedbo.tune(
        tuned_functions.moody, SPACE, iterations=12, initial=6, parallel=4, time_limit=1.0, retries=1, algorithm="random",
        out=tmp_path / "run", resources={"CPU": 0.5}, seed=1,
    )  # fmt: skip
    rows = result.observations.to_pylist()
    errors = " ".join(row["error"] or "" for row in rows)
    for words in ("not this kind", "took longer than time_limit = 1", "process ended with code 3"):
        assert words in errors
    failed = sum(row["error"] is not None for row in rows)
    assert len(rows) == 18 + failed // 2, "each that failed was tried once more"


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_resources_that_no_machine_has_are_refused_at_once() -> None:
    """Before anything is evaluated; that `fedbo.tune` ends with it takes some processes, and is left to the long tests."""
    from fedbo.workers import ray_pool

    for wanted, words in (({"GPU": 64.0}, "GPU = 64"), ({"CPU": 0.5, "tape": 1.0}, "CPU = 0.5, tape = 1")):
        with pytest.raises(ValueError, match=rf"agent 0: \[evaluation\] resources {words}: no host of the Ray cluster"):
            ray_pool._check(0, wanted, ray_pool._options(wanted))
    ray_pool._check(0, {"CPU": 0.5}, ray_pool._options({"CPU": 0.5}))


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_study_whose_resources_no_machine_has_ends_with_that(tmp_path: Path) -> None:
    with pytest.raises(fedbo.errors.RunError, match=r"agent 0: \[evaluation\] resources GPU = 64: no host of the Ray cluster"):
        fedbo.tune(tuned_functions.loss, SPACE, resources={"GPU": 64}, metric="loss", out=tmp_path / "run")


KILLED = """
import sys
sys.path.insert(0, {here!r})
import fedbo, tuned_functions
fedbo.tune(tuned_functions.slow, tuned_functions.SPACE, 2, iterations=8, parallel=2, algorithm="ts", out={out!r}, resume=True,
           resources={{"CPU": 0.3}})
"""


@pytest.mark.ray
@pytest.mark.long
def test_after_a_kill_no_reported_evaluation_is_lost_or_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, calls = tmp_path / "run", tmp_path / "calls"
    monkeypatch.setenv("FEDBO_CALLS", str(calls))
    code = KILLED.format(here=str(HERE), out=str(out))
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    logs: list[str] = []
    until = time.monotonic() + 120
    while len(logs) < 6 and time.monotonic() < until:
        time.sleep(0.1)
        logs = [line for path in out.glob("parts/*/log-*.jsonl") for line in path.read_text().splitlines()]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(3)  # what it had started notices
    logs = [line for path in out.glob("parts/*/log-*.jsonl") for line in path.read_text().splitlines()]
    lines = [json.JSONDecoder().raw_decode(line)[0] for line in logs]  # the sum of each line follows it
    reported = {(line[0], line[1]): line[3] for line in lines}
    assert len(reported) == len(logs) >= 6
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)
    result = fedbo.Result.open(out)
    made = pq.read_table(out / "evaluations.parquet").to_pylist()
    assert len(made) == len({(row["agent"], row["number"]) for row in made}) == result.observations.num_rows == 22
    assert {(row["agent"], row["number"]): row["value"] for row in made}.items() >= reported.items()


def five_sites(page: str) -> str:
    """Return the example of five sites on a page."""
    text = (HERE.parents[1] / page).read_text(encoding="utf-8")
    found = re.search(r"<!-- example: five sites -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_readme_and_the_page_have_the_same_example() -> None:
    assert five_sites("README.md") == five_sites("docs/tuning.md")


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_the_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = five_sites("README.md")
    small = code.replace("iterations=10", "iterations=1, initial=1").replace("(5, 40)", "(5, 8)")
    assert small != code
    exec(compile(small, "five_sites.py", "exec"), {"__name__": "__main__"})
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("<Result 'tuning' (complete)")
    assert "learning_rate=" in told[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "least"}, "mode = 'least': must be 'min' or 'max'"),
        ({"parallel": 2, "algorithm": "gp_ts"}, "cannot choose a point while others are pending; set parallel=1"),
        ({"prefetch": 2, "algorithm": "gp_ts"}, "cannot choose a point while others are pending; set prefetch=0"),
        ({"prefetch": -1}, "^prefetch = -1: must be a whole number, at least 0"),
        ({"resources": [{"CPU": 1}] * 3}, "^resources: must be one table for all agents, or one table for each of 2"),
        ({"resources": {"CPU": -1.0}}, r"^resources\['CPU'\] = -1.0: must be at least 0"),
        ({"study": {"timing": {"clock": "virtual"}}}, r"require workers; add a \[cluster\]"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tuning_study(tuned_functions.loss, SPACE, 2, options)


def test_an_unknown_argument_is_refused_with_those_there_are() -> None:
    wrong: Any = {"iteration": 3}
    with pytest.raises(fedbo.errors.ArgumentError, match="has no argument 'iteration'; did you mean 'iterations'?"):
        fedbo.tune(tuned_functions.loss, SPACE, **wrong)


@pytest.mark.parametrize(
    ("agents", "more", "wanted"),
    [
        (1, {}, {"name": "gp_ei"}),
        (3, {}, {"name": "trust_best", "pay": 0.25, "turn": 1}),
        (3, {"metrics": [{"name": "loss", "mode": "min"}, {"name": "size", "at_most": 1.0}]}, {"name": "fts", "every": 1}),
        (3, {"algorithm": "ts"}, {"name": "ts"}),
    ],
)
def test_an_algorithm_suits_the_number_of_agents_and_of_metrics(agents: int, more: Any, wanted: dict[str, Any]) -> None:
    (table,) = tuning_study(tuned_functions.meeting, SPACE, agents, {"mode": "min", "metric": "loss", **more}).document()[
        "algorithm"
    ]
    assert table | wanted == table


def test_a_tuning_that_found_no_cluster_goes_on_with_another_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"iterations": 2, "out": str(tmp_path / "run"), "address": "127.0.0.1:1"}

    def tuned(**more: Any) -> None:
        fedbo.tune(tuned_functions.slow, SPACE, **{**given, **more})

    with pytest.raises(fedbo.errors.RunError, match=r"no Ray cluster at '127.0.0.1:1'"):
        tuned()
    with pytest.raises(fedbo.errors.DirectoryError, match="contains an unfinished run; add resume=True, or choose another"):
        tuned()
    with pytest.raises(fedbo.errors.RunError, match=r"no Ray cluster at '127.0.0.1:2'"):
        tuned(resume=True, address="127.0.0.1:2")
