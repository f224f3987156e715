"""Values for points whose evaluation failed, so that a surrogate avoids them; messages never hold them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import Array

REACHES = (0.1, 0.2)  # length scales of the likeness of two points, times the square root of the number of inputs


def supposed_values(u: Array, y: Array, failed: Array) -> Array | None:
    """Compute values `(f,)` for failed points `(f, d)` from the observations `y (n,)` at `u (n, d)`, n > 0.

    A squared-exponential kernel weights the share of failures near a point, itself included. The value lies that share of the
    way from the mean of the nearby observations to the worst observation, so a region of failures counts as bad. Return None
    where failures look random, since they then carry no information about their surroundings.
    """
    near = _neighbourhood(np.concatenate([u, failed]), len(y))
    if near is None:
        return None
    to_observed, to_failed = near[len(y) :, : len(y)], near[len(y) :, len(y) :].sum(axis=1) + 1.0
    weight = to_observed.sum(axis=1)
    share = to_failed / (to_failed + weight)
    mean = np.where(weight > 0.0, to_observed @ y / np.maximum(weight, np.finfo(float).tiny), y.min())
    return np.asarray(share * y.min() + (1.0 - share) * mean)


def _neighbourhood(points: Array, succeeded: int) -> Array | None:
    """Compute the likeness `(N, N)` of points, 0 on the diagonal, in the reach that explains best which of them failed.

    The first points are those that `succeeded`. Each failure is predicted from all other points: by the overall rate alone, or
    as one that counts like one more neighbour. None where the rate alone predicts best.
    """
    failed = np.arange(len(points)) >= succeeded
    rate = (failed.sum() - failed + 0.5) / len(points)
    squares = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2) / points.shape[1]
    best, found = _log_likelihood(rate, failed), None
    for reach in REACHES:
        near = np.exp(-squares / (2.0 * reach**2))
        np.fill_diagonal(near, 0.0)
        density = _log_likelihood((rate + near @ failed) / (1.0 + near.sum(axis=1)), failed)
        if density > best:
            best, found = density, near
    return found


def _log_likelihood(probability: Array, failed: npt.NDArray[np.bool_]) -> float:
    return float(np.log(np.where(failed, probability, 1.0 - probability)).sum())
