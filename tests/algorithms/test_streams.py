"""Random streams: keyed by what they are for, the same everywhere, and never twice the same."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from fedbo.algorithms.streams import COORDINATOR, WORLD, Streams


def test_a_stream_is_the_philox_of_its_key_and_counter() -> None:
    key, counter = np.array([7, 3], np.uint64), np.array([0, 5, 4, 0], np.uint64)
    from hashlib import blake2b

    counter[3] = int.from_bytes(blake2b(b"task coin", digest_size=8).digest(), "little")
    expected = np.random.Generator(np.random.Philox(key=key, counter=counter)).random(100)
    got = Streams(7, 3, 2, 5, "task ").rng("coin").random(100)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("streams", [Streams(1, step=5), Streams(2**64 - 1, 2**63 + 5, step=2**40, scope="task "), Streams(0)])
@pytest.mark.parametrize("owners", [np.arange(-2, 400), np.array([10**12, 3]), np.arange(0)], ids=["many", "few", "none"])
def test_uniform_numbers_of_many_owners_are_those_of_their_generators(streams: Streams, owners: npt.NDArray[np.int64]) -> None:
    expected = [streams.of(int(owner)).rng("coin").random() for owner in owners]
    np.testing.assert_array_equal(streams.each(owners, np.full(len(owners), streams.step)).uniforms("coin"), expected)


@pytest.mark.parametrize("scope", ["", "task "])
def test_numbers_of_many_streams_are_those_of_their_generators(scope: str) -> None:
    """A normal number in three hundred takes further words, and one in three thousand those of the tail."""
    rng, places = np.random.default_rng(0), [(5, 0), (-2, 7), (10**12, 2**40), (5, 1), (5, 0)]
    owners, steps = (np.array([*first, *rng.integers(0, 50, 3000)]) for first in zip(*places, strict=True))
    counts = np.array([3, 400, 1, 0, 50, *rng.integers(0, 50, 3000)])
    block = Streams(2**64 - 1, 3, scope=scope).each(owners, steps)
    expected = [one.rng("draw").standard_normal(count) for one, count in zip(block, counts, strict=True)]
    np.testing.assert_array_equal(block.normals("draw", counts), np.concatenate(expected))
    expected = [one.rng("coin").random(count) for one, count in zip(block, counts, strict=True)]
    np.testing.assert_array_equal(block.uniforms("coin", counts), np.concatenate(expected))
    np.testing.assert_array_equal(block[counts > 30].uniforms("coin"), [one[0] for one in expected if len(one) > 30])
    assert [one.uniform("coin") for one in block] == [one.rng("coin").random() for one in block]


def test_asking_again_starts_the_same_stream_again_and_two_askers_do_not_disturb_each_other() -> None:
    streams = Streams(1, owner=4, step=2)
    first, second = streams.rng("coin"), streams.rng("coin")
    a = [first.random(), first.random()]
    assert [second.random(), second.random()] == a


def test_streams_that_differ_in_anything_give_other_numbers() -> None:
    seen = {
        Streams(seed, replicate, owner, step, scope).rng(purpose).random()
        for seed, replicate, owner, step, scope, purpose in itertools.product(
            (0, 1, 2**63 - 1), (0, 1), (WORLD, COORDINATOR, 0, 1, 1000), (0, 1, 64), ("", "history "), ("coin", "draw")
        )
    }
    assert len(seen) == 3 * 2 * 5 * 3 * 2 * 2


def test_the_shared_stream_is_the_same_for_every_agent_and_step() -> None:
    values = {Streams(1, 2, owner, step).shared("features").random() for owner in range(3) for step in range(3)}
    assert len(values) == 1


def test_neighbouring_streams_look_independent_and_uniform() -> None:
    """Kolmogorov-Smirnov over the first draws of 4,000 neighbours, and their serial correlation; false alarm 1e-5 each."""
    first = np.array([Streams(1, owner=owner, step=step).rng("coin").random() for owner in range(40) for step in range(100)])
    assert stats.kstest(first, "uniform").pvalue > 1e-5
    correlation = np.corrcoef(first[:-1], first[1:])[0, 1]
    assert abs(correlation) * np.sqrt(len(first)) < stats.norm.isf(0.5e-5)


def test_a_generator_can_be_stored_and_taken_up_again() -> None:
    generator = Streams(1).rng("coin")
    generator.random(5)
    again = pickle.loads(pickle.dumps(generator.bit_generator.state))
    other = Streams(2).rng("coin")
    other.bit_generator.state = again
    assert other.random() == generator.random()
