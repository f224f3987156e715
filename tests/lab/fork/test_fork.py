"""Runs that go on twice from one point: to the bit where nothing is changed, and what may be changed, and what follows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.grouping import by_run
from fedbo.cli import main
from fedbo.coordinator.errors import ForkError
from fedbo.lab.fork.fork import fork_run, points_of
from fedbo.study.document import StudyError
from fedbo.study.paths import DirectoryError
from tests.random_studies.carrying_out import tables

STUDY: dict[str, Any] = {
    "study": {"name": "forked", "seed": 4, "replicates": 2},
    "objective": {"name": "branin", "agents": 4},
    "agents": {"initial": 2},
    "budget": {"iterations": 4},
    "algorithm": [{"name": "fts", "every": 1, "p": 0.5, "features": 20}],
    "timing": {
        "evaluation": {"model": "pareto", "mean": 1.0, "alpha": 1.5},
        "latency": {"model": "exponential", "mean": 0.2},
    },
    "exchange": {"mode": "barrier"},
}
TROUBLE: dict[str, Any] = {
    "availability": {"model": "markov", "present": 4.0, "absent": 1.0, "leaving": "lost"},
    "evaluation": {"retries": 1, "time_limit": 4.0},
    "fault": [{"kind": "crash", "rate": 0.1, "state": "lost", "restart": 0.5}, {"kind": "loss"}],
    "agents": {"initial": 2, "checkpoint": 2},
}
PRIVATE = {"algorithm": [{"name": "dp_fts_de", "features": 20, "share": 1.0, "regions": 1}]}
LOSS = 'fault=[{kind = "crash", agents = [0], at = "fork"}]'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that has ended, which nothing changes."""
    directory = tmp_path_factory.mktemp("forked") / "run"
    fedbo.run(STUDY, out=directory)
    return directory


@pytest.mark.parametrize(
    ("exchange", "more"),
    [
        ({"mode": "barrier"}, PRIVATE),
        pytest.param({"mode": "deadline", "length": 1.5, "late": "carry"}, TROUBLE, marks=pytest.mark.long),
        pytest.param({"mode": "first_k", "k": 2}, {"evaluation": {"parallel": 2, "prefetch": 1}}, marks=pytest.mark.long),
        pytest.param({"mode": "buffered", "k": 2}, {}, marks=pytest.mark.long),
        pytest.param({"mode": "immediate"}, TROUBLE, marks=pytest.mark.long),
    ],
)
def test_with_nothing_changed_a_run_is_the_same_to_the_bit(exchange: Any, more: dict[str, Any], tmp_path: Path) -> None:
    fedbo.run({**STUDY, "study": {"name": "single", "seed": 2}, "exchange": exchange, **more}, out=tmp_path / "run")
    for number, at in enumerate(("event:21", 2.7)):
        fork = fedbo.fork(tmp_path / "run", at, out=tmp_path / str(number))
        assert tables(tmp_path / "run") == tables(fork.branches[0].directory) == tables(fork.original.directory)


def test_all_that_happened_before_is_the_same_and_the_rest_goes_by_the_new_rules(run: Path, tmp_path: Path) -> None:
    fork = fedbo.fork(run, 3.0, overrides=[LOSS], out=tmp_path / "fork")
    (branch,) = fork.branches
    before, after = (
        [[row for row in result.events.to_pylist() if (row["time"] < 3.0) is early] for early in (True, False)]
        for result in (fork.original, branch)
    )
    assert before[0] == after[0] and before[1] != after[1]
    crashed = [row for row in after[1] if row["kind"] == "crashed"]
    assert [(row["time"], row["agent"], row["permanent"]) for row in crashed] == [(3.0, 0, True)] * 2
    effect = fork.effects()[0]
    assert (effect.algorithm, effect.at) == ("fts", "3") and effect.difference is not None
    assert effect.difference.mean == pytest.approx(effect.changed.mean - effect.original.mean)
    trunk = fedbo.Result.open(fork.directory / "trunk")
    assert trunk.events.to_pylist() == [row for row in before[0]]
    assert branch.manifest["forked"]["changes"] == [LOSS] and set(branch.manifest["forked"]["at"].values()) == {3.0}


class Interrupting:
    """A display by which a fork is interrupted as its second branch begins."""

    def __init__(self) -> None:
        self.begun = 0

    def note(self, words: str) -> None: ...

    def start(self, rows: Any) -> None:
        self.begun += 1
        if self.begun == 2:
            raise KeyboardInterrupt

    def update(self, *told: Any) -> None: ...

    def finish(self) -> None: ...


def test_a_fork_that_is_interrupted_or_killed_goes_on(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One branch has ended then, one has begun, one not; a second kill comes while the last one is made."""
    out, points = tmp_path / "fork", points_of(run, None, 1.5)[:3]
    with pytest.raises(KeyboardInterrupt) as stop:
        fork_run(run, points, (), out, Interrupting())
    assert stop.value.args == (out.resolve(),)
    with pytest.raises(DirectoryError, match="contains another unfinished fork; resume it: fedbo resume"):
        fedbo.fork(run, 3.0, out=out)
    with pytest.raises(ResultError, match="contains an unfinished fork; resume it: fedbo resume"):
        fedbo.Fork.open(out)
    (out / "branch-0003").mkdir()
    kept = (out / "branch-0001" / "manifest.json").read_bytes()
    assert main(["resume", str(out), "--set", "budget.iterations=9"]) == 2
    assert "contains an unfinished fork; options cannot be changed" in capsys.readouterr().err
    assert main(["resume", str(out), "--quiet"]) == 0
    assert "changed: nothing" in capsys.readouterr().out
    assert [tables(branch.directory) for branch in fedbo.Fork.open(out).branches] == [tables(run)] * 3
    assert (out / "branch-0001" / "manifest.json").read_bytes() == kept


@pytest.mark.parametrize(
    "change", ["exchange.mode=immediate", pytest.param("exchange={mode = 'buffered', k = 2}", marks=pytest.mark.long)]
)
def test_a_barrier_is_left_by_those_who_wait_at_it(change: str, run: Path, tmp_path: Path) -> None:
    (branch,) = fedbo.fork(run, 2.0, overrides=[change], out=tmp_path / "fork").branches
    counts = Counter((row["replicate"], row["agent"]) for row in branch.observations.to_pylist())
    assert set(counts.values()) == {6}
    ended, before = (max(result.events["time"].to_pylist()) for result in (branch, fedbo.Result.open(run)))
    assert ended < before  # nobody waits for stragglers any more


@pytest.mark.parametrize("mode", ["barrier", pytest.param("first_k', k = 2, late = 'carry", marks=pytest.mark.long)])
def test_agents_that_never_waited_meet_at_a_barrier(mode: str, tmp_path: Path) -> None:
    study = {**STUDY, "exchange": {"mode": "immediate", "staleness": {"weight": "polynomial"}}}
    fedbo.run(study, out=tmp_path / "run")
    fork = fedbo.fork(tmp_path / "run", 2.5, overrides=[f"exchange={{mode = '{mode}'}}"], out=tmp_path / "fork")
    events = fork.branches[0].events.to_pylist()
    assert min(row["time"] for row in events if row["kind"] == "round") >= 2.5
    assert {row["agent"] for row in events if row["kind"] == "done"} == {0, 1, 2, 3}


@pytest.mark.long
def test_agents_that_are_away_return_where_the_other_model_has_them_there(tmp_path: Path) -> None:
    fedbo.run({**STUDY, **TROUBLE, "exchange": {"mode": "immediate"}}, out=tmp_path / "run")
    fork = fedbo.fork(tmp_path / "run", 3.0, overrides=["availability={model = 'always'}"], out=tmp_path / "fork")
    events = [
        row for row in fork.branches[0].events.to_pylist() if row["time"] >= 3.0 and row["kind"] in ("absent", "returned")
    ]
    assert events and {(row["time"], row["kind"]) for row in events} == {(3.0, "returned")}
    again = fedbo.fork(tmp_path / "run", 3.0, overrides=["availability.present=0.5"], out=tmp_path / "again")
    counts = Counter(row["kind"] for row in again.branches[0].events.to_pylist())
    assert counts["absent"] > counts["returned"] - 1 > 4


def test_what_agents_work_on_when_a_setting_changes_was_decided_before(tmp_path: Path) -> None:
    """The points of the steps that are under way are those of the run, also where all later ones are others."""
    fedbo.run({**STUDY, "timing": {}, "study": {"name": "points", "seed": 1}}, out=tmp_path / "run")
    fork = fedbo.fork(tmp_path / "run", 3.5, overrides=["algorithm.fts.p=1.0"], out=tmp_path / "fork")
    was, now = (
        {(row["agent"], row["step"]): row["x"] for row in result.observations.to_pylist() if row["step"]}
        for result in (fork.original, fork.branches[0])
    )
    begun = {
        (row["agent"], row["step"])
        for row in fork.original.events.to_pylist()
        if row["kind"] == "started" and 0 < row["step"] and row["time"] < 3.5
    }
    assert begun and all(was[key] == now[key] for key in begun) and was != now


def test_more_retries_hold_for_the_steps_ordered_after_the_fork(tmp_path: Path) -> None:
    """A step under way with a time limit has durations for the retries that its order allowed."""
    short = {"evaluation": {"retries": 0, "time_limit": 0.5}, "study": {"name": "short", "seed": 3}}
    result = fedbo.run({**STUDY, **short}, out=tmp_path / "run")
    half = max(row["time"] for row in result.events.to_pylist()) / 2
    fork = fedbo.fork(tmp_path / "run", half, overrides=["evaluation.retries=2"], out=tmp_path / "fork")
    assert len(fork.branches[0].observations) > len(result.observations)


@pytest.mark.long
def test_a_fork_tells_what_changes_in_time_and_cost(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change = "timing.evaluation.mean=3.0"
    assert main(["fork", str(run), "--at", "3", "--set", change, "--out", str(tmp_path / "slow"), "--quiet"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    fork = fedbo.Fork.open(tmp_path / "slow")
    facts = {effect.fact: effect for effect in fork.effects()}
    assert list(facts) == ["best", "end", "level", "waiting", "bytes", "evaluations"]
    for fact in ("end", "waiting"):
        assert facts[fact].changed.mean > 1.2 * facts[fact].original.mean, fact
        assert facts[fact].difference is not None
    ends = [max(part["finished"].to_pylist()) for _, part in by_run(fork.branches[0].observations)]
    assert facts["end"].changed.mean == pytest.approx(sum(ends) / len(ends))
    assert facts["bytes"].changed == facts["bytes"].original and facts["evaluations"].changed.mean == 4 * 6
    assert "end of the run" in told and "unchanged: bytes transmitted, evaluations" in told


@pytest.mark.long
def test_a_fork_shows_the_algorithms_that_a_change_has_an_effect_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    algorithms = [{"name": "random"}, {"name": "fts"}]
    fedbo.run({**STUDY, "algorithm": algorithms}, out=tmp_path / "run")
    change = ["--at", "1", "--set", "algorithm.fts.every=3", "--out", str(tmp_path / "fork"), "--quiet"]
    assert main(["fork", str(tmp_path / "run"), *change]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "no effect on: random" in told
    assert told.count("random") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--at", "3"), "--set: is missing, so the branch would equal the run; add --set KEY=VALUE"),
        (
            ("--at", "3", "--set", "timing.evaluation.model=exponential"),
            "alpha = 1.5: belongs to another model than 'exponential'; replace the whole table: "
            "--set \"timing.evaluation={model = 'exponential'}\"",
        ),
    ],
)
def test_a_change_that_says_too_little_is_refused_with_the_remedy(
    arguments: tuple[str, ...], said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fork", str(run), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_each_value_of_a_key_has_a_branch_that_is_the_fork_with_it_alone(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ["exchange={mode = 'deadline', length = 1.5}", "exchange={mode = 'immediate'}"]
    several = [word for rule in rules for word in ("--set", rule)]
    common = ["--set", "timing.latency={model = 'constant', mean = 0.1}"]
    out = tmp_path / "several"
    assert main(["fork", str(run), "--at", "3", *several, *common, "--out", str(out), "--quiet"]) == 0
    told = capsys.readouterr().out
    fork = fedbo.Fork.open(out)
    assert list(fork.ways) == rules and list(fork.at) == ["3", "3"] and all(word in told for word in ("deadline", "immediate"))
    alone = fedbo.fork(run, 3.0, overrides=[rules[1], common[1]], out=tmp_path / "alone")
    assert tables(alone.branches[0].directory) == tables(fork.branches[1].directory) != tables(fork.branches[0].directory)
    best = [effect for effect in fork.effects() if effect.fact == "best"]
    assert [effect.way for effect in best] == rules and all(effect.difference is not None for effect in best)
    assert main(["plot", str(out), "--out", str(tmp_path / "figure.png")]) == 0
    with pytest.raises(ForkError, match="only one key may have several values, and exchange.mode has; fork twice"):
        fork_run(run, points_of(run, "3", None), ["exchange.mode=immediate", "exchange.mode=buffered"] * 2 + ["fault=[]"] * 2)


def test_the_open_round_waits_for_as_many_messages_as_the_new_rule_says(tmp_path: Path) -> None:
    """At 1.2 the first round of the run is open, whose messages come one after the other."""
    fedbo.run({**STUDY, "agents": {"initial": 1}}, out=tmp_path / "run")
    rules = ["exchange={mode = 'deadline', length = 0.1}", "exchange={mode = 'deadline', length = 0.1, minimum = 3}"]
    fork = fedbo.fork(tmp_path / "run", 1.2, overrides=rules, out=tmp_path / "fork")
    for branch, least in zip(fork.branches, (1, 3), strict=True):
        for _, events in by_run(branch.events):
            rows = [row for row in events.to_pylist() if row["kind"] in ("arrived", "round", "done", "absent")]
            first = next(place for place, row in enumerate(rows) if row["kind"] == "round" and row["time"] > 1.2)
            before = [row["kind"] for row in rows[:first]][::-1]
            came = before[: before.index("round")] if "round" in before else before
            assert came.count("arrived") >= least


@pytest.mark.long
def test_the_effect_is_told_by_when_the_change_comes(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "fork"
    assert main(["fork", str(run), "--every", "3", "--set", LOSS, "--out", str(out), "--quiet"]) == 0
    told = capsys.readouterr().out
    fork = fedbo.Fork.open(out)
    assert len(fork.at) > 1 and fork.at[0] == "3" and f"results: {out}" in told and "paired by replicate" in told
    assert main(["show", str(out), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [effect["at"] for effect in facts["effects"] if effect["fact"] == "best"] == list(fork.at)
    assert main(["plot", str(out), "--out", str(tmp_path / "figure.png")]) == 0
    assert main(["plot", str(out), "--cell", "7"]) == 2
    assert "no cell 7" in capsys.readouterr().err
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            "objective.agents=3",
            "objective.agents: it defines the agents' objectives before the first evaluation; run a new study",
        ),
        ("study.seed=1", "study.seed: it defines all random draws and runs; run a new study with the other value"),
        ("agents.initial=3", "agents.initial: it defines initial points, histories and checkpoints"),
        ("evaluation.parallel=2", "evaluation.parallel: evaluations already used it"),
        ("network.link=9.0", "network.link: messages may already be queued on the link"),
        ("algorithm.fts.features=10", "algorithm.fts: this setting determines initial values or the message format"),
        ("algorithm.fts.label=b", "algorithm: a fork keeps the algorithms of its run"),
        ("fault=[{kind = 'crash', at = 1.0}]", 'fault.crash.at=1: is before the fork at 3; set a later time, or "fork"'),
        (
            "exchange.mode=barrier",
            "exchange.mode=barrier: does not change the run; set another value, or remove overrides",
        ),
        ("budget.time=2.0", "budget.time=2: is before the fork at 3; set a later time"),
        ("budget.evaluations=20", "budget.evaluations: the run did not count evaluations before the fork"),
        ("budget.cost=2.0", "budget.cost: the run did not count the time of evaluations before the fork"),
        ("group=[{name = 'g', agents = [0], bandwidth = 9.0}]", "group.g.name: the members and initial settings of a group"),
        (
            "exchange.selection={who = 'fraction', share = 0.5, others = 'idle'}",
            "cannot change after the first round",
        ),
    ],
)
def test_what_was_used_before_the_fork_is_not_changed(changes: str, words: str, run: Path, tmp_path: Path) -> None:
    with pytest.raises((StudyError, ForkError)) as refusal:
        fedbo.fork(run, 3.0, overrides=[changes], out=tmp_path / "fork")
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
    assert not (tmp_path / "fork").exists()


@pytest.mark.parametrize(
    ("at", "every", "words"),
    [
        (None, None, "--at: set exactly one of --at and --every, for example --at 12.5, --at event:500 or --every 5"),
        ("soon", None, "--at soon: must be a time or an event, for example 12.5 or event:500"),
        ("event:0", None, "--at event:0: must be above 0 and finite"),
        (None, 1e-9, "--every 1e-09: makes more than 200 branches; set at least"),
        (None, 1e9, "must be above 0 and below .*, the end of the first run"),
    ],
)
def test_a_point_that_is_none_is_refused(at: str | None, every: float | None, words: str, run: Path) -> None:
    with pytest.raises(ForkError, match=words):
        points_of(run, at, every)


def test_a_branch_keeps_the_histories_of_the_run(tmp_path: Path) -> None:
    """Folders of histories are named by what they are made of, and failures are among it."""
    agents = {"initial": 1, "history": {"algorithm": "random", "observations": 3, "initial": 2}}
    fedbo.run({**STUDY, "study": {"name": "single", "seed": 2}, "agents": agents}, out=tmp_path / "run")
    fork = fedbo.fork(tmp_path / "run", 2.0, overrides=["evaluation.retries=2"], out=tmp_path / "fork")
    assert tables(fork.branches[0].directory) == tables(tmp_path / "run"), "nothing fails"


def test_a_fork_after_the_end_and_forks_of_branches_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ForkError, match="at 1e\\+06: the run of 'fts', replicate 0, has ended before that; set an earlier point"
    ):
        fedbo.fork(run, 1e6, out=tmp_path / "late")
    with pytest.raises(StudyError, match='overrides: fault: "fork" stands for a time; set at to a time, not an event'):
        fedbo.fork(run, "event:5", overrides=[LOSS], out=tmp_path / "event")
    with pytest.raises(ResultError, match="contains no finished fork; pass the directory that fedbo fork printed"):
        fedbo.Fork.open(run)
    branch = fedbo.fork(run, 3.0, out=tmp_path / "fork").branches[0].directory
    with pytest.raises(
        DirectoryError, match="is not a run directory: .*; it contains a fork; pass one of its runs: .*original"
    ):
        fedbo.fork(tmp_path / "fork", 4.0)
    with pytest.raises(DirectoryError, match="is a branch of another run; fork that run"):
        fedbo.fork(branch, 4.0)
    with pytest.raises(DirectoryError, match="is a finished branch of another run; extend that run, and fork it again"):
        fedbo.resume(branch, overrides=["budget.iterations=9"])
    assert main(["replay", str(branch)]) == 2
