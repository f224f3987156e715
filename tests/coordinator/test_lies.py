"""Agents that lie: what they send is as declared, what each kind of lie is, and what it leaves as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from private_runs import Discreet, Whisper, releases, said
from small_runs import ALL_MODES, Setting, fts
from talking import Talk

from fedbo.algorithms.base import LARGEST, Declaration, Field, Mechanism, Payload, Problem
from fedbo.algorithms.catalog import algorithms, entry
from fedbo.algorithms.messages import fault
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.faults import LIES, Lie
from fedbo.coordinator.environment.lies import Lies, SentMessage

EVERYBODY = tuple(range(5))
HONEST = {"values": np.array([3.0, -1.0, 2.0])}
NUMBERS: Declaration = {"values": Field((3,))}


def honest(declared: Declaration, seed: int) -> Payload:
    """Give a message that is as declared: normal numbers within their bounds, unit matrices, whole numbers from 0 to 2."""
    rng, payload = np.random.default_rng(seed), dict[str, Any]()
    for name, field in declared.items():
        shape = tuple(4 if size is None else size for size in field.shape)
        numbers = rng.integers(0, 2, shape) if np.dtype(field.dtype).kind != "f" else rng.standard_normal(shape)
        numbers = np.eye(shape[0]) if field.positive else np.clip(numbers, field.low, field.high)
        payload[name] = numbers.astype(field.dtype)
        if not field.finite:
            payload[name].flat[0] = np.nan
    return payload


def told(how: str, now: float = 2.0, declared: Declaration = NUMBERS, payload: Payload = HONEST, **more: Any) -> Payload:
    """Give what agent 1 sends after step 3 in place of a message."""
    lies = Lies((Lie((1,), how=how, **more),), declared, Streams(5))
    return lies.falsified(SentMessage(1, 3, payload), SentMessage(0, 2, honest(declared, 9)), now)[0]


@pytest.mark.parametrize("how", LIES)
@pytest.mark.parametrize("name", list(algorithms()))
def test_a_lie_is_as_declared_whatever_the_method(name: str, how: str) -> None:
    problem = Problem(2, 5, range(5), 2, 6, pulls=40)
    declared = entry(name).make().upload(problem)
    if declared is None:
        return
    before = honest(declared, 3)
    kept = {key: array.copy() for key, array in before.items()}
    after = told(how, 1e9, declared, before)
    assert fault(after, declared, LARGEST) is None
    for key, field in declared.items():
        assert np.array_equal(before[key], kept[key], equal_nan=field.dtype == "float64"), "an honest message was changed"
        there = after[key][np.isfinite(after[key])]
        assert (there >= np.min(field.low)).all() and (there <= np.max(field.high)).all()
        if how != "copy" and (field.positive or not field.observed or np.dtype(field.dtype).kind != "f"):
            assert np.array_equal(after[key], before[key], equal_nan=field.dtype == "float64")
    assert how == "flattery" or any(not np.array_equal(after[key], before[key], equal_nan=True) for key in declared)


@pytest.mark.parametrize(("dtype", "size"), [("float64", 1e58), ("float32", 1e35)])
@pytest.mark.parametrize("how", ["inverted", "flattery", "drift", "collusion"])
def test_a_lie_is_never_larger_than_a_message_may_be(how: str, dtype: str, size: float) -> None:
    declared: Declaration = {"values": Field((3,), dtype=dtype)}
    sent = {"values": (size * np.array([3.0, -1.0, 2.0])).astype(dtype)}
    after = told(how, 1e9, declared, sent, strength=1e6)
    assert fault(after, declared, LARGEST) is None
    assert np.abs(after["values"]).max() == np.dtype(dtype).type(min(LARGEST, float(np.finfo(dtype).max)))


def test_each_kind_of_lie_is_what_its_word_says() -> None:
    assert told("inverted")["values"].tolist() == [-3.0, 1.0, -2.0]
    assert told("inverted", strength=2.0)["values"].tolist() == [-6.0, 2.0, -4.0]
    assert told("flattery")["values"].tolist() == [3.0, 3.0, 3.0]
    early, late = (told("drift", now, start=1.0)["values"] - HONEST["values"] for now in (2.0, 5.0))
    assert np.allclose(late, 4 * early) and early.any()
    assert told("copy")["values"].tolist() == honest(NUMBERS, 9)["values"].tolist()
    unit: Declaration = {"means": Field((None,), finite=False, low=0.0, high=1.0)}
    means = {"means": np.array([0.2, np.nan, 1.0])}
    assert np.allclose(told("inverted", declared=unit, payload=means)["means"], [0.8, np.nan, 0.0], equal_nan=True)
    assert np.array_equal(told("flattery", declared=unit, payload=means)["means"], [1.0, np.nan, 1.0], equal_nan=True)
    assert np.nanmax(np.abs(told("collusion", declared=unit, payload=means, strength=50.0)["means"] - 0.5)) == 0.5


def test_who_collude_send_one_direction_and_who_drift_have_their_own() -> None:
    for how, alike in (("collusion", True), ("drift", False)):
        lies = Lies((Lie((0, 1, 2), how=how),), NUMBERS, Streams(5))
        sent = [lies.falsified(SentMessage(agent, agent, honest(NUMBERS, agent)), None, 1.0)[0] for agent in (0, 1, 2)]
        ways = [sent[agent]["values"] - (0 if alike else honest(NUMBERS, agent)["values"]) for agent in (0, 1, 2)]
        ways = [way / np.linalg.norm(way) for way in ways]
        assert np.allclose(ways[0], ways[1]) == np.allclose(ways[0], ways[2]) == alike


def test_lies_are_told_in_their_span_at_their_rate_and_in_the_order_of_the_plan() -> None:
    plan = (Lie((1,), start=1.0, end=3.0), Lie((1,), 0.3, how="flattery", strength=2.0))
    lies = Lies(plan, NUMBERS, Streams(5))
    words = [
        [lies.falsified(SentMessage(1, step, HONEST), None, now)[1] for step in range(2000)] for now in (0.9, 1.0, 2.9, 3.0)
    ]
    assert {*words[0], *words[3]} == {(), ("flattery",)} and {*words[1], *words[2]} == {("inverted",), ("inverted", "flattery")}
    assert words[0] == words[3] and words[1] == words[2]
    assert abs(words[0].count(("flattery",)) - 600) < 100  # 4.9 standard deviations
    assert lies.falsified(SentMessage(2, 1, HONEST), None, 2.0) == (HONEST, ())


@pytest.mark.parametrize("exchange", ALL_MODES, ids=lambda m: m.mode + "-carry" * (m.accepts_late and m.is_synchronous))
@pytest.mark.parametrize("how", LIES)
def test_a_lie_changes_nothing_but_the_message(exchange: Any, how: str) -> None:
    """In a method whose agents do not listen, all that happens is the same, but for the lines that tell of lies."""
    loud, quiet = Talk(up=2), Talk(up=2)
    plan = (Lie((1, 3), 0.7, how=how, start=1.0, strength=1.0 if how == "copy" else 2.0),)
    lied = Setting(loud, exchange=exchange, world={"plan": plan}).run()
    ran = Setting(quiet, exchange=exchange).run()
    assert [record for record in lied.records if record.kind != "falsified"] == ran.records
    assert lied.rows == ran.rows
    falsified = {(record.agent, record.step) for record in lied.of("falsified")}
    assert falsified and {agent for agent, _ in falsified} <= {1, 3}
    first = [record for record in lied.of("sent") if not record.again]
    assert {(record.agent, record.step) for record in first if (record.agent, record.step) in falsified} == falsified
    differing = {(sender, step) for sender, step, number in loud.received if number != step}
    assert differing <= falsified and (differing or how == "copy")


def test_a_copy_is_the_newest_message_of_one_who_does_not_copy() -> None:
    algorithm = Talk(up=1)
    ran = Setting(algorithm, availability=Always(), world={"plan": (Lie((1, 3), how="copy"),)}).run()
    newest, copies = None, 0
    for record in ran.records:
        if record.kind == "falsified":
            assert (record.lies, record.copied_agent, record.copied_step) == (("copy",), newest.agent, newest.step)
            copies += 1
        elif record.kind == "sent" and record.agent not in (1, 3):
            newest = record
    assert copies > 5
    nobody = Setting(Talk(up=1), world={"plan": (Lie(EVERYBODY, how="copy"),)}).run()
    assert not nobody.of("falsified"), "where all copy there is nothing to copy"


def test_the_privacy_ledger_charges_liars_as_before() -> None:
    law = Mechanism(blocks=2, clip=1.5, noise=1.0, share=0.6)
    plan = (Lie((1, 2), how="flattery", strength=30.0),)
    entries = [releases(Discreet(Whisper(law), world={"plan": plan if lie else ()}).run()) for lie in (False, True)]
    same = [[replace_signal(entry) for entry in some] for some in entries]
    assert same[0] == same[1] and entries[0] and entries[0] != entries[1]
    assert np.linalg.norm(said(1, 0)) > law.clip  # both are clipped


def replace_signal(entry: Any) -> Any:
    return entry._replace(signal=0.0)


def test_liars_move_what_others_decide() -> None:
    """In `fts` with half of the agents lying others ask for other points, and liars are no less served."""
    setting = Setting(fts(), availability=Always(), iterations=10)
    ran, lied = setting.run(), setting.run(world={"plan": (Lie((0, 1), how="inverted"),)})
    points = [{(row["agent"], row["step"]): row["u"] for row in map(dict, map(_row, one.rows))} for one in (ran, lied)]
    assert points[0].keys() == points[1].keys()
    assert any(points[0][key] != points[1][key] for key in points[0] if key[0] not in (0, 1))


def _row(row: Any) -> dict[str, Any]:
    return {"agent": row.agent, "step": row.step, "u": tuple(row.u)}


def test_a_strength_has_no_meaning_for_a_copy() -> None:
    with pytest.raises(ValueError, match='strength.* cannot be combined with how = "copy"'):
        Lie((1,), how="copy", strength=2.0)
    assert replace(Lie((1,), how="copy"), agents=(2,)).agents == (2,)
