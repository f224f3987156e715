"""The goodness of fit of a family of durations: the Kolmogorov-Smirnov distance, with a parametric bootstrap.

With estimated parameters, the distance is smaller than the tables for known ones state. So the bootstrap draws many samples
from the fitted family, fits them again, and compares their distances (Stute et al. 1993). The drawn samples are transformed
like the measured one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.lab.twins.families import FAMILIES

Array = npt.NDArray[np.float64]
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
