"""`fedbo privacy`: the noise that an epsilon needs, and the epsilon that a noise gives."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedbo.cli import OK, WRONG_INPUT, main
from fedbo.privacy.accounting import ACCOUNTANTS, epsilon
from fedbo.privacy.estimates import privacy_estimates
from fedbo.privacy.gaussian import PrivacyCharge
from fedbo.study.study import load_study

PAPER = ("--noise", "1.0", "--rounds", "40", "--agents", "200", "--q", "0.25")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(("privacy", *arguments)) == OK
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_a_noise_gives_an_epsilon_by_each_accountant_at_the_papers_delta_and_a_small_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = printed(capsys, *PAPER)
    assert "epsilon at delta 0.00294" in shown and "epsilon at delta 1e-05" in shown
    assert re.search(r"moments +1 +9\.908 +14\.39", shown)
    assert re.search(r"rdp +1 +8\.43\d? +12\.\d+", shown)
    assert re.search(r"pld +1 +7\.054 +11\.28", shown)


def test_an_epsilon_needs_a_noise_which_then_gives_that_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--epsilon", "2", "--delta", "1e-3", "--rounds", "60", "--agents", "200", "--q", "0.25")
    facts = json.loads(printed(capsys, *arguments, "--format", "json"))
    assert facts["rounds"] == 60 and facts["q"] == 0.25
    assert [row["accountant"] for row in facts["accountants"]] == list(ACCOUNTANTS)
    noises = [row["noise"] for row in facts["accountants"]]
    assert noises == sorted(noises, reverse=True)
    for row in facts["accountants"]:
        assert [said["delta"] for said in row["epsilons"]] == [1e-3, 1e-5]
        assert row["epsilons"][0]["epsilon"] == pytest.approx(2, rel=1e-3) and row["epsilons"][1]["epsilon"] > 2.4
        assert row["epsilons"][0]["epsilon"] == epsilon({PrivacyCharge(0.25, row["noise"]): 60}, 1e-3, row["accountant"])
    assert re.search(r"moments +4\.05\d? +2 ", printed(capsys, *arguments))


def test_a_small_delta_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(printed(capsys, "--noise", "3", "--delta", "1e-6", "--format", "json"))
    assert [len(row["epsilons"]) for row in facts["accountants"]] == [1, 1, 1]


@pytest.mark.long
def test_an_accountant_that_cannot_show_an_epsilon_says_so_and_the_others_still_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("--epsilon", "0.1", "--delta", "1e-3", "--q", "0.2")
    shown = printed(capsys, *arguments)
    assert re.search(r"moments +– +– +–", shown) and re.search(r"pld +\d", shown)
    assert "–: this accountant cannot reach epsilon 0.1 at delta 0.001" in shown
    assert json.loads(printed(capsys, *arguments, "--format", "json"))["accountants"][0]["noise"] is None


STUDY: dict[str, Any] = {
    "study": {"name": "noise"},
    "objective": {"name": "quadratic", "agents": 30},
    "budget": {"iterations": 6},
    "algorithm": [{"name": "dp_fts_de", "share": 0.3}, {"name": "dp_fed_prior", "share": 0.3}, {"name": "random"}],
    "exchange": {"mode": "barrier"},
}
FTS = "algorithm.dp_fts_de."


@pytest.mark.long
@pytest.mark.parametrize(
    "sets",
    [
        pytest.param([], marks=pytest.mark.long),
        pytest.param(["exchange={mode='first_k', k=5}"], marks=pytest.mark.long),
        [f"{FTS}quantile=0.5", f"{FTS}count_noise=9.0", "privacy.deltas=[1e-5]"],
        pytest.param([f"{FTS}sampling=fixed", f"{FTS}regions=1"], marks=pytest.mark.long),
        pytest.param(
            ["fault=[{kind='loss', probability=0.1}]", "exchange={mode='deadline', length=2.0}"], marks=pytest.mark.long
        ),
    ],
)
def test_the_noise_for_a_study_spends_the_epsilon_by_the_preflights_own_reckoning(
    sets: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(load_study(STUDY).to_toml(), encoding="utf-8")
    asked = [part for one in sets for part in ("--set", one)]
    found = json.loads(printed(capsys, "--study", str(path), "--epsilon", "1.5", *asked, "--format", "json"))
    assert [one["algorithm"] for one in found["algorithms"]] == ["dp_fts_de", "dp_fed_prior"]
    noises = [f"algorithm.{one['algorithm']}.noise_multiplier={one['needed']!r}" for one in found["algorithms"]]
    for estimate, one in zip(privacy_estimates(load_study(path, [*sets, *noises])), found["algorithms"], strict=True):
        assert one["delta"] == min(estimate.deltas) and one["bound"] == estimate.bound
        assert estimate.epsilon[estimate.deltas.index(one["delta"])] == pytest.approx(1.5, rel=2e-3)
    shown = printed(capsys, "--study", str(path), "--epsilon", "1.5", *asked)
    assert "noise for epsilon 1.5" in shown and f"{found['algorithms'][0]['needed']:.4g}" in shown


def test_a_study_that_adds_no_noise_has_none_to_be_computed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "study.toml"
    path.write_text(load_study({**STUDY, "algorithm": [{"name": "random"}]}).to_toml(), encoding="utf-8")
    assert main(("privacy", "--study", str(path), "--epsilon", "2")) == WRONG_INPUT
    assert "no algorithm of" in capsys.readouterr().err


@pytest.mark.parametrize("noise", ["1e-300", "0.001", "1e9"])
def test_absurd_noises_have_answers(capsys: pytest.CaptureFixture[str], noise: str) -> None:
    for q in ("1", "0.3"):
        printed(capsys, "--noise", noise, "--agents", "29", "--q", q, "--rounds", "1000000")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "set exactly one of --epsilon and --noise, not neither"),
        (
            ("--epsilon", "2", "--noise", "1", "--agents", "9"),
            "set exactly one of --epsilon and --noise, not --epsilon 2 and --noise 1",
        ),
        (("--noise", "1"), "set --delta, or set --agents for the default of 1 / agents^1.1"),
        (("--noise", "0", "--agents", "9"), "--noise must be greater than 0 and finite, not 0; try 1"),
        (("--noise", "nan", "--agents", "9"), "--noise must be greater than 0 and finite, not nan; try 1"),
        (("--epsilon", "inf", "--agents", "9"), "--epsilon must be greater than 0 and finite, not inf; try 2"),
        (("--noise", "1", "--agents", "9", "--q", "2"), "--q must be in (0, 1], not 2; 1 means no sampling"),
        (("--noise", "1", "--agents", "9", "--q", "0"), "--q must be in (0, 1], not 0"),
        (("--noise", "1", "--delta", "1"), "--delta must be between 1e-09 and 0.5, not 1; try 1e-5"),
        (("--noise", "1", "--delta", "0"), "--delta must be between 1e-09 and 0.5, not 0; try 1e-5"),
        (("--noise", "1", "--agents", "1"), "'--agents'"),
        (("--noise", "1", "--agents", "9", "--rounds", "0"), "'--rounds'"),
        (("--noise", "much", "--agents", "9"), "'--noise'"),
        (("--study", "study.toml"), "--study requires --epsilon"),
        (("--study", "study.toml", "--epsilon", "2", "--rounds", "5"), "--rounds cannot be combined with --study"),
        (("--study", "study.toml", "--epsilon", "2", "--noise", "1"), "--noise cannot be combined with --study"),
        (("--epsilon", "2", "--agents", "9", "--set", "budget.iterations=3"), "--set requires --study; add --study"),
    ],
)
def test_wrong_arguments_end_with_one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    assert main(("privacy", *arguments)) == WRONG_INPUT
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and said in err and "see fedbo privacy --help" in err
