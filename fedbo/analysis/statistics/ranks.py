"""Mean ranks over tasks, Friedman's test, and the critical differences of Nemenyi (Demsar 2006, section 3.2).

Demsar, "Statistical comparisons of classifiers over multiple data sets", Journal of Machine Learning Research 7, 2006.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


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
