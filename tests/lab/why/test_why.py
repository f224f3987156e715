"""Why a run ended badly: planted causes, what a branch costs, interruptions, refusals, and the command."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planted import WORLDS, Planted
from typer.testing import CliRunner

import fedbo
from fedbo.actors.evaluation.step import StepEvaluator
from fedbo.actors.storage.rows import RunKey
from fedbo.cli import app, main
from fedbo.lab.why.branches import Branch, Branches, event_times
from fedbo.lab.why.figure import why_section
from fedbo.lab.why.question import Question
from fedbo.lab.why.redraw import EVERY
from fedbo.lab.why.result import JumpRow, Why
from fedbo.lab.why.why import repeat_branch, resume_why, why_run
from fedbo.settings.errors import ArgumentError
from fedbo.study.paths import DirectoryError

BY_NAME = {world.name: world for world in WORLDS}
SMALL: dict[str, Any] = {
    "study": {"name": "small", "seed": 3, "replicates": 4},
    "objective": {"name": "quadratic", "agents": 2},
    "budget": {"iterations": 2},
    "algorithm": [{"name": "random"}],
    "timing": {"evaluation": {"model": "pareto", "mean": 1.0, "alpha": 1.5}},
}
END = "end > 4"


def is_found(world: Planted, folder: Path, budget: int = 150) -> bool:
    fedbo.run(world.study, out=folder / "run")
    answer = fedbo.why(folder / "run", world.end, budget=budget)
    assert answer.branches <= budget
    return world.cause in answer.causes[:2]


@pytest.mark.long
@pytest.mark.parametrize("name", ["crash before the first message", "agent 1 is last", "bad initial points"])
def test_a_planted_cause_is_named_among_the_first_two(name: str, tmp_path: Path) -> None:
    assert is_found(BY_NAME[name], tmp_path, 70)


@pytest.mark.long
def test_planted_causes_are_named_among_the_first_two(tmp_path: Path) -> None:
    assert len(WORLDS) == 20
    found = {world.name: is_found(world, tmp_path / str(place)) for place, world in enumerate(WORLDS)}
    assert sum(found.values()) >= 19, found


@pytest.mark.long
def test_a_crash_is_the_event_of_the_largest_jump(tmp_path: Path) -> None:
    fedbo.run(BY_NAME["hang"].study, out=tmp_path / "run")
    answer = fedbo.why(tmp_path / "run", "end > 15", budget=80)
    assert any("hung" in event for event in answer.jumps[0].events)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("why") / "run"
    fedbo.run(SMALL, out=folder)
    return folder


def printed(*words: str) -> str:
    found = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


@pytest.fixture(scope="module")
def facts(run: Path) -> dict[str, Any]:
    """What the command prints of an answer."""
    said: dict[str, Any] = json.loads(
        printed("why", str(run), "--end", END, "--budget", "40", "--rows", "8", "--format", "json", "-q")
    )
    return said


@pytest.fixture(scope="module")
def answer(facts: dict[str, Any]) -> Why:
    return Why.open(facts["directory"])


def test_a_branch_evaluates_no_more_than_the_rest_of_its_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, manifest = fedbo.load_study(run / "study.toml"), fedbo.Result.open(run).manifest
    branches = Branches(run, tmp_path, study, manifest, 0, "random")
    original = branches.original(0).tables
    times = event_times(original)
    time = times[2 * len(times) // 3]
    branches.tables(Branch(0, time, ()))  # grows the trunk
    made, single = [], StepEvaluator.single
    monkeypatch.setattr(StepEvaluator, "single", lambda self, query: (made.append(query), single(self, query))[1])
    for number in range(3):
        made.clear()
        tables = branches.tables(Branch(0, time, ((*EVERY, str(number)),)))
        rest = sum(finished >= time for finished in tables.observations["finished"].to_pylist())
        assert len(made) == rest < len(original.observations)


@pytest.mark.long
def test_an_interrupted_answer_goes_on_to_the_same_answer(
    run: Path, answer: Why, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, carried_out, count = tmp_path / "answer", Branches.carried_out, [0]

    def interrupted(self: Branches, branch: Branch, folder: Path) -> Any:
        count[0] += 1
        if count[0] == 25:
            raise KeyboardInterrupt
        return carried_out(self, branch, folder)

    monkeypatch.setattr(Branches, "carried_out", interrupted)
    with pytest.raises(KeyboardInterrupt) as stop:
        why_run(run, Question(END, budget=40, rows=8), place)
    assert stop.value.args == (place,)
    with pytest.raises(fedbo.errors.ResultError, match="continue with: fedbo resume"):
        Why.open(place)
    with (place / "branches.jsonl").open("a") as journal:
        journal.write('[0, 1.0, [["", nu')  # a line that a kill cut off
    whole = resume_why(place)
    assert count[0] == 25 + (answer.branches - 24)
    assert [getattr(whole, name) for name in ("moments", "sources", "jumps", "agents")] == [
        getattr(answer, name) for name in ("moments", "sources", "jumps", "agents")
    ]
    assert repr(whole.spread) == repr(answer.spread)
    assert Why.open(place).moments == whole.moments


@pytest.mark.long
def test_a_larger_budget_goes_on_from_the_branches_there_are(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, carried_out, made = tmp_path / "answer", Branches.carried_out, list[Branch]()
    first = why_run(run, Question(END, budget=40), place)

    def noted(self: Branches, branch: Branch, folder: Path) -> Any:
        made.append(branch)
        return carried_out(self, branch, folder)

    monkeypatch.setattr(Branches, "carried_out", noted)
    second = why_run(run, Question(END, budget=60), place)
    assert first.branches <= 40 < second.branches <= 60
    assert len(made) < second.branches
    with pytest.raises(DirectoryError, match="contains another question"):
        why_run(run, Question("end > 5"), place)


def test_a_branch_is_repeated_as_a_run(run: Path, answer: Why, tmp_path: Path) -> None:
    line = json.loads((answer.directory / "branches.jsonl").read_text().splitlines()[11])
    place = repeat_branch(answer.directory, 12, tmp_path / "branch")
    found = fedbo.Result.open(place)
    assert max(found.observations["finished"].to_pylist()) == line[3]
    assert f'"{END}" of ' in repr(answer) and f"{answer.branches} branches, first {answer.causes[0]}" in repr(answer)
    assert {trace.replicate for trace in found.traces} == {line[0]}
    with pytest.raises(ArgumentError, match="must be one of the"):
        repeat_branch(answer.directory, 10_000)


def test_wrong_questions_are_refused(run: Path, tmp_path: Path) -> None:
    def refused(words: str, **asked: Any) -> None:
        with pytest.raises(ValueError, match=words):
            fedbo.why(run, out=tmp_path / "none", **asked)

    refused("no run of 'random' ended so", end="end > 1000")
    refused("must be at least 40 branches", end=END, budget=3)
    refused("must be one of", end=END, replicate=9)
    refused("must be from 0 to 0", end=END, cell=2)
    refused("no algorithm 'ts'", end=END, algorithm="ts")
    refused("must name a target of the run", end="agent 8 last")
    assert not (tmp_path / "none").exists()


def test_a_run_of_several_algorithms_needs_the_name_of_one(tmp_path: Path) -> None:
    fedbo.run({**SMALL, "algorithm": [{"name": "random"}, {"name": "ts"}]}, out=tmp_path / "two")
    with pytest.raises(ArgumentError, match="algorithm: is missing; choose one of the run's: 'random', 'ts'"):
        fedbo.why(tmp_path / "two", END)


def test_runs_that_cannot_be_asked_say_so_and_offer_a_twin(tmp_path: Path) -> None:
    private = {
        **SMALL,
        "study": {"name": "secret"},
        "algorithm": [{"name": "dp_fts_de"}],
        "exchange": {"mode": "barrier"},
        "privacy": {"secure_noise": True},
    }
    fedbo.run(private, out=tmp_path / "secret")
    with pytest.raises(DirectoryError, match="used secure noise, whose key was deleted; .*fedbo twin"):
        fedbo.why(tmp_path / "secret", "epsilon > 0")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DirectoryError, match="is not a run directory"):
        fedbo.why(tmp_path / "nothing", END)


def test_the_command_prints_plots_and_reports_an_answer(run: Path, answer: Why, facts: dict[str, Any], tmp_path: Path) -> None:
    shown = printed("show", str(answer.directory))
    for words in ("When was it decided?", "Which luck was it?", "Shares of the spread", "--branch N"):
        assert words in shown
    assert facts["causes"][0] == answer.causes[0]
    assert len(facts["commands"]) == facts["branches"] == answer.branches
    assert Path(facts["figures"][0]).is_file()
    assert "durations" in printed("show", str(answer.directory), "--format", "csv")
    drawn = Path(printed("plot", str(answer.directory), "--dark", "--out", str(tmp_path / "why.svg")).strip()).read_text()
    assert ">virtual time<" in drawn and "#14171c" in drawn and "#262b33" not in drawn
    assert main(["plot", str(answer.directory), "--caption"]) == 2  # captions are of runs
    page = Path(printed("report", str(run), "--out", str(tmp_path / "report.html")).split()[-1]).read_text()
    assert "<h2>Why it ended so</h2>" in page
    assert "When was it decided?" in page


def test_jumps_link_to_their_moments_in_the_slider_of_their_run(
    run: Path, answer: Why, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps = (JumpRow(43.419, 50.0, 0.1, 0.9, True, ("43.42: agent 4 crashed",), 2), JumpRow(1.5, 2.0, 0.9, 0.5, False, (), 0))
    monkeypatch.setattr("fedbo.lab.why.figure.answers_beside", lambda _: [replace(answer, run=(0, "random", 2), jumps=jumps)])
    result = fedbo.Result.open(run)
    shown = why_section(result, {RunKey(0, "random", 2): "r0-c0-t0"})
    followed = re.findall(r'href="#(.+?)@([-+.\de]+)(?:&amp;agent=(\d+))?"', shown)  # as the script of the page reads it
    assert followed == [("r0-c0-t0", "43.419", "4"), ("r0-c0-t0", "1.5", "")]
    assert "href" not in why_section(result, {RunKey(0, "random", 1): "r0-c0-t0"})


@pytest.mark.long
def test_the_spread_of_a_study_counts_its_world(run: Path) -> None:
    spread = fedbo.why(run, rows=8).spread
    assert spread is not None
    assert {"world", "initial points"} <= {share.source for share in spread.shares}
