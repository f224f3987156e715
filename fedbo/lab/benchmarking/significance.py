"""Tests of the differences between methods over tasks: of each pair, and of their mean ranks.

Mean ranks, Friedman's test and the critical differences of Nemenyi are those of Demsar 2006, section 3.2: "Statistical
comparisons of classifiers over multiple data sets", Journal of Machine Learning Research 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from fedbo.analysis.summary import holm, paired
from fedbo.lab.benchmarking.tasks import Comparable

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
    largest sets of neighbouring methods that do not differ.
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
