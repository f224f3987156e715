"""Coupled problems: their joint optima against closed forms, dense grids and conditions of optimality."""

from __future__ import annotations

import numpy as np
import pytest

from fedbo.objectives.coupled.admm_toys import ADMMToy, Plant, Plants
from fedbo.objectives.coupled.network_flow import NetworkFlow
from tests.objectives.coupled.joint_optima import best_flows, joint_score, plants_allocation, plants_consensus


def _plants(agents: int, dimensions: int, capacity: float = 1.0) -> list[Plant]:
    federation = Plants(agents=agents, dimensions=dimensions, capacity=capacity)
    return [federation.objective(i, np.random.default_rng(7), np.random.default_rng(0)) for i in range(agents)]


def _slope(plant: Plant, x: np.ndarray) -> np.ndarray:
    steps = 1e-6 * np.eye(len(x))
    return np.array([(plant.score(x + step) - plant.score(x - step)) / 2e-6 for step in steps])


@pytest.mark.parametrize(
    ("problem", "least"),
    [
        ("shifted", -0.1064021987),
        *(pytest.param(name, -1.6478744180, marks=pytest.mark.long) for name in ("consensus", "allocation")),
    ],
)
def test_the_toys_have_the_joint_optimum_of_a_dense_grid(problem: str, least: float) -> None:
    toy = ADMMToy(problem)  # type: ignore[arg-type]
    agents = [toy.objective(i, np.random.default_rng(0), np.random.default_rng(0)) for i in range(2)]
    assert -joint_score(agents, toy.joint_optimum) == pytest.approx(least, abs=1e-8)
    (box,) = toy.parameters
    sign = -1.0 if problem == "allocation" else 1.0
    grid = np.linspace(box.low, box.high, 20_001)
    sums = [agents[0].score(np.array([x])) + agents[1].score(np.array([sign * x])) for x in grid]
    assert grid[int(np.argmax(sums))] == pytest.approx(toy.joint_optimum[0, 0], abs=3e-4)


def test_a_toy_alone_is_best_where_it_says() -> None:
    quartic = ADMMToy().objective(0, np.random.default_rng(0), np.random.default_rng(0))
    assert max(quartic.score(np.array([x])) for x in np.linspace(-2, 2, 40_001)) == pytest.approx(quartic.best_value, abs=1e-7)


def test_plants_agree_where_their_slopes_add_up_to_zero() -> None:
    plants = _plants(5, 3, capacity=4.0)
    x = plants_consensus(plants)
    np.testing.assert_allclose(sum(_slope(plant, x) for plant in plants), 0.0, atol=1e-4)
    assert all(plant.score(plant.wish) == plant.best_value == 0.0 for plant in plants)


def test_plants_share_where_all_have_the_same_slope() -> None:
    plants = _plants(4, 2)
    total = np.array([1.6, 1.8])
    shares = plants_allocation(plants, total)
    np.testing.assert_allclose(shares.sum(axis=0), total, atol=1e-9)
    slopes = np.array([_slope(plant, x) for plant, x in zip(plants, shares, strict=True)])
    inside = (shares > 1e-6) & (shares < 1 - 1e-6)
    assert inside.all(), "an instance without shares at the edge"
    np.testing.assert_allclose(slopes - slopes[0], 0.0, atol=1e-3)
    everything = plants_allocation(plants, np.array([9.0, 9.0]), at_most=True)
    np.testing.assert_allclose(everything, [plant.wish for plant in plants], atol=1e-3)


def test_flows_of_a_ring_are_best_where_no_edge_would_have_more_or_less() -> None:
    ring = NetworkFlow(5)
    nodes = [ring.objective(i, np.random.default_rng(3), np.random.default_rng(0)) for i in range(5)]
    assert sum(node.supply for node in nodes) == pytest.approx(0.0, abs=1e-12)
    best = best_flows(nodes)
    np.testing.assert_allclose(
        np.einsum("nmd,nd->m", ring.matrices, np.stack([np.roll(best, 1), best], axis=1)), 0.0, atol=1e-12
    )

    def total(flow: np.ndarray) -> float:
        return sum(node.score(flow[[i - 1, i]]) for i, node in enumerate(nodes))

    for step in 1e-3 * np.eye(5):
        assert total(best) >= max(total(best + step), total(best - step)) - 1e-9
