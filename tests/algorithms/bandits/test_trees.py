"""HCT and T-HOO: against slow searches that work everything out again from the raw history, and with pulls in flight."""

from __future__ import annotations

import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest

from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.algorithms.bandits.trees.box_tree import box, deepest, index, leaf_of, nodes, nodes_per_block
from fedbo.algorithms.bandits.trees.partitions import Partition
from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams
from fedbo.objectives.models import formulas

STREAMS = Streams(3, owner=0)
BEST = formulas.garland().best
Path = tuple[int, ...]


def garland(x: np.ndarray) -> float:
    """Garland (Coquelin and Munos 2007), the mean over the inputs."""
    return float(np.mean(4 * x * (1 - x) * (0.75 + 0.25 * (1 - np.sqrt(np.abs(np.sin(60 * x)))))))


def middle(path: Path, k: int, dim: int) -> list[float]:
    """The centre of the box that is reached from the cube by these children, one side after another."""
    low, high = [0.0] * dim, [1.0] * dim
    for h, child in enumerate(path):
        side, width = h % dim, high[h % dim] - low[h % dim]
        low[side], high[side] = low[side] + child * width / k, low[side] + (child + 1) * width / k
    return [(a + b) / 2 for a, b in zip(low, high, strict=True)]


class Slow:
    """A search in a tree with no shortcut: all pulls are kept, and every U and B is worked out from them before each pull."""

    def __init__(self, k: int, nu: float, rho: float) -> None:
        self.k, self.nu, self.rho = k, nu, rho
        self.leaves: set[Path] = {(child,) for child in range(k)}
        self.parents: set[Path] = {()}
        self.values: dict[Path, list[float]] = {}
        self.told = 0

    def split(self, node: Path) -> None:
        self.leaves.remove(node)
        self.parents.add(node)
        self.leaves |= {(*node, child) for child in range(self.k)}

    def b(self, node: Path) -> float:
        if node in self.leaves:
            return self.u(node)
        return min(self.u(node), max(self.b((*node, child)) for child in range(self.k)))

    def best_child(self, node: Path) -> Path:
        return max(((*node, child) for child in range(self.k)), key=self.b)

    def u(self, node: Path) -> float:
        raise NotImplementedError


class SlowHCT(Slow):
    """HCT as Azar et al. write it down, and t+ the first power of two above t."""

    def __init__(self, k: int, nu: float, rho: float, c: float, delta: float) -> None:
        super().__init__(k, nu, rho)
        self.c, self.delta = c, delta

    def log(self) -> float:
        t_plus = 2 ** (math.floor(math.log2(self.told + 1)) + 1)
        return math.log(1 / min(0.5, (self.rho / (3 * self.nu)) ** (1 / 8) * self.delta / t_plus))

    def tau(self, node: Path) -> int:
        return math.ceil(self.c**2 * self.log() * self.rho ** (-2 * len(node)) / self.nu**2) if node else 0

    def u(self, node: Path) -> float:
        values = self.values.get(node)
        if not values:
            return math.inf
        return float(np.mean(values)) + self.nu * self.rho ** len(node) + self.c * math.sqrt(self.log() / len(values))

    def pull(self) -> Path:
        node: Path = ()
        while node not in self.leaves and len(self.values.get(node, ())) >= self.tau(node):
            node = self.best_child(node)
        return node

    def tell(self, node: Path, y: float) -> None:
        self.values.setdefault(node, []).append(y)
        if node in self.leaves and len(self.values[node]) >= self.tau(node):
            self.split(node)
        self.told += 1


class SlowTHOO(Slow):
    """T-HOO as Bubeck et al. write it down."""

    def __init__(self, k: int, nu: float, rho: float, n: int) -> None:
        super().__init__(k, nu, rho)
        self.n = n
        self.cap = math.ceil((math.log(n) / 2 - math.log(1 / nu)) / math.log(1 / rho))

    def u(self, node: Path) -> float:
        values = [y for pulled, ys in self.values.items() if pulled[: len(node)] == node for y in ys]
        if not values:
            return math.inf
        return float(np.mean(values)) + math.sqrt(2 * math.log(self.n) / len(values)) + self.nu * self.rho ** len(node)

    def pull(self) -> Path:
        node: Path = ()
        while node not in self.leaves:
            node = self.best_child(node)
        return node

    def tell(self, node: Path, y: float) -> None:
        self.values.setdefault(node, []).append(y)
        if node in self.leaves and len(node) < self.cap:
            self.split(node)
        self.told += 1


def make(name: str, dim: int, pulls: int, **settings: Any) -> tuple[Any, Any]:
    algorithm: Any = entry(name).make(**settings)
    return algorithm, algorithm.agent_init(Problem(dim, 1, (0,), 0, 0, agent=0, pulls=pulls), STREAMS)


def children(address: tuple[int, ...], k: int) -> Path:
    """A node's address as the numbers of the children on the way to it."""
    path: list[int] = []
    for slot in address[1:]:
        steps = []
        while slot:
            slot, child = divmod(slot - 1, k)
            steps.append(child)
        path += reversed(steps)
    assert len(path) == address[0]
    return tuple(path)


def same_nodes(algorithm: Any, state: Any, slow: Any, dim: int, pulls: int, seed: int = 0) -> Any:
    """Pull both ways, and compare every node pulled, every centre, and at the end every node."""
    rng = np.random.default_rng(seed)
    for _ in range(pulls):
        decision, state = algorithm.ask(state, (), STREAMS)
        path = slow.pull()
        np.testing.assert_allclose(decision.x, [middle(path, slow.k, dim)], rtol=0, atol=1e-15)
        y = garland(decision.x) + rng.uniform(-0.1, 0.1)
        state = algorithm.tell(state, decision.x, np.array([y]))
        slow.tell(path, y)
    found = {children(address, slow.k): node for address, node in nodes(state.tree, slow.k)}
    assert found.keys() == slow.leaves | slow.parents
    for path, (_, _, upper, least, best_child) in found.items():
        if path:
            assert upper == pytest.approx(slow.u(path), rel=1e-12)
        assert least == pytest.approx(slow.b(path), rel=1e-12)
        assert bool(best_child) == (path in slow.parents)
    return state


@pytest.mark.parametrize(
    ("k", "dim", "rho", "nu", "c"),
    [
        (2, 2, 0.8, 0.5, 0.05),
        *(pytest.param(*one, marks=pytest.mark.long) for one in ((2, 1, 0.5, 1.0, 0.1), (3, 1, 0.4, 1.0, 0.2))),
    ],
)
def test_hct_pulls_the_nodes_of_a_slow_hct(k: int, dim: int, rho: float, nu: float, c: float) -> None:
    algorithm, state = make("hct", dim, 200, branching=k, rho=rho, nu=nu, c=c)
    state = same_nodes(algorithm, state, SlowHCT(k, nu, rho, c, 0.01), dim, 200)
    assert len(state.tree) > nodes_per_block(k)


@pytest.mark.parametrize(
    ("k", "dim", "rho", "nu"),
    [(2, 2, 0.7, 0.3), *(pytest.param(*one, marks=pytest.mark.long) for one in ((2, 1, 0.5, 1.0), (4, 3, 0.3, 2.0)))],
)
def test_t_hoo_pulls_the_nodes_of_a_slow_t_hoo(k: int, dim: int, rho: float, nu: float) -> None:
    algorithm, state = make("t_hoo", dim, 150, branching=k, rho=rho, nu=nu)
    slow = SlowTHOO(k, nu, rho, 150)
    state = same_nodes(algorithm, state, slow, dim, 150)
    assert max(address[0] for address, _ in nodes(state.tree, k)) <= slow.cap


@pytest.mark.parametrize("name", ["hct", "t_hoo"])
@pytest.mark.parametrize("point", ["centre", "uniform"])
def test_values_that_come_in_any_order_count_for_the_nodes_that_were_pulled(name: str, point: str) -> None:
    """Up to seven pulls in flight; every node must end with the values of its own points, whoever was told first."""
    algorithm, state = make(name, 2, 400, rho=0.7, point=point)
    rng, in_flight, held = np.random.default_rng(1), [], {}
    for number in range(400):
        decision, state = algorithm.ask(state, (), STREAMS.at(number))
        in_flight.append((decision.x, state.in_flight[-1][1]))
        while len(in_flight) > rng.integers(7):
            x, address = in_flight.pop(rng.integers(len(in_flight)))
            y = garland(x) + rng.uniform(-0.1, 0.1)
            state = algorithm.tell(state, x, np.array([y]))
            held.setdefault(children(address, 2), []).append(y)
    assert len(state.in_flight) == len(in_flight) and state.told == 400 - len(in_flight)
    for address, (pulls, mean, _, _, _) in nodes(state.tree, 2):
        path = children(address, 2)
        below = [
            y for pulled, ys in held.items() for y in ys if pulled == path or (name == "t_hoo" and pulled[: len(path)] == path)
        ]
        assert pulls == len(below) and mean == pytest.approx(np.mean(below) if below else 0.0, rel=1e-9)


@pytest.mark.parametrize("name", ["hct", "t_hoo"])
def test_several_values_told_at_once_are_the_same_as_one_after_another(name: str) -> None:
    algorithm, state = make(name, 1, 64)
    points = []
    for number in range(5):
        decision, state = algorithm.ask(state, (), STREAMS.at(number))
        points.append(decision.x[0])
    x, y = np.array(points), np.linspace(0.2, 0.7, 5)
    together, one = algorithm.tell(state, x, y), state
    for row in range(5):
        one = algorithm.tell(one, x[row : row + 1], y[row : row + 1])
    assert together == one


@pytest.mark.parametrize("name", ["hct", "t_hoo"])
def test_a_state_stays_what_it_was_when_others_are_made_from_it(name: str) -> None:
    algorithm, state = make(name, 1, 200, rho=0.8)
    rng, states = np.random.default_rng(2), [state]
    for y in rng.uniform(size=200):
        decision, state = algorithm.ask(state, (), STREAMS)
        state = algorithm.tell(state, decision.x, np.array([y]))
        states.append(state)
    stored = [pack(state) for state in states[::20]]
    back = unpack(stored[5])
    assert back == states[100]
    rng = np.random.default_rng(2)
    for y in rng.uniform(size=200)[100:]:
        decision, back = algorithm.ask(back, (), STREAMS)
        back = algorithm.tell(back, decision.x, np.array([y]))
    assert back == states[-1] and pickle.loads(pickle.dumps(back)) == back
    assert [pack(state) for state in states[::20]] == stored


def test_a_point_that_was_not_asked_for_counts_for_the_leaf_where_it_lies() -> None:
    algorithm, state = make("hct", 2, 100, rho=0.7)
    rng = np.random.default_rng(4)
    for _ in range(60):
        decision, state = algorithm.ask(state, (), STREAMS)
        state = algorithm.tell(state, decision.x, rng.random(1))
    for point in itertools.product((0.0, 0.3, 0.77, 1.0), repeat=2):
        address = leaf_of(state.tree, 2, point)
        low, width = box(address, 2, 2)
        assert all(a <= x <= a + w for a, x, w in zip(low, point, width, strict=True))
        before = dict(nodes(state.tree, 2))
        state = algorithm.tell(state, np.array([point]), np.array([0.5]))
        after = dict(nodes(state.tree, 2))
        assert before[address][4] == 0 and after[address][0] == before[address][0] + 1


@pytest.mark.parametrize("point", ["centre", "uniform"])
@pytest.mark.parametrize(("k", "dim"), [(3, 2), *(pytest.param(*one, marks=pytest.mark.long) for one in ((2, 1), (2, 3)))])
def test_boxes_and_points_are_those_of_the_common_partition(k: int, dim: int, point: str) -> None:
    algorithm, state = make("hct", dim, 200, point=point, branching=k, rho=0.8)
    partition = Partition(dim, k, point=point)
    for number in range(200):
        decision, state = algorithm.ask(state, (), STREAMS.at(number))
        address = state.in_flight[-1][1]
        node, (low, width) = np.array([index(address, k)]), box(address, k, dim)
        np.testing.assert_allclose(partition.boxes(address[0], node, STREAMS), [[low], [np.add(low, width)]], atol=1e-15)
        np.testing.assert_allclose(decision.x, partition.points(address[0], node, STREAMS), rtol=0, atol=1e-15)
        assert ((decision.x >= low) & (decision.x <= np.add(low, width))).all()
        state = algorithm.tell(state, decision.x, np.array([garland(decision.x)]))
    assert address[0] > 3


def test_a_thousand_points_that_failed_are_kept_in_mind_and_no_more() -> None:
    algorithm, state = make("hct", 1, 5000)
    for _ in range(1100):
        decision, state = algorithm.ask(state, (), STREAMS)
    assert len(state.in_flight) == 1024
    state = algorithm.tell(state, decision.x, np.array([0.5]))
    assert len(state.in_flight) == 1023 and state.told == 1


@pytest.mark.parametrize("k", [2, 3, 7])
def test_a_tree_of_the_greatest_depth_can_be_stored_inside_an_agent_s_memory(k: int) -> None:
    """With rho next to 1 a tree that is told ever better values at its newest leaf grows in depth alone."""
    algorithm, state = make("hct", 40, 10_000, branching=k, rho=0.9999, c=0.01)
    for value in range(deepest(k, 40) + 50):
        address = leaf_of(state.tree, k, [0.0] * 40)
        state = algorithm.tell(state, np.zeros((1, 40)), np.array([float(value)]))
    assert address[0] == deepest(k, 40)
    around: Any = state
    for _ in range(10):
        around = (around,)
    assert unpack(pack(around)) == around
    decision, _ = algorithm.ask(state, (), STREAMS)
    assert ((decision.x >= 0) & (decision.x <= 1)).all()


@pytest.mark.parametrize(("k", "dim"), [(2, 1), (2, 3), (3, 1), (3, 2), (5, 2)])
def test_boxes_of_the_deepest_nodes_have_centres_of_their_own(k: int, dim: int) -> None:
    """Also far from 0, where doubles are widest: the last children of last children are not their parents."""
    sides = [1.0 - k ** -(deepest(k, dim) // dim) * (1.0 - 0.5 * part) for part in (0, 1)]
    assert sides[0] < sides[1] < 1.0


def test_hct_regret_on_garland_is_not_above_that_of_pyxab() -> None:
    """PyXAB 0.3 with the same constants, uniform noise +-0.1, regret against the maximum: 156 at T = 1,000, mean of 5 seeds.

    Ours over 40 seeds: 105 with standard deviation 6, so that the mean of five lies below 156 but once in 1e60 sets of seeds.
    """
    assert np.mean([regret("hct", 1_000, seed) for seed in range(5)]) < 156


@pytest.mark.long
def test_hct_regret_on_garland_is_not_above_that_of_pyxab_in_ten_thousand_pulls() -> None:
    """PyXAB 0.3: 1,106, mean of 5 seeds; ours over 12 seeds: 979 with standard deviation 18."""
    assert np.mean([regret("hct", 10_000, seed) for seed in range(5)]) < 1_106


def regret(name: str, pulls: int, seed: int) -> float:
    algorithm, state = make(name, 1, pulls)
    total = 0.0
    for noise in np.random.default_rng(seed).uniform(-0.1, 0.1, pulls).tolist():
        decision, state = algorithm.ask(state, (), STREAMS)
        value = garland(decision.x)
        total += BEST - value
        state = algorithm.tell(state, decision.x, np.array([value + noise]))
    return total


def test_hct_and_t_hoo_find_the_maximum_of_a_smooth_objective_in_two_inputs() -> None:
    for name in ("hct", "t_hoo"):
        algorithm, state = make(name, 2, 2_000, rho=2**-0.5)
        for _ in range(2_000):
            decision, state = algorithm.ask(state, (), STREAMS)
            y = 1 - np.abs(decision.x - [0.3, 0.8]).max(axis=1)
            state = algorithm.tell(state, decision.x, y)
        most = max(nodes(state.tree, 2), key=lambda node: (node[1][0] * (name == "hct"), node[0][0], node[1][1]))[0]
        low, width = (np.array(corner) for corner in box(most, 2, 2))
        assert (np.abs(low + width / 2 - [0.3, 0.8]) < 0.1).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"nu": 0.0}, "nu must be above 0, not 0.0"),
        ({"rho": 1.0}, r"rho must be in \(0, 1\), not 1.0"),
        ({"branching": 1}, "branching must be at least 2, not 1"),
        ({"c": 0.0}, "c must be above 0, not 0.0"),
        ({"delta": 1.0}, r"delta must be in \(0, 1\), not 1.0"),
        ({"point": "center"}, "no point 'center'; did you mean 'centre'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        entry("hct").make(**settings)


def test_extreme_settings_do_not_overflow() -> None:
    for settings in ({"rho": 1e-9}, {"nu": 1e9}, {"c": 1e9}, {"rho": 0.999999, "c": 1e-6}):
        algorithm, state = make("hct", 1, 30, **settings)
        for _ in range(30):
            decision, state = algorithm.ask(state, (), STREAMS)
            state = algorithm.tell(state, decision.x, np.array([garland(decision.x)]))
        assert state.told == 30
