"""Ask and tell with a dictionary: objectives and limits of one agent, by the words of [[metric]]."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.figures.layout import Look
from fedbo.objectives.outcome import outcome_by_name
from fedbo.settings.errors import ArgumentError

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
LIMITED = [{"name": "error", "mode": "min"}, {"name": "seconds", "at_most": 60.0}]
SEVERAL = [{"name": "error", "mode": "min", "reference": 3.0}, {"name": "seconds", "mode": "min", "reference": 200.0}]


def outcome(configuration: dict[str, Any]) -> dict[str, float]:
    return {"error": (configuration["x"] - 0.9) ** 2 + 0.1 * configuration["y"], "seconds": 100.0 * configuration["x"]}


def played(agent: fedbo.Agent, rounds: int) -> list[dict[str, Any]]:
    """Ask and tell, and return all configurations."""
    found = []
    for _ in range(rounds):
        for token, configuration in agent.ask(1):
            agent.tell(token, outcome(configuration))
            found.append(configuration)
    return found


def test_the_best_configuration_keeps_the_limits_and_a_reopened_agent_goes_on_as_if_nothing_happened(tmp_path: Path) -> None:
    terms = fedbo.Terms("random", metrics=LIMITED)
    assert terms.mode == "min"
    with fedbo.Agent(tmp_path / "whole", SPACE, terms) as agent:
        asked = played(agent, 12)
        kept = [outcome(one)["error"] for one in asked if outcome(one)["seconds"] <= 60.0]
        best = agent.best()
        assert best is not None and best[1] == min(kept) > min(outcome(one)["error"] for one in asked)
    with fedbo.Agent(tmp_path / "parts", SPACE, terms) as agent:
        first = played(agent, 5)
    with fedbo.Agent(tmp_path / "parts", SPACE, terms) as agent:
        assert first + played(agent, 7) == asked and agent.best() == best
    (tmp_path / "parts" / "state.checkpoint").unlink()
    with fedbo.Agent(tmp_path / "parts", SPACE, terms) as agent:  # from the log alone
        assert agent.best() == best and len(agent.ask(1)) == 1


def test_the_front_is_of_the_told_outcomes_that_no_other_one_dominates(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("random", metrics=SEVERAL)) as agent:
        asked = played(agent, 20)
        seen = [outcome(one) for one in asked]
        expected = [
            one
            for one in seen
            if not any(other != one and other["error"] <= one["error"] and other["seconds"] <= one["seconds"] for other in seen)
        ]
        assert sorted((metrics["error"], metrics["seconds"]) for _, metrics in agent.front()) == sorted(
            (one["error"], one["seconds"]) for one in expected
        )
        assert all(outcome(configuration) == metrics for configuration, metrics in agent.front())


def test_a_metric_that_is_not_known_is_kept_as_such_and_its_point_is_not_feasible(tmp_path: Path) -> None:
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("gp_ei", metrics=LIMITED)) as agent:
        for token, _ in agent.ask(2):
            agent.tell(token, {"error": 0.0, "seconds": None})
        assert agent.best() is None
        ((token, _),) = agent.ask(1)
        agent.tell(token, {"error": None, "seconds": 1.0})
        agent.add({"x": 0.5, "y": 0.5}, {"error": 7.0, "seconds": 50.0, "accuracy": 0.5}, "before")
        assert agent.best() == ({"x": 0.5, "y": 0.5}, 7.0) and agent.front()[0][1]["accuracy"] == 0.5
        assert len(played(agent, 3)) == 3
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {"error": None, "seconds": 1.0} in [entry.get("metrics") for entry in entries]


def test_terms_without_metrics_are_those_of_before(tmp_path: Path) -> None:
    assert "metrics" not in fedbo.Terms("ts").shared() and fedbo.Terms("ts", mode="min").goals is None
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("random")) as agent:
        ((token, _),) = agent.ask(1)
        with pytest.raises(ArgumentError, match="is a dictionary, but the terms have no metrics; add metrics to fedbo.Terms"):
            agent.tell(token, {"error": 1.0})
        with pytest.raises(ArgumentError, match=r"front\(\): requires objectives"):
            agent.front()


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ([{"name": "a"}], "metrics[0]['name']: is neither an objective nor limited"),
        ({"name": "a", "mode": "min"}, "must be a list of tables"),
        ([*LIMITED, LIMITED[1]], "metrics: have 'seconds' twice; join the two tables"),
        ([{"name": "a", "mode": "min"}, {"name": "b", "mode": "max"}], "'a' has no reference; add the worst value"),
        ([{"name": name, "mode": "min", "reference": 1.0} for name in "abcde"], "have 5 objectives; use at most 4"),
        ([{"name": "a", "at_most": 1.0, "at_least": 2.0}], "contradicts at_most = 1; set at most that"),
        ([3], "metrics[0] = 3: must be a table"),
    ],
)
def test_metrics_that_make_no_sense_are_refused_with_their_place(metrics: Any, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        fedbo.Terms("random", metrics=metrics)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.0, "must be a dictionary with 'error', 'seconds', or None if the evaluation failed"),
        ({"error": 1.0}, "has no 'seconds'; add it, with None if it is not known"),
        ({"error": 1.0, "seconds": "fast"}, "value['seconds'] = 'fast': must be a number"),
    ],
)
def test_an_outcome_without_its_metrics_is_refused_and_the_point_stays_open(tmp_path: Path, value: Any, words: str) -> None:
    with fedbo.Agent(tmp_path, SPACE, fedbo.Terms("random", metrics=LIMITED)) as agent:
        ((token, _),) = agent.ask(1)
        with pytest.raises(ArgumentError) as caught:
            agent.tell(token, value)
        assert words in str(caught.value)
        assert agent.tell(token, None) and agent.best() is None


def test_a_method_that_learns_one_objective_is_refused_with_several() -> None:
    with pytest.raises(ArgumentError, match="algorithm = 'gp_ucb': .* one objective .*; use 'gp_ei' or 'ts'"):
        fedbo.Terms("gp_ucb", metrics=SEVERAL)


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e101, -1e200, {"loss": 1e101}])
def test_a_finite_number_that_no_method_can_learn_is_refused_and_not_taken_for_a_failure(value: Any, tmp_path: Path) -> None:
    metrics = [{"name": "loss", "mode": "min"}] if isinstance(value, dict) else []
    with fedbo.Agent(tmp_path, {"x": (0.0, 1.0)}, fedbo.Terms("random", metrics=metrics)) as agent:
        (one,) = agent.ask()
        with pytest.raises(fedbo.errors.ArgumentError, match=r"must be at most 1e\+100 in magnitude; rescale it, or tell None"):
            agent.tell(one.token, value)
        with pytest.raises(fedbo.errors.ArgumentError, match=r"must be at most 1e\+100 in magnitude"):
            agent.add({"x": 0.5}, value)
        assert agent.pending() == [one]
        with pytest.raises(fedbo.errors.ArgumentError, match="n = 10001: must be a whole number from 1 to 10000"):
            agent.ask(10_001)


@pytest.mark.parametrize(
    ("name", "use"), [("n_trials", "iterations"), ("direction", "mode='min'"), ("timeout", "seconds"), ("pruner", "stopping")]
)
def test_the_names_of_other_tuners_lead_to_ours(name: str, use: str) -> None:
    with pytest.raises(fedbo.errors.ArgumentError, match=f"has no argument '{name}'; use {use}"):
        fedbo.tune(len, {"x": (0.0, 1.0)}, **{name: 3})  # type: ignore[misc]


def test_what_is_no_number_beside_the_metric_is_named_with_its_key() -> None:
    with pytest.raises(TypeError, match="returned model = None; return a number there, or leave 'model' out"):
        outcome_by_name({"value": 0.5, "model": None}, "value", 1)
    with pytest.raises(fedbo.errors.ArgumentError, match="width = 'a': must be a finite number"):
        Look(width="a").check()  # type: ignore[arg-type]
