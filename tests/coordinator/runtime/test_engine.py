"""Whole runs in virtual time: what must hold at every event, whatever the world is like."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import fields

import numpy as np
import pytest
from small_runs import BOTH_MODES, Setting, fts

from fedbo.actors.hosts import InlineHosts
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.catalog import entry
from fedbo.coordinator.environment.availability import Always
from fedbo.coordinator.environment.timing import Constant, Lognormal
from fedbo.coordinator.kernel.engine import apply_effects
from fedbo.coordinator.kernel.event_queue import EventQueue
from fedbo.coordinator.kernel.events import After, RoundDeadline
from fedbo.coordinator.kernel.exchange import Barrier, Immediate

mode = pytest.mark.parametrize("exchange", BOTH_MODES, ids=lambda m: m.mode)


@mode
def test_time_never_goes_back_and_no_agent_computes_while_absent(exchange) -> None:
    ran = Setting(fts(), exchange=exchange).run()
    assert [r.time for r in ran.records] == sorted(r.time for r in ran.records)
    assert ran.of("absent"), "the world has no absences to test"
    busy, away = set(), set()
    for record in ran.records:
        if record.kind == "started":
            assert record.agent not in busy | away
            busy.add(record.agent)
        elif record.kind == "finished":
            busy.remove(record.agent)
        elif record.kind == "absent":
            assert record.agent not in busy
            away.add(record.agent)
        elif record.kind == "returned":
            away.remove(record.agent)


@mode
def test_bytes_are_the_sum_over_messages_and_each_takes_effect_once(exchange) -> None:
    ran = Setting(fts(), exchange=exchange).run()
    sent, arrived = ran.of("sent"), ran.of("arrived")
    assert {r.bytes for r in sent} == {20 * 8}
    assert Counter((r.agent, r.step) for r in sent) == Counter((r.agent, r.step) for r in arrived)
    assert max(Counter((r.agent, r.step) for r in arrived).values()) == 1


@mode
def test_every_target_makes_its_observations_and_t_n_counts_them(exchange) -> None:
    ran = Setting(fts(), exchange=exchange, availability=Always()).run()
    rows = defaultdict(list)
    for row in ran.rows:
        rows[row.agent].append(row)
    assert {agent: len(own) for agent, own in rows.items()} == dict.fromkeys(range(5), 2 + 6)
    for own in rows.values():
        assert [row.t_n for row in own] == list(range(1, 9))
        assert all(a.finished <= b.started for a, b in zip(own, own[1:], strict=False))
    assert len(ran.of("done")) == 5


def test_without_a_barrier_an_absence_costs_time_and_no_observation() -> None:
    ran = Setting(fts(), exchange=Immediate()).run()
    assert Counter(row.agent for row in ran.rows) == dict.fromkeys(range(5), 8)


def test_under_a_barrier_an_absence_costs_the_round() -> None:
    ran = Setting(fts(), exchange=Barrier()).run()
    missed = Counter(r.agent for r in ran.of("absent"))
    assert Counter(row.agent for row in ran.rows) == {agent: 8 - missed[agent] for agent in range(5)}


def test_under_a_barrier_a_round_ends_with_its_slowest_agent() -> None:
    ran = Setting(fts(), exchange=Barrier(), availability=Always(), latency=Constant(0.25)).run()
    for number in range(1, 6):
        slowest = max(r.time for r in ran.of("finished") if r.step == number)
        (closed,) = [r.time for r in ran.of("round") if r.round == number]
        assert closed == pytest.approx(slowest + 0.25)
        assert {r.time for r in ran.of("started") if r.step == number + 1} == {closed + 0.25}


def test_an_agent_that_never_communicates_never_waits_at_a_barrier() -> None:
    alone = entry("random").make()
    times = [Setting(alone, exchange=exchange, availability=Always()).run().outcome.time for exchange in BOTH_MODES]
    assert times[0] == times[1]


def test_agents_that_only_send_send_once_and_do_not_evaluate() -> None:
    plain = fts(every=0)

    class Informed(type(plain)):  # type: ignore[misc]
        def outbox(self, state, streams):
            return {"omega": np.ones(20)}, state

    informed = Informed(**{field.name: getattr(plain, field.name) for field in fields(plain)})
    ran = Setting(informed, targets=(1,), exchange=Barrier()).run()
    assert {row.agent for row in ran.rows} == {1}
    assert Counter(r.agent for r in ran.of("sent")) == dict.fromkeys(range(5), 1)


def test_a_run_ends_at_its_time_limit_and_keeps_nothing_from_beyond() -> None:
    ran = Setting(fts(), iterations=100, until=7.0).run()
    assert ran.outcome.time <= 7.0 and max(record.time for record in ran.records) <= 7.0
    assert ran.rows and max(row.finished for row in ran.rows) <= 7.0


@mode
def test_policies_are_compared_on_the_same_luck(exchange) -> None:
    """Two algorithms see the same initial points, the same durations and the same absences."""
    one, other = (Setting(a, exchange=exchange).run() for a in (entry("random").make(), fts()))
    assert one.of("absent")
    for kind in ("absent", "done", "started"):
        assert {(r.agent, r.step) for r in one.of(kind)} == {(r.agent, r.step) for r in other.of(kind)}
    first = [[(row.x, row.outcome, row.started, row.finished) for row in ran.rows if row.step == 0] for ran in (one, other)]
    assert first[0] == first[1]
    lengths = [{(r.agent, r.step): r.finished - r.started for r in ran.rows if r.step} for ran in (one, other)]
    assert lengths[0] == pytest.approx(lengths[1])


def test_nothing_that_crosses_to_the_coordinator_is_an_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number that enters the core is compared with every point and value that the agents saw."""
    crossed: list[np.ndarray] = []
    result = InlineHosts.result

    def inspect(hosts: InlineHosts, agent: int) -> StepReport:
        report = result(hosts, agent)
        crossed.extend(np.ravel(array) for array in (report.payload or {}).values())
        assert {field.name for field in fields(report)} == {
            "agent", "step", "queries", "payload", "lease", "t_n", "retried", "failed", "failure", "pulled",
            "again", "reached", "verdicts", "spent",
        }  # fmt: skip
        assert report.spent == 0.0
        assert all(type(word) is int for word in (report.agent, report.step, report.queries, report.lease, report.t_n))
        assert (
            report.retried == report.failed == report.again == report.verdicts == ()
            and report.failure is None
            and not report.reached
        )
        return report

    monkeypatch.setattr(InlineHosts, "result", inspect)
    ran = Setting(fts()).run()
    seen = np.unique(np.concatenate([[*row.x, *row.u, row.outcome.value, row.outcome.score] for row in ran.rows]))
    assert len(crossed) > 20
    assert not np.isin(np.concatenate(crossed), seen).any()


def test_the_mean_length_of_lognormal_evaluations_is_the_declared_one() -> None:
    """Normal approximation, 20,000 draws, seed 1: false alarm below 1e-6."""
    timing = Lognormal(2.0, 0.5)
    draws = timing.draw(np.random.default_rng(1), 20_000)
    error = draws.std() / np.sqrt(len(draws))
    assert abs(draws.mean() - 2.0) < 4.9 * error


def test_a_dropout_of_ten_percent_takes_ten_percent() -> None:
    """Binomial, 40 agents by 100 iterations, seed 1: false alarm below 1e-6."""
    from fedbo.coordinator.environment.availability import Bernoulli

    ran = Setting(entry("random").make(), agents=40, iterations=100, availability=Bernoulli(0.1, 1.0)).run()
    n = 40 * 100
    assert abs(len(ran.of("absent")) - 0.1 * n) < 4.9 * np.sqrt(n * 0.1 * 0.9)


def test_effects_say_whether_they_concern_the_hosts() -> None:
    """Then the requests of one instant leave together, and agents compute at the same time."""
    hosts, queue = InlineHosts(Setting(fts()).task(), range(5)), EventQueue()
    later, request = After(1.0, RoundDeadline(0)), StepRequest(0, 0, lease=1)
    assert not apply_effects([later], 0.0, hosts, queue)
    assert apply_effects([later, request], 0.0, hosts, queue)
