"""Costs and the fidelity axis in a table: what is stored, what the surfaces make of it, and studies on it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import fedbo
from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Fidelity, fidelity_of, reports_costs
from fedbo.objectives.functions import LearningCurves
from fedbo_tables.table import fingerprint, levels
from fedbo_tables.tabulated import Tabulated, TabulatedAgent

EPOCHS, SETTINGS = 6, ["agents=2", "epochs=6", "cost_spread=3.0"]
RNG = Streams(0).rng("unused")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "curves.table"
    fedbo.tabulate("learning_curves", overrides=SETTINGS, points=64, out=folder)
    return folder


def surrogate(folder: Path, agent: int, interpolation: Any) -> TabulatedAgent:
    return Tabulated(str(folder), interpolation).objective(agent, RNG, RNG)


def live(agent: int) -> Any:
    streams = Streams(0)
    federation = LearningCurves(agents=2, epochs=EPOCHS, cost_spread=3.0)
    return federation.objective(agent, streams.shared("objective"), streams.of(agent).rng("objective"))


def test_a_table_has_the_cost_and_the_value_at_every_fidelity(table: Path) -> None:
    for row in pq.read_table(table / "points.parquet").to_pylist():
        objective, x = live(row["agent"]), np.array(row["x"])
        assert row["cost"] == objective.cost(x) and row["value"] == objective.score(x)
        assert row["curve"] == [objective.score_at(x, epoch) for epoch in range(1, EPOCHS)]
    made = Tabulated(str(table))
    assert reports_costs(made) and fidelity_of(made) == Fidelity("epoch", 1, EPOCHS)


def test_the_nearest_point_gives_its_own_costs_and_curve_and_the_mean_is_close(table: Path) -> None:
    rows = [row for row in pq.read_table(table / "points.parquet").to_pylist() if row["agent"] == 1]
    near, mean, true = surrogate(table, 1, "nearest"), surrogate(table, 1, "gp"), live(1)
    for row in rows[::4]:
        x, whole = np.array(row["x"]), [*row["curve"], row["value"]]
        assert near.cost(x) == pytest.approx(row["cost"], rel=1e-12)
        assert [near.evaluate_at(x, epoch, RNG) for epoch in range(1, EPOCHS + 1)] == whole
    for x in Streams(1).rng("points").random((20, 2)):
        assert mean.cost(x) == pytest.approx(true.cost(x), rel=0.05)
        for epoch in (1, 3, EPOCHS):
            assert mean.evaluate_at(x, epoch, RNG) == pytest.approx(true.score_at(x, epoch), abs=0.05)
        assert mean.evaluate_at(x, EPOCHS, RNG) == mean.evaluate(x, RNG)
    copy = pickle.loads(pickle.dumps(mean))
    assert copy.cost(x) == mean.cost(x) and copy.evaluate_at(x, 2, RNG) == mean.evaluate_at(x, 2, RNG)


def test_of_a_long_axis_the_table_has_some_fidelities_and_between_them_it_is_linear(tmp_path: Path) -> None:
    assert levels(Fidelity("epoch", 1, 32)) == tuple(range(1, 33)) and levels(Fidelity("epoch", 3, 5)) == (3, 4, 5)
    some = levels(Fidelity("epoch", 1, 10**6))
    assert some[0] == 1 and some[-1] == 10**6 and 20 < len(some) <= 32
    steps = np.diff(np.log(some[15:]))
    assert np.ptp(steps) < 0.01
    fedbo.tabulate("learning_curves", overrides=["agents=1", "epochs=1000000"], points=4, out=tmp_path / "t")
    one, x = surrogate(tmp_path / "t", 0, "nearest"), np.array([0.4, 0.2])
    low, high = some[20], some[21]
    ends = [one.evaluate_at(x, level, RNG) for level in (low, high)]
    for fidelity in (low + 1, (low + high) // 2, high - 1):
        assert one.evaluate_at(x, fidelity, RNG) == pytest.approx(np.interp(fidelity, (low, high), ends), rel=1e-12)


@pytest.mark.long
def test_a_table_goes_on_to_the_same_bits_and_its_costs_count_in_its_fingerprint(table: Path, tmp_path: Path) -> None:
    for points in (20, 64):
        fedbo.tabulate("learning_curves", overrides=SETTINGS, points=points, out=tmp_path / "t")
    assert (tmp_path / "t" / "points.parquet").read_bytes() == (table / "points.parquet").read_bytes()
    assert fingerprint(tmp_path / "t") == fingerprint(table)
    facts = json.loads((tmp_path / "t" / "table.json").read_text(encoding="utf-8"))
    (tmp_path / "t" / "table.json").write_text(json.dumps({**facts, "costly": False}), encoding="utf-8")
    assert fingerprint(tmp_path / "t") != fingerprint(table)


def test_a_table_without_costs_and_without_an_axis_has_none(tmp_path: Path) -> None:
    fedbo.tabulate("branin", overrides=["agents=1"], points=4, out=tmp_path / "t")
    made = Tabulated(str(tmp_path / "t"))
    assert not reports_costs(made) and fidelity_of(made) is None
    assert {"cost", "curve"}.isdisjoint(pq.read_schema(tmp_path / "t" / "points.parquet").names)
    with pytest.raises(fedbo.errors.StudyError, match="'tabulated' reports no costs"):
        fedbo.load_study(study(tmp_path / "t"))


def study(table: Path) -> dict[str, Any]:
    return {
        "study": {"name": "on a table"},
        "objective": {"name": "tabulated", "table": str(table)},
        "budget": {"iterations": 12},
        "algorithm": [{"name": "random"}],
        "timing": {"evaluation": {"model": "cost", "rate": 2.0}},
        "stopping": {"kind": "asha"},
    }


def test_a_study_on_a_table_stops_early_and_lasts_as_long_as_its_costs(table: Path, tmp_path: Path) -> None:
    rows = pq.read_table(fedbo.run(study(table), out=tmp_path / "run").directory / "observations.parquet").to_pylist()
    agents = [surrogate(table, agent, "gp") for agent in range(2)]
    assert {row["stopped"] for row in rows} == {None, "stopped"}
    for row in rows:
        one, x = agents[row["agent"]], np.array(row["x"])
        lasted = 2.0 * one.cost(x) * row["fidelity"] / EPOCHS
        assert row["finished"] - row["started"] == pytest.approx(lasted, rel=1e-9)
        assert row["value"] == one.evaluate_at(x, row["fidelity"], RNG)
