"""Pairs of methods over tasks: Wilcoxon's signed ranks and Student's t with Holm's correction, and the tasks each won."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from fedbo.analysis.statistics.tasks import Comparable
from fedbo.analysis.summary import paired

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


def holm(chances: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's step-down procedure; NaN stays and does not count."""
    values = np.asarray(chances, dtype=np.float64)
    corrected, known = values.copy(), np.flatnonzero(~np.isnan(values))
    order, running = known[np.argsort(values[known], kind="stable")], 0.0
    for place, number in enumerate(order):
        running = max(running, min(1.0, (len(order) - place) * float(values[number])))
        corrected[number] = running
    return [float(value) for value in corrected]
