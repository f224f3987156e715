"""Beliefs computed anew, against those that agents had during the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.actors.storage.rows import RunKey
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.gp import GP
from fedbo.algorithms.ts import TS
from fedbo.analysis import failures
from fedbo.analysis.result import Result
from fedbo.execution.runner import run_study
from fedbo.figures.page.beliefs import SIDES, beliefs_of, no_belief
from fedbo.study.study import load_study
from fedbo.surrogates.acquisition import expected_improvement, prediction
from fedbo.surrogates.draws import value
from fedbo.surrogates.gp import predict
from fedbo.surrogates.posterior import observed_means

FAILING = {"name": "python_function", "function": "test_beliefs:failing", "low": [0.0], "high": [1.0], "agents": 2}
STUDY: dict[str, Any] = {
    "study": {"name": "believing", "seed": 4},
    "objective": {"name": "branin", "agents": 3},
    "agents": {"initial": 3},
    "budget": {"iterations": 8},
    "algorithm": [{"name": "ts"}, {"name": "gp_ei"}, {"name": "fts"}],
    "fault": [{"kind": "crash", "agents": [1], "event": 20, "restart": 1.0}],
}


def failing(x: np.ndarray) -> float:
    """Fail on the right."""
    if x[0] > 0.8:
        raise ValueError("no")
    return float(x[0])


def grid(dim: int) -> np.ndarray:
    side = np.linspace(0, 1, SIDES[dim])
    return np.stack(np.meshgrid(*[side] * dim, indexing="ij"), axis=-1).reshape(-1, dim)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], tuple[np.ndarray, ...]]:
    """Note the posterior and the acquisition at the grid of every decision of a run, by agent and step."""
    found: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}
    ei, ts = GP._maximum, TS._maximum

    def spy(self: GP | TS, acquired: Any, state: Any, streams: Any) -> Any:
        at = to_coordinates(grid(state.u.shape[1]), state.axes or self.coordinates)
        if isinstance(self, GP):
            mean, variance = predict(acquired, at)
            best = observed_means(acquired).max()
            found[streams.owner, streams.step] = (mean, variance**0.5, expected_improvement(prediction(acquired, at), best)[0])
        else:
            mean, variance = predict(self.posterior(state), at)
            drawn = (value(acquired, at) - state.hyper.offset) / state.hyper.scale
            found[streams.owner, streams.step] = (mean, variance**0.5, drawn)
        return (ei if isinstance(self, GP) else ts)(self, acquired, state, streams)  # type: ignore[arg-type]

    monkeypatch.setattr(GP, "_maximum", spy)
    monkeypatch.setattr(TS, "_maximum", spy)
    return found


def check(result: Result, label: str, noted: dict[tuple[int, int], tuple[np.ndarray, ...]], agents: int) -> int:
    """Compare all beliefs of a run with what was noted; return how many decisions were the agents' own."""
    key, rows, own = RunKey(0, label, 0), result.observations.to_pylist(), 0
    assert no_belief(result, key) == ""
    for agent in range(agents):
        mine = [row for row in rows if row["agent"] == agent]
        found = beliefs_of(result, key, agent, mine, most=100)
        assert [one.step for one in found] == sorted({row["step"] for row in mine if row["step"]})
        for one in found:
            (row,) = [row for row in mine if row["step"] == one.step]
            assert one.time == row["started"] and one.origin == row["origin"] and list(one.chosen) == row["u"]
            before = [other for other in mine if other["step"] < one.step and other["error"] is None]
            np.testing.assert_allclose(one.x, [other["u"] for other in before], atol=1e-9)
            if (agent, one.step) in noted:
                own += 1
                for mine_, theirs in zip((one.mean, one.spread, one.acquisition), noted[agent, one.step], strict=True):
                    np.testing.assert_array_equal(mine_, theirs)
    return own


FIXED = {"name": "ts", "surrogate": "fixed"}
OWN = {"name": "fts", "p": 1.0}


@pytest.mark.parametrize(
    ("method", "least"),
    [
        ({"name": "ts"}, 24),
        ({"name": "gp_ei"}, 24),
        ({"name": "fts"}, 8),
        pytest.param({"name": "dp_fts_de"}, 8, marks=pytest.mark.long),
        pytest.param({"name": "ts", "preset": "faithful"}, 24, marks=pytest.mark.long),
        pytest.param(FIXED, 24, marks=pytest.mark.long),
        (OWN, 24),
    ],
    ids=["ts", "gp_ei", "fts", "dp_fts_de", "faithful", "fixed", "own"],
)
def test_beliefs_are_those_of_the_run_to_the_bit(method: dict[str, Any], least: int, noted: Any, tmp_path: Path) -> None:
    study = load_study({**STUDY, "algorithm": [{**method, "label": "mine"}]})
    result = run_study(study, tmp_path / "run")
    assert check(result, "mine", noted, 3) >= least


@pytest.mark.parametrize("label", ["ts", "gp_ei"])
def test_failed_evaluations_enter_as_in_the_run(label: str, noted: Any, tmp_path: Path) -> None:
    study = load_study({**STUDY, "objective": FAILING, "algorithm": [{"name": label}], "fault": []}, trust=True)
    result = run_study(study, tmp_path / "run")
    assert failures(result)[0] > 0
    assert check(result, label, noted, 2) >= 12


def test_a_few_moments_are_spread_from_the_first_decision_to_the_last(tmp_path: Path) -> None:
    result = run_study(load_study({**STUDY, "algorithm": [{"name": "ts"}]}), tmp_path / "run")
    rows = [row for row in result.observations.to_pylist() if row["agent"] == 0]
    steps = [one.step for one in beliefs_of(result, RunKey(0, "ts", 0), 0, rows, most=3)]
    assert (steps[0], steps[-1], len(steps)) == (1, 8, 3)
    rows[-1]["error"] = "forgotten in a crash"
    assert beliefs_of(result, RunKey(0, "ts", 0), 0, rows) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"algorithm": [{"name": "fed_prior"}]}, "the surrogate of fed_prior cannot be computed anew"),
        ({"algorithm": [{"name": "ts", "surrogate": "features"}]}, "only a Gaussian process"),
        ({"objective": {"name": "hartmann", "agents": 2}}, "more than two inputs"),
        ({"agents": {"initial": 3, "history": {"algorithm": "random", "observations": 5}}}, "an earlier task"),
    ],
)
def test_a_run_without_such_a_belief_says_why(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    study = load_study({**STUDY, "fault": [], "algorithm": [{"name": "ts"}], "budget": {"iterations": 1}, **changes})
    result = run_study(study, tmp_path / "run")
    assert why in no_belief(result, RunKey(0, study.labels[0], 0))
