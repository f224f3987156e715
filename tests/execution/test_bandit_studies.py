"""Studies whose budget counts evaluations: exact under every trouble, resumed to the byte, and refused where they cannot be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from killing import End, Forks, begin_or_go_on, tables, write_study
from small_runs import modes

import fedbo
from fedbo.execution.replay import replay
from fedbo.study.settings import names_of
from fedbo.study.study import StudyError, load_study

PULLS = 100
STUDY: dict[str, Any] = {
    "study": {"name": "bandits", "seed": 3},
    "objective": {"name": "quadratic", "agents": 6, "noise": 0.01, "dimensions": 1},
    "budget": {"pulls": PULLS},
    "algorithm": [{"name": "fed_pne"}, {"name": "dp_fed_pne", "epsilon": 2.0}],
    "timing": {
        "evaluation": {"model": "lognormal", "mean": 1.0, "sigma": 1.0},
        "latency": {"model": "exponential", "mean": 0.5},
    },
}
FAULTS = [
    {"kind": "crash", "rate": 0.003, "state": "lost", "restart": 5.0},
    {"kind": "loss", "probability": 0.2},
    {"kind": "duplication", "probability": 0.3},
    {"kind": "reordering", "probability": 0.3, "by": 40.0},
]
MODES: list[dict[str, Any]] = [
    {"mode": mode.mode, **{name: getattr(mode, name) for name in names_of(type(mode)) if name in ("k", "length", "late")}}
    for mode in modes(k=3, length=60.0)
]


def totals(table: Any) -> Counter[tuple[str, int]]:
    """The evaluations that count, of each algorithm and agent."""
    found: Counter[tuple[str, int]] = Counter()
    for row in table.select(["algorithm", "agent", "pulls", "error"]).to_pylist():
        if row["error"] != "forgotten in a crash":
            found[row["algorithm"], row["agent"]] += row["pulls"]
    return found


# Every fourth mode, with the policies in turn; the other pairs are left to the long tests.
PAIRS = [
    pytest.param(mode, missing, marks=[] if number % 8 == 4 * place else pytest.mark.long)
    for number, mode in enumerate(MODES)
    for place, missing in enumerate(("flag", "wait"))
]


@pytest.mark.parametrize(("exchange", "missing"), PAIRS, ids=lambda one: one if isinstance(one, str) else one["mode"])
def test_every_client_makes_its_evaluations_under_every_exchange_mode(
    exchange: dict[str, Any], missing: str, tmp_path: Path
) -> None:
    algorithms = [{**table, "missing": missing} for table in STUDY["algorithm"]]
    quiet = {**STUDY, "exchange": exchange, "algorithm": algorithms}
    result = fedbo.run(quiet, out=tmp_path / "quiet")
    assert set(totals(result.observations).values()) == {PULLS} and len(totals(result.observations)) == 12
    plan = [fault for fault in FAULTS if fault["kind"] != "crash"]
    result = fedbo.run({**quiet, "fault": plan}, out=tmp_path / "troubled")
    assert set(totals(result.observations).values()) == {PULLS}


@pytest.mark.parametrize("availability", [{"model": "markov", "present": 100.0, "absent": 60.0, "leaving": "lost"}])
def test_absent_clients_and_crashes_leave_the_budget_exact(availability: dict[str, Any], tmp_path: Path) -> None:
    troubled = {**STUDY, "exchange": MODES[1], "fault": FAULTS, "availability": availability, "agents": {"checkpoint": 4}}
    table = fedbo.run(troubled, out=tmp_path / "run").observations
    made = Counter[tuple[str, int]]()
    for row in table.to_pylist():  # what a crash made an agent forget has been evaluated all the same
        made[row["algorithm"], row["agent"]] += row["pulls"]
    assert set(made.values()) == {PULLS} and len(made) == 12
    assert "forgotten in a crash" in table["error"].to_pylist()


@pytest.mark.long
def test_a_bandit_study_that_is_killed_goes_on_to_the_same_bytes(forks: Forks, tmp_path: Path) -> None:
    study = write_study({**STUDY, "exchange": MODES[2], "fault": FAULTS, "recovery": {"events": 20}}, tmp_path / "study.toml")
    assert forks("run", study, tmp_path / "whole") == End(0, "")
    killed = 0
    for before in (25, 60):
        killed += begin_or_go_on(forks, study, tmp_path / "killed", before=before).killed
    assert killed == 2
    assert begin_or_go_on(forks, study, tmp_path / "killed") == End(0, "")
    assert tables(tmp_path / "killed") == tables(tmp_path / "whole")


def test_a_centralised_algorithm_is_one_agent_on_the_mean_of_all_and_replays(tmp_path: Path) -> None:
    study = {**STUDY, "algorithm": [{"name": "random"}, {"name": "random", "label": "one", "centralised": True}]}
    result = fedbo.run(study, out=tmp_path / "run")
    assert totals(result.observations) == {("one", 0): PULLS} | {("random", agent): PULLS for agent in range(6)}
    assert replay(tmp_path / "run", verify=True).difference is None
    assert load_study(study).problem_of(load_study(study).algorithm[1]).targets == (0,)


def test_points_take_as_long_as_their_pulls(tmp_path: Path) -> None:
    steady = {**STUDY, "algorithm": STUDY["algorithm"][:1], "timing": {"evaluation": {"model": "constant", "mean": 2.0}}}
    for row in fedbo.run(steady, out=tmp_path / "run").observations.to_pylist():
        assert row["finished"] - row["started"] == pytest.approx(2.0 * row["pulls"])


def test_bytes_of_messages_are_those_of_their_numbers(tmp_path: Path) -> None:
    """T4 in a whole run: what is sent is 8 bytes for each mean, and 8 for the number of the phase."""
    result = fedbo.run({**STUDY, "algorithm": STUDY["algorithm"][:1], "exchange": MODES[0]}, out=tmp_path / "run")
    nodes = Counter((row["agent"], row["step"]) for row in result.observations.to_pylist())
    events = result.events.to_pylist()
    sent = {(row["agent"], row["step"]): row["bytes"] for row in events if row["kind"] == "sent"}
    assert sent and all(bytes_ == 8 * nodes[key] + 8 for key, bytes_ in sent.items())
    arrived = {(row["agent"], row["step"]): row["bytes"] for row in events if row["kind"] == "arrived"}
    assert arrived == sent


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"budget": {"iterations": 9}}, r"\[\[algorithm\]\] 1 name = 'fed_pne': requires a budget of evaluations"),
        ({"budget": {"iterations": 9, "pulls": 9}}, r"\[budget\] iterations = 9: cannot be combined with `pulls`"),
        ({"budget": {}}, r"\[budget\] iterations: is missing; add iterations = 50, or pulls"),
        ({"budget": {"pulls": 0}}, r"\[budget\] pulls = 0: must be at least 1"),
        (
            {"budget": {"iterations": 9}, "agents": {"history": {"algorithm": "random", "observations": 3}},
             "algorithm": [{"name": "random", "centralised": True}]},
            r"\[\[algorithm\]\] 1 centralised = true: does not support a history",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        load_study({**STUDY, **change})
