"""Curves and summaries against numbers reckoned by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedbo.analysis.averages import curve, early_span, grid, replicate_means
from fedbo.analysis.finished_run import regrets
from fedbo.analysis.schemas import EVENTS, OBSERVATIONS, canonical
from fedbo.analysis.summary import difference, paired, summary_row
from fedbo.analysis.traces import IncumbentTrace, traces
from fedbo.objectives.base import Metric
from fedbo.privacy.ledger import PRIVACY


def observations(*runs: tuple[int, int, list[tuple[int, float, float]]]) -> Any:
    """Make a table from (replicate, agent, [(step, value, score)]), each evaluation taking 1."""
    rows = []
    for replicate, agent, found in runs:
        for number, (step, value, score) in enumerate(found):
            rows.append(
                {
                    "cell": 0, "algorithm": "A", "replicate": replicate, "agent": agent,
                    "phase": "search" if step else "initial", "step": step, "query": number, "origin": "own",
                    "x": [0.0], "u": [0.0], "value": value, "score": score, "started": float(number),
                    "finished": number + 1.0, "t_n": number + 1, "pulls": 1, "error": None,
                }
            )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=OBSERVATIONS)


TWO = observations(
    (0, 0, [(0, 1.0, 1.5), (1, 3.0, 2.0), (2, 2.0, 9.0)]),
    (0, 1, [(0, 0.0, 0.0), (1, -1.0, 0.0), (2, 4.0, 4.0)]),
    (1, 0, [(0, 5.0, 5.0), (1, 5.0, 7.0)]),
)


def test_an_incumbent_is_chosen_by_what_was_seen_and_judged_by_its_score() -> None:
    first, second, third = traces(TWO)
    np.testing.assert_array_equal(first.best, [1.5, 2.0, 2.0])
    np.testing.assert_array_equal(second.best, [0.0, 0.0, 4.0])
    np.testing.assert_array_equal(third.best, [5.0, 5.0])  # a tie keeps the earlier point
    np.testing.assert_array_equal(first.row, [0, 1, 1])


def test_curves_average_over_targets_first_and_over_replicates_second() -> None:
    found = traces(TWO)
    made = curve(found, "iteration", grid(found, "iteration", 5), Metric())
    np.testing.assert_array_equal(made.x, [0, 1, 2])
    np.testing.assert_allclose(made.mean, [(0.75 + 5) / 2, (1 + 5) / 2, (3 + 5) / 2])
    np.testing.assert_allclose(made.error, [4.25 / 2, 2.0, 1.0])  # |a - b| / 2 with two replicates


def test_evaluations_count_from_one_and_time_holds_the_last_value() -> None:
    first, _, third = traces(TWO)
    np.testing.assert_array_equal(first.at("evaluations", np.array([0.0, 1.0, 3.0])), [np.nan, 1.5, 2.0])
    np.testing.assert_array_equal(third.at("time", np.array([0.99, 1.0, 99.0])), [np.nan, 5.0, 5.0])


def test_epsilon_is_what_was_spent_before_an_evaluation_ended_and_cost_the_time_in_evaluations() -> None:
    rows = [
        {"time": 1.5, "release": 0, "epsilon": [0.7], "refused": ""},
        {"time": 1.6, "release": 1, "epsilon": [0.7], "refused": "the budget is spent"},
        {"time": 2.0, "release": 2, "epsilon": [1.1], "refused": ""},
    ]
    key = {"cell": 0, "algorithm": "A", "replicate": 0}
    blank = {name: {pa.int32(): 0}.get(PRIVACY.field(name).type) for name in PRIVACY.names}
    ledger = pa.Table.from_pylist(
        [{**blank, **key, **row} for row in rows], schema=pa.schema([f.with_nullable(True) for f in PRIVACY])
    )
    first, _, third = traces(TWO, None, ledger)
    np.testing.assert_array_equal(first.spent, [0.0, 0.7, 1.1])
    np.testing.assert_array_equal(third.spent, [0.0, 0.0])
    np.testing.assert_array_equal(first.used, [1.0, 2.0, 3.0])
    made = curve([first], "epsilon", grid([first], "epsilon", 3), Metric())
    assert made.x[-1] == 1.1 and made.mean[-1] == 2.0


def test_a_failed_evaluation_counts_but_is_no_incumbent() -> None:
    table = observations((0, 0, [(0, 1.0, 1.0), (1, 9.0, 9.0), (2, np.nan, np.nan), (3, 2.0, 2.0)]))
    table = table.set_column(
        OBSERVATIONS.get_field_index("error"),
        OBSERVATIONS.field("error"),
        pa.array([None, "fell over", None, None], pa.string()),
    )
    (trace,) = traces(table)
    np.testing.assert_array_equal(trace.best, [1.0, 1.0, 1.0, 2.0])


def test_before_anything_succeeded_there_is_no_incumbent() -> None:
    table = observations((0, 0, [(0, np.nan, np.nan), (1, 2.0, 2.0)]))
    (trace,) = traces(table)
    np.testing.assert_array_equal(trace.best, [np.nan, 2.0])
    np.testing.assert_array_equal(grid([trace], "evaluations", 5), [2])


@pytest.mark.parametrize(("firsts", "begin"), [([3, 1, 2], 2.0), ([4, 1, 3, 2], 2.0), ([2, 2, 1], 2.0), ([1], 1.0)])
def test_the_early_span_begins_where_half_of_the_traces_have_an_incumbent_and_ends_with_the_last(
    firsts: list[int], begin: float
) -> None:
    """A trace that never has an incumbent does not count; each evaluation takes 1."""
    runs = [
        (0, agent, [(step, math.nan if step + 1 < first else 1.0, 1.0) for step in range(5)])
        for agent, first in enumerate(firsts)
    ]
    barren = (0, 9, [(step, math.nan, math.nan) for step in range(8)])
    assert early_span(traces(observations(*runs, barren)), "time") == (begin, 5.0)


def test_a_target_without_any_success_counts_with_the_worst_known_score() -> None:
    barren = [(0, np.nan, np.nan), (1, np.nan, np.nan)]
    found = traces(observations((0, 0, [(0, 2.0, 2.0), (1, 3.0, 3.0)]), (0, 1, barren), (1, 0, barren), (1, 1, barren)))
    means = replicate_means(found, "iteration", np.array([0.0, 1.0]))
    np.testing.assert_array_equal(means[0], [2.0, 2.5])
    np.testing.assert_array_equal(means[1], [2.0, 2.0])
    np.testing.assert_array_equal(grid(found, "time", 2), [1.0, 2.0])
    (nothing,) = traces(observations((0, 0, barren)))
    np.testing.assert_array_equal(nothing.at("time", np.array([5.0])), [np.nan])


def test_no_algorithm_looks_better_by_failing() -> None:
    """Random runs of three agents by two algorithms; in the first, all evaluations of some agents fail.

    An agent that failed counts no better than under the other algorithm, in the same replicate.
    """
    rng = np.random.default_rng(11)
    for _ in range(50):
        values = rng.standard_normal((2, 2, 3, 4)) + 3.0 * rng.standard_normal(3)[:, None]
        failing = rng.random((2, 3)) < 0.4
        values[0, failing] = np.nan
        tables = [
            observations(
                *((replicate, agent, [(step, value, value) for step, value in enumerate(values[place, replicate, agent])])
                  for replicate in range(2) for agent in range(3))
            )
            for place in range(2)
        ]  # fmt: skip
        labels = tables[1].schema.get_field_index("algorithm")
        other = tables[1].set_column(labels, OBSERVATIONS.field(labels), pa.array(["B"] * len(tables[1]), pa.string()))
        ends: dict[str, Any] = {"A": np.empty((2, 3)), "B": np.empty((2, 3))}
        for trace in traces(canonical(pa.concat_tables([tables[0], other.cast(OBSERVATIONS)]), ["A", "B"])):
            ends[trace.algorithm][trace.replicate, trace.agent] = trace.at("iteration", np.array([np.inf]))[0]
        assert (ends["A"][failing] <= ends["B"][failing]).all()


def test_what_a_crash_made_an_agent_forget_counts_as_evaluations_and_time_only() -> None:
    kept, forgotten, again = (0, 1.0, 1.0), [(1, 9.0, 9.0), (2, 8.0, 8.0)], [(1, 2.0, 2.0), (2, 3.0, 3.0)]
    table = observations((0, 0, [kept, *forgotten, *again]))
    error = pa.array([None, "forgotten", "forgotten", None, None], pa.string())
    (trace,) = traces(
        canonical(table.set_column(OBSERVATIONS.get_field_index("error"), OBSERVATIONS.field("error"), error), ["A"])
    )
    np.testing.assert_array_equal(trace.step, [0, 1, 2, 1, 2])  # in the order of time
    np.testing.assert_array_equal(trace.best, [1.0, 1.0, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(trace.at("iteration", np.array([0.0, 1.0, 2.0])), [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(trace.at("time", np.array([3.0, 4.0])), [1.0, 2.0])
    np.testing.assert_array_equal(trace.at("evaluations", np.array([3.0, 5.0])), [1.0, 3.0])
    assert [list(one.best) for one in regrets([trace], {"0": {"0": {"0": 10.0}}})] == [[-9, -9, -9, -8, -7]]
    blank = EVENTS.empty_table()
    assert summary_row([trace], 1, (table, blank), Metric()).evaluations == 5


def test_bytes_are_those_of_everybody_before_an_evaluation_ended_for_each_target() -> None:
    blank = {"cell": 0, "algorithm": "A"}
    happened = [(0, 0.5, "sent", 7, 80), (0, 1.0, "delivered", 0, 40), (0, 1.0, "arrived", 7, 80), (0, 1.5, "lost", 1, 80),
                (0, 1.5, "sent", 1, 80), (1, 0.1, "sent", 0, 6)]  # fmt: skip
    lines = [
        {**blank, "replicate": r, "sequence": n, "time": t, "kind": kind, "agent": agent, "bytes": size}
        | {"answer" if kind == "delivered" else "step": 0}
        for n, (r, t, kind, agent, size) in enumerate(happened)
    ]
    first, second, third = traces(TWO, pa.Table.from_pylist(lines, schema=EVENTS))
    np.testing.assert_array_equal(first.moved, [40, 100, 100])  # two targets; what comes at 1.0 comes after
    np.testing.assert_array_equal(second.moved, first.moved)
    np.testing.assert_array_equal(third.moved, [3, 3])
    np.testing.assert_array_equal(first.at("bytes", np.array([39.0, 40.0, 99.0, 100.0])), [np.nan, 1.5, 1.5, 2.0])
    np.testing.assert_array_equal(grid([first, second], "bytes", 3), [40, 70, 100])
    assert not any(trace.moved.any() for trace in traces(TWO))
    np.testing.assert_array_equal(grid(traces(TWO), "bytes", 3), [0.0])


def test_one_replicate_has_no_standard_error() -> None:
    found = traces(observations((0, 0, [(0, 1.0, 1.0)])))
    made = curve(found, "evaluations", np.array([1.0]), Metric())
    assert np.isnan(made.error).all()
    assert difference(found, found, Metric()) is None


def test_a_paired_difference_has_the_t_interval_of_the_replicates_gaps() -> None:
    ours = traces(observations(*((r, 0, [(0, value, value)]) for r, value in enumerate((3.0, 5.0, 4.0)))))
    theirs = traces(observations(*((r, 0, [(0, value, value)]) for r, value in enumerate((1.0, 2.0, 3.0)))))
    gap = difference(ours, theirs, Metric(sign=-1, offset=100.0))
    assert gap is not None and gap.mean == pytest.approx(-2.0)  # the native quantity falls where values rise
    reach = 4.302652729911275 * 1.0 / np.sqrt(3)  # t quantile with 2 degrees of freedom; the gaps' deviation is 1
    assert (gap.low, gap.high) == pytest.approx((-2.0 - reach, -2.0 + reach))


def test_regret_is_the_distance_from_the_best_point_so_far_to_each_agents_own_best() -> None:
    known = {"0": {"0": {"0": 10.0, "1": 5.0}, "1": {"0": 7.0}}}
    assert [list(trace.best) for trace in regrets(traces(TWO), known)] == [[-8.5, -8, -1], [-5, -5, -1], [-2, 0]]
    with pytest.raises(ValueError, match="regret of agent 1 is unknown"):
        regrets(traces(TWO), {"0": {"0": {"0": 10.0, "1": None}}})


def test_a_summary_counts_bytes_of_messages_that_left_for_each_agent() -> None:
    blank = {"cell": 0, "algorithm": "A", "replicate": 0, "time": 0.0, "agent": 0, "step": 0}
    happened = [("sent", 80), ("sent", 20), ("delivered", 500)]
    events = pa.Table.from_pylist(
        [{**blank, "sequence": n, "kind": kind, "bytes": size} for n, (kind, size) in enumerate(happened)],
        schema=EVENTS,
    )
    row = summary_row(traces(TWO), 1, (TWO, events), Metric())
    assert (row.bytes_up, row.messages) == (100.0, 2.0)  # one agent sent both
    assert (row.final.mean, row.half.mean) == (4.0, 3.0)
    assert (row.duration, row.evaluations) == (2.5, 4.0)
    assert row.origins == {"own": 1.0} and row.federated == 0.0


def test_rows_have_one_order_whatever_order_they_came_in() -> None:
    shuffled = TWO.take(np.random.default_rng(0).permutation(len(TWO)))
    assert canonical(shuffled, ["A"]).equals(TWO)
    with pytest.raises(KeyError, match="'A' is not one of B"):
        canonical(TWO, ["B"])


def test_replicates_are_averaged_apart() -> None:
    means = replicate_means(traces(TWO), "iteration", np.array([np.inf]))
    assert {replicate: float(mean[0]) for replicate, mean in means.items()} == {0: 3.0, 1: 5.0}


def ended(label: str, replicate: int, agent: int, score: float) -> IncumbentTrace:
    """A trace of one evaluation."""
    one, score_ = np.ones(1, dtype=np.int64), np.array([score])
    return IncumbentTrace(
        0, label, replicate, agent, one, np.ones(1), score_, score_, one - 1, np.zeros(1), one, np.zeros(1), np.ones(1)
    )


@pytest.mark.long
@pytest.mark.parametrize("replicates", [4, pytest.param(10, marks=pytest.mark.long)])
def test_luck_that_agents_of_a_replicate_share_makes_no_interval_too_narrow(replicates: int) -> None:
    """Fixed seed, 600 comparisons of equal methods; five agents, half of whose variance is common to their replicate.

    If 5 % leave zero out, the share is outside of [.025, .08] with a chance of .003. Intervals over pairs of agent and
    replicate leave it out in a quarter of the cases.
    """
    rng, missed = np.random.default_rng(5), [0, 0]
    for _ in range(600):
        scores = rng.standard_normal((2, replicates, 5)) + rng.standard_normal((2, replicates, 1))
        mine, other = (
            [ended(label, r, a, scores[place, r, a]) for r in range(replicates) for a in range(5)]
            for place, label in enumerate("AB")
        )
        gap, over_pairs = difference(mine, other, Metric()), paired((scores[0] - scores[1]).reshape(-1))
        assert gap is not None and over_pairs is not None
        missed = [count + (not found.low <= 0.0 <= found.high) for count, found in zip(missed, (gap, over_pairs), strict=True)]
    assert 0.025 <= missed[0] / 600 <= 0.08 and missed[1] / 600 > 0.2
