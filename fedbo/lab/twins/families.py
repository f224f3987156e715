"""Families of durations for a world: their fit by maximum likelihood, and its goodness.

Samples are rows `(b, n)` of numbers above 0; the parameters of each are a row too, in the order and the meaning of the timing
model with the same name. Where a flag of `ended (b, n)` is false, the number is how long it had lasted when it was cut short,
and its likelihood is that of lasting longer.

The goodness is the largest distance between the family and the Kaplan-Meier estimate, which is the Kolmogorov-Smirnov distance
where all have ended, with a parametric bootstrap. With estimated parameters, the distance is smaller than the tables for known
ones state. So the bootstrap draws many samples from the fitted family, cuts them short by times like the measured ones, fits
them again, and compares their distances (Stute et al. 1993). The drawn samples are transformed like the measured one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from fedbo.lab.twins.survival import cut_again, survival

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class DurationFamily(NamedTuple):
    """A family of durations: the names of its parameters, its law, and its fit to samples of which all have ended.

    The fit `(b, n), (b, n) -> (b, k)` is exact for exponential and Pareto laws, and the start of the search for others.
    """

    parameters: tuple[str, ...]
    fit: Callable[[Array, Flags], Array]
    law: Callable[[Array], Any]
    is_exact: bool = False


def _exponential(samples: Array, ended: Flags) -> Array:
    return np.asarray(samples.sum(axis=1, keepdims=True) / ended.sum(axis=1, keepdims=True))


def _lognormal(samples: Array, ended: Flags) -> Array:
    count = ended.sum(axis=1)
    logs = np.log(samples)
    middle = (logs * ended).sum(axis=1) / count
    sigma = np.sqrt(((logs - middle[:, None]) ** 2 * ended).sum(axis=1) / count)
    return np.stack([np.exp(middle + 0.5 * sigma**2), sigma], axis=1)


def _gamma(samples: Array, ended: Flags) -> Array:
    """Fit mean and shape k: log k - digamma(k) is the log of the mean minus the mean of the logs (Minka 2002)."""
    count = ended.sum(axis=1)
    mean = (samples * ended).sum(axis=1) / count
    gap = np.maximum(np.log(mean) - (np.log(samples) * ended).sum(axis=1) / count, 1e-12)
    shape = (3.0 - gap + np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
    for _ in range(5):
        slope = 1.0 / shape - special.polygamma(1, shape)
        shape = shape / (1.0 + (np.log(shape) - special.digamma(shape) - gap) / (shape * slope))
    return np.stack([mean, shape], axis=1)


def _pareto(samples: Array, ended: Flags) -> Array:
    shortest = np.where(ended, samples, np.inf).min(axis=1)
    above = np.log(np.maximum(samples / shortest[:, None], 1.0)).sum(axis=1)
    alpha = ended.sum(axis=1) / np.maximum(above, 1e-300)
    return np.stack([shortest * alpha / (alpha - 1.0), alpha], axis=1)


FAMILIES: Mapping[str, DurationFamily] = {
    "exponential": DurationFamily(("mean",), _exponential, lambda p: stats.expon(scale=p[:, :1]), is_exact=True),
    "lognormal": DurationFamily(
        ("mean", "sigma"), _lognormal, lambda p: stats.lognorm(p[:, 1:], scale=p[:, :1] * np.exp(-0.5 * p[:, 1:] ** 2))
    ),
    "gamma": DurationFamily(("mean", "shape"), _gamma, lambda p: stats.gamma(p[:, 1:], scale=p[:, :1] / p[:, 1:])),
    "pareto": DurationFamily(
        ("mean", "alpha"),
        _pareto,
        lambda p: stats.pareto(p[:, 1:], scale=p[:, :1] * (p[:, 1:] - 1.0) / p[:, 1:]),
        is_exact=True,
    ),
}


DRAWS = 299  # of the bootstrap: the smallest p is 1 / 300
LARGEST = 2000  # values that are compared, evenly spread over the sample: with more every model of something real is refused
REFUSED = 0.05  # p below which a family does not fit
ALIKE = 0.01  # standard deviation over mean up to which durations are as good as constant
_STEPS, _STEPS_AGAIN = 25, 1  # of Newton's method: for a measured sample, and for a drawn one from the truth
_APART = 1e-3  # of the logarithms of parameters, for differences in place of derivatives
_FARTHEST, _NEAR = 0.7, 1e-6  # change of such a logarithm in one step; a smaller one is the last


class Candidate(NamedTuple):
    """A fitted family: its settings as the timing model has them, the distance, and p, small where it fits badly.

    `intervals` of the settings have 95 %. `score` is Schwarz's criterion, where the smallest is the best.
    """

    model: str
    settings: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    distance: float
    p: float
    score: float

    @property
    def fits(self) -> bool:
        """Check whether the test does not reject it."""
        return self.p >= REFUSED


class CensoredTimes(NamedTuple):
    """Times above 0 `(n,)`, whether each has `ended` or was cut short, and the `agents` that they are of, if these differ."""

    values: Array
    ended: Flags
    agents: Numbers | None = None

    def thinned(self, most: int = LARGEST) -> CensoredTimes:
        """Return at most so many of them, evenly spread."""
        if len(self.values) <= most:
            return self
        kept = np.linspace(0, len(self.values) - 1, most).astype(int)
        return CensoredTimes(self.values[kept], self.ended[kept], None if self.agents is None else self.agents[kept])


def candidates(times: CensoredTimes, seed: int) -> list[Candidate]:
    """Fit every family, the best first.

    With the agents of the times, those of each are divided by the ratio of its mean to that of all.
    """
    times = times.thinned()
    found = [_candidate(name, times, np.random.default_rng([seed, place])) for place, name in enumerate(FAMILIES)]
    return sorted((one for one in found if one is not None), key=lambda one: one.score)


def best(found: Sequence[Candidate]) -> Candidate | None:
    """Return the best family that the test does not reject."""
    return next((one for one in found if one.fits), None)


def completed(times: CensoredTimes, seed: int) -> Array:
    """Return times of which those that were cut short go on by draws from the family with the best score `(n,)`."""
    if times.ended.all():
        return times.values
    few, laws = times.thinned(), []
    for name in FAMILIES:
        if (fitted := _fitted(name, few)) is not None:
            laws.append((_score(name, fitted, few), FAMILIES[name].law(fitted)))
    law, scale = min(laws, key=lambda one: one[0])[1], _scales(times.values[None], times.ended[None], times.agents)[0]
    above = law.sf(times.values / scale)[0] * np.random.default_rng([seed, 98]).random(len(times.values))
    return np.where(times.ended, times.values, scale * np.maximum(law.isf(above)[0], times.values / scale))


def _scales(samples: Array, ended: Flags, agents: Numbers | None) -> Array:
    """Return the ratio of each time's agent's mean to that of all `(b, n)`: the times of an agent for each that has ended."""
    if agents is None:
        return np.ones_like(samples)
    numbers, place = np.unique(agents, return_inverse=True)
    sums, counts = (
        np.stack([part[:, place == one].sum(axis=1) for one in range(len(numbers))], axis=1) for part in (samples, ended)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (sums / counts) / (sums.sum(axis=1) / counts.sum(axis=1))[:, None]
    return np.asarray(np.where(np.isfinite(ratio) & (ratio > 0), ratio, 1.0)[:, place])


def _fitted(name: str, times: CensoredTimes) -> Array | None:
    """Return the parameters of one family `(1, k)`; None if the timing model of that name does not allow them."""
    samples, ended = times.values[None], times.ended[None]
    samples = samples / _scales(samples, ended, times.agents)
    with np.errstate(all="ignore"):
        fitted = _climbed(name, FAMILIES[name].fit(samples, ended), samples, ended, _STEPS)
    if not np.isfinite(fitted).all() or (fitted <= 0).any() or (name == "pareto" and fitted[0, 1] <= 1.01):
        return None
    return fitted


def _candidate(name: str, times: CensoredTimes, rng: np.random.Generator) -> Candidate | None:
    family, fitted = FAMILIES[name], _fitted(name, times)
    if fitted is None:
        return None
    samples, ended = times.values[None], times.ended[None]
    samples = samples / _scales(samples, ended, times.agents)
    law = family.law(fitted)
    distance = _distances(law, samples, ended)[0]
    drawn = law.rvs((DRAWS, samples.shape[1]), random_state=rng)
    drawn, again = cut_again(drawn, samples[0], times.ended, rng)
    drawn = drawn / _scales(drawn, again, times.agents)
    with np.errstate(all="ignore"):
        start = np.repeat(fitted, DRAWS, axis=0) if not (family.is_exact or again.all()) else family.fit(drawn, again)
        refits = family.law(_climbed(name, start, drawn, again, _STEPS_AGAIN))
        # Negated, so that the NaN distance of a refit that failed counts as larger: it does not reject the family.
        p = (1 + np.count_nonzero(~(_distances(refits, drawn, again) < distance))) / (1 + DRAWS)
    settings = dict(zip(family.parameters, fitted[0].tolist(), strict=True))
    return Candidate(
        model=name,
        settings=settings,
        intervals=_intervals(name, fitted, samples, ended),
        distance=float(distance),
        p=p,
        score=_score(name, fitted, times),
    )


def _score(name: str, fitted: Array, times: CensoredTimes) -> float:
    samples, ended = times.values[None], times.ended[None]
    likelihood = float(_likelihood(name, np.log(fitted), samples / _scales(samples, ended, times.agents), ended)[0])
    return -2.0 * likelihood + len(FAMILIES[name].parameters) * math.log(np.count_nonzero(times.ended))


def _likelihood(name: str, logs: Array, samples: Array, ended: Flags) -> Array:
    """Return the log-likelihood of each sample at parameters with these logarithms."""
    parameters, found = np.exp(logs), np.zeros(len(logs))
    for chosen, of in ((ended, "logpdf"), (~ended, "logsf")):
        rows = np.nonzero(chosen)[0]
        terms = getattr(FAMILIES[name].law(parameters[rows]), of)(samples[chosen][:, None])
        found += np.bincount(rows, terms[:, 0], len(logs))
    return found


def _climbed(name: str, fitted: Array, samples: Array, ended: Flags, steps: int) -> Array:
    """Climb the likelihood by Newton's method where some times were cut short and the family has no formula for them."""
    if FAMILIES[name].is_exact or ended.all():
        return fitted
    logs = np.log(fitted)
    for _ in range(steps):
        gradient, curvature = _derivatives(name, logs, samples, ended)
        values, vectors = np.linalg.eigh(np.where(np.isfinite(curvature), curvature, np.eye(logs.shape[1])))
        along = np.einsum("bij,bi->bj", vectors, gradient) / np.maximum(np.abs(values), 1e-8)
        move = np.clip(np.einsum("bij,bj->bi", vectors, along), -_FARTHEST, _FARTHEST)
        logs = logs + move
        if np.nanmax(np.abs(move)) < _NEAR:
            break
    return np.exp(logs)


def _derivatives(name: str, logs: Array, samples: Array, ended: Flags) -> tuple[Array, Array]:
    """Return gradient `(b, k)` and negated second derivatives `(b, k, k)` of the log-likelihood, by differences."""
    count = logs.shape[1]
    unit = _APART * np.eye(count)
    at = {key: _likelihood(name, logs + move, samples, ended) for key, move in _moves(unit)}
    gradient = np.stack([(at[j, 1] - at[j, -1]) / (2 * _APART) for j in range(count)], axis=1)
    curvature = np.empty((len(logs), count, count))
    for j in range(count):
        curvature[:, j, j] = (2 * at[0, 0] - at[j, 1] - at[j, -1]) / _APART**2
    if count == 2:
        mixed = at["both", 1] + at["both", -1] - at[0, 1] - at[0, -1] - at[1, 1] - at[1, -1] + 2 * at[0, 0]
        curvature[:, 0, 1] = curvature[:, 1, 0] = -mixed / (2 * _APART**2)
    return gradient, curvature


def _moves(unit: Array) -> list[tuple[tuple[Any, int], Array]]:
    ways: list[tuple[tuple[Any, int], Array]] = [((0, 0), 0.0 * unit[0])]
    ways += [((j, sign), sign * move) for j, move in enumerate(unit) for sign in (1, -1)]
    return ways + [(("both", sign), sign * unit.sum(axis=0)) for sign in (1, -1) if len(unit) == 2]


def _intervals(name: str, fitted: Array, samples: Array, ended: Flags) -> dict[str, tuple[float, float]]:
    """Return intervals of 95 % from the curvature of the likelihood in the logarithms of parameters.

    The scale of a Pareto law converges faster than its power, so its mean has the ends that the power gives it.
    """
    names, width = FAMILIES[name].parameters, stats.norm.ppf(0.975)
    if name == "pareto":
        mean, alpha = fitted[0]
        shortest = mean * (alpha - 1.0) / alpha
        low, high = alpha * np.exp(np.array([-width, width]) / np.sqrt(ended.sum()))
        return {
            "mean": (shortest * high / (high - 1.0), shortest * low / (low - 1.0) if low > 1.0 else np.inf),
            "alpha": (low, high),
        }
    with np.errstate(all="ignore"):
        _, curvature = _derivatives(name, np.log(fitted), samples, ended)
        deviations = np.sqrt(np.diag(np.linalg.pinv(curvature[0])))
    ends = np.exp(np.log(fitted[0]) + width * np.outer([-1.0, 1.0], deviations))
    return {one: (float(low), float(high)) for one, low, high in zip(names, *ends, strict=True)}


def _distances(law: Any, samples: Array, ended: Flags) -> Array:
    """Return the largest distance of each row's Kaplan-Meier estimate from the law."""
    ordered, happened, before, after = survival(samples, ended)
    levels = law.sf(ordered)
    apart = np.maximum(np.abs(levels - before), np.abs(levels - after))
    return np.asarray(np.where(happened, apart, 0.0).max(axis=1))
