"""The statistics over many runs: against scipy, and against the example of Demsar 2006."""

from __future__ import annotations

import csv
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from synthetic_run import document, write_run

from fedbo.analysis.comparison import restricted_ratio
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.records.text_table import TextTable
from fedbo.analysis.result import Result
from fedbo.analysis.summary import holm
from fedbo.lab.benchmarking.significance import overview, pair_tests, ranking, signed_ranks, student
from fedbo.lab.benchmarking.tasks import Comparable, CostToLevel, comparable, costs_to_level

# Demsar 2006, table 6: the area under the curve of C4.5, C4.5+m, C4.5+cf and C4.5+m+cf on 14 data sets. On "voting" the
# last two are both printed as 0.975, but have the ranks 2 and 3.
DEMSAR = np.array(
    [
        [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967], [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931], [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875], [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.97501, 0.975], [0.957, 0.978, 0.946, 0.970],
    ]
)  # fmt: skip
LABELS = ("C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf")


def test_ranks_are_those_of_the_published_example() -> None:
    found = ranking(LABELS, DEMSAR)
    assert found.mean == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    # The published numbers have no correction for ties.
    ties = np.mean([stats.tiecorrect(stats.rankdata(row)) for row in DEMSAR])
    assert found.chi2 * ties == pytest.approx(9.28, abs=5e-3)
    assert 13 * 9.28 / (14 * 3 - 9.28) == pytest.approx(3.69, abs=5e-3) and found.f > 3.69
    assert found.p < 0.05  # the critical value of F(3, 39) is 2.85
    assert found.critical == pytest.approx(1.25, abs=5e-3)
    assert found.order == [3, 1, 2, 0] and found.groups == [(3, 1, 2, 0)]


def test_the_pair_of_the_published_example_has_its_statistic() -> None:
    gaps = DEMSAR[:, 1] - DEMSAR[:, 0]  # section 3.1.3: R+ = 93 and R- = 12, with z = -2.54
    assert stats.wilcoxon(gaps.round(3), zero_method="zsplit", method="asymptotic").statistic == 12
    assert signed_ranks(gaps.round(3)) == pytest.approx(2 * stats.norm.cdf(-2.54), abs=1e-3)


@pytest.mark.parametrize("decimals", [8, 0])
def test_friedman_is_that_of_scipy_with_ties_and_without(decimals: int) -> None:
    scores = np.random.default_rng(3).standard_normal((9, 5)).round(decimals)
    found = ranking([str(n) for n in range(5)], scores)
    assert found.chi2 == pytest.approx(stats.friedmanchisquare(*scores.T).statistic)
    assert ranking("abc", np.ones((4, 3))).chi2 == 0.0


@pytest.mark.parametrize(("methods", "tabled"), [(2, 1.960), (3, 2.343), (4, 2.569), (7, 2.949), (10, 3.164)])
def test_critical_values_are_those_of_the_published_table(methods: int, tabled: float) -> None:
    found = ranking([str(n) for n in range(methods)], np.random.default_rng(1).standard_normal((6, methods)))
    assert found.critical / np.sqrt(methods * (methods + 1) / 36) == pytest.approx(tabled, abs=1.5e-3)


def test_methods_that_are_far_apart_are_in_no_group() -> None:
    scores = np.tile([3.0, 2.0, 1.0], (60, 1)) + 1e-3 * np.random.default_rng(0).standard_normal((60, 3))
    assert ranking("abc", scores).groups == [] and np.isinf(ranking("abc", scores).f)


def test_paired_tests_are_those_of_scipy() -> None:
    gaps = np.random.default_rng(4).standard_normal(12) + 0.4
    assert student(gaps) == pytest.approx(stats.ttest_1samp(gaps, 0.0).pvalue)
    assert signed_ranks(gaps) == pytest.approx(stats.wilcoxon(gaps, method="exact").pvalue)
    many = np.random.default_rng(5).standard_normal(40) + 0.3
    assert signed_ranks(many) == pytest.approx(stats.wilcoxon(many, method="asymptotic").pvalue)
    assert np.isnan(student(gaps[:1])) and np.isnan(signed_ranks(gaps[:1]))
    assert student(np.zeros(4)) == signed_ranks(np.zeros(4)) == 1.0


def test_holm_corrects_step_by_step() -> None:
    # Demsar 2006, section 3.2.2: C4.5 against the others, p = 0.016, 0.019 and 0.607, against 0.017, 0.025 and 0.050.
    assert holm([0.607, 0.019, 0.016]) == pytest.approx([0.607, 0.048, 0.048])
    assert holm([0.01, float("nan"), 0.04]) == pytest.approx([0.02, float("nan"), 0.04], nan_ok=True)
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    folder = tmp_path_factory.mktemp("runs")
    studies = [document(agents=agents, iterations=5) for agents in (3, 4)]
    swept = document(agents=3, iterations=4, objective__alpha=[0.1, 0.3])
    return [Result.open(write_run(folder / str(n), study)) for n, study in enumerate([*studies, swept])]


def test_every_cell_of_every_run_is_a_task(runs: list[Result]) -> None:
    found = comparable(runs)
    names = [task.name for task in found.tasks]
    assert names == ["synthetic (1)", "synthetic (2)", "synthetic objective.alpha = 0.1", "synthetic objective.alpha = 0.3"]
    assert found.labels == ("Alone", "Together")
    finals = [[row.final.mean for row in run.summary() if row.cell == cell] for run, cell in ((runs[0], 0), (runs[2], 1))]
    assert -found.scores()[[0, 3]] == pytest.approx(np.array(finals))


def test_runs_of_one_task_are_joined(tmp_path: Path) -> None:
    both, labels = document(agents=3, iterations=4), ["Alone", "Together", "Third"]
    halves = []
    for number, wanted in enumerate((labels[:2], labels[2:])):
        study = {**both, "algorithm": [{"name": "random", "label": label} for label in wanted]}
        halves.append(Result.open(write_run(tmp_path / str(number), study)))
    found = comparable(halves)
    assert [task.name for task in found.tasks] == ["synthetic"] and found.labels == tuple(labels)


def test_what_cannot_be_compared_is_said(runs: list[Result]) -> None:
    with pytest.raises(ResultError, match="no algorithm 'Alon'; available: Alone, Together"):
        comparable(runs, ["Alon", "Together"])
    with pytest.raises(ResultError, match="no two algorithms"):
        comparable(runs, ["Alone"])


def test_wins_are_counted(runs: list[Result]) -> None:
    found = comparable(runs)
    (test,) = pair_tests(found)
    gaps = found.scores()[:, 0] - found.scores()[:, 1]
    assert (test.won, test.tied, test.lost) == ((gaps > 0).sum(), 0, (gaps < 0).sum())
    assert test.wilcoxon == test.wilcoxon_holm and test.clearly_won <= test.won


def test_costs_are_those_until_the_median_of_all_final_values(runs: list[Result]) -> None:
    found = comparable(runs[:1])
    level = np.median([list(found.tasks[0].finals(label).values()) for label in found.labels])
    for axis in ("evaluations", "time"):
        costs = costs_to_level(found, axis)
        assert costs is not None and costs.costs.shape == costs.ends.shape == (3, 2)
        reached = [[found.tasks[0].finals(label)[r] >= level for label in found.labels] for r in range(3)]
        np.testing.assert_array_equal(np.isfinite(costs.costs), reached)
        assert (costs.costs <= costs.ends)[np.isfinite(costs.costs)].all()
    last = [[_last(found, label, r) for label in found.labels] for r in range(3)]
    np.testing.assert_allclose(costs.ends, last)


def _last(found: Comparable, label: str, replicate: int) -> float:
    return max(float(t.finished[-1]) for t in found.tasks[0].traces[label] if t.replicate == replicate)


def test_bytes_are_compared_among_methods_that_send_any(runs: list[Result]) -> None:
    costs = costs_to_level(comparable(runs[:1]), "bytes")
    assert costs is not None and costs.labels == ("Together",)
    table = next(table for table in overview(runs[:1]).tables() if table.name == "bytes_to_level")
    assert [row[0] for row in table.rows] == ["Together"] and table.remarks == ("Methods that send nothing are omitted.",)


def test_a_profile_counts_what_is_solved() -> None:
    cost = np.array([[1.0, 2.0], [3.0, 1.0], [1.0, np.inf], [np.inf, np.inf]])
    costs = CostToLevel("time", ("a", "b"), ("t",) * 4, cost, np.full((4, 2), 8.0))
    assert costs.profile(np.array([1.0, 2.0, 3.0])).tolist() == [[0.5, 0.25], [0.5, 0.5], [0.75, 0.5]]
    assert costs.reached.tolist() == [0.75, 0.5]
    ratio = costs.ratio(1)
    assert ratio is not None and ratio.mean == pytest.approx((2.0 * (1 / 3) * 8.0 * 1.0) ** 0.25)


def test_a_miss_counts_as_the_end_of_the_run_that_ended_first() -> None:
    """So a run that ends early without the level is no cheaper than one that reaches it later."""
    costs, ends = np.array([[np.inf, 6.0], [2.0, 4.0]]), np.array([[3.0, 9.0], [5.0, 9.0]])
    ratio = restricted_ratio(costs, ends)
    assert ratio is not None and ratio.mean == pytest.approx((1.0 * 0.5) ** 0.5)
    assert restricted_ratio(np.full((2, 2), np.inf), ends) is None


@pytest.mark.parametrize("agents", [1, 5])
def test_the_ratio_of_two_equal_random_searches_is_one(agents: int) -> None:
    """Fixed seed; 400 benches of 20 replicates, 30 evaluations.

    If 5 % of the intervals leave one out, the share of 400 is outside of [.02, .085] with a chance of .003. The level that one
    of both had in the end, and replicates that reached it in both, gave a ratio of .67 and 65 % with five agents.
    """
    rng, logs, missed = np.random.default_rng(34), [], 0
    for _ in range(400):
        curves = np.maximum.accumulate(rng.random((20, 2, agents, 30)), axis=-1).mean(axis=2)
        reached = curves >= np.median(curves[:, :, -1])
        costs = np.where(reached.any(axis=-1), reached.argmax(axis=-1) + 1.0, np.inf)
        ratio = restricted_ratio(costs, np.full((20, 2), 30.0))
        assert ratio is not None
        logs.append(np.log(ratio.mean))
        missed += not ratio.low <= 1.0 <= ratio.high
    assert abs(np.mean(logs)) < 4 * np.std(logs) / 20 and 0.02 <= missed / 400 <= 0.085


def test_tables_are_written_as_csv_and_latex(runs: list[Result], tmp_path: Path) -> None:
    found = overview(runs)
    for table in [*found.tables(), found.scores()]:
        comma, tex = table.write(tmp_path)
        rows = list(csv.reader(comma.read_text().splitlines()))
        assert tuple(rows[0]) == tuple(table.headings) and len(rows) == 1 + len(table.rows)
        written = tex.read_text()
        assert written.count(r"\\") == 1 + len(table.rows) and r"\begin{tabular}" in written
    names = [table.name for table in found.tables()]
    assert names == ["finals", "ranks", "pairs", "evaluations_to_level", "time_to_level", "bytes_to_level"]


def test_latex_prints_words_as_they_are() -> None:
    table = TextTable("t", "100 % & more", ("a_b", "c"), [("x{y}", "1 ± 2")])
    assert r"$\geq$ 3 $\infty$ a b\textbar{}c" in TextTable("t", "", ("≥ 3 ∞ a\nb|c",), []).latex()
    assert r"100 \% \& more" in table.latex() and r"x\{y\} & 1 $\pm$ 2 \\" in table.latex()


@pytest.mark.parametrize("rows", [1, 300])
def test_latex_of_any_length_is_compiled(rows: int, tmp_path: Path) -> None:
    table = TextTable("t", "100 % & more", ("a_b", "c ± d"), [("x{y} ≥ 3", "1 ± 2")] * rows)
    assert (r"\begin{longtable}" in table.latex()) == (rows > 40)
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex, of Debian's texlive-latex-recommended")
    words = rf"\documentclass{{article}}\usepackage{{booktabs,longtable}}\begin{{document}}{table.latex()}\end{{document}}"
    (tmp_path / "t.tex").write_text(words)
    subprocess.run(["pdflatex", "-interaction=batchmode", "-halt-on-error", "t.tex"], cwd=tmp_path, check=True, timeout=60)


def test_the_figure_has_a_line_for_each_method(runs: list[Result]) -> None:
    from fedbo.lab.benchmarking.ranks import draw_overview

    figure = draw_overview(overview(runs))
    words = [text.get_text() for axes in figure.get_axes() for text in axes.texts]
    assert any("Alone" in word for word in words) and any(word.startswith("critical difference") for word in words)
