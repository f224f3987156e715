"""Cells of a sweep against each other: times to a level, paired differences and ratios, against brute force."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import gmean, ttest_1samp
from synthetic_run import document, write_run

from fedbo.analysis import compare
from fedbo.analysis.comparison import GeometricMean, TimeToTarget, short, target_of, times_to_target
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.result import Result


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Result:
    study = document(agents=4, iterations=8, replicates=4, objective__alpha=[0.1, 0.3, 0.5])
    return Result.open(write_run(tmp_path_factory.mktemp("runs") / "swept", study, troubled=True))


@cache
def rows_of(result: Result) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = result.observations.to_pylist()
    return rows


def mean_at(result: Result, run: tuple[int, str, int], time: float) -> float:
    """Average over agents the best good score that each has at a time; NaN before all have one."""
    best: dict[int, float] = {}
    for row in rows_of(result):
        if (row["cell"], row["algorithm"], row["replicate"]) == run:
            best.setdefault(row["agent"], math.nan)
            if row["finished"] <= time and row["error"] is None:
                best[row["agent"]] = float(np.fmax(best[row["agent"]], row["score"]))
    return float(np.mean(list(best.values())))


def first_time(result: Result, run: tuple[int, str, int], target: float) -> float:
    rows = rows_of(result)
    times = sorted(r["finished"] for r in rows if (r["cell"], r["algorithm"], r["replicate"]) == run)
    return next((time for time in times if mean_at(result, run, time) >= target - 1e-12), math.inf)


def test_the_level_is_what_the_baseline_had_in_the_end_of_the_same_cell_and_replicate(swept: Result) -> None:
    for found in times_to_target(swept, target_of(swept, None)):
        assert found.algorithm == "Together"
        for replicate in range(4):
            target = mean_at(swept, (found.cell, "Alone", replicate), math.inf)
            assert found.levels[replicate] == pytest.approx(-target)
            assert found.times[replicate] == first_time(swept, (found.cell, "Together", replicate), target)
        assert found.reached


def test_a_given_level_is_a_native_value_and_may_not_be_reached(swept: Result) -> None:
    (some, *_), (none, *_) = (times_to_target(swept, target_of(swept, "Together", level)) for level in (0.1, 0.01))
    assert some.times == {r: first_time(swept, (0, "Together", r), -0.1) for r in range(4)} and some.level == 0.1
    assert none.mean is None and none.reached == {} and set(none.times.values()) == {math.inf}
    (regret, *_) = times_to_target(swept, target_of(swept, "Together", 0.05, regret=True))
    assert regret.times == some.times  # the best error is 0.05


def end_of(result: Result, run: tuple[int, str, int]) -> float:
    return max(r["finished"] for r in rows_of(result) if (r["cell"], r["algorithm"], r["replicate"]) == run)


def test_the_mean_time_is_geometric_with_an_interval_of_the_logarithms(swept: Result) -> None:
    missed = 0
    for found in times_to_target(swept, target_of(swept, "Together", 0.09)):
        runs = [(found.cell, "Together", r) for r in range(4)]
        times = [min(first_time(swept, run, -0.09), end_of(swept, run)) for run in runs]
        if not found.reached:
            continue
        missed += 4 - len(found.reached)
        ends = np.exp(ttest_1samp(np.log(times), 0.0).confidence_interval(0.95))
        assert found.mean is not None
        assert (found.mean.mean, found.mean.low, found.mean.high) == pytest.approx((gmean(times), *ends))
        assert found.mean_in_words.startswith("≥") == (len(found.reached) < 4)
    assert missed  # which would make the mean of those that reached it too small


def test_a_single_time_has_an_empty_interval_and_a_time_of_zero_no_logarithm() -> None:
    levels, ends = {0: 1.0, 1: 1.0}, {0: 9.0, 1: 9.0}
    assert TimeToTarget(0, "A", {0: 1.0}, {0: 4.0}, ends).mean == GeometricMean(4.0, 4.0, 4.0)
    assert TimeToTarget(0, "A", levels, {0: 0.0, 1: 4.0}, ends).mean == GeometricMean(0.0, 0.0, 0.0)
    assert TimeToTarget(0, "A", levels, {0: math.inf, 1: math.inf}, ends).mean is None


def test_numbers_are_short() -> None:
    numbers = (0, 0.00123, 0.0994, 0.1, 0.996, 9.99, 9.999, 99.94, 99.96, 123456.7, 1.27e9)
    assert [short(number) for number in numbers] == [
        "0", "0.0012", "0.099", "0.10", "1.00", "9.99", "10.0", "99.9", "100", "123457", "1.3e+09",
    ]  # fmt: skip
    assert str(GeometricMean(0.19, 0.114, 33.33)) == "0.19 [0.11, 33.3]"


def test_finals_are_subtracted_and_times_divided_replicate_by_replicate(swept: Result) -> None:
    gap = compare(swept, (2, 0), "Together", level=0.12)
    ends = [[-mean_at(swept, (cell, "Together", r), math.inf) for r in range(4)] for cell in (2, 0)]
    finals = np.subtract(*ends)
    interval = ttest_1samp(finals, 0.0).confidence_interval(0.95)
    assert gap.final is not None
    assert (gap.final.mean, gap.final.low, gap.final.high) == pytest.approx((finals.mean(), *interval))
    times = [[first_time(swept, (cell, "Together", r), -0.12) for r in range(4)] for cell in (2, 0)]
    last = [min(end_of(swept, (cell, "Together", r)) for cell in (2, 0)) for r in range(4)]
    both = [min(mine, end) / min(other, end) for mine, other, end in zip(*times, last, strict=True)]
    assert gap.ratio is not None and gap.pairs == len(both) == 4 and len(set(both)) > 1
    ends = np.exp(ttest_1samp(np.log(both), 0.0).confidence_interval(0.95))
    assert (gap.ratio.mean, gap.ratio.low, gap.ratio.high) == pytest.approx((gmean(both), *ends))
    assert gap.cells == (2, 0) and gap.algorithm == "Together"


def test_a_cell_does_not_differ_from_itself(swept: Result) -> None:
    same = compare(swept, (1, 1), "Alone")
    assert same.final is not None and (same.final.mean, same.final.low, same.final.high) == (0, 0, 0)
    assert same.ratio == GeometricMean(1.0, 1.0, 1.0)


def test_cells_that_cannot_be_compared_are_refused(swept: Result) -> None:
    with pytest.raises(ResultError, match=r"no runs of 'Alone' in cell 7; use one of the cells: 0, 1, 2"):
        compare(swept, (0, 7), "Alone")
    with pytest.raises(ResultError, match="no algorithm 'Both'; available: Alone, Together"):
        compare(swept, (0, 1), "Both")
    metric = [{"name": name, "sign": -1, "offset": 0.0} for name in ("error", "loss", "error")]
    mixed = Result(swept.directory, swept.study, {**swept.manifest, "metric": metric})
    with pytest.raises(ResultError, match="cells 0 and 1 have different metrics: error and loss"):
        compare(mixed, (0, 1), "Alone")
    unknown = Result(swept.directory, swept.study, {**swept.manifest, "best_values": {}})
    with pytest.raises(ResultError, match="regret of agent 0 is unknown"):
        compare(unknown, (0, 1), "Alone", regret=True)


def test_one_replicate_has_no_interval(tmp_path: Path) -> None:
    study = document(agents=2, iterations=3, replicates=1, objective__alpha=[0.1, 0.3])
    single = compare(Result.open(write_run(tmp_path / "run", study)), (0, 1), "Together")
    assert single.final is None and single.ratio is None
