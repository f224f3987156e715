"""A regression of the logarithms of durations on the configuration, with tests of its slopes and of normal errors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from fedbo.lab.twins.families import DRAWS, Array, Numbers


class DurationRegression(NamedTuple):
    """log duration = constant of the agent + slopes (d,) times (u - 1/2) + a normal error with deviation `sigma`.

    `share` is the explained part of the variance of the logarithms within agents. `p_none` is that of an F-test against no
    dependence, and a small `p` rejects normal errors. `mean` is the expected duration in the middle of the cube, of all agents.
    """

    mean: float
    slopes: tuple[float, ...]
    sigma: float
    share: float
    p_none: float
    p: float


def regression(values: Array, agents: Numbers, points: Array, seed: int) -> DurationRegression | None:
    """Regress the logarithms of durations on points `(n, d)` of the unit cube; None if there are too few."""
    numbers, place = np.unique(agents, return_inverse=True)
    count, free = len(values), len(values) - len(numbers) - points.shape[1]
    if points.shape[1] == 0 or free < max(3, points.shape[1]) or not np.isfinite(points).all():
        return None
    logs = np.log(values)
    within = np.stack([_centred(column, place) for column in (logs, *points.T)], axis=1)
    slopes, _, rank, _ = np.linalg.lstsq(within[:, 1:], within[:, 0], rcond=1e-10)
    if rank < points.shape[1]:
        return None
    rest = within[:, 0] - within[:, 1:] @ slopes
    unexplained, total = float(rest @ rest), float(within[:, 0] @ within[:, 0])
    if total <= 1e-12 * count or unexplained <= 0:
        return None
    ratio = ((total - unexplained) / points.shape[1]) / (unexplained / free)
    sigma = float(np.sqrt(unexplained / free))
    middle = float(np.mean(logs - (points - 0.5) @ slopes))
    return DurationRegression(
        mean=float(np.exp(middle + 0.5 * sigma**2)),
        slopes=tuple(slopes.tolist()),
        sigma=sigma,
        share=1.0 - unexplained / total,
        p_none=float(stats.f.sf(ratio, points.shape[1], free)),
        p=_normality(rest, within[:, 1:], place, np.random.default_rng([seed, 99])),
    )


def _centred(column: Array, place: Numbers) -> Array:
    return column - (np.bincount(place, column) / np.bincount(place))[place]


def _normality(rest: Array, within: Array, place: Numbers, rng: np.random.Generator) -> float:
    """Return p of the residuals' distance from a normal law, by errors that are drawn and regressed in the same way."""
    basis, _ = np.linalg.qr(within)
    distances = []
    for number in range(DRAWS + 1):
        error = rest if number == 0 else _centred(rng.standard_normal(len(rest)), place)
        error = error if number == 0 else error - basis @ (basis.T @ error)
        distances.append(stats.kstest(error / error.std(), "norm").statistic)
    return float((1 + np.count_nonzero(np.array(distances[1:]) >= distances[0])) / (1 + DRAWS))
