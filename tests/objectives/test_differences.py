"""Differences that are laid over a federation come out as large as they are declared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbo.objectives.base import Costly, reports_costs
from fedbo.objectives.catalog import federations
from fedbo.objectives.derived.differences import Differences, DifferingFederation
from fedbo.objectives.functions import Branin, Quadratic
from fedbo.objectives.space import from_unit

AGENTS = 16
GRID = np.stack(np.meshgrid(np.linspace(0.0, 1.0, 17), np.linspace(0.0, 1.0, 17)), axis=-1).reshape(-1, 2)


def agents(federation: Any, differences: Differences) -> list[Any]:
    differing = DifferingFederation(federation, differences)
    world = np.random.default_rng
    return [differing.objective(agent, world(0), world([1, agent])) for agent in range(federation.n_agents)]


def values(found: list[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    native = from_unit(found[0].parameters, GRID)
    return np.array([one.scores(native) for one in found])


def test_without_differences_values_are_those_of_the_federation() -> None:
    federation, world = Branin(agents=3, noise=0.1), np.random.default_rng
    for agent, one in enumerate(agents(federation, Differences())):
        plain, x = federation.objective(agent, world(0), world([1, agent])), np.array([1.0, 2.0])
        assert one.score(x) == plain.score(x) and one.best_value == plain.best_value
        assert one.evaluate(x, world(5)) == pytest.approx(plain.evaluate(x, world(5)), rel=1e-12)


@pytest.mark.parametrize("likeness", [0.3, pytest.param(0.8, marks=pytest.mark.long)])
def test_two_agents_of_one_function_have_the_correlation_that_is_declared(likeness: float) -> None:
    """Mean of 120 pairs over a grid; pairs share agents, so that only 16 draws count: 4 standard errors of such a mean."""
    same = Branin(agents=AGENTS, family="same")
    found = np.corrcoef(values(agents(same, Differences(likeness=likeness))))[np.triu_indices(AGENTS, 1)]
    assert abs(found.mean() - likeness) < 4.0 * found.std() / np.sqrt(AGENTS)
    assert 0.0 < found.std() < 0.35


def test_scales_offsets_and_quantities_have_the_spread_that_is_declared() -> None:
    """Standard deviations of 400 normal draws, within 4 standard errors of 1 / sqrt(800)."""
    same = Quadratic(agents=400, spread=0.0, noise=0.01)
    found = agents(same, Differences(scale=0.5, offset=3.0, quantity=0.7))
    for drawn, declared in (
        (np.log([one.factor for one in found]), 0.5),
        ([one.offset for one in found], 3.0),
        (np.log([one.data_size for one in found]), 0.7),
    ):
        assert abs(np.std(drawn) / declared - 1.0) < 4.0 / np.sqrt(800)
    table = values(found[:2])
    plain = values(agents(same, Differences())[:1])[0]
    for one, row in zip(found, table, strict=False):
        np.testing.assert_allclose(row, one.offset + one.factor * plain, rtol=1e-12)
        assert one.best_value == one.offset  # a bowl's best value is 0


def test_the_variance_of_the_noise_is_divided_by_the_quantity_of_data() -> None:
    """A chi-square with 2,000 degrees of freedom, within 4 standard deviations."""
    one = agents(Quadratic(agents=1, noise=0.04), Differences(scale=0.5, quantity=1.5))[0]
    drawn = one.evaluate_many(np.array([0.2, 0.7]), 2000, np.random.default_rng(3))
    declared = one.factor**2 * 0.04 / one.data_size
    assert abs(drawn.var() / declared - 1.0) < 4.0 * np.sqrt(2.0 / 2000)


def test_no_difference_shifts_the_draws_of_another() -> None:
    federation = Branin(agents=4)
    alone, both = (
        agents(federation, one) for one in (Differences(scale=0.4), Differences(scale=0.4, offset=1.0, likeness=0.5))
    )
    assert [one.factor for one in alone] == [one.factor for one in both]


def test_what_a_federation_says_of_itself_still_holds() -> None:
    bowl = DifferingFederation(Quadratic(agents=2), Differences(scale=0.2))
    assert reports_costs(bowl) and isinstance(agents(Quadratic(agents=2), Differences())[0], Costly)
    assert not reports_costs(DifferingFederation(Branin(), Differences()))
    assert not hasattr(DifferingFederation(federations()["learning_curves"](), Differences()), "fidelity")
