"""Private studies from end to end: their ledger survives kills, their noise repeats or does not, as asked, and is shown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killing import Forks, begin_or_go_on, write_study

import fedbo
from fedbo.analysis import spending, spending_together
from fedbo.cli import OK, WRONG_INPUT, main
from fedbo.coordinator.environment.faults import LIES, Lie
from fedbo.execution.replay import compare
from fedbo.privacy.check_study import _BLIND_BUDGETS
from fedbo.privacy.estimates import privacy_estimates, total_estimate
from fedbo.privacy.ledger import PRIVACY, SPENT
from fedbo.stopping.stoppers import STOPPERS
from fedbo.study.document import StudyError
from fedbo.study.tables import BudgetTable

OWN = {"surrogate": "features", "features": 20}
PRIVATE = {"name": "dp_fts_de", "features": 20, "regions": 2, "own": OWN}
STUDY: dict[str, Any] = {
    "study": {"name": "private", "seed": 3, "replicates": 2},
    "objective": {"name": "quadratic", "agents": 9},
    "agents": {"initial": 4},
    "budget": {"iterations": 5},
    "algorithm": [{"name": "ts", **OWN}, PRIVATE, {**PRIVATE, "label": "quiet", "noise_multiplier": 3.0}],
    "timing": {"evaluation": {"model": "lognormal"}, "latency": {"model": "pareto", "mean": 0.2}},
    "exchange": {"mode": "deadline", "length": 1.5},
    "fault": [{"kind": "loss", "probability": 0.2}],
    "recovery": {"events": 200},
}
LEDGER = ("privacy.parquet", "privacy_agents.parquet")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> fedbo.Result:
    return fedbo.run(STUDY, out=tmp_path_factory.mktemp("private") / "run")


@pytest.fixture(scope="module")
def private_forks(forks: Forks) -> Forks:
    """The same, with what accounts for privacy imported."""
    assert forks("import", "dp_accounting.rdp", "dp_accounting.pld.privacy_loss_distribution").code == 0
    return forks


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.parquet"))}


def test_the_ledger_has_its_declared_columns_and_order(ran: fedbo.Result) -> None:
    assert ran.privacy.schema.equals(PRIVACY) and ran.spent.schema.equals(SPENT)
    rows = ran.privacy.to_pylist()
    keys = [(["ts", "dp_fts_de", "quiet"].index(row["algorithm"]), row["replicate"], row["release"]) for row in rows]
    assert keys == sorted(keys) and {row["algorithm"] for row in rows} == {"dp_fts_de", "quiet"}
    assert ran.spent.num_rows == 2 * 2 * 9
    for row in rows:
        assert set(row["arrived"]) <= set(row["sampled"]) <= set(row["eligible"])
        assert row["whole"] == row["refused"] == "" and not row["secure"]
        assert all(low <= high + 1e-9 for low, high in zip(row["weights"], row["moments"], strict=True))


def test_what_is_private_neither_leaves_out_nor_changes_the_others(ran: fedbo.Result, tmp_path: Path) -> None:
    alone = fedbo.run({**STUDY, "algorithm": STUDY["algorithm"][:1]}, out=tmp_path / "alone")
    assert not (tmp_path / "alone" / LEDGER[0]).exists() and alone.privacy.num_rows == alone.spent.num_rows == 0
    mine = [row for row in ran.observations.to_pylist() if row["algorithm"] == "ts"]
    assert mine == alone.observations.to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "more"), [(60, 400), *(pytest.param(25, more, marks=pytest.mark.long) for more in (40, 120))]
)
@pytest.mark.long
def test_kills_leave_the_same_ledger(first: int, more: int, private_forks: Forks, tmp_path: Path) -> None:
    steps = 5 if more < 400 else 3
    small = {**STUDY, "study": {"name": "killed", "seed": 4}, "budget": {"iterations": steps}, "algorithm": [PRIVATE]}
    small["recovery"] = {"events": 60}
    study = write_study(small, tmp_path / "study.toml")
    assert private_forks("run", study, tmp_path / "alone").code == 0
    expected = files(tmp_path / "alone")
    assert set(LEDGER) < set(expected)
    directory, kills = tmp_path / "run", 0
    while begin_or_go_on(private_forks, study, directory, before=first + more * kills).killed:
        kills += 1
    assert kills and files(directory) == expected


@pytest.mark.slow
@pytest.mark.long
def test_secure_noise_is_repeated_by_a_resume_and_by_nobody_else(private_forks: Forks, tmp_path: Path) -> None:
    small = {"study": {"name": "secure", "seed": 3}, "budget": {"iterations": 4}, "recovery": {"events": 20}}
    secure = {**STUDY, **small, "privacy": {"secure_noise": True}, "algorithm": [PRIVATE]}
    study, runs = write_study(secure, tmp_path / "study.toml"), []
    for name in ("one", "other"):
        directory = tmp_path / name
        assert private_forks("run", study, directory, before=40).killed
        (key,) = directory.glob("parts/*-0000/noise.key")
        assert len(key.read_bytes()) == 32 and key.stat().st_mode & 0o777 == 0o600
        told = key.read_bytes()
        assert begin_or_go_on(private_forks, study, directory, before=10).killed
        assert key.read_bytes() == told, "what was released before would be released again under other noise"
        assert begin_or_go_on(private_forks, study, directory).code == 0
        assert not list(directory.rglob("noise.key")), "a key outlived its run"
        runs.append(fedbo.Result.open(directory))
        assert all(runs[-1].privacy["secure"].to_pylist())
        assert main(["replay", str(directory), "--verify"]) == WRONG_INPUT
    samples = [result.privacy["sampled"].to_pylist() for result in runs]
    assert samples[0] != samples[1], "two secure runs drew the same coins"


def test_a_budget_ends_federation_and_everybody_goes_on_alone(tmp_path: Path) -> None:
    budget = {"epsilon_max": 1.0, "deltas": [1e-3]}
    longer = {**STUDY, "budget": {"iterations": 8}, "privacy": budget, "algorithm": [PRIVATE]}
    result = fedbo.run(longer, out=tmp_path / "run")
    for replicate in range(2):
        rows = [row for row in result.privacy.to_pylist() if row["replicate"] == replicate]
        refused = [row for row in rows if row["refused"]]
        assert refused and all(row["epsilon"][0] <= 1.0 for row in rows)
        assert "epsilon would be" in refused[0]["refused"] and not refused[0]["arrived"]
        told = refused[0]["time"] + 5.0  # after the last answer that was under way
        late = [row for row in result.observations.to_pylist() if row["replicate"] == replicate and row["started"] > told]
        assert late and {row["origin"] for row in late} == {"own"}
    assert len({(row["agent"], row["replicate"]) for row in result.observations.to_pylist() if row["step"] == 8}) == 18


@pytest.mark.long
def test_show_and_plot_tell_what_was_spent(ran: fedbo.Result, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(ran.directory)
    assert main(["show", directory, "--privacy"]) == OK
    shown = capsys.readouterr().out
    assert "epsilon" in shown and "quiet" in shown and "anyone who knows the seed can remove it" in shown
    assert main(["show", directory, "--privacy", "--format", "json"]) == OK
    facts = {row["algorithm"]: row for row in json.loads(capsys.readouterr().out)["privacy"]}
    spent = [row["epsilon"] for row in ran.privacy.to_pylist() if row["algorithm"] == "quiet"]
    assert facts["quiet"]["epsilon"] == pytest.approx(np.max(spent, axis=0))
    assert facts["quiet"]["epsilon"][0] < facts["dp_fts_de"]["epsilon"][0]
    assert main(["show", directory, "--privacy", "--trouble"]) == WRONG_INPUT
    assert main(["plot", directory, "--kind", "privacy"]) == OK
    assert (ran.directory / "privacy.png").stat().st_size > 10_000


def test_what_a_run_without_privacy_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = {**STUDY, "algorithm": STUDY["algorithm"][:1], "budget": {"iterations": 2}}
    directory = str(fedbo.run(study, out=tmp_path / "run").directory)
    assert main(["show", directory, "--privacy"]) == OK
    assert "no algorithm of this study is private" in capsys.readouterr().out
    assert main(["plot", directory, "--kind", "privacy"]) == WRONG_INPUT
    assert "it has no private algorithm" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"exchange": {"mode": "immediate"}},
            "[exchange] mode = 'immediate': has no rounds in which 'dp_fts_de' could sample its share of agents; "
            'set mode = "barrier", or share = 1 in that algorithm',
        ),
        (
            {"exchange": {"mode": "barrier", "selection": {"who": "poisson", "share": 0.5}}},
            "[exchange] selection.who = 'poisson': 'dp_fts_de' selects agents by its own share",
        ),
        ({"privacy": {"epsilon_max": 0.0}}, "[privacy] epsilon_max = 0.0: must be"),
        ({"privacy": {"deltas": []}}, "[privacy] deltas = []: "),
        ({"privacy": {"deltas": [1.5]}}, "[privacy] deltas"),
        ({"privacy": {"delta": 0.1}}, "[privacy] delta = 0.1: no such key; did you mean 'deltas'?"),
        (
            {"privacy": {"epsilon_max": 2.0}, "algorithm": [{"name": "ts"}]},
            "[privacy] epsilon_max = 2.0: has no effect: no algorithm of this study uses a privacy mechanism",
        ),
        (
            {"privacy": {"epsilon_max": 2.0}, "algorithm": [{"name": "fts_de"}]},
            "[privacy] epsilon_max = 2.0: has no effect: no algorithm of this study adds noise",
        ),
        (
            {"privacy": {"epsilon_max": 2.0, "deltas": [0.2, 0.1]}},
            "[privacy] epsilon_max = 2.0: applies at the smallest delta, 0.1, where most releases cost nothing; add a delta",
        ),
        (
            {"budget": {"pulls": 99}, "algorithm": [{"name": "dp_fed_pne"}], "privacy": {"secure_noise": True}},
            "[privacy] secure_noise = true: has no effect",
        ),
    ],
    ids=["immediate", "selection", "epsilon", "no deltas", "delta", "unknown", "nothing private", "no noise", "weak", "local"],
)
def test_what_cannot_be_accounted_for_is_refused_before_the_start(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(StudyError) as refused:
        fedbo.load_study({**STUDY, "algorithm": [PRIVATE], "fault": [], **changes})
    assert line in str(refused.value), refused.value


CURVES = {"objective": {"name": "learning_curves", "agents": 4}, "algorithm": [{"name": "ts"}, {"name": "dp_fed_prior"}]}
PNE = {"budget": {"pulls": 99}, "algorithm": [{"name": "dp_fed_pne"}]}
WALL = {"timing": {"clock": "wall"}, "hosting": {"kind": "packed"}}
FOLLOWS = "depends on private values of"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        *(({**CURVES, "stopping": {"kind": kind}}, f"[stopping] kind = '{kind}': {FOLLOWS}") for kind in STOPPERS),
        ({**PNE, "budget": {"pulls": 99, "target": 0.5}}, f"[budget] target = 0.5: {FOLLOWS}"),
        ({"budget": {"iterations": 8, "target": 0.5}}, f"[budget] target = 0.5: {FOLLOWS}"),
        ({"budget": {"iterations": 8, "cost": 0.5}}, f"[budget] cost = 0.5: {FOLLOWS}"),
        ({**PNE, **WALL, "budget": {"pulls": 99, "target": 0.5}}, f"[budget] target = 0.5: {FOLLOWS}"),
        ({"fault": [{"kind": "loss"}, {"kind": "lie", "how": "copy"}]}, "[[fault]] 2 how = 'copy': sends another agent's"),
    ],
)
def test_what_follows_or_multiplies_private_values_is_refused(changes: dict[str, Any], line: str) -> None:
    study = {**STUDY, "timing": {}, "exchange": {"mode": "barrier"}, "algorithm": [PRIVATE], "fault": [], **changes}
    with pytest.raises(StudyError) as refused:
        fedbo.load_study(study)
    assert line in str(refused.value), refused.value
    free = {"fts_de": {}} if "pulls" not in study["budget"] else {"fed_pne": {"clip": True}}
    if "stopping" not in changes:  # methods without noise promise nothing, and may be combined with all of it
        fedbo.load_study({**study, "algorithm": [{"name": name, **settings} for name, settings in free.items()]})


def test_every_budget_is_blind_to_values_or_refused_beside_a_private_method() -> None:
    """A key of [budget] that is added later is refused until it is declared blind."""
    others = set(BudgetTable.model_fields) - _BLIND_BUDGETS
    assert others == {"target", "cost"} and _BLIND_BUDGETS < set(BudgetTable.model_fields)


def test_every_lie_is_the_liars_own_or_refused_beside_a_private_method() -> None:
    assert [how for how in LIES if not Lie(how=how).is_own] == ["copy"]


@pytest.mark.parametrize(("agents", "deltas"), [(4, (1e-3,)), (29, (1e-3,)), (200, (200**-1.1, 1 / 200**2))])
def test_default_deltas_are_never_weak(agents: int, deltas: tuple[float, ...]) -> None:
    study = fedbo.load_study({**STUDY, "objective": {"name": "quadratic", "agents": agents}})
    assert study.privacy.deltas == pytest.approx(deltas)


@pytest.mark.long
@pytest.mark.ray
def test_another_hosting_gives_the_same_ledger(ran: fedbo.Result, tmp_path: Path, ray_session: None) -> None:
    hosting = {"kind": "packed", "workers": 2}
    again = fedbo.run({**STUDY, "hosting": hosting, "recovery": {"events": 37}}, out=tmp_path / "again")
    assert files(again.directory) == files(ran.directory)
    first = pq.read_table(again.directory / LEDGER[0])
    assert np.isfinite(first["epsilon"].combine_chunks().flatten().to_numpy()).all()


def test_validate_says_what_will_be_spent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    barrier = {**STUDY, "exchange": {"mode": "barrier"}, "fault": [], "study": {"name": "forecast", "seed": 1}}
    study = write_study(barrier, tmp_path / "study.toml")
    assert main(["validate", str(study), "--format", "json"]) == OK
    said = json.loads(capsys.readouterr().out)["estimate"]
    result = fedbo.run(study, out=tmp_path / "run")
    spent = {row.algorithm: row for row in spending(result)}
    assert {row["algorithm"] for row in said["epsilon"]} == set(spent)
    for row in said["epsilon"]:
        assert row["epsilon"] == pytest.approx(spent[row["algorithm"]].epsilon, rel=0.01), "the forecast was wrong"
    sent = sum(kind == "sent" for kind in result.events["kind"].to_pylist())
    assert abs(sent - said["messages_up"]) < 5 * (162 * 0.35 * 0.65) ** 0.5, "a binomial number; false alarm below 1e-6"
    assert main(["validate", str(study), "--set", "privacy.epsilon_max=0.5"]) == OK
    assert "0.5 at delta" in capsys.readouterr().out


ROUNDS = {"share": 0.35}
BOUNDS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"mode": "barrier"}, ROUNDS, ""),
    ({"mode": "barrier"}, {"share": 1.0}, "at most"),
    ({"mode": "deadline", "length": 1.5}, ROUNDS, "at least"),
    ({"mode": "deadline", "length": 1.5, "late": "carry"}, ROUNDS, "at most"),
    ({"mode": "first_k", "k": 3}, ROUNDS, "at most"),
    ({"mode": "buffered", "k": 3}, {"share": 1.0}, "at most"),
    ({"mode": "immediate"}, {"share": 1.0}, "at most"),
]


@pytest.mark.parametrize(
    ("exchange", "settings", "bound"),
    [pytest.param(*one, marks=[pytest.mark.long] * (number > 1)) for number, one in enumerate(BOUNDS)],
    ids=[f"{e['mode']} {b}" for e, _, b in BOUNDS],
)
def test_an_estimate_says_on_which_side_of_the_spending_it_is(
    exchange: dict[str, Any], settings: dict[str, Any], bound: str, tmp_path: Path
) -> None:
    """Of each algorithm, and of all runs together."""
    methods = [{**PRIVATE, **settings}, {**PRIVATE, **settings, "label": "quiet", "noise_multiplier": 3.0}]
    study = fedbo.load_study({**STUDY, "fault": [], "exchange": exchange, "algorithm": methods})
    result, total = fedbo.run(study, out=tmp_path / "run"), total_estimate(study)
    assert total is not None and (together := spending_together(result)) is not None
    spent = [
        (each.bound, each.epsilon, row.epsilon) for each, row in zip(privacy_estimates(study), spending(result), strict=True)
    ]
    for said, estimated, real in [*spent, (total.bound, total.epsilon, together.epsilon)]:
        assert said == bound
        for before, after in zip(estimated, real, strict=True):
            holds = {
                "": before == pytest.approx(after, rel=1e-3),
                "at most": after <= before * 1.001,
                "at least": after >= before,
            }
            assert holds[bound], (bound, before, after)


@pytest.mark.long
def test_what_all_runs_of_a_study_cost_together_is_shown(ran: fedbo.Result, capsys: pytest.CaptureFixture[str]) -> None:
    together = spending_together(ran)
    assert together is not None and (together.runs, together.algorithms) == (4, ("dp_fts_de", "quiet"))
    most = [max(row.epsilon) for row in spending(ran)]
    assert max(most) < together.epsilon[0] < 2 * sum(most), "above the largest, below the sum over two replicates"
    assert main(["show", str(ran.directory), "--privacy"]) == OK
    assert f"has spent epsilon {together.epsilon[0]:.3g} at delta" in " ".join(capsys.readouterr().out.split())
    assert main(["show", str(ran.directory), "--privacy", "--format", "json"]) == OK
    (said,) = json.loads(capsys.readouterr().out)["privacy_together"]
    assert said["epsilon"] == list(together.epsilon)


@pytest.mark.long
def test_weak_deltas_and_durations_that_tell_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slopes = {"evaluation": {"model": "log_linear", "slopes": [1.0, 0.0]}}
    weak = {**STUDY, "algorithm": [PRIVATE], "privacy": {"deltas": [0.1, 1e-3]}, "timing": slopes}
    study = write_study(weak, tmp_path / "study.toml")
    assert main(["validate", str(study)]) == OK
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "epsilon at delta 0.1 is a weak guarantee" in said
        and "the duration of an evaluation depends on its point ('log_linear')" in said
    )
    run = fedbo.run(study, out=tmp_path / "run")
    assert main(["show", str(run.directory), "--privacy"]) == OK
    shown = " ".join(capsys.readouterr().out.split())
    assert "epsilon at delta 0.1 is a weak guarantee" in shown and "the times of messages depend on private values" in shown


def test_a_replay_is_compared_to_the_ledger_too(ran: fedbo.Result, tmp_path: Path) -> None:
    assert main(["replay", str(ran.directory), "--verify"]) == OK
    other = tmp_path / "other"
    shutil.copytree(ran.directory, other)
    entries = ran.privacy.to_pylist()
    entries[3]["clipped"] += 1
    pq.write_table(pa.Table.from_pylist(entries, schema=PRIVACY), other / LEDGER[0])
    assert "privacy differ first in row 3" in str(compare(other, ran.directory).difference)
