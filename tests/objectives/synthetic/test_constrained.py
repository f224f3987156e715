"""Problems with constraints or several objectives: published optima and fronts against searches that know nothing of them."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.objectives.base import Array, Enumerable, Measuring, metrics_of
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.space import from_unit
from fedbo.objectives.synthetic.constrained import BNH, DTLZ2, BentProblem, Gardner, HernandezLobato, Mystery, _Problems
from fedbo.settings.errors import SettingError
from fedbo.surrogates.fronts import hypervolume, non_dominated
from fedbo.testing.objective_contract import built

SINGLE = {
    "gardner": (Gardner(), 0.253236),
    "hernandez_lobato": (HernandezLobato(), 0.599788),
    "mystery": (Mystery(), -1.174274),
}
SEVERAL = {"bnh": BNH(), "dtlz2": DTLZ2(), "dtlz2 of three": DTLZ2(objectives=3, dimensions=3)}


def agent_of(federation: _Problems, agent: int = 3) -> BentProblem:
    objective = built(federation, agent)
    assert isinstance(objective, BentProblem)
    return objective


def feasible(federation: _Problems, quantities: Array) -> Array:
    """Return whether points with these quantities `(n, k)` keep the limits of the published problem."""
    kept = np.ones(len(quantities), dtype=bool)
    for column, table in zip(quantities.T, federation.metric_tables, strict=True):
        kept &= (column <= table.get("at_most", np.inf)) & (column >= table.get("at_least", -np.inf))
    return kept


def searched(federation: _Problems, objective: BentProblem, side: int) -> Array:
    """Return the quantities `(n, k)` of the feasible points of a grid with `side` points on each axis."""
    axes = np.meshgrid(*[np.linspace(0.0, 1.0, side)] * len(federation.parameters))
    grid = from_unit(federation.parameters, np.column_stack([axis.ravel() for axis in axes]))
    quantities = objective._quantities(grid)
    return np.asarray(quantities[feasible(federation, quantities)])


@pytest.mark.parametrize("name", SINGLE)
def test_the_optimum_is_feasible_and_a_grid_comes_close_to_it_but_not_below(name: str) -> None:
    federation, published = SINGLE[name]
    objective = agent_of(federation)
    known = np.column_stack([*objective.outcomes().values()])
    assert feasible(federation, known).all() and known[0, 0] == pytest.approx(published, abs=1e-6)
    least = searched(federation, objective, 401)[:, 0].min()
    assert published - 1e-6 <= least <= published + 0.02 * max(1.0, abs(published))


@pytest.mark.parametrize("name", SEVERAL)
def test_no_feasible_point_of_a_grid_dominates_a_front_and_its_volume_is_nearly_that_of_the_grid(name: str) -> None:
    federation = SEVERAL[name]
    objective, m = agent_of(federation), sum("mode" in table for table in federation.metric_tables)
    known = np.column_stack([*objective.outcomes().values()])
    assert feasible(federation, known).all()
    front, found = -known[:, :m], -searched(federation, objective, {2: 151, 3: 17, 4: 13}[len(objective.parameters)])[:, :m]
    reference = -np.array([table["reference"] for table in federation.metric_tables[:m]])
    found = found[non_dominated(found)]
    # Between two points of a known front a grid may lie above their steps, by less than a step.
    assert non_dominated(np.vstack([front + 0.01 * np.ptp(front, axis=0), found]))[: len(front)].mean() > 0.95
    volume = hypervolume(front[non_dominated(front)], reference)
    assert 0.97 * volume <= hypervolume(found, reference) <= volume * 1.003


def test_the_front_of_dtlz2_is_the_unit_sphere_and_that_of_bnh_known() -> None:
    for m in (2, 3, 4):
        known = np.column_stack([*agent_of(DTLZ2(objectives=m, dimensions=5)).outcomes().values()])
        assert np.linalg.norm(known, axis=1) == pytest.approx(1.0) and (known >= 0.0).all() and len(known) >= 512
    ends = np.column_stack([*agent_of(BNH()).outcomes().values()])[[0, -1], :2]
    assert ends.tolist() == [[0.0, 50.0], [136.0, 4.0]]


def test_agents_differ_in_their_axes_and_not_with_a_spread_of_0() -> None:
    x = np.array([1.0, 2.0])
    assert len({built(Mystery(), agent).evaluate(x, np.random.default_rng(0)) for agent in range(5)}) == 5
    assert len({built(Mystery(spread=0.0), agent).evaluate(x, np.random.default_rng(0)) for agent in range(5)}) == 1
    assert agent_of(Mystery(spread=0.0)).measure(x, np.random.default_rng(0)).metrics == pytest.approx(
        {"f1": 2.01 + 7 * np.sin(0.5) * np.sin(1.4), "g1": np.sin(1.0 + np.pi / 8.0)}
    )


def test_noise_is_on_every_metric_and_the_score_is_without_it() -> None:
    objective, rng, x = agent_of(BNH(noise=4.0)), np.random.default_rng(1), np.array([2.0, 1.0])
    seen = [objective.measure(x, rng) for _ in range(500)]
    exact = objective._quantities(x[None])[0]
    assert {outcome.score for outcome in seen} == {-exact[0]} == {objective.score(x)}
    spread = np.array([list(outcome.metrics.values()) for outcome in seen]) - exact
    assert spread.std(axis=0) == pytest.approx(2.0, rel=0.2)  # 6 standard errors
    assert isinstance(objective, Measuring) and isinstance(objective, Enumerable) and metrics_of(BNH())[3] == "g2"
    assert (
        isinstance(objective.measure(x, rng), Outcome)
        and objective.evaluate(x, np.random.default_rng(2)) == -objective.measure(x, np.random.default_rng(2)).metrics["f1"]
    )


def test_fewer_inputs_than_objectives_are_refused() -> None:
    with pytest.raises(SettingError, match="dimensions: 3 is invalid: use at least 4|dimensions"):
        DTLZ2(objectives=4, dimensions=3)
