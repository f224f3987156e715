"""The private aggregator, attacked: what it releases and what that gives away, whom it samples, refuses and charges."""

from __future__ import annotations

import math
import multiprocessing
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st
from private_runs import NUMBERS, Discreet, SameNoise, Stand, Whisper, releases, said, uneven, with_law
from scipy import stats
from small_runs import Ran, logged

from fedbo.actors.columns import StepRequests
from fedbo.actors.hosts import InlineHosts
from fedbo.actors.storage.checkpoint import pack, unpack
from fedbo.actors.task import StepRequest
from fedbo.algorithms.base import Array, Mechanism
from fedbo.algorithms.streams import COORDINATOR, Streams, hiding
from fedbo.coordinator.environment.availability import Always, Bernoulli, Daily, Markov
from fedbo.coordinator.environment.environment import AgentModels, Environment
from fedbo.coordinator.environment.faults import (
    Corruption,
    Crash,
    Delay,
    Duplication,
    Fault,
    Hang,
    Loss,
    NetworkPartition,
    Reordering,
    Restart,
    Slow,
)
from fedbo.coordinator.environment.timing import Constant, Exponential, Lognormal, Pareto, Timing
from fedbo.coordinator.kernel.core import Core
from fedbo.coordinator.kernel.engine import RunHooks, run_virtual
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.events import Message, MessageReceived
from fedbo.coordinator.kernel.exchange import Barrier, Buffered, Deadline, Exchange, FirstK, Immediate, Rounds
from fedbo.coordinator.selection import Selection
from fedbo.coordinator.staleness import Staleness
from fedbo.privacy import aggregator
from fedbo.privacy.aggregator import revealed, why_not_amplified
from fedbo.privacy.budget import PrivacyBudget
from fedbo.privacy.gaussian import noise_stds, sensitivities
from fedbo.privacy.ledger import LedgerEntry, accounted, table_of
from fedbo.privacy.noise import NoiseSource, Secure, Seeded, secret_key
from fedbo.settings.records import changed

SEVEN: list[Exchange] = [
    Barrier(),
    Deadline(1.5),
    Deadline(1.5, "carry"),
    FirstK(3),
    FirstK(3, "carry"),
    Buffered(3),
    Immediate(),
]
# Every mode with all agents or with half of them, in turn; the other pairs are left to the long tests.
ALTERNATING = [
    pytest.param(
        mode, share, id=f"{mode.mode} {getattr(mode, 'late', '')}-{share}", marks=[pytest.mark.long] * (number % 2 != place)
    )
    for number, mode in enumerate(SEVEN)
    for place, share in enumerate((0.5, 1.0))
]
LAW = Mechanism(blocks=2, clip=4.0, noise=1.5)
EVERYBODY = tuple(range(5))
KEY = bytes(range(32))
everything = settings(max_examples=30, derandomize=True, database=None)


def private_part(core: Core) -> aggregator.PrivateAggregator:
    """Return the aggregator of a core whose messages are private."""
    found = core.rules.receipt.aggregator
    assert found is not None
    return found


def algorithm(ran: Ran) -> Any:
    return ran.core.rules.algorithm


# What is released.


def heard_by_release(ran: Ran) -> list[dict[int, tuple[int, int]]]:
    """Read from the event log which message of whom is in each release: agent -> (step, rounds since that step began).

    A release has the newest message of each agent that has arrived since the last one, up to its time.
    """
    found, begun, place = [], dict[tuple[int, int], int](), 0
    for number, entry in enumerate(releases(ran)):
        among = dict[int, tuple[int, int]]()
        while place < len(ran.records) and ran.records[place].time <= entry.time:
            record = ran.records[place]
            if record.kind == "round" and record.round == number:
                break
            if record.kind == "started" and not record.again:
                begun[record.agent, record.step] = number
            if record.kind == "arrived":
                among[record.agent] = record.step, number - begun[record.agent, record.step]
            place += 1
        found.append(among)
    return found


def as_in_the_paper(
    law: Mechanism, weights: Array, messages: dict[int, tuple[Array, float]], noise: Array
) -> tuple[Array, Array]:
    """Write Dai et al. 2021, Algorithm 1, lines 5 to 12, out in loops: a release, and the deviations of its noise."""
    blocks, numbers = noise.shape
    found, deviation = np.zeros((blocks, numbers)), np.zeros(blocks)
    for i in range(blocks):
        phi_max = max(weights[i]) if law.per_block else max(max(row) for row in weights)
        deviation[i] = law.noise * phi_max * law.clip / law.share
        for k in range(numbers):
            total = 0.0
            for agent, (vector, worth) in messages.items():
                length = math.sqrt(sum(number**2 for number in vector))
                clipped = vector[k] / max(1.0, length / (law.clip / math.sqrt(blocks)))
                total += weights[i][agent] * worth * clipped
            found[i, k] = total / law.share + deviation[i] * noise[i, k]
    return found, deviation


@pytest.mark.parametrize("per_block", [False, True])
@pytest.mark.parametrize(("mode", "share"), ALTERNATING)
def test_a_release_is_what_the_paper_says_of_the_messages_that_arrived(mode: Exchange, share: float, per_block: bool) -> None:
    staleness = Staleness("polynomial", 0.7) if mode.is_synchronous else Staleness()
    norms = {0: 0.5, 1: 40.0, 3: 1e200}
    law = replace(LAW, share=share, per_block=per_block)
    weights = uneven(2, 5)
    exchange: Any = replace(mode, staleness=staleness)  # type: ignore[type-var]
    ran = Discreet(Whisper(law, weights, norms), exchange=exchange, seed=5, evaluation=Lognormal(1.0, 0.6)).run()
    known = heard_by_release(ran)
    server, entries = ran.core.state.server, releases(ran)
    assert len(server.vectors) == len(entries) >= 6 and server.numbers == tuple(range(len(entries)))
    late = 0
    for number, messages in enumerate(known):
        spoken = {agent: said(agent, step, norms.get(agent, 3.0)) for agent, (step, _) in messages.items()}
        worth = {agent: (1.0 + stale) ** -0.7 if mode.is_synchronous else 1.0 for agent, (_, stale) in messages.items()}
        late += sum(one < 1 for one in worth.values())
        with np.errstate(over="ignore"):
            pairs = {agent: (spoken[agent], worth[agent]) for agent in messages}
            hidden, deviation = as_in_the_paper(law, weights(number), pairs, np.zeros((2, NUMBERS)))
            grid = (aggregator.GRID * 2.0 ** np.floor(np.log2(deviation)))[:, None]
            purpose = hiding("privacy noise", np.round(hidden / grid))
            noise = Streams(5, owner=COORDINATOR, step=number).rng(purpose).standard_normal((2, NUMBERS))
            expected, deviation = as_in_the_paper(law, weights(number), pairs, noise)
        np.testing.assert_allclose(entries[number].noise, deviation, rtol=1e-12)
        assert np.all(np.abs(server.vectors[number] - expected) <= 2.0**-20 * deviation[:, None] + 1e-12)
        grains = server.vectors[number] / grid
        assert np.array_equal(grains, np.round(grains)), "low bits of a double are left in a release"
    assert late == 0 or mode.accepts_late
    assert late > 0 or not (mode.is_synchronous and mode.accepts_late and mode.mode != "barrier")


def test_the_coordinator_half_sees_releases_and_nothing_else() -> None:
    """The toy's `receive` raises; what else it is given, it keeps."""
    ran = Discreet(Whisper(replace(LAW, share=0.5)), exchange=Barrier(staleness=Staleness("exponential"))).run()
    assert len(ran.core.state.server.vectors) == len(releases(ran)) and ran.of("arrived")
    shown = {worth for _, worth, _ in algorithm(ran).answers}
    assert shown == {(1.0,) * 5}, "how old each agent's newest message is says who was asked"


# The noise.


@pytest.mark.parametrize("per_block", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("source", [Seeded(Streams(23)), Secure(KEY)], ids=["seeded", "secure"])
def test_noise_is_normal_independent_and_of_the_stated_size_also_on_nobody(
    source: NoiseSource, empty: bool, per_block: bool
) -> None:
    """600 releases of 3 blocks of 4 numbers. Law: N(0, (z phi_max S / q)^2), independent over blocks, numbers, releases.

    Seed 23, and a fixed key. Chi-square of each number's variance, Kolmogorov-Smirnov of all, and correlations, each at a
    false-alarm rate of 1e-4 in all.
    """
    law, count, numbers = Mechanism(3, 2.0, 1.3, share=0.4, per_block=per_block), 600, 4
    weights = uneven(3, 6)(0)
    stand = Stand(law, 6, lambda release: weights, source, whole="by hand", numbers=numbers)
    message = {} if empty else {2: np.array([0.1, -0.2, 0.3, 0.05])}
    shift = np.outer(weights[:, 2], message[2]) / 0.4 if message else 0.0
    found = np.array([stand.release(message, sample=False) for _ in range(count)]) - shift
    phi_max = weights.max(axis=1) if per_block else np.full(3, weights.max())
    standard = (found / (1.3 * phi_max * 2.0 / 0.4)[:, None]).reshape(count, 12)
    squares = (standard**2).sum(axis=0)
    low, high = stats.chi2(count).ppf([0.5e-4 / 12, 1 - 0.5e-4 / 12])
    assert np.all((low < squares) & (squares < high))
    assert stats.kstest(standard.ravel(), "norm").pvalue > 1e-4
    pairs = np.corrcoef(np.hstack([standard[1:], standard[:-1]]).T)[np.triu_indices(24, 1)]
    assert np.abs(pairs).max() * math.sqrt(count) < stats.norm.isf(0.5e-4 / len(pairs))
    assert len(np.unique(found)) > 0.99 * found.size


# What one agent can do to a release.


@st.composite
def small_worlds(draw: Any) -> tuple[Stand, dict[int, Array], Array, int]:
    agents, blocks = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    adaptive = draw(st.booleans())
    law = Mechanism(
        blocks,
        clip=draw(st.sampled_from([0.3, 1.0, 20.0])),
        noise=draw(st.sampled_from([0.5, 1.0, 4.0])),
        share=draw(st.sampled_from([0.1, 0.5, 1.0])),
        per_block=draw(st.booleans()),
        quantile=0.4 if adaptive else None,
        count_noise=6.0 if adaptive else 0.0,
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = rng.dirichlet(np.full(agents, draw(st.sampled_from([0.3, 1.0, 10.0]))), blocks) + 1e-9
    norms = draw(st.lists(st.sampled_from([0.0, 1e-200, 0.01, 0.3, 1.0, 30.0, 1e10, 1e200]), min_size=agents, max_size=agents))
    messages = {}
    for agent, norm in enumerate(norms):
        vector = rng.standard_normal(NUMBERS)
        messages[agent] = vector / np.linalg.norm(vector) * norm
    heard = draw(st.sets(st.integers(0, agents - 1), min_size=1))
    worth = np.array(draw(st.lists(st.floats(0, 1), min_size=agents, max_size=agents)))
    stand = Stand(law, agents, lambda release: weights, SameNoise(Streams(draw(st.integers(0, 2**20)))), whole="by hand")
    return stand, {agent: messages[agent] for agent in heard}, worth, draw(st.sampled_from(sorted(heard)))


def moved(stand: Stand, messages: dict[int, Array], worth: Array, agent: int) -> tuple[float, float]:
    """Give how far an agent's message moves all that is made public, over its noise, and the most that is charged for that."""
    law, clip = stand.aggregator.mechanism, stand.state.clip
    weights = stand.algorithm.weights(stand.problem, 0)
    out, clips = [], []
    for world in (messages, {**messages, agent: np.zeros(NUMBERS)}):
        twin = Stand(law, stand.problem.n_agents, stand.algorithm.phi, stand.source, whole="by hand")
        out.append(twin.release(world, worth, sample=False))
        clips.append(twin.state.clip)
    part = law.noise if law.quantile is None else (law.noise**-2 - (2 * law.count_noise) ** -2) ** -0.5
    largest = weights.max(axis=1) if law.per_block else np.full(law.blocks, weights.max())
    deviation = part * largest * clip / law.share
    square = float((((out[0] - out[1]) / deviation[:, None]) ** 2).sum())
    if law.quantile is not None:
        counted = math.log(clips[0] / clips[1]) / law.rate * law.share * stand.problem.n_agents
        square += (counted / law.count_noise) ** 2
    return math.sqrt(square), float(sensitivities(law, weights)[agent])


@everything
@given(small_worlds())
def test_nobody_moves_a_release_by_more_than_is_charged(world: tuple[Stand, dict[int, Array], Array, int]) -> None:
    stand, messages, worth, agent = world
    grain = aggregator.GRID * math.sqrt(stand.aggregator.mechanism.blocks * NUMBERS)
    distance, most = moved(stand, messages, worth, agent)
    assert distance <= most * worth[agent] * (1 + 1e-9) + grain + 1e-9
    assert most <= 1 / stand.aggregator.mechanism.noise * (1 + 1e-12)


def test_without_clipping_a_huge_message_moves_a_release_by_more_than_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    stand, messages = Stand(LAW, 3, whole="by hand", source=SameNoise(Streams(11))), {0: said(0, 1, 30.0), 1: said(1, 1, 1.0)}
    distance, most = moved(stand, messages, np.ones(3), 0)
    assert distance == pytest.approx(most, rel=1e-5)  # the bound is reached
    monkeypatch.setattr(aggregator, "clip_factors", lambda norms, bound: (np.ones(len(norms)), 0))
    distance, most = moved(stand, messages, np.ones(3), 0)
    assert distance > 5 * most


# Adaptive clipping.


def test_the_noisy_count_takes_its_part_of_the_noise_multiplier() -> None:
    """Andrew et al. 2021, Theorem 1: z = (z_vectors^-2 + (2 sigma_count)^-2)^(-1/2)."""
    law = Mechanism(1, 2.0, 0.8, quantile=0.5, count_noise=3.0)
    weights = np.full((1, 4), 0.25)
    vectors = noise_stds(law, weights, 2.0)[0] / (0.25 * 2.0)
    assert vectors > 0.8 and vectors**-2 + (2 * 3.0) ** -2 == pytest.approx(0.8**-2)
    np.testing.assert_allclose(sensitivities(law, weights), 1 / 0.8)


@pytest.mark.parametrize(
    ("start", "quantile"), [(10.0, 0.8), *(pytest.param(start, 0.5, marks=pytest.mark.long) for start in (0.1, 100.0))]
)
def test_the_clipping_norm_goes_to_its_quantile(start: float, quantile: float) -> None:
    """Stationary log-normal norms of 200 agents; seed 3. The mean of the last 100 of 250 clips is within 10 % of the quantile.

    With count noise 5 of 100 sampled messages the clip's own fluctuation is 3 %, and its mean's below 1 %.
    """
    rng = np.random.default_rng(3)
    norms = np.exp(rng.standard_normal(200))
    law = Mechanism(4, start, 1.0, share=0.5, quantile=quantile, count_noise=5.0)
    stand, clips = Stand(law, 200), []
    messages = [{agent: said(agent, step, norms[agent]) for agent in range(200)} for step in range(5)]
    for step in range(250):
        stand.release(messages[step % 5])
        clips.append(stand.state.clip)
    assert np.mean(clips[-100:]) / 2.0 == pytest.approx(np.quantile(norms, quantile), rel=0.1)


def test_an_agent_is_half_a_vote_on_the_clipping_norm_and_less_when_it_is_worth_less() -> None:
    law = Mechanism(1, 1.0, 1.0, quantile=0.5, count_noise=2.0, rate=1.0)
    clips = {}
    for name, vector, worth in (("zero", 0.0, 1.0), ("within", 0.5, 1.0), ("beyond", 5.0, 1.0), ("stale", 5.0, 0.25)):
        stand = Stand(law, 4, whole="by hand", source=SameNoise(Streams(11)))
        stand.release({2: said(2, 1, vector), 1: said(1, 1, 0.2)}, np.array([1.0, 1.0, worth, 1.0]), sample=False)
        clips[name] = math.log(stand.state.clip)
    votes = {name: -4 * (clip - clips["zero"]) for name, clip in clips.items()}
    assert votes == pytest.approx({"zero": 0.0, "within": 0.5, "beyond": -0.5, "stale": -0.125})


def test_the_noisy_count_is_rounded_to_a_part_of_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of deviation 2, to a sixteenth of it: the digits below would tell of the count (Mironov 2012)."""
    monkeypatch.setattr(aggregator, "GRID", 2.0**-4)
    stand, found = Stand(Mechanism(1, 1.0, 1.0, quantile=0.5, count_noise=2.0, rate=1.0), 4), []
    for step in range(6):
        before = stand.state.clip
        stand.release({agent: said(agent, step, 0.2) for agent in range(4)})
        found.append(-4 * math.log(stand.state.clip / before) / 0.125)
    assert found == pytest.approx(np.round(found), abs=1e-6) and len(set(np.round(found))) > 2


# Who is asked.


def test_the_number_of_the_asked_is_binomial() -> None:
    """Law: Binomial(12, 0.3) in each of 3000 releases; chi-square of 0, 1, ..., 7 and more; seed 11, false alarms 1e-4."""
    stand = Stand(replace(LAW, share=0.3), 12)
    counts = []
    for release in range(3000):
        stand.state.release = release
        counts.append(len(stand.aggregator.sample(stand.state, range(12))))
    observed = np.bincount(np.minimum(counts, 7), minlength=8)
    chances = stats.binom(12, 0.3).pmf(range(7))
    expected = 3000 * np.append(chances, 1 - chances.sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-4


@pytest.mark.parametrize("source", [Seeded(Streams(2)), Secure(KEY)], ids=["seeded", "secure"])
def test_an_agents_coin_depends_on_no_other_agent(source: NoiseSource) -> None:
    stand = Stand(replace(LAW, share=0.4), 10, source=source)
    for release in range(50):
        stand.state.release = release
        of_all = stand.aggregator.sample(stand.state, range(10))
        assert stand.aggregator.sample(stand.state, range(10)) == of_all
        assert stand.aggregator.sample(stand.state, [9, 4, 2]) == of_all & {2, 4, 9}
        assert stand.aggregator.sample(stand.state, [4]) == of_all & {4}


def test_what_agents_say_moves_no_coin() -> None:
    asked = []
    for norms in ({}, {0: 0.0, 1: 1e9, 2: 77.0}):
        ran = Discreet(Whisper(replace(LAW, share=0.5), norms=norms)).run()
        asked.append([entry.sampled for entry in releases(ran)])
    assert asked[0] == asked[1]


@pytest.mark.parametrize("mode", [Barrier(), pytest.param(Deadline(2.5), marks=pytest.mark.long)], ids=lambda mode: mode.mode)
def test_only_those_who_are_asked_send(mode: Exchange) -> None:
    """40 steps of 20 agents at q = 0.25, seed 1; 1 - q of the traffic is saved: within 3 % of it, 1e-4 false alarms."""
    setting = Discreet(Whisper(replace(LAW, share=0.25)), agents=20, iterations=40, exchange=mode, evaluation=Constant(1.0))
    ran, everybody = setting.run(), with_law(setting, share=1.0).run(exchange=Barrier())
    spoken = Counter((record.agent, record.step) for record in ran.of("sent"))
    assert set(spoken.values()) == {1}
    sent, all_ = (sum(record.bytes for record in one.of("sent")) for one in (ran, everybody))
    assert all_ == 20 * 41 * 8 * NUMBERS
    assert sent / all_ == pytest.approx(0.25, abs=stats.norm.isf(0.5e-4) * math.sqrt(0.25 * 0.75 / (20 * 41)))
    entries = private_part(ran.core).entries
    asked, number = {0: set(entries[0].sampled)}, 0
    for record in ran.records:
        if record.kind == "round":
            number += 1
            asked[number] = set(entries[number].sampled) if number < len(entries) else set()
        elif record.kind == "sent" and mode.mode == "barrier" and number < len(entries):
            assert record.agent in asked[number]


def test_fixed_sampling_asks_as_many_as_it_says() -> None:
    stand = Stand(replace(LAW, share=0.3, sampling="fixed"), 11)
    counts = Counter[int]()
    for release in range(2000):
        stand.state.release = release
        chosen = stand.aggregator.sample(stand.state, range(11))
        assert len(chosen) == 3
        counts.update(chosen)
    assert len(stand.aggregator.sample(stand.state, [5])) == 1
    assert stats.chisquare([counts[agent] for agent in range(11)]).pvalue > 1e-4  # seed 11


def test_under_fixed_sampling_nobody_is_charged_less_for_a_small_weight() -> None:
    """Who is asked displaces another, whose larger part shows it: the gain from sampling is then that of the larger norm."""
    weights = np.array([[0.01, 0.33, 0.33, 0.33]])
    law = Mechanism(1, 1.0, 1.0, share=0.25, sampling="fixed")
    stand = Stand(law, 4, lambda release: weights)
    stand.aggregator.sample(stand.state, range(4))
    stand.aggregator.release(stand.state, stand.server, np.ones(4), 0.0)
    assert stand.aggregator.entries[0].norms == pytest.approx([1.0] * 4)


# What is refused.


class Chatty(InlineHosts):
    """Agents that always have something to say, asked or not."""

    def submit(self, order: StepRequest) -> None:
        super().submit(changed(order, speaks=True))

    def submit_each(self, requests: StepRequests) -> None:
        super().submit_each(changed(requests, speaks=np.ones(len(requests.agent), bool)))


def test_a_sender_that_was_not_asked_is_refused_and_changes_nothing() -> None:
    setting = Discreet(Whisper(replace(LAW, share=0.4)), latency=Constant(0.0))
    honest, core, records = setting.run(), setting.core(), list[Any]()
    run_virtual(core, Chatty(setting.task(), range(5)), RunHooks(records.extend), EventQueue())
    refused = [line for line in logged(records) if line.reason == "not_sampled"]
    assert len(refused) == 5 * 6 - len([r for r in honest.of("sent") if r.step < 6]) + 5 - len(
        [r for r in honest.of("sent") if r.step == 6]
    )
    assert pack(core.state.server) == pack(honest.core.state.server)
    assert [e.arrived for e in private_part(core).entries] == [e.arrived for e in private_part(honest.core).entries]


def test_what_is_refused_leaves_the_aggregator_as_it_was() -> None:
    setting = Discreet(Whisper(replace(LAW, share=0.5)), evaluation=Lognormal(1.0, 0.6), iterations=8)
    ran = setting.run(until=5.6)
    core, state = ran.core, ran.core.state
    was_asked = {agent.number for agent in state.agents.every() if agent.asked}
    assert state.rounds.number >= 2 and np.any(state.privacy.bases >= 0) and 0 < len(was_asked) < 5
    asked, unasked = min(was_asked), min(set(EVERYBODY) - was_asked)
    heard = int(np.flatnonzero(state.privacy.bases >= 0)[0])
    good, age = {"vector": said(0, 0, 2.0)}, state.rounds.number
    bad_nan, bad_inf = ({"vector": np.full(NUMBERS, number)} for number in (np.nan, np.inf))
    wrong = {
        "not_sampled": Message(unasked, unasked, 99, age, 0.0, good),
        "duplicate": Message(heard, heard, max(state.agents[heard].steps_accepted), age, 0.0, good),
        "late": Message(asked, asked, 98, age - 1, 0.0, good),
        "forged": Message(unasked, asked, 99, age, 0.0, good),
        "unknown_agent": Message(77, 77, 99, age, 0.0, good),
        "NaN": Message(asked, asked, 99, age, 0.0, bad_nan),
        "infinit": Message(asked, asked, 99, age, 0.0, bad_inf),
        "shape": Message(asked, asked, 99, age, 0.0, {"vector": np.zeros(NUMBERS + 1)}),
    }
    before = pack(state.privacy)
    for words, message in wrong.items():
        core.rules.log.clear()
        core.handle(MessageReceived(message), 5.0)
        assert pack(state.privacy) == before, words
        (line,) = logged(core.rules.log)
        why = "malformed" if words in ("NaN", "infinit", "shape") else words
        assert (line.kind, line.reason) == (("late", None) if why == "late" else ("rejected", why)), line
    core.handle(MessageReceived(Message(asked, asked, 99, age, 0.0, good)), 5.0)
    assert pack(state.privacy) != before


# The budget.


def gaussian_by_bisection(mu: float, delta: float) -> float:
    """Solve Balle and Wang 2018, theorem 8, for epsilon; an oracle that shares nothing with the accountant."""

    def too_small(epsilon: float) -> bool:
        first = stats.norm.cdf(mu / 2 - epsilon / mu)
        return bool(first - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu) > delta)

    if mu == 0 or not too_small(0.0):
        return 0.0
    low, high = 0.0, mu * mu / 2 + 10 * mu
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return high


def sampled_epsilon(multiplier: float, share: float, times: int, delta: float) -> float:
    if times == 0:
        return 0.0
    losses = from_gaussian_mechanism(multiplier, value_discretization_interval=1e-3, sampling_prob=share)
    return float(losses.self_compose(times).get_epsilon_for_delta(delta))


@pytest.mark.parametrize(("mode", "share"), ALTERNATING)
def test_a_budget_is_never_exceeded_and_its_end_is_told_once(mode: Exchange, share: float) -> None:
    delta, most = 1e-2, 3.0
    setting = Discreet(
        Whisper(replace(LAW, share=share)),
        exchange=mode,
        iterations=14,
        terms=PrivacyBudget((0.3, delta), most),  # it binds at the smallest
        evaluation=Exponential(1.0),
    )
    ran = setting.run()
    entries, made = private_part(ran.core).entries, releases(ran)
    refused = [entry for entry in entries if entry.refused]
    assert entries[: len(made)] == made and refused and "epsilon_max is 3" in refused[0].refused
    assert all((entry.charged, entry.arrived, entry.signal, entry.clipped) == ([], [], 0.0, 0) for entry in refused)

    def spent(rows: list[LedgerEntry]) -> float:
        if rows[0].whole:
            return max(gaussian_by_bisection(math.sqrt(sum(a in e.arrived for e in rows)) / 1.5, delta) for a in EVERYBODY)
        return sampled_epsilon(1.5, share, len(rows), delta)

    assert spent(made) <= most * 1.001
    following = (
        max(Counter(agent for entry in made for agent in entry.arrived).values()) + 1 if made[0].whole else len(made) + 1
    )
    oracle = (
        gaussian_by_bisection(math.sqrt(following) / 1.5, delta)
        if made[0].whole
        else sampled_epsilon(1.5, share, following, delta)
    )
    assert oracle > most * 0.999, "the federation ended before it had to"
    table, agents = accounted(table_of(entries, (0, "whisper", 0)), (0.3, delta), 5)
    assert max(max(row["epsilon"]) for row in table.to_pylist()) <= most
    assert max(max(row["epsilon"]) for row in agents.to_pylist()) <= most

    assert ran.core.is_over and not ran.core.state.rounds.waiting
    assert len({row.step for row in ran.rows if row.agent == 0}) == 15  # and everybody goes on to its last step
    ends = [(agent, step) for agent, step, number in algorithm(ran).heard if number == -1]
    assert len(ends) == len({agent for agent, _ in ends})
    told = Counter(record.agent for record in ran.of("delivered") if record.time >= refused[0].time)
    assert set(told) == set(ran.core.state.privacy.announced)
    for record in ran.records:
        if record.kind == "started" and record.time > refused[0].time:
            assert not any(s.agent == record.agent and s.step == record.step for s in ran.of("sent")), "asked after the end"
    assert len(ran.core.state.server.vectors) == len(made)


@pytest.mark.parametrize("share", [pytest.param(1.0, marks=pytest.mark.long), 0.5])
@pytest.mark.parametrize(
    "mode",
    [Buffered(3), *(pytest.param(mode, marks=pytest.mark.long) for mode in (Barrier(), Deadline(1.5)))],
    ids=lambda mode: mode.mode,
)
@pytest.mark.parametrize("key", [pytest.param(None, marks=pytest.mark.long), KEY], ids=["seeded", "secure"])
def test_a_run_from_a_snapshot_releases_and_stops_as_one_that_was_never_interrupted(
    mode: Exchange, share: float, key: bytes | None
) -> None:
    weights = uneven(2, 5)
    law = replace(LAW, share=share, quantile=0.5, count_noise=4.0)
    setting = Discreet(
        Whisper(law, weights),
        exchange=mode,
        iterations=10,
        terms=PrivacyBudget((1e-2,), 1.8),
        key=key,
        evaluation=Exponential(1.0),
    )
    whole = setting.run()
    core, agenda, hosts, entries = setting.core(), EventQueue(), InlineHosts(setting.task(), range(5)), list[LedgerEntry]()
    for until in (0.7, 2.5, 4.0, 7.5, math.inf):
        run_virtual(core, hosts, RunHooks(lambda lines: None), agenda, until)
        entries += private_part(core).entries
        kept, core = pack(replace(core.state, agents=dict(core.state.agents))), setting.core()
        core.state.agents.update(unpack(kept).agents)
        core.state = replace(unpack(kept), agents=core.state.agents)
    assert entries == private_part(whole.core).entries and any(entry.refused for entry in entries)
    assert pack(core.state.server) == pack(whole.core.state.server)


# What can be charged with a gain from sampling.

POISSON, FIXED = replace(LAW, share=0.3), replace(LAW, share=0.3, sampling="fixed")
UNTIMED: list[Fault] = [
    Loss(EVERYBODY, 0.3),
    Duplication(EVERYBODY, 0.3, by=1.0),
    Delay(EVERYBODY, 0.3),
    Reordering(EVERYBODY, 0.3),
    Corruption(EVERYBODY, 0.3),
]

TIMED: list[Fault] = [
    Crash((0, 1), at=1.0, restart=1.0),
    Crash((0, 2), event=19, restart=1.0),
    Crash((0, 1, 3), rate=0.2, restart=1.0, state="lost"),
    Hang((0,), at=1.0),
    Slow((0, 3), rate=0.2),
    NetworkPartition((0, 4), at=1.0),
    Restart(at=1.0),
    Loss(EVERYBODY, 0.3, start=1.0),
    Delay(EVERYBODY, 0.3, end=3.0),
]


def reason(law: Mechanism = POISSON, exchange: Exchange = SEVEN[0], plan: tuple[Fault, ...] = (), **world: Any) -> str:
    models = {name: world.pop(name) for name in ("availability", "evaluation") if name in world}
    return why_not_amplified(law, exchange, Environment(AgentModels(**models), plan=plan, **world).is_real_time, masked=False)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        *(("", reason(plan=(fault,))) for fault in UNTIMED),
        *(("", reason(exchange=Deadline(1.0), plan=(fault,))) for fault in UNTIMED),
        ("", reason(availability=Bernoulli(0.3))),
        ("", reason(FIXED)),
        ("", reason(evaluation=Pareto(1.0, 1.5), attempts=1)),
        ("no noise", reason(replace(POISSON, noise=0.0))),
        ("every agent", reason(LAW)),
        ("every agent", reason(replace(LAW, sampling="fixed"))),
        ("no rounds", reason(exchange=Immediate())),
        ("no rounds", reason(exchange=Buffered(3))),
        ("first k", reason(exchange=FirstK(3))),
        ("first k", reason(exchange=FirstK(3, "carry"))),
        ("carried over", reason(exchange=Deadline(1.0, "carry"))),
        ("another round", reason(FIXED, Deadline(1.0))),
        ("real time", reason(evaluation=None)),
        ("", reason(link=1000.0)),
        ("", reason(availability=Markov())),
        ("", reason(exceptions={3: AgentModels(availability=Daily())})),
        *(("", reason(plan=(fault,))) for fault in TIMED),
    ],
)
def test_a_gain_from_sampling_is_claimed_only_where_it_is_said(words: str, found: str) -> None:
    assert (words in found) if words else not found


@dataclass(frozen=True)
class Half:
    """A mode as somebody else may write it: a round closes with half of those who begin it. It says nothing of sampling."""

    mode: ClassVar[str] = "half"
    is_synchronous: ClassVar[bool] = True
    accepts_late: ClassVar[bool] = True
    oldest: ClassVar[int | None] = None
    staleness: Staleness = Staleness()
    selection: Selection = Selection()

    def deadline_of(self, rounds: Rounds) -> None:
        return None

    def should_close(self, rounds: Rounds) -> bool:
        return bool(rounds.reported) and len(rounds.reported) >= len(rounds.missing)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_under_a_mode_that_says_nothing_of_sampling_each_release_is_charged_whole(sampling: str) -> None:
    """End to end: in the ledger no release has a gain, and what each agent spent is that of the releases it is in."""
    law, delta = replace(LAW, share=0.4, sampling=sampling), 1e-3
    assert "'half' does not say" in reason(law, Half())
    ran = Discreet(Whisper(law), exchange=Half(), evaluation=Lognormal(1.0, 0.6), iterations=10).run()
    entries = releases(ran)
    assert len(entries) > 5 and any(len(entry.sampled) < 5 for entry in entries)
    assert {entry.share for entry in entries} == {1.0} and all("'half'" in entry.whole for entry in entries)
    assert all(entry.charged == entry.arrived for entry in entries)
    parts = Counter(agent for entry in entries for agent in entry.arrived)
    assert any(record.staleness for record in ran.of("arrived")), "nothing was carried over"
    found = epsilon_of_each(ran, (delta,))[:, 0]
    expected = [gaussian_by_bisection(math.sqrt(parts[agent]) / law.noise, delta) for agent in range(5)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("mode", SEVEN, ids=lambda mode: f"{mode.mode} {getattr(mode, 'late', '')}")
def test_no_mode_claims_a_gain_from_a_sampling_that_nobody_knows(mode: Exchange) -> None:
    assert revealed(mode, "by lot")


class Bent:
    """A source of draws whose coins for agent 0 fall as a test wants."""

    def __init__(self, source: NoiseSource, coin: str) -> None:
        self._source, self._coin = source, coin

    def normal(self, purpose: str, number: int, hidden: Array) -> Array:
        return self._source.normal(purpose, number, hidden)

    def uniform(self, purpose: str, number: int, shape: tuple[int, ...]) -> Array:
        coins = self._source.uniform(purpose, number, shape).copy()
        coins[0] = {"never": 1.0, "always": 0.0, "other": 1 - coins[0]}[self._coin]
        return coins


def happened(setting: Discreet, coin: str, dummies: bool) -> list[Any]:
    """List all that happens while agent 0's coins fall as `coin` says, but for what becomes of agent 0's own messages.

    For each release also which agents but 0 could be asked, and which are in it.
    """
    core, lines, found = setting.core(), list[Any](), list[Any]()
    assert private_part(core) is not None and private_part(core).no_amplification == "" and core.rules.sends_dummies
    core.rules.sends_dummies = dummies
    private_part(core)._source = Bent(private_part(core)._source, coin)
    run_virtual(core, InlineHosts(setting.task(), range(setting.agents)), RunHooks(lines.extend), EventQueue(), setting.until)
    for record in logged(lines):
        own = record.agent == 0 and record.kind in ("sent", "arrived", "late", "lost", "rejected") and record.answer is None
        if not own:
            found.append(record)
    for entry in private_part(core).entries:
        found.append((entry.time, [n for n in entry.eligible if n], [n for n in entry.arrived if n]))
    return found


PLANS: list[tuple[Fault, ...]] = [(), *((fault,) for fault in (*UNTIMED, *TIMED))]
PLANS += [(Corruption(EVERYBODY, 0.3, how=how),) for how in ("nan", "shape", "replay")]
PLANS += [(Loss(EVERYBODY, 0.3), Duplication(EVERYBODY, 0.4, by=1.0), Reordering(EVERYBODY, 0.4, by=3.0), UNTIMED[2])]
TIMES: list[Timing] = [Lognormal(1.0, 0.8), Pareto(1.0, 1.5), Constant(1.0)]
ABSENCES = (Always(), Bernoulli(0.25, 1.5), Markov(3.0, 1.0))
CLAIMED = [Barrier(), Deadline(0.4), Deadline(1.5), Deadline(4.0)]


def flips(mode: Exchange, dummies: bool = True) -> Iterator[tuple[Discreet, list[list[Any]]]]:
    """Give worlds, each with what happens there when agent 0 is asked never, always, or just when it was not.

    Each mode meets a quarter of them, and all together meet every one.
    """
    for seed, (plan, evaluation, absence) in enumerate(product(PLANS, TIMES, ABSENCES)):
        if (seed + CLAIMED.index(mode)) % 4:
            continue
        world = {"plan": plan, "attempts": 1 + 2 * (seed % 2), "link": (None, 300.0)[seed // 2 % 2]}
        setting = Discreet(
            Whisper(replace(LAW, share=0.5)),
            exchange=mode,
            evaluation=evaluation,
            availability=absence,
            latency=(Constant(0.25), Exponential(0.6))[seed % 2],
            models={"bandwidth": (None, 200.0)[seed // 4 % 2]},
            targets=(0, 1, 2, 4),
            seed=seed,
            iterations=5,
            world=world,
            until=60.0,
        )
        yield setting, [happened(setting, coin, dummies) for coin in ("never", "always", "other")]


@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=pytest.mark.long if isinstance(mode, Deadline) else []) for mode in CLAIMED],
    ids=lambda mode: f"{mode.mode} {mode.deadline_of(Rounds())}",
)
def test_where_the_gain_is_claimed_nothing_that_happens_tells_whether_an_agent_was_asked(mode: Exchange) -> None:
    for setting, (never, always, other) in flips(mode):
        assert never == always == other, setting


@pytest.mark.parametrize("mode", CLAIMED[:2], ids=lambda mode: mode.mode)
def test_without_dummy_messages_it_would_be_seen(mode: Exchange) -> None:
    assert any(not (never == always == other) for _, (never, always, other) in flips(mode, dummies=False))


def test_a_round_that_waits_for_a_least_number_of_messages_claims_no_gain() -> None:
    """Dummies hide under a deadline who was asked; how long a round lasts tells of it where only messages are counted."""
    assert not Deadline(1.5).reveals("poisson")
    assert "shows how many were sampled" in Deadline(1.5, minimum=2).reveals("poisson")


@pytest.mark.parametrize(
    "fault",
    [Loss(EVERYBODY, 0.3), NetworkPartition(EVERYBODY, rate=0.3, duration=0.5), Restart(rate=0.3, duration=0.3)],
    ids=lambda fault: type(fault).__name__,
)
def test_a_dummy_message_that_is_lost_is_not_in_the_log_and_no_bytes_are_lost_with_it(fault: Fault) -> None:
    setting = Discreet(Whisper(replace(LAW, share=0.5)), iterations=12, world={"plan": (fault,), "attempts": 3})
    ran = setting.run()
    sent = {(record.agent, record.step) for record in ran.of("sent")}
    dummies = {(record.agent, record.step) for record in ran.of("finished")} - sent
    lost = [record for record in ran.of("lost") if record.direction == "up"]
    assert len(dummies) > 20 and len(lost) > 3 and len(ran.of("done")) == 5
    assert {record.bytes for record in lost} == {8 * NUMBERS}
    told = {(record.agent, record.step) for record in [*lost, *ran.of("arrived"), *ran.of("rejected"), *ran.of("late")]}
    assert not told & dummies


# The ledger.


def test_the_ledger_says_what_one_message_moves_a_release_by() -> None:
    """Weights of 1/5 and a share of 1/2: clip / 5 / (1 / 2), of which the noise is a multiple."""
    entries = releases(Discreet(Whisper(replace(LAW, share=0.5)), iterations=4).run())
    assert entries and all(entry.sensitivity == pytest.approx(0.4 * LAW.clip) for entry in entries)
    assert all(entry.noise == pytest.approx([LAW.noise * entry.sensitivity] * LAW.blocks) for entry in entries)


def test_the_ledger_counts_the_messages_that_were_shortened() -> None:
    quiet = Discreet(Whisper(LAW, norms={0: 0.01}), iterations=4).run()
    for entry in releases(quiet):
        assert entry.clipped == len(set(entry.arrived) - {0}) > 0


def epsilon_of_each(ran: Ran, deltas: tuple[float, ...], agents: int = 5) -> Array:
    _, spent = accounted(table_of(private_part(ran.core).entries, (0, "whisper", 0)), deltas, agents)
    return np.array([row["epsilon"] for row in spent.to_pylist()])


def stormy(mode: Exchange, attempts: int, share: float) -> Discreet:
    weights = uneven(2, 5)(0)
    return Discreet(
        Whisper(replace(LAW, share=share, noise=2.0), lambda release: weights),
        exchange=mode,
        evaluation=Lognormal(1.0, 0.5),
        latency=Pareto(0.3, 1.5),
        iterations=12,
        targets=(0, 1, 2, 4),
        seed=8,
        world={"plan": (Loss(EVERYBODY, 0.2),), "attempts": attempts},
    )


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("mode", [Buffered(3), Immediate()], ids=lambda mode: mode.mode)
def test_each_agents_epsilon_is_that_of_the_releases_its_messages_are_in(mode: Exchange, attempts: int) -> None:
    """From the event log: a release takes all that arrived since the last one. By bisection of the closed formula."""
    ran, deltas = stormy(mode, attempts, 1.0).run(), (1e-2, 1e-5)
    weights = uneven(2, 5)(0)
    entries, place, parts = releases(ran), 0, Counter[int]()
    arrived = ran.of("arrived")
    for entry in entries:
        among = set[int]()
        while place < len(arrived) and arrived[place].time <= entry.time:
            among.add(arrived[place].agent)
            place += 1
        assert entry.arrived == entry.charged == sorted(among)
        parts.update(among)
    lost = Counter(record.agent for record in ran.of("rejected") if record.reason == "given_up")
    assert (attempts == 1) == (sum(lost.values()) > 3) and ran.of("lost")
    found = epsilon_of_each(ran, deltas)
    for agent, column in product(range(5), range(2)):
        norm = math.sqrt(sum((weights[i, agent] / weights.max()) ** 2 for i in range(2)) / 2) / 2.0
        expected = gaussian_by_bisection(norm * math.sqrt(parts[agent]), deltas[column])
        assert found[agent, column] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert parts[3] <= 1  # it only speaks once


@pytest.mark.long
@pytest.mark.parametrize("attempts", [pytest.param(1, marks=pytest.mark.long), 3])
def test_each_agents_epsilon_under_a_deadline_is_that_of_all_releases_it_could_be_in(attempts: int) -> None:
    """Who optimises is charged every release that was made, the other one its only one; by dp-accounting, within its bins."""
    ran, deltas = stormy(Deadline(1.5), attempts, 0.3).run(), (1e-2, 1e-5)
    weights, rounds = uneven(2, 5)(0), len(ran.of("round"))
    assert ran.of("late") and ran.of("lost") and len(releases(ran)) == rounds > 10
    found = epsilon_of_each(ran, deltas)
    for agent, column in product(range(5), range(2)):
        norm = math.sqrt(sum((weights[i, agent] / weights.max()) ** 2 for i in range(2)) / 2) / 2.0
        expected = sampled_epsilon(1 / norm, 0.3, 1 if agent == 3 else rounds, deltas[column])
        assert found[agent, column] == pytest.approx(expected, rel=0.01, abs=2e-3)


# The secret.


@pytest.mark.parametrize("draw", ["uniform", "normal"])
def test_secure_draws_repeat_with_their_key_alone_and_follow_their_law(draw: str) -> None:
    """20000 draws, U(0, 1) or N(0, 1): Kolmogorov-Smirnov, a fixed key, false alarms 1e-4."""
    one, again, other = (getattr(Secure(key), draw) for key in (KEY, KEY, KEY[::-1]))
    wanted: Any = (40, 500) if draw == "uniform" else np.zeros((40, 500))
    values = one("noise", 3, wanted)
    assert np.array_equal(values, again("noise", 3, wanted))
    assert stats.kstest(values.ravel(), "uniform" if draw == "uniform" else "norm").pvalue > 1e-4
    for different in (other("noise", 3, wanted), one("noise", 4, wanted), one("coins", 3, wanted)):
        assert abs(np.corrcoef(values.ravel(), different.ravel())[0, 1]) * math.sqrt(20000) < stats.norm.isf(0.5e-4)
    assert np.all(np.isfinite(values))


def test_a_secret_key_is_private_lasting_and_the_same_for_all_who_ask_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.key"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        keys = {*pool.map(secret_key, [path] * 8, chunksize=1), secret_key(path)}
    (key,) = keys
    assert len(key) == 32 and stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setattr(Path, "exists", lambda self: False)  # as when another process has made one just now
    assert secret_key(path) == key
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.key"]
    assert secret_key(tmp_path / "another.key") != key


def test_two_secure_runs_share_nothing_and_one_repeats() -> None:
    runs = [Discreet(Whisper(replace(LAW, share=0.5)), key=key).run() for key in (KEY, KEY, KEY[::-1], None)]
    vectors = [pack(ran.core.state.server) for ran in runs]
    assert vectors[0] == vectors[1] and len(set(vectors)) == 3
    assert [private_part(ran.core).entries[0].secure for ran in runs] == [True, True, True, False]


@pytest.mark.parametrize("source", [Seeded(Streams(3)), Secure(KEY)], ids=["seeded", "secure"])
@pytest.mark.parametrize("purpose", ["privacy noise", "privacy count"])
def test_noise_is_used_again_for_the_same_sums_alone(source: NoiseSource, purpose: str) -> None:
    """Subtracting two releases that have the same noise gives the difference of what they hide."""
    rng = np.random.default_rng(4)
    sums = [np.round(rng.normal(size=(2, 3)) * 2.0**20) for _ in range(20)]
    changed = [hidden + np.eye(2, 3) for hidden in sums]
    drawn = [source.normal(purpose, number, hidden) for number in (0, 1) for hidden in (*sums, *changed)]
    values = np.concatenate([noise.ravel() for noise in drawn])
    assert len(set(values.tolist())) == len(values) == 480
    assert all((source.normal(purpose, 0, -hidden) == source.normal(purpose, 0, 0.0 - hidden)).all() for hidden in sums)
    assert (source.normal(purpose, 1, changed[-1]) == drawn[-1]).all()
    assert (source.normal(purpose, 0, np.array([-0.0])) == source.normal(purpose, 0, np.array([0.0]))).all()
