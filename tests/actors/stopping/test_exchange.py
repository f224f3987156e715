"""What agents tell each other of rungs: units, deciles, merging, and what a verdict makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbo.actors.stopping.exchange import COUNTS, DECILES, RungExchange, merged_deciles
from fedbo.actors.stopping.rungs import Elsewhere, RungState
from fedbo.actors.stopping.stoppers import Halving, Hyperband
from fedbo.algorithms.base import Inbound, Overlapping, Problem
from fedbo.algorithms.streams import Streams
from fedbo.study.tables import AlgorithmTable

PROBLEM = Problem(2, 3, range(3), 3, 10)


def exchange(name: str = "random", brackets: tuple[tuple[int, ...], ...] = ((1, 3, 9),), **settings: Any) -> RungExchange:
    algorithm = AlgorithmTable.model_validate({"name": name, **settings}).make()
    return RungExchange(algorithm, brackets, algorithm.upload(PROBLEM) is None, algorithm.download(PROBLEM) is None)


def state(values: list[float]) -> RungState:
    return RungState({(0, 1): {(step, 0): value for step, value in enumerate(values)}})


def message(sender: int, step: int, payload: Any) -> Inbound:
    return Inbound(sender, step, 0.0, payload)


def test_what_an_agent_tells_does_not_depend_on_location_and_scale_of_its_values() -> None:
    values = list(np.random.default_rng(1).normal(size=12))
    one = RungState({**state(values).values, (0, 3): {(2, 0): 1.5, (5, 0): 0.5}})
    moved = {place: {key: 5.0 + 100.0 * value for key, value in at.items()} for place, at in one.values.items()}
    told, other = (exchange().telling({}, each) for each in (one, one._replace(values=moved)))
    assert told[COUNTS].tolist() == [12, 2]
    np.testing.assert_allclose(told[DECILES], other[DECILES], atol=1e-12)
    assert told[DECILES][0, 4] == pytest.approx(0.0), "the median of the lowest rung is 0"
    middle = float(np.median(values))
    spread = np.mean(np.abs(np.array(values) - middle))
    np.testing.assert_allclose(told[DECILES][0] * spread + middle, np.quantile(values, np.arange(1, 10) / 10))


@pytest.mark.parametrize("values", [[], [1.0, 2.0], [4.0, 4.0, 4.0]])
def test_an_agent_that_does_not_know_its_scale_tells_nothing_and_compares_with_its_own(values: list[float]) -> None:
    rungs = state(values)._replace(others={(0, 1): Elsewhere(50.0, (9.0,) * 9)})
    assert not exchange().telling({}, rungs)[COUNTS].any()
    assert rungs.elsewhere((0, 1), 3.0) == (0.0, 0.0)


def test_merged_deciles_are_those_of_all_points_as_often_as_their_agents_have_values() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        counts = rng.integers(1, 9, size=4).astype(float)
        deciles = np.sort(np.round(rng.normal(size=(4, 9)), 1), axis=1)
        copies = np.repeat(deciles.ravel(), np.repeat(counts, 9).astype(int))
        tenths = [sorted(copies)[int(np.ceil(len(copies) * tenth / 10)) - 1] for tenth in range(1, 10)]
        assert merged_deciles(counts, deciles).tolist() == tenths


@pytest.mark.parametrize("name", ["random", "fts"])
def test_an_answer_has_the_newest_of_all_others_and_the_algorithm_sees_its_own_part(name: str) -> None:
    made, streams = exchange(name), Streams(0)
    assert isinstance(made, Overlapping) and made.sends(0) and made.sends(1)
    state, server = made.agent_init(PROBLEM, streams.of(0).at(0)), made.server_init(PROBLEM)
    rungs = [RungState({(0, 1): {(n, 0): float(n) for n in range(3 + agent)}}) for agent in range(3)]
    state = made.tell(state, np.array([[0.2, 0.3], [0.7, 0.1], [0.5, 0.9]]), np.array([0.0, 1.0, 0.5]))
    payload, state = made.outbox(state, streams.of(0).at(1))
    assert payload is not None and payload.keys() == made.upload(PROBLEM).keys()
    for agent, step in ((0, 2), (1, 2), (2, 2), (2, 1)):  # the last comes late
        told = made.telling(payload, rungs[agent] if (agent, step) != (2, 1) else None)
        assert {one: array.shape for one, array in told.items()} == {
            one: field.shape for one, field in made.upload(PROBLEM).items()
        }
        server = made.receive(server, message(agent, step, told), 0.0)
    answers, server = made.broadcast(server, [0, 1], np.ones(3), streams.at(1))
    assert [answers[agent][COUNTS].tolist() for agent in (0, 1)] == [[9.0, 0.0], [8.0, 0.0]]
    assert all(answer.keys() == made.download(PROBLEM).keys() for answer in answers.values())
    inbox = [message(-2, 1, answers[0])]
    made.ask(state, inbox, streams.of(0).at(2))
    heard = made.heard(None, inbox)
    assert heard is not None and heard.others.keys() == {(0, 1)} and heard.others[0, 1].number == 9.0
    assert made.heard(heard, ()) is heard


def test_places_are_the_rungs_of_all_brackets_below_the_end_and_bytes_are_ten_numbers_each() -> None:
    made = exchange(brackets=Hyperband(reduction=3).brackets(1, 9))
    assert made.places == [(0, 1), (0, 3), (1, 3)]
    assert made.bytes == sum(array.nbytes for array in made.telling({}, None).values()) == 3 * 10 * 8


def test_a_verdict_counts_the_values_of_others_and_the_best_of_ones_own_always_goes_on() -> None:
    stopper, values = Halving(reduction=3, compare="quantiles"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]  # units: 2.5 and 1.5
    for others, going in (
        (None, [4, 5]),
        (Elsewhere(60.0, (9.0,) * 9), [5]),  # of 66 values 22 may go on, and 60 are better than all of these
        (Elsewhere(60.0, (-9.0,) * 9), [0, 1, 2, 3, 4, 5]),
        (Elsewhere(9.0, (-9.0,) * 6 + (9.0,) * 3), [4, 5]),  # five of 15; three of the others are better
    ):
        rungs = state(values)._replace(others={} if others is None else {(0, 1): others})
        found = [n for n in range(6) if stopper.verdict(rungs, (1, 3, 9), (0, 1), (n, 0)) == "go"]
        assert found == going
