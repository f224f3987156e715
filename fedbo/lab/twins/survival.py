"""Times of which some were cut short: the Kaplan-Meier estimate, its mean, draws of times at which others are cut, and a test.

A time that was cut short tells that it would have lasted longer. What cuts it must not depend on how long it would have lasted:
the end of a run, a crash, a preemption, which comes as likely early as late.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def survival(samples: Array, ended: Flags) -> tuple[Array, Flags, Array, Array]:
    """Return the sorted samples of each row `(b, n)`, whether each has ended, and the estimate of survival before and after it.

    Of equal times those that ended come first (Kaplan and Meier 1958).
    """
    order = np.lexsort((~ended, samples), axis=-1)
    samples, ended = np.take_along_axis(samples, order, axis=1), np.take_along_axis(ended, order, axis=1)
    at_risk = samples.shape[1] - np.arange(samples.shape[1])
    after = np.cumprod(1.0 - ended / at_risk, axis=1)
    return samples, ended, np.concatenate([np.ones((len(samples), 1)), after[:, :-1]], axis=1), after


def mean_of(values: Array, ended: Flags) -> float:
    """Return the mean of times `(n,)`: the area below the estimate, which goes on exponentially where the longest was cut."""
    ordered, _, before, after = (one[0] for one in survival(values[None], ended[None]))
    area = float((before * np.diff(ordered, prepend=0.0)).sum())
    return area if after[-1] <= 0 else area + float(after[-1] * values.sum() / max(1, ended.sum()))


def cut_again(drawn: Array, values: Array, ended: Flags, rng: np.random.Generator) -> tuple[Array, Flags]:
    """Cut drawn times `(b, n)` short as measured ones `(n,)` were, and return them and whether each has ended.

    One that was cut short is cut at the same time. One that ended could have been cut at any time after it: that is drawn from
    the estimate of the times of cuts, where ends are what comes before them.
    """
    if ended.all():
        return drawn, np.ones(drawn.shape, dtype=bool)
    times, is_cut, _, after = (one[0] for one in survival(values[None], ~ended[None]))
    left = np.append(1.0, after[is_cut])  # of no cut yet, after so many of them
    begun = left[np.searchsorted(times[is_cut], values, side="right")]
    level = begun * rng.random(drawn.shape)
    place = np.searchsorted(-left, -level, side="left")
    cuts = np.where(ended, np.append(times[is_cut], np.inf)[np.maximum(place, 1) - 1], values)
    return np.minimum(drawn, cuts), drawn <= cuts


def p_alike(values: Array, ended: Flags, groups: npt.NDArray[np.int64]) -> float:
    """Return p of a log-rank test that groups, numbered from 0, have the same law of times: the ends of each, minus those due.

    Those due to a time are the hazard of all groups until then (Nelson and Aalen); with the variance of a permutation, the sum
    of squares is chi-squared.
    """
    order = np.argsort(values, kind="stable")
    _, first, place = np.unique(values[order], return_index=True, return_inverse=True)
    at_risk = len(values) - first
    hazard = np.cumsum(np.bincount(place, ended[order]) / at_risk)
    excess = np.empty(len(values))
    excess[order] = ended[order] - hazard[place]
    excess -= excess.mean()
    if (variance := float(excess.var(ddof=1))) <= 1e-12:
        return 1.0
    sums, counts = np.bincount(groups, excess), np.bincount(groups)
    return float(stats.chi2.sf(float((sums**2 / counts).sum()) / variance, len(counts) - 1))
