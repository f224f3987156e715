"""Choices by cost: a model of the logarithm of costs, from those of the evaluated points, and acquisitions that use it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedbo.algorithms.base import Array
from fedbo.algorithms.components.coordinates import from_coordinates
from fedbo.algorithms.components.surrogate import LocalState, settings_of_typed
from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import SettingError
from fedbo.surrogates.acquisition import gittins_index, improvement_per_cost, prediction
from fedbo.surrogates.gp import ROBUST, SCALED, Posterior, condition, fit_gp

Acquisition = Callable[[Array], tuple[Array, Array]]


def priced(state: LocalState, coordinates: str, cost: Callable[[Array], Array]) -> Array:
    """Return the costs `(n + f,)` of an agent's observed points and then of those that failed."""
    points = state.u if state.failed is None else np.concatenate([state.u, state.failed])
    return cost(from_coordinates(points, coordinates)) if len(points) else np.empty(0)


def cost_model(state: LocalState, x: Array, streams: Streams) -> Posterior:
    """Fit a process to the logarithms of the costs of the evaluated points.

    The points of the state are in the coordinates of a surrogate, `x (n, d)` are the same in the unit cube.
    """
    u = state.u if state.failed is None else np.concatenate([state.u, state.failed])
    if state.costs is None:
        raise SettingError("cost", 'requires an objective that reports costs; set cost = "ignored"')
    settings = ROBUST if state.lattice is None else settings_of_typed(SCALED, x, state.lattice)
    y = np.log(state.costs)
    return condition(fit_gp(u, y, settings, streams.rng("costs")), u, y)


def by_index(posterior: Posterior, costs: Posterior, unit: float) -> Acquisition:
    """Return the Gittins index for costs of `unit` in the units of the posterior; the cost is the model's median."""

    def acquisition(u: Array) -> tuple[Array, Array]:
        cost = prediction(costs, u)
        return gittins_index(prediction(posterior, u), cost.mean + np.log(unit), cost.mean_gradient)

    return acquisition


def per_cost(posterior: Posterior, costs: Posterior, best: float) -> Acquisition:
    """Return the logarithm of the expected improvement for each unit of cost; the cost is the model's median."""

    def acquisition(u: Array) -> tuple[Array, Array]:
        cost = prediction(costs, u)
        return improvement_per_cost(prediction(posterior, u), best, cost.mean, cost.mean_gradient)

    return acquisition
