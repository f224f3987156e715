"""The possible gain of agents from each other: own best points, the best common point, a random one, and their similarity.

The objectives are evaluated without noise, at common points and near the best of these; nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.algorithms.streams import Streams
from fedbo.objectives.base import Objective
from fedbo.objectives.derived.mean import BatchFunction
from fedbo.objectives.outcome import value_of
from fedbo.objectives.space import from_unit
from fedbo.objectives.typed_spaces.typed import lattice_of
from fedbo.study.study import Study

Array = npt.NDArray[np.float64]
REPLICATES = 3  # of those whose objectives differ; more would only narrow the means
KEPT, BOXES, SHRINK = 4, 12, 0.6  # the search goes on about so many points, in so many boxes, each smaller by this factor


@dataclass(frozen=True, slots=True)
class Gain:
    """Values to be maximised, as means over targets and replicates.

    - `random`: the value of a random point.
    - `common`: the value of the point that is best for the mean of all targets.
    - `own`: the value of each target's own best point. Both best points are the best found, or known.
    - `alike`: the mean rank correlation of two targets at common points; `least` and `most`: its extremes over pairs; NaN with
      a single target.
    - `points`: the number of evaluations of a target.
    """

    random: float
    common: float
    own: float
    alike: float
    least: float
    most: float
    targets: int
    points: int

    @property
    def share(self) -> float:
        """Return how far the common point goes from a random point (0) to the own best point (1); NaN without a difference."""
        way = self.own - self.random
        return (self.common - self.random) / way if way > 0.0 else float("nan")


def estimate_gain(study: Study, points: int) -> Gain:
    """Evaluate the targets of a study without a sweep at `points` points each, and at about as many more to find the best."""
    replicates = min(REPLICATES, study.study.replicates) if study.federation().random_per_replicate else 1
    found = [_of_replicate(study, replicate, points) for replicate in range(replicates)]
    random, common, own, alike = (float(mean) for mean in np.mean([each[:4] for each in found], axis=0))
    least, most = min(each[4] for each in found), max(each[5] for each in found)
    return Gain(random, common, own, alike=alike, least=least, most=most, targets=len(study.targets), points=int(found[0][6]))


def _of_replicate(study: Study, replicate: int, points: int) -> tuple[float, ...]:
    """Return random, common and own, the mean, least and largest correlation, and the number of points."""
    federation, streams = study.federation(), Streams(study.study.seed, replicate)
    objectives = [
        federation.objective(agent, streams.shared("objective"), streams.of(agent).rng("objective")) for agent in study.targets
    ]
    lattice, parameters = lattice_of(federation), federation.parameters

    def values(u: Array) -> Array:
        """Return the values `(k, n)` of all targets at points of the unit cube."""
        x = from_unit(parameters, lattice.project(u) if lattice else u)
        return np.array([_values(objective, x) for objective in objectives])

    rng = streams.rng("gain")
    u = rng.random((points, len(parameters)))
    seen = values(u)
    about = max(1, points // (KEPT * BOXES))
    common, tried = _searched(lambda near: values(near).mean(axis=0), (u, seen.mean(axis=0)), about, rng)
    known = getattr(federation, "mean_best", None) if len(objectives) == federation.n_agents else None
    common = common if known is None else max(common, float(known[0]))
    own = np.array([_own(objective, one) for objective, one in zip(objectives, np.hstack([seen, values(tried)]), strict=True)])
    with np.errstate(invalid="ignore", divide="ignore"):  # of a constant function there is no correlation: NaN
        ranks = np.corrcoef(np.array([scipy.stats.rankdata(one) for one in seen])) if len(seen) > 1 else np.ones((1, 1))
    pairs = ranks[np.triu_indices(len(seen), 1)]
    pairs = pairs if len(pairs) else np.array([np.nan])
    return (
        float(seen.mean()),
        common,
        float(own.mean()),
        float(pairs.mean()),
        float(pairs.min()),
        float(pairs.max()),
        points + len(tried),
    )


def _searched(
    function: Callable[[Array], Array], start: tuple[Array, Array], about: int, rng: np.random.Generator
) -> tuple[float, Array]:
    """Search near the best points in ever smaller boxes; return the largest value and all tried points `(n, d)`."""
    top = np.argsort(-start[1], kind="stable")[:KEPT]
    centres, best, reach, tried = start[0][top], start[1][top], 0.25, list[Array]()
    for _ in range(BOXES):
        cloud = centres[:, None] + reach * rng.uniform(-1.0, 1.0, (len(centres), about, centres.shape[1]))
        near = np.clip(cloud, 0.0, 1.0).reshape(-1, centres.shape[1])
        found = function(near).reshape(len(centres), about)
        better, place = found.max(axis=1) > best, found.argmax(axis=1)
        centres = np.where(better[:, None], near.reshape(len(centres), about, -1)[np.arange(len(centres)), place], centres)
        best, reach = np.maximum(best, found.max(axis=1)), SHRINK * reach
        tried.append(near)
    return float(best.max()), np.concatenate(tried)


def _values(objective: Objective, x: Array) -> Array:
    if isinstance(objective, BatchFunction):
        return np.asarray(objective.scores(x), dtype=np.float64)
    return np.array([_noise_free(objective, one) for one in x])


def _noise_free(objective: Objective, x: Array) -> float:
    score = objective.score(x)
    return value_of(objective.evaluate(x, np.random.default_rng(0))) if score is None else score


def _own(objective: Objective, seen: Array) -> float:
    """Return the best known value of an agent."""
    known = objective.best_value
    return float(seen.max()) if known is None else max(known, float(seen.max()))
