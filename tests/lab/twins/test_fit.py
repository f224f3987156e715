"""`fedbo fit`: worlds that are known are recovered, what fits badly is refused, and what is printed is a study's tables.

The statistical tests have fixed seeds. With true families p is uniform, so that 5 % are refused; of 30 samples more than 8 with
a chance below 1 in 10,000. Estimates are allowed four standard errors, which is missed once in 16,000 cases.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedbo
from fedbo.cli import main
from fedbo.execution.runner import run_study
from fedbo.lab.twins import families
from fedbo.lab.twins.families import FAMILIES, REFUSED, CensoredTimes, _candidate, candidates
from fedbo.lab.twins.fitting import _durations, fit_world
from fedbo.lab.twins.measurements import Measurements, _lives, _lost_steps
from fedbo.lab.twins.sources import measure
from fedbo.study.study import load_study

KNOWN: dict[str, tuple[float, ...]] = {
    "exponential": (2.0,),
    "lognormal": (2.0, 0.6),
    "gamma": (2.0, 3.0),
    "pareto": (2.0, 2.5),
}
SOME = [pytest.param(name, marks=[pytest.mark.long] * (name in ("exponential", "pareto"))) for name in KNOWN]


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw 99 samples of the bootstrap in place of 299: p below 0.05 are as rare where the family is true."""
    monkeypatch.setattr(families, "DRAWS", 99)


def drawn(name: str, count: int, seed: int) -> CensoredTimes:
    law = FAMILIES[name].law(np.array([KNOWN[name]]))
    return whole(law.rvs((1, count), random_state=np.random.default_rng([seed, 1]))[0])


def whole(values: Any) -> CensoredTimes:
    return CensoredTimes(np.asarray(values), np.ones(len(values), dtype=bool), np.zeros(len(values), dtype=np.int64))


@pytest.mark.parametrize("name", SOME)
def test_the_true_family_is_refused_as_often_as_the_test_says(name: str) -> None:
    fitted = [_candidate(name, drawn(name, 40, seed), np.random.default_rng([seed, 2])) for seed in range(30)]
    assert all(one is not None for one in fitted)
    assert sum(one is not None and one.p < REFUSED for one in fitted) <= 8


@pytest.mark.parametrize("name", SOME)
def test_the_true_family_is_recovered_with_its_parameters(name: str) -> None:
    fitted = [_durations(drawn(name, 400, seed), np.empty((400, 0)), seed, None, False) for seed in range(6)]
    assert sum(one.model == name for one in fitted) >= 5
    for place, parameter in enumerate(FAMILIES[name].parameters):
        found = np.array([one.table[parameter] for one in fitted if one.model == name])
        error = found.std(ddof=1) / np.sqrt(len(found))
        assert abs(found.mean() - KNOWN[name][place]) < 4 * error + 0.02 * KNOWN[name][place]


def test_what_no_family_fits_is_refused_and_drawn_as_it_was_measured(tmp_path: Path) -> None:
    values = np.concatenate([np.random.default_rng(0).normal(1.0, 0.02, 100), np.random.default_rng(1).normal(9.0, 0.1, 100)])
    assert all(one.p < REFUSED for one in candidates(whole(values), 0))
    log = tmp_path / "log.csv"
    log.write_text("duration\n" + "\n".join(map(repr, values.tolist())) + "\n")
    assert main(["fit", str(log), "--out", str(tmp_path / "world")]) == 0
    world = tomllib.loads((tmp_path / "world" / "world.toml").read_text())
    assert world["timing"]["evaluation"]["model"] == "empirical"
    assert len(pq.read_table(world["timing"]["evaluation"]["file"])) == 200


def test_durations_that_depend_on_the_configuration_are_regressed_and_others_are_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    u, wrong = rng.random((120, 2)), 0
    for seed in range(5):  # a false alarm has a chance of 1 in 100 each; more than 2 of 5 one of 1 in 100,000
        noise = np.exp(0.3 * np.random.default_rng([4, seed]).standard_normal(120))
        wrong += fit_log(tmp_path, noise, u).evaluation.model == "log_linear"
        if seed == 0:
            fitted = fit_log(tmp_path, 2.0 * noise * np.exp(1.5 * (u[:, 1] - 0.5)), u).evaluation
    assert wrong <= 2
    assert fitted.model == "log_linear"
    assert fitted.table["slopes"] == pytest.approx([0.0, 1.5], abs=4 * 0.3 / np.sqrt(120 / 12))
    assert fitted.table["mean"] == pytest.approx(2.0 * np.exp(0.045), rel=0.12)


def fit_log(folder: Path, values: np.ndarray[Any, Any], u: np.ndarray[Any, Any]) -> Any:
    log = folder / "log.csv"
    rows = (f"{value!r},{one!r},{other!r}" for value, (one, other) in zip(values.tolist(), u.tolist(), strict=True))
    log.write_text("duration,u1,u2\n" + "\n".join(rows) + "\n")
    return fit_world(measure(log))


STUDY: dict[str, Any] = {
    "study": {"name": "known", "seed": 5},
    "objective": {"name": "branin", "agents": 6},
    "budget": {"iterations": 60},
    "algorithm": [{"name": "fts", "features": 20, "own": {"surrogate": "features", "features": 20, "refit": 1000}}],
    "timing": {
        "evaluation": {"model": "gamma", "mean": 1.0, "shape": 4.0},
        "decision": {"coefficient": 0.02, "power": 1.0},
        "latency": {"model": "exponential", "mean": 0.2},
    },
    "availability": {"model": "markov", "present": 12.0, "absent": 3.0},
    "group": [{"name": "slow", "agents": [4, 5], "speed": {"factors": [2.0]}}],
    "fault": [{"kind": "loss", "probability": 0.1}],
}


@pytest.fixture(scope="module")
def known_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("known") / "run"
    run_study(load_study(STUDY), folder)
    return folder


def test_a_known_world_is_recovered_from_its_run(known_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(known_run), "--format", "json"]) == 0
    world = json.loads(capsys.readouterr().out)["world"]
    assert world["timing"]["evaluation"]["model"] == "gamma"
    assert world["timing"]["evaluation"]["mean"] == pytest.approx(4 / 3, rel=0.12)
    assert world["timing"]["evaluation"]["shape"] == pytest.approx(4.0, rel=0.3)
    factors = [group["speed"]["factors"][0] for group in world["group"]]
    assert np.mean(factors[4:]) / np.mean(factors[:4]) == pytest.approx(2.0, rel=0.15)
    assert world["timing"]["decision"] == pytest.approx({"coefficient": 0.02, "power": 1.0}, rel=0.1)
    assert world["availability"]["present"] == pytest.approx(12.0, rel=0.5)
    assert world["availability"]["absent"] == pytest.approx(3.0, rel=0.5)
    assert {one["kind"]: one["probability"] for one in world["fault"]}["loss"] == pytest.approx(0.1, abs=0.04)


def test_what_is_printed_is_a_study_when_the_other_tables_are_added(
    known_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", str(known_run)]) == 0
    text = capsys.readouterr().out
    assert "p = " in text
    study = tmp_path / "study.toml"
    head = '[study]\nname = "again"\n[objective]\nname = "branin"\nagents = 6\n[budget]\niterations = 5\n'
    study.write_text(head + '[[algorithm]]\nname = "ts"\n' + text, encoding="utf-8")
    assert main(["validate", str(study)]) == 0


CUT: dict[str, Any] = {
    "study": {"name": "cut", "replicates": 2},
    "objective": {"name": "quadratic", "agents": 10},
    "agents": {"initial": 0},
    "algorithm": [{"name": "random"}],
    "timing": {"evaluation": {"model": "exponential", "mean": 2.0}},
    "budget": {"iterations": 100, "time": 12.0},
}
MARKOV = {"model": "markov", "present": 5.0, "absent": 3.0}
CRASHES = [{"kind": "crash", "rate": 0.2, "restart": 2.0}]


@pytest.mark.parametrize("change", [{}, {"fault": CRASHES}, {"availability": MARKOV}], ids=["end", "crashes", "absences"])
def test_what_had_not_ended_is_in_the_fit(change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Estimates are within four standard errors of the truth; without what had not ended, durations are 1.2 to 1.6."""
    run_study(load_study({**CUT, **change}), tmp_path / "run")
    kinds = pq.read_table(tmp_path / "run" / "events.parquet")["kind"].to_pylist()
    assert main(["fit", str(tmp_path / "run"), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    cut = kinds.count("started") - kinds.count("finished")
    assert facts["unfinished"]["evaluations"] == cut >= 10 and facts["unmeasured"] == 0
    exponential = next(one for one in facts["tried"]["evaluation"] if one["model"] == "exponential")
    assert exponential["mean"] == pytest.approx(2.0, rel=4 / np.sqrt(facts["evaluations"]))
    assert exponential["p"] == facts["p"]["evaluation"] or exponential["p"] > 0.01
    if "fault" in change:  # also where a crash struck an agent that was down
        assert facts["world"]["fault"][0]["restart"] == pytest.approx(2.0)
        assert facts["world"]["fault"][0]["rate"] == pytest.approx(0.2, rel=4 / np.sqrt(kinds.count("crashed")))
    if "availability" in change:
        back = kinds.count("returned")
        assert facts["unfinished"]["absences"] > 0 and facts["p"]["absence"] is not None
        assert facts["world"]["availability"]["absent"] == pytest.approx(3.0, rel=4 / np.sqrt(back))
        assert facts["world"]["availability"]["present"] == pytest.approx(5.0, rel=4 / np.sqrt(kinds.count("absent")))
    assert main(["fit", str(tmp_path / "run")]) == 0
    ended = facts["evaluations"] + cut
    words = f"# {cut} of {ended} evaluations had not ended: they count as longer than they had taken so far"
    assert words in capsys.readouterr().out


def test_a_log_says_what_was_cut_short(tmp_path: Path) -> None:
    lengths, cuts = np.random.default_rng(2).exponential(2.0, 300), np.random.default_rng(3).exponential(2.0, 300)
    rows = [
        f"{min(one, cut)},{int(one <= cut)},{number % 3}" for number, (one, cut) in enumerate(zip(lengths, cuts, strict=True))
    ]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["duration,ended,agent", *rows]) + "\n")
    assert main(["fit", str(log), "--out", str(tmp_path / "world")]) == 0
    fitted = tomllib.loads((tmp_path / "world" / "world.toml").read_text())["timing"]["evaluation"]
    ended = np.count_nonzero(lengths <= cuts)
    assert fitted["mean"] == pytest.approx(2.0, rel=4 / np.sqrt(ended))
    kept = pq.read_table(tmp_path / "world" / "durations.parquet")["duration"].to_numpy()
    assert len(kept) == 300 and kept.mean() == pytest.approx(2.0, rel=4 / np.sqrt(ended))
    assert (tmp_path / "world" / "durations.png").stat().st_size > 10000


def test_what_a_log_does_not_say_and_what_is_not_read_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        f"{agent},{start},{start + 1.5 + 0.1 * agent},{int(start != 4)},ok" for agent in range(2) for start in range(0, 8, 2)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["agent,started,finished,ended,status", *rows]))
    assert main(["fit", str(tmp_path / "log.csv")]) == 0
    said = capsys.readouterr().out
    assert "# columns that are not read: 'status'\n" in said
    assert "so that no [[fault]] and no [availability] is fitted" in said
    assert fedbo.fit(tmp_path / "log.csv").notes[-1] == "columns that are not read: 'status'"
    (tmp_path / "log.csv").write_text("\n".join(["duration", *map(str, range(1, 9))]))
    assert fedbo.fit(tmp_path / "log.csv").notes == []


def test_a_preempted_evaluation_counts_as_longer_than_it_had_run(tmp_path: Path) -> None:
    spot = [{"kind": "preemption", "rate": 0.3, "duration": 0.5}]
    changed = {
        "timing": {"evaluation": {"model": "gamma", "mean": 2.0, "shape": 3.0}},
        "cluster": {"workers": 6},
        "fault": spot,
    }
    run_study(load_study({**CUT, **changed, "budget": {"iterations": 100, "time": 40.0}}), tmp_path / "run")
    measured = measure(tmp_path / "run")
    fitted = {one.model: one for one in fit_world(measured).evaluation.tried}
    assert len(measured.cut["evaluations"]) > 0.4 * len(measured.durations) and np.mean(measured.durations) < 1.75
    for name, true in (("mean", 2.0), ("shape", 3.0)):
        low, high = fitted["gamma"].intervals[name]
        assert low / 1.05 < true < high * 1.05


def test_the_law_of_restarts_is_fitted_and_its_intervals_hold_the_truth(tmp_path: Path) -> None:
    """The standard error of a mean of n lognormal times is mean sqrt((e^(sigma^2) - 1) / n): within four, seed of `CUT`."""
    crash = {"kind": "crash", "rate": 0.2, "restart": {"model": "lognormal", "mean": 2.0, "sigma": 0.8}}
    run_study(load_study({**CUT, "fault": [crash], "budget": {"iterations": 1000, "time": 200.0}}), tmp_path / "run")
    measured = measure(tmp_path / "run")
    (fitted,) = fit_world(measured).faults
    error = 4 / np.sqrt(len(measured.downtimes))
    assert fitted["restart"]["model"] == "lognormal" and fitted["rate"] == pytest.approx(0.2, rel=error)
    assert fitted["restart"]["mean"] == pytest.approx(2.0, rel=error * np.sqrt(np.expm1(0.64)))


def test_the_time_of_checkpoints_is_no_part_of_the_length_of_an_evaluation(tmp_path: Path) -> None:
    changed = {
        "timing": {"evaluation": {"model": "constant", "mean": 2.0}},
        "cluster": {"worker": [{"name": "w", "count": 6, "speed": 1.5}], "checkpoint": {"every": 0.6, "cost": 0.1}},
        "fault": [{"kind": "preemption", "rate": 0.1, "duration": 0.5}],
    }
    run_study(load_study({**CUT, **changed, "budget": {"iterations": 100, "time": 40.0}}), tmp_path / "run")
    measured = measure(tmp_path / "run")
    assert measured.interrupted > 5 and np.allclose(measured.durations, 2.0)


def test_what_is_unknown_of_an_evaluation_is_counted_and_the_fit_not_tested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {"evaluation": {"parallel": 2, "prefetch": 2}}
    run_study(load_study({**CUT, **policy, "cluster": {"workers": 20}}), tmp_path / "cluster")
    assert measure(tmp_path / "cluster").unmeasured == 0
    run_study(load_study({**CUT, **policy}), tmp_path / "run")
    assert main(["fit", str(tmp_path / "run"), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["unmeasured"] > 0 and facts["p"]["evaluation"] is None
    assert main(["fit", str(tmp_path / "run")]) == 0
    assert "when they began is unknown, so these times are too short, and their fit is not tested" in capsys.readouterr().out


def test_the_groups_of_a_log_are_those_of_a_study_whatever_its_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, log, study = np.random.default_rng(1), tmp_path / "log.csv", tmp_path / "study.toml"
    rows = [f"{agent},{rng.gamma(9.0, length / 9.0)}" for agent, length in ((3, 1.0), (4, 2.0), (17, 9.0)) for _ in range(30)]
    log.write_text("\n".join(["agent,duration", *rows]) + "\n")
    assert main(["fit", str(log)]) == 0
    text = capsys.readouterr().out
    groups = {one["name"]: one["agents"] for one in tomllib.loads(text)["group"]}
    assert groups == {"agent 3": [0], "agent 4": [1], "agent 17": [2]}
    log.write_text("\n".join(["agent,duration", *(f"site {row}" for row in rows)]) + "\n")
    assert main(["fit", str(log)]) == 0  # the letters come in another order: "site 17" first
    named = {one["name"]: one["agents"] for one in tomllib.loads(capsys.readouterr().out)["group"]}
    assert named == {"agent 0": [0], "agent 1": [1], "agent 2": [2]}
    head = '[study]\nname = "again"\n[objective]\nname = "branin"\nagents = 3\n[budget]\niterations = 5\n'
    study.write_text(head + '[[algorithm]]\nname = "ts"\n' + text, encoding="utf-8")
    assert main(["validate", str(study)]) == 0


def test_a_crash_takes_until_its_agent_evaluates_again_also_where_a_spare_process_is_there_at_once(tmp_path: Path) -> None:
    crash = {"kind": "crash", "agents": [1], "at": 2.5, "restart": 0.5}
    run_study(load_study({**STUDY, "budget": {"iterations": 3}, "fault": [crash]}), tmp_path / "run")
    events = pq.read_table(tmp_path / "run" / "events.parquet")
    rows = events.select(["kind", "time"]).to_pylist()
    times = [2.5 if row["kind"] == "restarted" else row["time"] for row in rows]
    at_once = events.set_column(events.column_names.index("time"), "time", [times])
    for table, evaluated, took in (
        (events, [], 0.5),
        (at_once, [{"started": 2.0}, {"started": 3.25}], 0.75),
        (at_once, [], 1e-6),
    ):
        measured = Measurements()
        _lives(measured, table, {1: evaluated}, 9.0)
        assert (measured.crashes, measured.downtimes) == (1, [took])


def test_a_new_process_that_is_gone_before_it_has_evaluated_is_no_crash_of_its_own(tmp_path: Path) -> None:
    crashes = [{"kind": "crash", "agents": [1], "at": at, "restart": 0.1} for at in (2.5, 2.75)]
    run_study(load_study({**STUDY, "budget": {"iterations": 3}, "fault": crashes}), tmp_path / "run")
    events = pq.read_table(tmp_path / "run" / "events.parquet")
    for back, counted in ((3.25, (1, [0.75])), (2.625, (2, [0.125, 0.5]))):
        measured = Measurements()
        _lives(measured, events, {1: [{"started": back}, {"started": 3.25}]}, 9.0)
        assert (measured.crashes, measured.downtimes) == counted


def test_a_host_that_falls_silent_takes_until_that_is_noticed_too() -> None:
    """Agent 0 is gone 2.5 after its last end, of which 0.5 is the mean age of an evaluation; agent 1 had nothing to lose."""
    kinds = ["started", "finished", "started", "crashed", "crashed", "started", "crashed"]
    events = pa.table({"kind": kinds, "agent": [1, 1, 0, 0, 1, 0, 0], "time": [0.0, 1.5, 1.0, 5.0, 5.0, 5.0, 5.5]})
    rows = [{"started": 1.0, "finished": 2.5}, {"started": 6.0, "finished": 7.0}]
    assert list(_lost_steps(events, {0: rows})) == [2.5]
    measured = Measurements(durations=[1.0] * 9, agents=[0] * 9, points=[[0.5]] * 9, crashes=1, alive=10.0, downtimes=[0.25])
    assert fit_world(measured).faults == [{"kind": "crash", "rate": 0.1, "restart": 0.25}]
    measured.lost_steps = [2.5]
    assert fit_world(measured).faults == [{"kind": "crash", "rate": 0.1, "restart": 2.25}]


WRONG = {
    "duration\n1\n2\n": "has 2 durations",
    "length\n1\n2\n": "must have started and finished",
    "duration\n1\n-2\n1\n1\n1\n": "has a duration of -2 in row 2",
    "started,finished\n0,1\n2,1\n": "has a duration of -1 in row 2",
    "duration,u1\n1,0.5\n1,1.5\n": "has the point [1.5] in row 2",
    "duration\nabc\n": "cannot be read",
    "duration,ended\n1,1\n1,2\n": "has ended = 2 in row 2; ended must be 1, or 0 where it was cut short",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_log_is_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text(text)
    assert main(["fit", str(log)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and WRONG[text] in said and str(log) in said


def test_what_cannot_be_fitted_is_one_line(known_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text("duration\n1\n")
    (tmp_path / "log.txt").write_text("duration\n1\n")
    for arguments, words in {
        (str(tmp_path / "none.csv"),): "does not exist",
        (str(tmp_path / "nowhere"),): "does not exist",
        (str(tmp_path / "log.txt"),): "ends in '.txt'",
        (str(tmp_path),): "is not a finished run",
        (str(known_run), "--algorithm", "ts"): "has no algorithm 'ts'; available: fts",
        (str(known_run), "--cell", "1"): "has no run of 'fts' in cell 1",
        (str(log), "--algorithm", "ts"): "is a log, which has no algorithms; remove the algorithm ts",
    }.items():
        assert main(["fit", *arguments]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and words in said
