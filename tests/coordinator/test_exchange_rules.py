"""Who is asked, who is answered, what a late message counts for, and what becomes of damaged, doubled and lost ones."""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from small_runs import ALL_MODES, Ran, Setting, fts, thinned
from talking import Talk

from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.environment import AgentModels
from fedbo.coordinator.environment.faults import Corruption, Delay, Duplication, Hang, Loss, NetworkPartition, Restart
from fedbo.coordinator.environment.timing import Constant, Exponential, Lognormal, SpeedClasses
from fedbo.coordinator.kernel.exchange import Barrier, Buffered, Deadline, Exchange, FirstK, Immediate
from fedbo.coordinator.selection import Selection
from fedbo.coordinator.staleness import Staleness

EVERYBODY = tuple(range(5))
every_mode = pytest.mark.parametrize(
    "exchange", ALL_MODES, ids=lambda m: m.mode + "-carry" * (m.accepts_late and m.is_synchronous)
)
every_synchronous_mode = pytest.mark.parametrize(
    "exchange", [m for m in ALL_MODES if m.is_synchronous], ids=lambda m: m.mode + "-carry" * m.accepts_late
)


def talk(exchange: Exchange, **changes: Any) -> tuple[Ran, Talk]:
    """Let five agents talk in an otherwise tidy world; give what is left and what they wrote down."""
    algorithm = Talk()
    world = {"evaluation": Lognormal(1.0, 0.8), "availability": Always(), "iterations": 12, **changes}
    return Setting(algorithm, exchange=exchange, **world).run(), algorithm


def sent(ran: Ran) -> set[tuple[int, int]]:
    return {(record.agent, record.step) for record in ran.of("sent")}


def arrived(ran: Ran) -> set[tuple[int, int]]:
    return {(record.agent, record.step) for record in ran.of("arrived")}


# Staleness.

WEIGHTS = {
    "polynomial": lambda s: (1 + s) ** -0.7,
    "exponential": lambda s: math.exp(-0.7 * s),
    "hinge": lambda s: 1.0 if s <= 2 else 1 / (1 + 0.7 * (s - 2)),
}


def expected_worth(ran: Ran, algorithm: Talk, mode: Exchange, weigh: Any) -> list[tuple[float, ...]]:
    """Read from the log alone what each newest message was worth at each answer.

    Without rounds the log does not tell of answers; there the answer to a message is given in the moment in which it arrives.
    """
    answered, base, newest = 0.0, dict.fromkeys(EVERYBODY, 0.0), dict[int, float]()
    pending, worth = list(algorithm.answers), []

    def answer() -> None:
        nonlocal answered
        passed = {agent: answered - began for agent, began in newest.items()}
        worth.append(tuple(weigh(passed[a]) if a in passed else 0.0 for a in EVERYBODY))
        pending.pop(0)
        answered += 1

    for record in ran.records:
        if record.kind == "started":
            base[record.agent, record.step] = answered
        elif record.kind == "arrived":
            newest[record.agent] = base[record.agent, record.step]
            if mode.mode == "immediate" and record.step < 30:  # nobody is answered who has done its work
                answer()
        elif record.kind == "round":
            answer()
    return worth


@pytest.mark.parametrize(("exchange", "weight"), thinned(ALL_MODES, WEIGHTS))
def test_the_algorithm_is_told_what_each_newest_message_is_worth(exchange, weight: str) -> None:
    exchange = replace(exchange, staleness=Staleness(weight, 0.7, 2))
    ran, algorithm = talk(exchange, evaluation=Lognormal(1.0, 0.5, 1.0), latency=Constant(0.0), iterations=30)
    expected = expected_worth(ran, algorithm, exchange, WEIGHTS[weight])
    assert len(expected) > 20
    for (_, worth, _), declared in zip(algorithm.answers, expected, strict=False):
        assert worth == pytest.approx(declared)
    if exchange.mode not in ("barrier",):
        assert {value for worth in expected for value in worth} - {0.0, 1.0}, "nothing ever was stale"


@pytest.mark.parametrize("k", [1, 2, 5])
def test_staleness_counts_updates_of_the_server_as_fedbuff_and_fedasync_do(k: int) -> None:
    """With exponential durations, as many of the other agents' steps end during a step as a geometric law of mean M - 1 says.

    Its agent's own last message is one more, since it does not wait for the answer to that. Of 2,800 messages, the mean has a
    standard error of .6 % by 16 seeds.
    """
    exchange = Immediate() if k == 1 else Buffered(k)
    ran, _ = talk(exchange, agents=10, evaluation=Exponential(1.0), latency=Constant(0.0), iterations=320)
    ages = np.array([record.staleness for record in ran.of("arrived") if 20 <= record.step < 300])
    assert ages.mean() == pytest.approx(10 / k, rel=0.04)
    if k == 1:
        assert (ages == 1).mean() == pytest.approx(1 / 10, abs=0.025)
    closed = [record.round for record in ran.of("round")]
    assert closed == list(range(len(closed))) and (k == 1) == (not closed)


@every_mode
def test_without_weights_every_message_is_worth_one(exchange) -> None:
    _, algorithm = talk(exchange)
    assert {worth for _, worth, _ in algorithm.answers} == {(1.0,) * 5}


@pytest.mark.parametrize("exchange", [m for m in ALL_MODES if m.accepts_late], ids=lambda m: m.mode)
@pytest.mark.parametrize("bound", [0, 1])
def test_a_message_beyond_the_bound_is_refused_and_counts_for_nothing(exchange, bound: int) -> None:
    exchange = replace(exchange, staleness=Staleness(bound=bound))
    ran, algorithm = talk(exchange, evaluation=Lognormal(1.0, 0.5, 1.0), iterations=30, seed=3)
    ages = {(record.agent, record.step): record.staleness for record in ran.of("arrived")}
    refused = [record for record in ran.of("rejected") if record.reason == "stale"]
    assert max(ages.values()) <= bound
    assert sent(ran) == ages.keys() | {(record.agent, record.step) for record in refused}
    assert ages.keys().isdisjoint((record.agent, record.step) for record in refused)
    assert {(sender, step) for sender, step, _ in algorithm.received} == ages.keys()
    if exchange.mode != "barrier":
        assert refused and any(0.0 in worth for _, worth, _ in algorithm.answers[5:])
    assert len(ran.of("done")) == 5


# Selection.


@pytest.mark.parametrize("who", ["fraction", "speed"])
@pytest.mark.parametrize(("share", "asked"), [(0.3, 2), (0.5, 4), (0.7, 6), (0.05, 1), (1.0, 8)])
def test_exactly_the_share_is_asked(who: str, share: float, asked: int) -> None:
    """round(share n) of n = 8 who begin every round together, halves to the even number, and at least one."""
    exchange = Barrier(selection=Selection(who, share))
    ran, _ = talk(exchange, agents=8, evaluation=Constant(1.0), latency=Constant(0.25))
    by_round = Counter(record.step for record in ran.of("sent"))
    assert by_round == dict.fromkeys(range(13), asked)
    assert len(ran.of("done")) == 8 and len(ran.of("finished")) == 8 * 13


@pytest.mark.parametrize("exchange", [Barrier(), Immediate()], ids=lambda m: m.mode)
def test_agents_are_asked_by_independent_coins(exchange) -> None:
    """Binomial(20 * 41, 0.3), and so by agent; exact tails, seed 2: false alarm below 1e-3 in all for each mode."""
    exchange = replace(exchange, selection=Selection("poisson", 0.3))
    ran, _ = talk(exchange, agents=20, iterations=40, seed=2)
    n = 20 * 41
    assert 5e-5 < stats.binom(n, 0.3).cdf(len(ran.of("sent"))) < 1 - 5e-5
    for count in Counter({agent: 0 for agent in range(20)} | Counter(r.agent for r in ran.of("sent"))).values():
        assert 1e-5 < stats.binom(41, 0.3).cdf(count) <= 1 - 1e-5
    assert len(ran.of("done")) == 20 and len(ran.of("finished")) == n


@pytest.mark.parametrize("oldest", [pytest.param(0, marks=pytest.mark.long), 1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("evaluation", "latency"),
    [(Lognormal(1.0, 1.5), Exponential(0.05)), (Constant(0.1), Exponential(1.0))],
    ids=["steps take long", "messages take long"],
)
def test_a_partial_barrier_waits_for_messages_that_would_be_too_old(oldest: int, evaluation: Any, latency: Any) -> None:
    world = {"agents": 8, "iterations": 40, "evaluation": evaluation, "latency": latency}
    ages: dict[int | None, int] = {}
    for exchange in (FirstK(2, "carry"), FirstK(2, "carry", oldest=oldest)):
        ran, _ = talk(exchange, **world)
        assert len(ran.of("done")) == 8 and len(ran.of("finished")) == 8 * 41
        ages[exchange.oldest] = max(record.staleness for record in ran.of("arrived"))
    assert ages[oldest] == oldest < ages[None]


def test_a_partial_barrier_waits_for_nobody_who_has_not_begun() -> None:
    """Agent 2 hangs before a step, where nobody is told: its message would be as young as the round in which it begins."""
    plan = (Hang((2,), at=1.05, duration=50.0),)
    world = {"agents": 3, "initial": 1, "iterations": 30, "evaluation": Constant(1.0), "latency": Constant(0.1)}
    ran, _ = talk(FirstK(2, "carry", oldest=0), **world, world={"plan": plan})
    assert len([record for record in ran.of("round") if record.time < 50.0]) > 20
    assert len(ran.of("done")) == 3 and max(record.staleness for record in ran.of("arrived")) == 0


ASKED = {
    "all": Selection(),
    "half": Selection("fraction", 0.5),
    "coins": Selection("poisson", 0.3),
    "half, others idle": Selection("fraction", 0.5, others="idle"),
}


@pytest.mark.parametrize("who", ASKED)
@pytest.mark.parametrize("late", ["drop", "carry"])
@pytest.mark.parametrize("length", [0.1, 1.0])
def test_a_dropped_message_does_not_close_a_round_whose_own_messages_are_still_to_come(
    who: str, late: str, length: float
) -> None:
    """Answers take less than a round, so that those it asks begin in it."""
    faults = {"plan": (Loss((0, 1), 0.3, direction="up"),), "attempts": 1}
    world = {"iterations": 30, "evaluation": Lognormal(1.0, 1.5), "latency": Constant(0.05), "world": faults}
    ran, _ = talk(Deadline(length, late, selection=ASKED[who], staleness=Staleness(bound=2)), **world)
    begun, empty, closed, heard = dict[tuple[int, int], int](), set[int](), 0, 0
    for record in ran.records:
        message = record.agent, record.step
        if record.kind == "round":
            empty |= {closed} if not heard else set()
            closed, heard = closed + 1, 0
        elif record.kind == "started":
            begun[message] = closed
        elif record.kind in ("arrived", "late", "rejected") and record.reason != "given_up":
            heard += record.kind == "arrived"
            assert begun[message] not in empty, f"round {begun[message]} closed without its message {message}"
    assert closed > 20
    assert len(ran.of("done")) == 5 or who.endswith("idle")


def test_a_late_message_that_is_dropped_waits_with_its_sender_for_the_messages_of_the_open_round() -> None:
    """The message of round 0 comes at 3.5, into round 2, whose deadline is at 3.6; that of round 2 comes at 3.9."""
    speed = {0: Constant(1.3), 1: Constant(3.5)}
    models = {number: AgentModels(evaluation=one, latency=Constant(0.0)) for number, one in speed.items()}
    quiet = {"agents": 2, "initial": 1, "iterations": 3, "world": {"exceptions": models}}
    ran, _ = talk(Deadline(1.0), **quiet)
    assert [record.time for record in ran.of("late")] == [3.5]
    assert [record.time for record in ran.of("round")][:3] == pytest.approx([1.3, 2.6, 3.9])


@pytest.mark.parametrize(
    ("exchange", "who"), thinned([m for m in ALL_MODES if m.is_synchronous], ["fraction", "poisson", "speed"])
)
def test_who_is_not_asked_sends_nothing_and_goes_on(exchange, who: str) -> None:
    exchange = replace(exchange, selection=Selection(who, 0.4))
    ran, _ = talk(exchange, iterations=20)
    assert len(ran.of("done")) == 5 and len(ran.of("finished")) == 5 * 21
    assert 0 < len(sent(ran)) < 5 * 21


def test_speed_is_how_long_a_step_has_taken_whenever_it_ended() -> None:
    """A slow agent is asked while fast ones work with probability below 40 (3 / 5)^60, once it is known: below 1e-11."""
    fast = {agent: AgentModels(evaluation=Constant(1.0), latency=Constant(0.1)) for agent in (1, 3)}
    exchange = Barrier(selection=Selection("speed", 0.5, explore=0.0, penalty=60.0))
    slow = {"agents": 4, "initial": 1, "iterations": 40, "evaluation": Constant(5.0), "latency": Constant(0.1)}
    ran, _ = talk(exchange, **slow, world={"exceptions": fast})
    until = min(record.time for record in ran.of("done"))
    assert len([record for record in ran.of("finished") if record.agent in (0, 2) and record.time < until]) > 12
    assert {record.agent for record in ran.of("sent") if record.step > 0 and record.time < until} == {1, 3}


@pytest.mark.long
def test_selection_by_speed_asks_slow_agents_less() -> None:
    """Five of 10 agents are 5 times slower. Were all alike, they would be asked half as often as not: seed 4, below 1e-6."""
    exchange = Barrier(selection=Selection("speed", 0.4))
    speed = {"speed": SpeedClasses((1.0, 5.0))}
    ran, _ = talk(exchange, agents=10, iterations=250, evaluation=Constant(1.0), models=speed, seed=4)
    lengths: dict[int, float] = {}
    for row in ran.rows:
        lengths[row.agent] = row.finished - row.started
    slow = {agent for agent, length in lengths.items() if length > 2.0}
    assert 2 <= len(slow) <= 8
    asked = [record.agent in slow for record in ran.of("sent") if record.step > 1]
    assert stats.binomtest(sum(asked), len(asked), len(slow) / 10, alternative="less").pvalue < 1e-6


# Rounds and what comes after them.


@pytest.mark.parametrize("exchange", [Deadline(1.5), FirstK(3)], ids=lambda m: m.mode)
def test_late_messages_are_dropped_or_carried(exchange) -> None:
    dropping, _ = talk(exchange)
    carrying, _ = talk(replace(exchange, late="carry"))
    assert dropping.of("late") and {record.staleness for record in dropping.of("arrived")} == {0}
    late = {(record.agent, record.step) for record in dropping.of("late")}
    assert late.isdisjoint(arrived(dropping)) and late | arrived(dropping) == sent(dropping)
    assert not carrying.of("late") and arrived(carrying) == sent(carrying)
    assert any(record.staleness > 0 for record in carrying.of("arrived"))
    for ran in (dropping, carrying):
        assert len(ran.of("finished")) == 5 * 13


@every_synchronous_mode
def test_nobody_begins_a_step_before_the_round_of_its_last_one_has_closed(exchange) -> None:
    ran, _ = talk(exchange)
    rounds, at_end = 0, dict[int, int]()
    for record in ran.records:
        rounds += record.kind == "round"
        if record.kind == "finished":
            at_end[record.agent] = rounds
        elif record.kind == "started" and record.agent in at_end:
            assert rounds > at_end[record.agent]


@pytest.mark.parametrize("exchange", [Deadline(1.0), FirstK(2), Deadline(1.0, "carry")], ids=lambda m: m.mode)
def test_a_straggler_has_no_part_in_p_n_while_it_has_not_reported(exchange) -> None:
    """Dai et al. 2020, section 3.1: P_N[n] = 0 for an agent whose message has not been received."""
    plain, told = fts(), []

    class Told(type(plain)):  # type: ignore[misc]
        def broadcast(self, state, recipients, worth, streams):
            payloads, state = super().broadcast(state, recipients, worth, streams)
            told.append((streams.step, {agent: payload["weight"] for agent, payload in payloads.items()}))
            return payloads, state

    watched = Told(**{field.name: getattr(plain, field.name) for field in fields(plain)})
    evaluation = Lognormal(1.0, 0.5, 1.0)
    ran = Setting(watched, exchange=exchange, evaluation=evaluation, availability=Always(), latency=Constant(0.0)).run()
    held, zeros = set[int](), 0
    rounds = iter(told)
    for record in ran.records:
        if record.kind == "arrived":
            held.add(record.agent)
        elif record.kind == "round":
            _, weights = next(rounds)
            for agent, weight in weights.items():
                assert {n for n in EVERYBODY if weight[n] > 0} == held - {agent}
                zeros += 5 - len(held)
    assert zeros > 0, "nobody ever was late"


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_buffer_is_answered_when_it_is_full_and_to_its_senders(k: int) -> None:
    ran, algorithm = talk(Buffered(k), latency=Constant(0.0), evaluation=Exponential(1.0))
    first_done = min(record.time for record in ran.of("done"))
    senders = [record.agent for record in ran.of("arrived") if record.time < first_done]
    full = [set(senders[place : place + k]) for place in range(0, len(senders) - k + 1, k)]
    assert len(full) >= 5
    assert [set(recipients) for recipients, _, _ in algorithm.answers[: len(full)]] == full


def test_a_buffer_that_can_no_longer_be_filled_is_answered_once_everybody_waits() -> None:
    """Two agents never send ten messages before they wait: those of steps 0 and 1 arrive at 1.5, their answers at 2.0."""
    still = {"evaluation": Constant(1.0), "initial": 1, "latency": Constant(0.5), "iterations": 3, "agents": 2}
    ran = Setting(Talk(queries=0), exchange=Buffered(10), availability=Always(), **still).run()
    assert [(record.agent, record.time) for record in ran.of("done")] == [(0, 2.0), (1, 2.0)]


def test_immediate_answers_go_to_the_sender_and_to_nobody_else() -> None:
    ran, algorithm = talk(Immediate(), latency=Constant(0.0))
    still = [record for record in ran.of("arrived") if record.step < 12]
    assert [recipients for recipients, _, _ in algorithm.answers if recipients] == [(record.agent,) for record in still]


# Doubled, damaged and lost.


@pytest.mark.parametrize(("exchange", "by"), thinned(ALL_MODES, [0.0, 0.3, 40.0]))
def test_second_copies_take_no_effect(exchange, by: float) -> None:
    plain, quiet = talk(exchange)
    doubled, loud = talk(exchange, world={"plan": (Duplication(EVERYBODY, 1.0, by=by),)})
    assert doubled.of("rejected") and all(record.reason == "duplicate" for record in doubled.of("rejected"))
    assert [record for record in doubled.records if record.kind != "rejected"] == plain.records
    assert doubled.rows == plain.rows
    assert (loud.received, loud.answers) == (quiet.received, quiet.answers)
    assert sorted(map(repr, loud.asks)) == sorted(map(repr, quiet.asks))  # steps that wait for nothing are made in any order


@every_mode
@pytest.mark.parametrize(("how", "reason"), [("nan", "not finite"), ("shape", "payload is a bytes")])
def test_a_damaged_message_is_refused_and_holds_nobody_up(exchange, how: str, reason: str) -> None:
    ran, algorithm = talk(exchange, world={"plan": (Corruption((1, 3), 1.0, how=how),)})
    refused = {(record.agent, record.step) for record in ran.of("rejected")}
    assert {agent for agent, _ in refused} == {1, 3} and {agent for agent, _ in arrived(ran)} <= {0, 2, 4}
    assert all(reason in record.message for record in ran.of("rejected"))
    assert refused == {key for key in sent(ran) if key[0] in (1, 3)}
    assert not [1 for sender, _, _ in algorithm.received if sender in (1, 3)]
    assert len(ran.of("done")) == 5 and len(ran.of("finished")) == 5 * 13


def test_a_flipped_bit_is_one_bit_or_no_number() -> None:
    ran, algorithm = talk(Immediate(), iterations=200, world={"plan": (Corruption(EVERYBODY, 1.0, how="bits"),)})
    flipped = 0
    for _, step, number in algorithm.received:
        (before,), (after,) = (struct.unpack("<Q", struct.pack("<d", value)) for value in (float(step), number))
        assert (before ^ after).bit_count() == 1
        flipped += 1
    assert flipped == len(ran.of("arrived"))
    assert all("not finite" in record.message or "too large" in record.message for record in ran.of("rejected"))
    assert flipped + len(ran.of("rejected")) == 5 * 201


@every_mode
def test_a_replayed_message_is_taken_for_the_duplicate_that_it_is(exchange) -> None:
    ran, algorithm = talk(exchange, world={"plan": (Corruption(EVERYBODY, 0.4, how="replay"),), "retry": 0.5})
    duplicates = [record for record in ran.of("rejected") if record.reason == "duplicate"]
    assert duplicates and [record for record in ran.of("sent") if record.again]
    assert all(step == number for _, step, number in algorithm.received)
    keys = [(sender, step) for sender, step, _ in algorithm.received]
    assert len(keys) == len(set(keys))
    if exchange.accepts_late:
        assert set(keys) == sent(ran)
    assert len(ran.of("done")) == 5


@every_mode
def test_a_restart_of_the_coordinator_loses_nothing_for_good(exchange) -> None:
    plan = tuple(Restart(at=at, duration=1.7) for at in (0.5, 3.0, 6.0))
    ran, _ = talk(exchange, latency=Constant(0.4), world={"plan": plan, "retry": 0.5, "attempts": 12})
    assert ran.of("lost") and not ran.of("rejected")
    late = {(record.agent, record.step) for record in ran.of("late")}
    assert arrived(ran) | late == sent(ran) and len(sent(ran)) == 5 * 13
    down = False
    for record in ran.records:
        down = record.kind == "down" or (down and record.kind != "up")
        assert not (down and record.kind in ("arrived", "late"))
    assert len(ran.of("done")) == 5 and len(ran.of("finished")) == 5 * 13


@pytest.mark.parametrize("exchange", [Deadline(1.0), Deadline(1.0, "carry")], ids=lambda m: m.mode + "-carry" * m.accepts_late)
def test_a_coordinator_that_is_down_closes_no_round(exchange) -> None:
    """The deadline passes at 1.0, in the middle of its absence: what it would write then nobody could have written."""
    plan = (Restart(at=0.7, duration=2.0),)
    evaluation = SpeedClasses((0.2, 0.5, 1.5))
    world = {"evaluation": Constant(1.0), "models": {"speed": evaluation}, "initial": 1, "world": {"plan": plan}}
    ran, _ = talk(exchange, latency=Constant(0.1), **world)
    assert [record for record in ran.of("arrived") if record.time < 0.7], "nobody was in time"
    assert not [record for record in ran.of("round") if 0.7 <= record.time < 2.7]


@every_mode
@pytest.mark.parametrize("probability", [0.8, 1.0])
def test_a_run_ends_even_when_nearly_everything_is_lost_for_good(exchange, probability: float) -> None:
    ran, _ = talk(exchange, world={"plan": (Loss(EVERYBODY, probability),), "attempts": 1})
    assert len(ran.of("done")) == 5 and len(ran.of("finished")) == 5 * 13
    assert len(ran.of("sent")) == 5 * 13 and len(ran.of("rejected")) + len(ran.of("arrived")) + len(ran.of("late")) == 5 * 13


def test_a_fault_of_messages_that_ends_when_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"end must be above start = 2.0, not 2.0"):
        Loss(EVERYBODY, 0.3, start=2.0, end=2.0)


@pytest.mark.parametrize("attempts", [1, 3, 10])
def test_two_lost_copies_of_a_transmission_are_repeated_once(attempts: int) -> None:
    """Both copies of the first message come while its agent is cut off; there is one repetition of it, not one for each."""
    cut = NetworkPartition((0,), at=1.05, duration=3.0)
    plan = (Duplication((0,), 1.0, start=0.0, end=2.0, by=0.2), cut)
    world = {"plan": plan, "retry": 0.5, "attempts": attempts}
    still = {"evaluation": Constant(1.0), "initial": 1, "latency": Constant(0.1), "iterations": 3}
    ran, _ = talk(Immediate(), agents=2, world=world, **still)
    sent_first = [record.time for record in ran.of("sent") if (record.agent, record.step) == (0, 0)]
    assert len(sent_first) <= attempts
    assert sent_first[:2] == pytest.approx([1.0, 1.6][:attempts])  # it came to the door at 1.1, and was missed 0.5 later
    assert np.diff(sent_first[1:]) == pytest.approx(0.5)
    given_up = [r.time for r in ran.of("rejected") if (r.agent, r.step) == (0, 0) and r.reason == "given_up"]
    assert not given_up or not [r for r in ran.records if (r.kind, r.agent, r.step) == ("sent", 0, 0) and r.time >= given_up[0]]


def test_an_answer_that_was_heard_is_not_sent_again() -> None:
    """The first copy is lost at the door of an agent that was cut off; the second one, 0.5 later, is heard."""
    cut = NetworkPartition((1,), at=1.15, duration=0.3)
    plan = (Duplication((1,), 1.0, by=0.5, direction="down"), cut)
    world = {"plan": plan, "retry": 2.0, "attempts": 30}
    still = {"evaluation": Constant(1.0), "initial": 1, "latency": Constant(0.1), "iterations": 6}
    ran, _ = talk(Immediate(), agents=2, world=world, **still)
    assert [r.time for r in ran.of("lost")] == pytest.approx([1.2])
    assert [r.time for r in ran.of("delivered") if r.agent == 1][0] == pytest.approx(1.7)
    first = next(r.answer for r in ran.of("delivered") if r.agent == 1)
    again = [r for r in ran.of("rejected") if (r.agent, r.answer) == (1, first)]
    assert not again, "it was repeated after it had been heard"


def test_a_run_is_not_over_while_a_message_is_under_way() -> None:
    """The last agent ends at 5; its message of step 2, which was detained, comes later and is written down."""
    slow = Delay((0,), 1.0, start=2.5, end=3.5, direction="up", by=20.0)
    world = {"evaluation": Constant(1.0), "initial": 1, "latency": Constant(0.1), "iterations": 4, "world": {"plan": (slow,)}}
    ran = Setting(Talk(every=2), agents=1, exchange=Immediate(), availability=Always(), **world).run()
    assert (0, 2) in sent(ran) and arrived(ran) == sent(ran)
    silent = replace(Immediate(), selection=Selection("poisson", 0.4))
    for seed in range(20):
        ran = Setting(Talk(), agents=2, exchange=silent, seed=seed, latency=Exponential(3.0), iterations=4).run()
        assert arrived(ran) == sent(ran), f"with seed {seed} a message vanished"


@pytest.mark.parametrize("how", ["shape", "nan", "bits"])
def test_what_is_sent_again_is_the_message_and_not_its_damaged_copy(how: str) -> None:
    """The first transmission is damaged, and lost at a door that was shut meanwhile; the second one is neither."""
    plan = (Corruption((0,), 1.0, end=1.5, how=how), NetworkPartition((0,), at=1.05, duration=0.3))
    still = {"evaluation": Constant(1.0), "initial": 1, "latency": Constant(0.1), "iterations": 1}
    ran, algorithm = talk(Immediate(), agents=1, world={"plan": plan, "retry": 0.5}, **still)
    assert [(r.step, r.again, r.bytes) for r in ran.of("sent")][:2] == [(0, False, 8), (0, True, 8)]
    assert algorithm.received == [(0, 0, 0.0), (0, 1, 1.0)]


@pytest.mark.parametrize(
    ("weight", "weights"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]),
        ("polynomial", [1.0, 2**-0.5, 3**-0.5, 0.5, 5**-0.5, 0.0]),
        ("exponential", [1.0, math.exp(-0.5), math.exp(-1.0), math.exp(-1.5), math.exp(-2.0), 0.0]),
        ("hinge", [1.0, 1.0, 1.0, 1 / 1.5, 1 / 2, 0.0]),
    ],
)
def test_a_weight_is_that_of_its_formula_up_to_its_bound(weight: str, weights: list[float]) -> None:
    staleness = Staleness(weight, decay=0.5, after=2, bound=4)
    assert [staleness.of(age) for age in range(6)] == pytest.approx(weights)
