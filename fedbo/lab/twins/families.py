"""Families of durations for a world: their fit by maximum likelihood, its goodness, and a regression on the configuration.

Samples are rows `(b, n)` of numbers above 0; the parameters of each are a row too, in the order and the meaning of the timing
model with the same name.

The goodness is the Kolmogorov-Smirnov distance, with a parametric bootstrap. With estimated parameters, the distance is smaller
than the tables for known ones state. So the bootstrap draws many samples from the fitted family, fits them again, and compares
their distances (Stute et al. 1993). The drawn samples are transformed like the measured one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special, stats

Array = npt.NDArray[np.float64]


class DurationFamily(NamedTuple):
    """A family of durations: the names of its parameters, its fit `(b, n) -> (b, k)`, its law, and its draws."""

    parameters: tuple[str, ...]
    fit: Callable[[Array], Array]
    law: Callable[[Array], Any]


def _exponential(samples: Array) -> Array:
    return np.asarray(samples.mean(axis=1, keepdims=True))


def _lognormal(samples: Array) -> Array:
    logs = np.log(samples)
    sigma = logs.std(axis=1)
    return np.stack([np.exp(logs.mean(axis=1) + 0.5 * sigma**2), sigma], axis=1)


def _gamma(samples: Array) -> Array:
    """Fit mean and shape k: log k - digamma(k) is the log of the mean minus the mean of the logs (Minka 2002)."""
    mean = samples.mean(axis=1)
    gap = np.maximum(np.log(mean) - np.log(samples).mean(axis=1), 1e-12)
    shape = (3.0 - gap + np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
    for _ in range(5):
        slope = 1.0 / shape - special.polygamma(1, shape)
        shape = shape / (1.0 + (np.log(shape) - special.digamma(shape) - gap) / (shape * slope))
    return np.stack([mean, shape], axis=1)


def _pareto(samples: Array) -> Array:
    shortest = samples.min(axis=1)
    alpha = samples.shape[1] / np.maximum(np.log(samples / shortest[:, None]).sum(axis=1), 1e-300)
    return np.stack([shortest * alpha / (alpha - 1.0), alpha], axis=1)


FAMILIES: Mapping[str, DurationFamily] = {
    "exponential": DurationFamily(("mean",), _exponential, lambda p: stats.expon(scale=p[:, :1])),
    "lognormal": DurationFamily(
        ("mean", "sigma"), _lognormal, lambda p: stats.lognorm(p[:, 1:], scale=p[:, :1] * np.exp(-0.5 * p[:, 1:] ** 2))
    ),
    "gamma": DurationFamily(("mean", "shape"), _gamma, lambda p: stats.gamma(p[:, 1:], scale=p[:, :1] / p[:, 1:])),
    "pareto": DurationFamily(
        ("mean", "alpha"), _pareto, lambda p: stats.pareto(p[:, 1:], scale=p[:, :1] * (p[:, 1:] - 1.0) / p[:, 1:])
    ),
}


DRAWS = 299  # of the bootstrap: the smallest p is 1 / 300
LARGEST = 2000  # values that are compared, evenly spread over the sample: with more every model of something real is refused
REFUSED = 0.05  # p below which a family does not fit
ALIKE = 0.01  # standard deviation over mean up to which durations are as good as constant


class Candidate(NamedTuple):
    """A fitted family: its settings as the timing model has them, the distance, and p, small where it fits badly.

    `score` is Schwarz's criterion, where the smallest is the best.
    """

    model: str
    settings: dict[str, float]
    distance: float
    p: float
    score: float

    @property
    def fits(self) -> bool:
        """Check whether the test does not reject it."""
        return self.p >= REFUSED


def candidates(values: Array, agents: npt.NDArray[np.int64] | None, seed: int) -> list[Candidate]:
    """Fit every family to durations above 0, the best first.

    With the `agents` of the durations, those of each are divided by the ratio of its mean to that of all.
    """
    values, agents = _thinned(values, agents)
    found = [_candidate(name, values, agents, np.random.default_rng([seed, place])) for place, name in enumerate(FAMILIES)]
    return sorted((one for one in found if one is not None), key=lambda one: one.score)


def best(found: Sequence[Candidate]) -> Candidate | None:
    """Return the best family that the test does not reject."""
    return next((one for one in found if one.fits), None)


def evened(samples: Array, agents: npt.NDArray[np.int64] | None) -> Array:
    """Divide the durations of each agent by the ratio of its mean to that of all, in every sample."""
    if agents is None:
        return samples
    numbers, place, counts = np.unique(agents, return_inverse=True, return_counts=True)
    sums = np.stack([samples[:, place == one].sum(axis=1) for one in range(len(numbers))], axis=1)
    return np.asarray(samples * (samples.mean(axis=1, keepdims=True) / (sums / counts)[:, place]))


def _candidate(name: str, values: Array, agents: npt.NDArray[np.int64] | None, rng: np.random.Generator) -> Candidate | None:
    """Fit one family; None if the timing model of that name does not allow the parameters."""
    family = FAMILIES[name]
    sample = evened(values[None], agents)
    fitted = family.fit(sample)
    if not np.isfinite(fitted).all() or (fitted <= 0).any() or (name == "pareto" and fitted[0, 1] <= 1.01):
        return None
    law = family.law(fitted)
    distance = _distances(law.cdf(np.sort(sample, axis=1)))[0]
    drawn = evened(law.rvs((DRAWS, len(values)), random_state=rng), agents)
    with np.errstate(all="ignore"):
        again = _distances(family.law(family.fit(drawn)).cdf(np.sort(drawn, axis=1)))
    # Negated, so that the NaN distance of a refit that failed counts as larger: it does not reject the family.
    p = (1 + np.count_nonzero(~(again < distance))) / (1 + DRAWS)
    score = -2.0 * float(law.logpdf(sample).sum()) + len(family.parameters) * float(np.log(len(values)))
    return Candidate(name, dict(zip(family.parameters, fitted[0].tolist(), strict=True)), float(distance), p, score)


def _distances(levels: Array) -> Array:
    """Return the Kolmogorov-Smirnov distance of each row; `levels` are the fitted law's values at the sorted sample."""
    count = levels.shape[1]
    steps = np.arange(count + 1) / count
    return np.asarray(np.maximum((levels - steps[:-1]).max(axis=1), (steps[1:] - levels).max(axis=1)))


def _thinned(values: Array, agents: npt.NDArray[np.int64] | None) -> tuple[Array, npt.NDArray[np.int64] | None]:
    if len(values) <= LARGEST:
        return values, agents
    kept = np.linspace(0, len(values) - 1, LARGEST).astype(int)
    return values[kept], None if agents is None else agents[kept]


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


def regression(values: Array, agents: npt.NDArray[np.int64], points: Array, seed: int) -> DurationRegression | None:
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


def _centred(column: Array, place: npt.NDArray[np.int64]) -> Array:
    return column - (np.bincount(place, column) / np.bincount(place))[place]


def _normality(rest: Array, within: Array, place: npt.NDArray[np.int64], rng: np.random.Generator) -> float:
    """Return p of the residuals' distance from a normal law, by errors that are drawn and regressed in the same way."""
    basis, _ = np.linalg.qr(within)
    distances = []
    for number in range(DRAWS + 1):
        error = rest if number == 0 else _centred(rng.standard_normal(len(rest)), place)
        error = error if number == 0 else error - basis @ (basis.T @ error)
        distances.append(_distances(stats.norm.cdf(np.sort(error) / error.std())[None])[0])
    return float((1 + np.count_nonzero(np.array(distances[1:]) >= distances[0])) / (1 + DRAWS))
