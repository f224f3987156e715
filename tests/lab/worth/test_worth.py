"""The command `fedbo worth`: what it adds to a study, what it measures, and what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbo
from fedbo.analysis.summary import Difference
from fedbo.cli import main
from fedbo.lab.worth import report as worth
from fedbo.lab.worth.gain import Gain, estimate_gain
from fedbo.lab.worth.report import Worth, worth_study
from fedbo.objectives.base import Metric
from fedbo.study.study import StudyError, load_study

GAIN = Gain(random=0.0, common=0.9, own=1.0, alike=0.8, least=0.7, most=0.9, targets=4, points=64)


def study(algorithms: tuple[str, ...] = ("random",), **objective: Any) -> dict[str, Any]:
    return {
        "study": {"name": "small", "seed": 4, "replicates": 2},
        "objective": {"name": "quadratic", "agents": 4, **objective},
        "agents": {"initial": 1},
        "budget": {"iterations": 2},
        "algorithm": [{"name": name} for name in algorithms],
        "hosting": {"kind": "inline", "workers": 0},
    }


def test_a_study_gets_local_federated_bound_and_both_controls() -> None:
    asked, left = worth_study(load_study(study(("fts",))))
    names = [table.name for table in asked.algorithm]
    assert names[0] == "fts" and {"random", "gp_ei", "fed_prior", "share_best", "pooled"} <= set(names) and left == []
    assert {"fts_noise", "fed_prior_noise", "fed_prior_shuffled"} <= set(names)
    every = {table.name: table.settings["every"] for table in asked.algorithm if table.name.startswith("fed_prior")}
    assert set(every.values()) == {1}  # a control sends as often as what it is a control of
    assert worth_study(asked)[0].labels == asked.labels


def test_a_sweep_is_refused() -> None:
    with pytest.raises(StudyError, match="cannot be combined with fedbo worth"):
        worth_study(load_study(study() | {"sweep": {"objective.spread": [0.0, 0.1]}}))


def test_equal_agents_share_their_best_point_and_unequal_ones_do_not() -> None:
    same = estimate_gain(load_study(study(spread=0.0)), 64)
    assert same.alike == pytest.approx(1.0) and same.own == 0.0 and same.share > 0.99
    other = estimate_gain(load_study(study(spread=1.0)), 64)
    assert other.least < same.alike and other.random < other.common < other.own and other.share < same.share
    assert same == estimate_gain(load_study(study(spread=0.0)), 64)


def row(name: str, role: worth.Role, low: float, high: float, told: tuple[float, float] | None = None) -> Worth:
    gains = (Difference((low + high) / 2.0, low, high),) * 3
    controls = (None,) * 3 if told is None else (Difference(sum(told) / 2.0, *told),) * 3
    return Worth(name, role, (0.0, 0.0, 0.0), gains, controls, high < 0.0, 2048.0, 0.5 if name == "private" else 0.0)


def said(*rows: Worth, reached: int | None = None) -> str:
    return " ".join(worth._words(rows, GAIN, "gp_ei", (reached, 20), Metric()))


def test_a_verdict_says_what_is_clear_and_no_more() -> None:
    pays = said(row("pooled", "bound", 0.1, 0.3), row("fed", "federated", 0.1, 0.2, (0.05, 0.1)))
    assert "Federation can help" in pays and "so the content of messages matters" in pays and "does not reach" in pays
    placebo = said(row("pooled", "bound", 0.1, 0.3), row("fed", "federated", 0.1, 0.2, (-0.1, 0.1)), reached=7)
    assert "so the content of messages may not matter" in placebo and "After 7 iterations" in placebo
    nothing = said(row("pooled", "bound", -0.1, 0.3), row("fed", "federated", -0.3, -0.1))
    assert (
        "do not show that federation can help" in nothing and "Clearly worse than each local method at the end: fed" in nothing
    )
    assert "It is unknown whether federation can help" in said(row("fed", "federated", -0.1, 0.2))


def test_the_message_worth_most_is_named_per_byte_and_per_epsilon() -> None:
    words = said(row("private", "federated", 0.1, 0.3), row("fed", "federated", -0.1, 0.7))
    assert "per KiB sent by an agent: fed, 0.15 at half (its interval contains 0)" in words
    assert "per unit of epsilon: private, 0.4 at half" in words


def test_intervals_widen_with_the_number_of_comparisons() -> None:
    found, other = ({r: np.array([r * 0.1 + x]) for r in range(4)} for x in (1.0, 0.0))
    other[0] = other[0] - 0.2
    one, many = (worth._gaps(found, other, count)[0] for count in (1, 5))
    assert one is not None and many is not None
    assert one.mean == many.mean and many.high - many.low > one.high - one.low > 0.0
    assert worth._gaps({0: found[0]}, other, 1) == (None,)


@pytest.mark.parametrize(("locals_", "replicates"), [(1, 5), (1, 10), (3, 5), (3, 10)])
def test_a_method_that_is_equal_in_law_is_seldom_called_clearly_worse(locals_: int, replicates: int) -> None:
    # Two federated methods and the local ones are independent and normal: at most 2.5 % of draws err for one local method, by
    # Bonferroni, and fewer for three. Of 600 draws, more than 28 have probability 0.0009. The seed is fixed.
    rng, wrong = np.random.default_rng([locals_, replicates]), 0
    for values in rng.standard_normal((600, locals_ + 2, replicates, 1)):
        first, second, *local = ({r: one[r] for r in range(replicates)} for one in values)
        wrong += any(worth.is_clearly_worse(mine, local, 2) for mine in (first, second))
    assert wrong <= 28


def test_a_method_is_clearly_worse_only_if_it_is_worse_than_each_local_one() -> None:
    means = {shift: {r: np.array([0.01 * r * r + shift + 0.001 * r]) for r in range(5)} for shift in (0.0, 1.0, 2.0)}
    assert worth.is_clearly_worse(means[0.0], [means[1.0], means[2.0]], 2)
    assert not worth.is_clearly_worse(means[1.0], [means[0.0], means[2.0]], 2)


def test_the_command_answers_and_goes_on_with_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "BESIDE", ("random", "share_best"))  # the others decide with what is compiled
    path = tmp_path / "study.toml"
    path.write_text(load_study(study()).to_toml())
    given = ["worth", str(path), "--out", str(tmp_path / "run"), "--points", "16", "-q"]
    assert main(given) == 0
    first = capsys.readouterr().out
    assert "share_best" in first and "the agents' own optima" in first and "results: " in first
    assert main(given) == 0 and capsys.readouterr().out == first  # nothing is run again
    assert main(["worth", str(tmp_path / "run"), "--points", "16", "--format", "json"]) == 0
    assert '"local": "random"' in capsys.readouterr().out


def test_a_run_without_an_algorithm_to_compare_with_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedbo.run({**study(), "algorithm": [{"name": "share_best"}]}, out=tmp_path / "run")
    assert main(["worth", str(tmp_path / "run"), "--points", "16"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no algorithm without messages to compare with; call fedbo worth" in line


@pytest.mark.parametrize(
    ("alike", "words"),
    [
        (0.1, "0.10: messages are not shown to help."),
        (0.5, "0.50: fed_prior helps where agents have earlier evaluations."),
        (0.8, "0.80: fed_prior and share_best help, most where agents have earlier evaluations."),
    ],
)
def test_a_rule_of_thumb_follows_from_how_alike_agents_are(alike: float, words: str) -> None:
    assert worth._expected(replace(GAIN, alike=alike)) == [f"Rule of thumb for agents with a rank correlation of {words}"]
    assert worth._expected(replace(GAIN, alike=float("nan"))) == []


def test_the_function_answers_as_the_command_does_and_goes_on_with_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fedbo.worth(study(), out=tmp_path / "run", points=32)
    assert str(found).splitlines() == [*found.words]
    again = fedbo.worth(study(), out=tmp_path / "run", points=32)
    assert main(["worth", str(tmp_path / "run"), "--points", "32", "--format", "json"]) == 0
    assert list(found.words) == list(again.words) == json.loads(capsys.readouterr().out)["words"]
