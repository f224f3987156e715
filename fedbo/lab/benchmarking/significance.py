"""Tests of the differences between methods over tasks: of each pair, and of their mean ranks; and all statistics as tables.

Mean ranks, Friedman's test and the critical differences of Nemenyi are those of Demsar 2006, section 3.2: "Statistical
comparisons of classifiers over multiple data sets", Journal of Machine Learning Research 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from fedbo.analysis.averages import mean_and_error
from fedbo.analysis.comparison import short
from fedbo.analysis.records.text_table import TextTable
from fedbo.analysis.result import Result
from fedbo.analysis.summary import Estimate, holm, paired
from fedbo.lab.benchmarking.tasks import AXES, Comparable, CostToLevel, comparable, costs_to_level

Array = npt.NDArray[np.float64]

_EXACT = 12  # differences, whose 4096 signs are tried


@dataclass(frozen=True, slots=True)
class PairTest:
    """Two methods on the same tasks: `won`, `tied` and `lost` tasks of the first, by mean scores.

    Of these, `clearly_won` and `clearly_lost` are those whose 95 % interval over replicates excludes zero. `gap` is the mean
    difference of normalised scores. `wilcoxon` and `t` are two-sided p-values of the differences over tasks; `wilcoxon_holm`
    and `t_holm` are corrected for the number of pairs. NaN with fewer than two tasks.
    """

    one: str
    other: str
    won: int
    tied: int
    lost: int
    clearly_won: int
    clearly_lost: int
    gap: float
    wilcoxon: float
    t: float
    wilcoxon_holm: float = float("nan")
    t_holm: float = float("nan")


def pair_tests(found: Comparable) -> list[PairTest]:
    """Test every pair of methods, in the order of their labels."""
    scores, normalised = found.scores(), found.normalised()
    replicates = [found.replicates(task) for task in found.tasks]
    tests = []
    for one, other in combinations(range(len(found.labels)), 2):
        gaps, clear = scores[:, one] - scores[:, other], [_clear(each[:, one] - each[:, other]) for each in replicates]
        difference = normalised[:, one] - normalised[:, other]
        tests.append(
            PairTest(
                found.labels[one],
                found.labels[other],
                int((gaps > 0).sum()),
                tied=int((gaps == 0).sum()),
                lost=int((gaps < 0).sum()),
                clearly_won=clear.count(1),
                clearly_lost=clear.count(-1),
                gap=float(difference.mean()),
                wilcoxon=signed_ranks(difference),
                t=student(difference),
            )
        )
    corrected = zip(tests, holm([test.wilcoxon for test in tests]), holm([test.t for test in tests]), strict=True)
    return [replace(test, wilcoxon_holm=by_ranks, t_holm=by_t) for test, by_ranks, by_t in corrected]


def _clear(gaps: Array) -> int:
    """Return the side (-1 or 1) on which the interval of gaps over replicates excludes zero, or 0."""
    found = paired(gaps)
    return 0 if found is None else int(found.low > 0) - int(found.high < 0)


def signed_ranks(differences: Array) -> float:
    """Return the two-sided p-value of Wilcoxon's signed ranks, with the ranks of zeros split (Demsar 2006, section 3.1.3).

    Up to twelve differences all signs are enumerated, which is exact with ties too; beyond, it is the normal approximation.
    """
    from scipy.special import ndtr
    from scipy.stats import rankdata

    if len(differences) < 2:
        return float("nan")
    if not differences.any():
        return 1.0
    ranks = np.where(differences == 0, 0.0, rankdata(abs(differences)))
    balance = abs(float(np.sign(differences) @ ranks))
    if len(differences) > _EXACT:
        return float(2 * ndtr(-balance / np.sqrt(np.square(ranks).sum())))
    signs = np.array(list(product((-1.0, 1.0), repeat=len(ranks))))
    # Sums of the same ranks in another order may differ in their last bits.
    return float((abs(signs @ ranks) >= balance - 1e-9).mean())


def student(differences: Array) -> float:
    """Return the two-sided p-value of Student's paired t-test."""
    from scipy.special import stdtr

    count = len(differences)
    if count < 2:
        return float("nan")
    error = float(differences.std(ddof=1)) / count**0.5
    mean = float(differences.mean())
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(count - 1, -abs(mean) / error))


@dataclass(frozen=True, slots=True)
class Ranking:
    """Methods by their mean rank over tasks, 1 is best; tied methods share the mean of their ranks.

    `chi2` is Friedman's statistic, corrected for ties, and `f` that of Iman and Davenport, with its p-value `p` if all methods
    were equal. `critical` is the smallest difference of mean ranks that is significant at the level 0.05. `groups` are the
    largest sets of neighbouring methods that are not shown to differ.
    """

    labels: tuple[str, ...]
    mean: Array
    tasks: int
    chi2: float
    f: float
    p: float
    critical: float

    @property
    def order(self) -> list[int]:
        """Return the indices of the methods from the best to the worst."""
        return [int(place) for place in np.argsort(self.mean, kind="stable")]

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """Return the largest sets of at least two methods whose mean ranks are closer than the critical difference."""
        order, found = self.order, list[tuple[int, ...]]()
        for start in range(len(order)):
            near = tuple(place for place in order[start:] if self.mean[place] - self.mean[order[start]] < self.critical)
            if len(near) > 1 and not (found and set(near) <= set(found[-1])):
                found.append(near)
        return found


def ranking(labels: Sequence[str], scores: Array) -> Ranking:
    """Rank methods on each task by `scores (tasks, methods)`, larger is better; ValueError with fewer than two methods."""
    from scipy.stats import f as fisher
    from scipy.stats import rankdata, studentized_range, tiecorrect

    count, methods = scores.shape
    if methods < 2:
        raise ValueError("ranks require at least two methods")
    ranks = rankdata(-scores, axis=1)
    mean = ranks.mean(axis=0)
    chi2 = 12 * count / (methods * (methods + 1)) * (float(np.square(mean).sum()) - methods * (methods + 1) ** 2 / 4)
    # Tied ranks scatter less. This is the correction of scipy.stats.friedmanchisquare, which takes three methods at least.
    chi2 /= float(np.mean([tiecorrect(row) for row in ranks])) or 1.0
    rest = count * (methods - 1) - chi2
    statistic = (count - 1) * chi2 / rest if rest > 1e-9 else np.inf
    chance = float(fisher.sf(statistic, methods - 1, (methods - 1) * (count - 1))) if count > 1 else float("nan")
    quantile = float(studentized_range.ppf(0.95, methods, np.inf)) / np.sqrt(2)
    critical = quantile * float(np.sqrt(methods * (methods + 1) / (6 * count)))
    return Ranking(tuple(labels), np.asarray(mean), count, chi2=float(chi2), f=float(statistic), p=chance, critical=critical)


@dataclass(frozen=True, slots=True)
class Overview:
    """All statistics of runs: the compared tasks, ranks, pairs of methods, and costs on each axis."""

    found: Comparable
    ranking: Ranking
    pairs: Sequence[PairTest]
    costs: Sequence[CostToLevel]

    def tables(self) -> list[TextTable]:
        """Return all statistics as tables."""
        return [_finals(self.found), _ranks(self.ranking), _pairs(self.pairs), *(_costs(one) for one in self.costs)]

    def scores(self) -> TextTable:
        """List every final value by task, replicate and method, for other programs."""
        rows = [
            (task.name, str(replicate), label, repr(float(task.metric.native(score))))
            for task in self.found.tasks
            for label in self.found.labels
            for replicate, score in sorted(task.finals(label).items())
        ]
        return TextTable("scores", "Every final value.", ("task", "replicate", "algorithm", "value"), rows)


def overview(results: Sequence[Result], labels: Sequence[str] = ()) -> Overview:
    """Compare the methods of runs over their tasks; the first of the labels is the baseline of cost ratios."""
    found = comparable(results, labels)
    costs = [cost for axis in AXES if (cost := costs_to_level(found, axis)) is not None]
    return Overview(found, ranking(found.labels, found.scores()), pair_tests(found), costs)


def _finals(found: Comparable) -> TextTable:
    """Return the mean final value of each method on each task with its standard error over replicates, as in summaries."""
    rows = []
    for task in found.tasks:
        native = np.asarray(task.metric.native(found.replicates(task)))
        best = int(np.argmax(found.replicates(task).mean(axis=0)))
        cells = [_with_error(native[:, place]) + " *" * (place == best) for place in range(native.shape[1])]
        rows.append((f"{task.name} ({task.metric.name})", *cells))
    caption = "Final best value, mean over agents and replicates, ± one standard error over replicates; * best."
    return TextTable("finals", caption, ("task", *found.labels), rows, tuple(f"Omitted: {line}." for line in found.left_out))


def _with_error(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    (mean,), (error,) = mean_and_error(values[:, None])
    return str(Estimate(float(mean), float(error) if len(values) > 1 else None))


def _ranks(found: Ranking) -> TextTable:
    groups = {place: "".join("abcdefghijklmnopqrstuvwxyz"[n % 26] for n, group in enumerate(found.groups) if place in group)
              for place in found.order}  # fmt: skip
    rows = [(found.labels[place], f"{found.mean[place]:.3f}", groups[place] or "–") for place in found.order]
    caption = (
        f"Mean ranks over {found.tasks} tasks; 1 is best. Two methods differ at the level 0.05 if their mean ranks differ by "
        f"{found.critical:.3g} (Nemenyi). Methods that share a letter are not shown to differ. "
        f"Friedman's chi2 = {found.chi2:.3g}, F = {found.f:.3g}, p {'' if found.p < 0.001 else '= '}{_chance(found.p)}."
    )
    if found.tasks == 1:
        caption = "Ranks on the only task; 1 is best. One task does not allow a test."
    warning = ("With so few tasks, ranks can hardly differ significantly.",) if 1 < found.tasks < 5 else ()
    return TextTable("ranks", caption, ("algorithm", "mean rank", "group"), rows, warning)


def _pairs(tests: Sequence[PairTest]) -> TextTable:
    rows = [
        (f"{test.one} – {test.other}", str(test.won), str(test.tied), str(test.lost), f"{test.clearly_won}:{test.clearly_lost}",
         f"{test.gap:+.3f}", _chance(test.wilcoxon), _chance(test.wilcoxon_holm), _chance(test.t), _chance(test.t_holm))
        for test in tests
    ]  # fmt: skip
    headings = ("pair", "won", "tied", "lost", "clearly", "gap", "Wilcoxon p", "Holm", "t p", "Holm t")
    caption = (
        "Pairs of methods over tasks. won, tied, lost: tasks by means, for the first method. clearly: tasks whose 95 % "
        "interval over replicates excludes zero. gap: mean difference of scores, from 0 (worst final value) to 1 "
        "(best). p: two-sided p-values over tasks. Holm: corrected for the number of pairs."
    )
    return TextTable("pairs", caption, headings, rows)


def _costs(found: CostToLevel) -> TextTable:
    rows = []
    for place, label in enumerate(found.labels):
        half = float(np.sort(found.costs[:, place])[len(found.costs) // 2])  # the upper median: never between inf and inf
        median = f"{half:.4g}" if np.isfinite(half) else "not reached"
        ratio = found.ratio(place) if place else None
        share = f"{found.reached[place]:.0%}"
        rows.append((label, share, median, "–" if ratio is None else f"× {ratio}",
                     f"{found.profile(np.array([1.0]))[0, place]:.0%}"))  # fmt: skip
    caption = (
        f"{found.axis.capitalize()} until a method reaches the level of a task, the median of its final values. reached: share "
        "of replicates that reached it. median: over all replicates. ratio: geometric mean ratio to "
        f"{found.labels[0]} with its 95 % interval; a replicate that did not reach the level counts up to the end of the "
        "shorter run. cheapest: share in which no method was cheaper."
    )
    silent = "Methods that send nothing are omitted." if found.axis == "bytes" else ""
    headings = ("algorithm", "reached", "median", "ratio [95 %]", "cheapest")
    return TextTable(f"{found.axis}_to_level", caption, headings, rows, (silent,) if silent else ())


def _chance(value: float) -> str:
    return "–" if value != value else "< 0.001" if value < 0.001 else short(value) if value < 0.1 else f"{value:.2f}"
