"""What a run of ADMM agreed on, and the regret of bandits: both come before the summary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedbo
from fedbo.analysis import regret_summary
from fedbo.analysis.answers import answers
from fedbo.analysis.result import Result
from fedbo.cli import OK, main
from fedbo.figures.plot import View, figure_of

EDGES = [[[0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [[-1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Result:
    study = {
        "study": {"name": "flows", "replicates": 2},
        "objective": {"name": "network_flow", "nodes": 3},
        "budget": {"iterations": 5},
        "exchange": {"mode": "barrier"},
        "algorithm": [
            {"name": "random"},
            {"name": "admm_allocation", "matrices": EDGES, "low": [-1.0, -1.0], "high": [1.0, 1.0]},
        ],
    }
    return fedbo.run(study, out=tmp_path_factory.mktemp("runs") / "flows")


def test_the_answer_has_its_cost_its_violation_and_its_residuals(capsys: pytest.CaptureFixture[str], flows: Result) -> None:
    (row,) = answers(flows)
    rows = [one for one in flows.observations.to_pylist() if one["origin"] == "agreed"]
    assert len(rows) == 2 * 3 and (row.algorithm, row.agents, row.replicates) == ("admm_allocation", 3, 2)
    assert row.cost.mean == pytest.approx(np.mean([-one["score"] for one in rows])) and row.cost.error is not None
    gaps = [
        np.abs(sum(np.array(EDGES[one["agent"]]) @ one["x"] for one in rows if one["replicate"] == replicate)).max()
        for replicate in range(2)
    ]
    assert row.violation == pytest.approx(np.mean(gaps))
    assert row.primal is not None and row.primal > 0 and row.dual is not None and row.dual > 0
    assert all(one["note"].startswith("primal residual ") for one in rows)
    assert row.time == pytest.approx(np.mean([max(o["finished"] for o in rows if o["replicate"] == r) for r in range(2)]))
    assert main(["show", str(flows.directory)]) == OK
    text = capsys.readouterr().out
    assert text.index("primal residual") < text.index("best cost") and str(row.cost) in text


@pytest.mark.parametrize(
    ("name", "points", "gap"), [("admm_consensus", [[0.2], [0.5]], 0.3), ("admm_allocation", [[1], [2]], 3)]
)
def test_a_violation_is_of_the_constraint_of_the_method(name: str, points: list[list[float]], gap: float) -> None:
    from fedbo.algorithms.catalog import algorithms

    method = algorithms()[name].make()
    assert method.violation(np.array(points)) == pytest.approx(gap)  # type: ignore[attr-defined]


def test_bandits_show_their_regret_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = {
        "study": {"name": "arms"}, "objective": {"name": "garland", "agents": 2}, "budget": {"pulls": 20},
        "exchange": {"mode": "barrier"}, "algorithm": [{"name": "fed_pne"}],
    }  # fmt: skip
    result = fedbo.run(study, out=tmp_path / "run")
    assert main(["show", str(result.directory)]) == OK
    text = capsys.readouterr().out
    assert text.index("R(T)/M") < text.index("best value") and f"{regret_summary(result)[0].mean:.4g}" in text
    titles = [axes.get_title("left") for axes in figure_of(result, View()).axes]
    assert titles[:2] == ["Cumulative regret of an agent", "Regret of one evaluation"] and len(titles) == 3
    monkeypatch.setattr("fedbo.figures.plot.regret_traces", lambda result: [])
    assert figure_of(result, View()).axes[0].get_title("left").startswith("Best")
