"""BLiN: against a slow one with exact cubes, the paper's facts, and batches that come back incomplete, twice or late."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.algorithms.bandits.blin import ace
from fedbo.algorithms.base import Problem
from fedbo.algorithms.catalog import entry
from fedbo.algorithms.streams import Streams

STREAMS = Streams(3, owner=0)
Cube = tuple[Fraction, ...]  # its lower corner


def make(name: str, dim: int, pulls: int, **settings: Any) -> tuple[Any, Any]:
    algorithm: Any = entry(name).make(**settings)
    return algorithm, algorithm.agent_init(Problem(dim, 1, (0,), 0, pulls, agent=0, pulls=pulls), STREAMS)


def cone(x: np.ndarray) -> np.ndarray:
    """Changes by the largest difference of an input, and is largest at 0.3, 0.3, ..."""
    return np.asarray(1.0 - np.abs(x - 0.3).max(axis=1))


def mean_of_pulls(x: np.ndarray, pulls: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.array([cone(x[i : i + 1])[0] + rng.uniform(-0.1, 0.1, pulls[i]).mean() for i in range(len(x))])


def edges(name: str, rounds: int, dim: int, zooming: float) -> list[Fraction]:
    """The edge lengths of the paper, as they are written there; those that are not shorter than all before are left out."""
    if name == "d_blin":
        return [Fraction(2, 2**m) for m in range(1, 30)]
    c = [(zooming + 1) / ((dim + 2) * (zooming + 2)) * math.log2(rounds / math.log(rounds))]
    while len(c) < 60:
        c.append(c[-1] * (dim + 1 - zooming) / (dim + 2))
    lengths: list[Fraction] = []
    for i in range(1, len(c) + 1):
        for power in (math.floor(sum(c[:i])), math.ceil(sum(c[:i]))):
            if all(Fraction(1, 2**power) < length for length in lengths):
                lengths.append(Fraction(1, 2**power))
    return lengths


class SlowBLiN:
    """Algorithm 1 with sets of exact cubes: what is pulled next, and how often."""

    def __init__(self, lengths: list[Fraction], rounds: int, dim: int, factor: float) -> None:
        self.lengths, self.rounds, self.dim, self.factor = lengths, rounds, dim, factor
        self.cubes: set[Cube] = {(Fraction(0),) * dim}
        self.edge, self.m, self.spent, self.over = Fraction(1), 0, 0, False
        self.means: dict[Cube, float] = {}

    def next(self) -> tuple[dict[Cube, int], Fraction]:
        left = self.rounds - self.spent
        if self.m < len(self.lengths) and not self.over:
            finer = self.lengths[self.m]
            parts = [finer * i for i in range(int(self.edge / finer))]
            cut = {
                tuple(a + b for a, b in zip(cube, step, strict=True))
                for cube in self.cubes
                for step in itertools.product(parts, repeat=self.dim)
            }
            n = math.ceil(self.factor * math.log(self.rounds) / float(finer) ** 2)
            if len(cut) * n <= left:
                self.cubes, self.edge, self.m, self.spent = cut, finer, self.m + 1, self.spent + len(cut) * n
                return dict.fromkeys(cut, n), finer
        self.over, self.spent = True, self.rounds
        best_first = sorted(self.cubes, key=lambda cube: (-self.means.get(cube, 0.0), cube))
        shares = [left // len(best_first) + (rank < left % len(best_first)) for rank in range(len(best_first))]
        return {cube: share for cube, share in zip(best_first, shares, strict=True) if share}, self.edge

    def tell(self, means: dict[Cube, float]) -> None:
        self.means = means
        largest = max(means.values())
        self.cubes = {cube for cube in means if largest - means[cube] <= 4 * float(self.edge)}


CASES = [
    ("d_blin", 1, 100_000, 16.0, 0.0),
    ("d_blin", 1, 30_000, 0.5, 0.0),
    ("d_blin", 2, 300_000, 0.2, 0.0),
    ("a_blin", 1, 100_000, 1.0, 0.0),
    ("a_blin", 1, 1_000_000, 1.0, 1.0),
    ("a_blin", 2, 300_000, 0.2, 0.5),
    ("d_blin", 1, 50, 16.0, 0.0),
]


@pytest.mark.parametrize(("name", "dim", "rounds", "factor", "zooming"), CASES)
def test_blin_pulls_the_cubes_of_a_slow_blin_as_often(name: str, dim: int, rounds: int, factor: float, zooming: float) -> None:
    settings = {"zooming": zooming} if name == "a_blin" else {}
    algorithm, state = make(name, dim, rounds, factor=factor, **settings)
    slow = SlowBLiN(edges(name, rounds, dim, zooming), rounds, dim, factor)
    rng, total, batches = np.random.default_rng(0), 0, 0
    while total < rounds:
        decision, state = algorithm.ask(state, (), STREAMS)
        assert decision.pulls is not None and decision.pulls.dtype == np.int64
        pulled, edge = slow.next()
        here = {tuple(float(a + edge / 2) for a in cube): n for cube, n in pulled.items()}
        assert {tuple(x): n for x, n in zip(decision.x.tolist(), decision.pulls.tolist(), strict=True)} == here
        y = mean_of_pulls(decision.x, decision.pulls, rng)
        state = algorithm.tell(state, decision.x, y)
        values = {tuple(x): value for x, value in zip(decision.x.tolist(), y.tolist(), strict=True)}
        slow.tell({cube: values[tuple(float(a + edge / 2) for a in cube)] for cube in pulled})
        total, batches = total + int(decision.pulls.sum()), batches + 1
    assert total == rounds and decision.origin == "rest"
    assert batches > 2 or rounds == 50
    empty, _ = algorithm.ask(state, (), STREAMS)
    assert empty.x.shape == (0, dim)


def test_edges_halve_in_d_blin_and_cubes_more_than_four_edges_below_the_best_are_dropped() -> None:
    algorithm, state = make("d_blin", 1, 10**7)
    for m in (1, 2, 3, 4, 5):
        decision, state = algorithm.ask(state, (), STREAMS)
        r = 2.0 ** (1 - m)
        assert decision.pulls.tolist() == [math.ceil(16 * math.log(10**7) / r**2)] * 2 ** (m - 1)
        np.testing.assert_array_equal(decision.x[:, 0], r * np.arange(0.5, 2 ** (m - 1)))
        before, state = state, algorithm.tell(state, decision.x, np.ones(len(decision.x)))
    for value, left in ((1.0 - 4 * r, 16), (np.nextafter(1.0 - 4 * r, 0.0), 8)):
        told = algorithm.tell(before, decision.x, np.where(decision.x[:, 0] < 0.5, 1.0, value))
        decided, _ = algorithm.ask(told, (), STREAMS)
        assert len(decided.x) == 2 * left


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("zooming", [0.0, 0.5, 1.0])
def test_batches_grow_with_log_t_in_d_blin_and_with_log_log_t_in_a_blin(dim: int, zooming: float) -> None:
    """T is squared six times: the sums come within one of their end after about log log T / log(1 / eta) terms."""
    eta = (dim + 1 - zooming) / (dim + 2)
    for squared in range(7):
        rounds = 1000**2**squared
        halvings = ace(rounds, dim, zooming)
        assert list(halvings) == sorted(set(halvings))
        end = math.log2(rounds / math.log(rounds)) / (zooming + 2)
        assert math.ceil(end) - 1 <= halvings[-1] <= math.ceil(end)
        terms = math.ceil(math.log(max(end, 2)) / math.log(1 / eta)) + 1
        assert len(halvings) <= 2 * terms + 2


def test_the_number_of_batches_of_a_run_is_as_the_paper_says() -> None:
    """A cone in one input has d_z = 0: there, D-BLiN takes at most log(T / log T) / (2 log 2) + 1 batches before the rest."""
    counts: dict[str, list[int]] = {"d_blin": [], "a_blin": []}
    for name, seen in counts.items():
        for rounds in (10**4, 10**6, 10**8, 10**12):
            algorithm, state = make(name, 1, rounds)
            while state.spent < rounds:
                decision, state = algorithm.ask(state, (), STREAMS)
                state = algorithm.tell(state, decision.x, cone(decision.x))
            seen.append(state.batch)
            assert state.batch <= math.log(rounds / math.log(rounds)) / (2 * math.log(2)) + 1
    assert counts["d_blin"][3] - counts["d_blin"][1] >= 6
    assert counts["a_blin"][3] - counts["a_blin"][1] <= 3
    assert all(a <= d for a, d in zip(counts["a_blin"], counts["d_blin"], strict=True))


def test_a_limit_on_batches_is_kept_and_the_rest_goes_to_the_cubes_that_are_left() -> None:
    algorithm, state = make("d_blin", 1, 10**6, batches=3)
    sizes = []
    while state.spent < 10**6:
        decision, state = algorithm.ask(state, (), STREAMS)
        state = algorithm.tell(state, decision.x, 1 - 9 * np.abs(decision.x[:, 0] - 0.3))
        sizes.append((len(decision.x), decision.origin))
    assert sizes == [(1, "batch"), (2, "batch"), (2, "batch"), (2, "rest")]


def test_more_pulls_and_wider_margins_for_steeper_objectives() -> None:
    """An objective L times as steep is divided by L: means differ by 4 L r, and pulls are fewer, as noise is not divided."""
    algorithm, state = make("d_blin", 1, 10**6, lipschitz=2.0)
    decision, state = algorithm.ask(state, (), STREAMS)
    assert decision.pulls.tolist() == [math.ceil(16 * math.log(10**6) / 4)]


def test_a_batch_that_fails_as_a_whole_is_asked_for_again_and_counts_twice() -> None:
    algorithm, state = make("d_blin", 1, 10_000)
    first, state = algorithm.ask(state, (), STREAMS)
    again, state = algorithm.ask(state, (), STREAMS)
    np.testing.assert_array_equal(first.x, again.x)
    assert state.spent == 2 * first.pulls.sum() and state.batch == 1
    one = algorithm.tell(algorithm.tell(state, first.x, np.array([0.2])), again.x, np.array([0.4]))
    assert one.mean == pytest.approx([0.3]) and one.told.tolist() == [2]


def test_cubes_whose_evaluation_failed_are_not_dropped() -> None:
    algorithm, state = make("d_blin", 1, 10**6, factor=0.1)
    for _ in range(4):
        decision, state = algorithm.ask(state, (), STREAMS)
        if len(decision.x) < 8:
            state = algorithm.tell(state, decision.x, np.ones(len(decision.x)))
    y = np.array([9.0, 1.0, 1.0, 1.0])
    state = algorithm.tell(state, decision.x[:4], y)
    after, _ = algorithm.ask(state, (), STREAMS)
    kept = np.unique(np.floor(after.x[:, 0] * 8)).tolist()
    assert kept == [0, 4, 5, 6, 7]


def test_parts_of_a_batch_may_come_in_any_order_and_what_is_late_says_nothing() -> None:
    algorithm, state = make("d_blin", 2, 10**6, factor=0.1)
    for _ in range(2):
        decision, state = algorithm.ask(state, (), STREAMS)
        state = algorithm.tell(state, decision.x, cone(decision.x))
    decision, asked = algorithm.ask(state, (), STREAMS)
    assert len(decision.x) > 4
    y = cone(decision.x)
    whole, parts = algorithm.tell(asked, decision.x, y), asked
    for number in np.random.default_rng(0).permutation(len(y)):
        parts = algorithm.tell(parts, decision.x[number : number + 1], y[number : number + 1])
    assert pack(parts) == pack(whole)
    _, later = algorithm.ask(whole, (), STREAMS)
    assert pack(algorithm.tell(later, decision.x, y + 5)) == pack(later)


@pytest.mark.parametrize("name", ["d_blin", "a_blin"])
@pytest.mark.parametrize("point", ["centre", "uniform"])
def test_a_state_stays_what_it_was_and_can_be_stored(name: str, point: str) -> None:
    algorithm, state = make(name, 2, 100_000, factor=0.2, point=point)
    states = [state]
    while state.spent < 100_000:
        decision, state = algorithm.ask(state, (), STREAMS.at(len(states)))
        assert ((decision.x >= 0) & (decision.x < 1)).all()
        state = algorithm.tell(state, decision.x, cone(decision.x))
        states.append(state)
    assert len(states) > 3
    stored = [pack(each) for each in states]
    back = unpack(stored[2])
    for step in range(3, len(states)):
        decision, back = algorithm.ask(back, (), STREAMS.at(step))
        back = algorithm.tell(back, decision.x, cone(decision.x))
    assert pack(back) == stored[-1] and [pack(each) for each in states] == stored


def test_uniform_points_lie_in_their_own_cubes_and_differ_from_batch_to_batch() -> None:
    algorithm, state = make("d_blin", 2, 10**6, factor=0.1, point="uniform")
    for step in range(4):
        decision, state = algorithm.ask(state, (), STREAMS.at(step))
        np.testing.assert_array_equal(np.floor(decision.x * 2**state.halvings), state.cubes)
        state = algorithm.tell(state, decision.x, cone(decision.x))


def test_the_best_cube_is_never_dropped_in_the_world_of_the_theory() -> None:
    """Noise is +-1 and n_m as in the paper: by Hoeffding a mean is off by more than r once in T^8 / 2; false alarm 1e-30."""
    for name, seed in itertools.product(("d_blin", "a_blin"), range(30)):
        algorithm, state = make(name, 1, 20_000)
        rng = np.random.default_rng(seed)
        while state.spent < 20_000:
            decision, state = algorithm.ask(state, (), STREAMS)
            noise = 2 * rng.binomial(decision.pulls, 0.5) / decision.pulls - 1
            state = algorithm.tell(state, decision.x, cone(decision.x) + noise)
        r = 0.5**state.halvings
        assert (np.abs(state.x[:, 0] - 0.3) <= r / 2).any()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"zooming": -1.0}, "zooming must be at least 0, not -1.0"),
        ({"batches": -1}, "batches must be at least 0, not -1"),
        ({"lipschitz": 0.0}, "lipschitz must be above 0 and finite, not 0.0"),
        ({"factor": math.inf}, "factor must be above 0 and finite, not inf"),
        ({"point": "any"}, "no point 'any'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        entry("a_blin").make(**settings)


def test_settings_that_do_not_suit_the_problem_are_refused() -> None:
    with pytest.raises(ValueError, match="zooming must be at most d = 2"):
        entry("a_blin").make(zooming=3.0).upload(Problem(2, 1, (0,), 0, 9, pulls=9))
    with pytest.raises(ValueError, match="requires a budget of evaluations"):
        entry("d_blin").make().upload(Problem(2, 1, (0,), 0, 9))
