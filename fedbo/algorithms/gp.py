"""Bayesian optimisation with a Gaussian process, every agent alone: expected improvement and upper confidence bound.

Choices by cost use a model of the logarithm of costs, from those of the evaluated points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from fedbo.algorithms.base import Array, Decision, Inbound, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components import several, surrogate
from fedbo.algorithms.components.coordinates import LEARNED, from_coordinates
from fedbo.algorithms.components.inner_search import maximise_acquisition, maximise_posterior
from fedbo.algorithms.components.local_only import LocalOnly
from fedbo.algorithms.components.several import Several
from fedbo.algorithms.components.several_models import improve, unsuitable_for_improvement
from fedbo.algorithms.components.surrogate import KEPT, SUITED, LocalState, Surrogate, first_point, settings_of_typed
from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import (
    Criterion,
    expected_improvement,
    gittins_index,
    improvement_per_cost,
    prediction,
    upper_confidence_bound,
)
from fedbo.surrogates.gp import ROBUST, SCALED, Posterior, condition, fit_gp, representatives
from fedbo.surrogates.posterior import observed_means

INCUMBENTS = ("mean", "observed")
SEARCHES = ("climb", "newton")
COSTS = ("ignored", "per_cost", "pbgi")
STOP = "stop: no evaluation is worth its cost"


@dataclass(frozen=True, slots=True)
class GP(Surrogate, LocalOnly):
    """Bayesian optimisation; `Surrogate` has the settings of the Gaussian process.

    `acquisition` is "ei", expected improvement (Mockus 1978; Jones et al. 1998) over the `incumbent`, which is the largest
    posterior "mean" at an evaluated point, as suits noisy values, or the largest "observed" value; or "ucb", mean plus `beta`
    standard deviations (Srinivas et al. 2010). `search` "climb" climbs it by L-BFGS-B, for the improvement its logarithm (Ament
    et al. 2023), from candidates everywhere and near the best points; "newton" by Newton's method from candidates everywhere.

    With bounds on metrics, gp_ei adds the logarithms of the probabilities that they are kept; before the first feasible point
    it takes the most probable one. With two objectives it maximises the expected improvement of the hypervolume.

    `cost` "pbgi" chooses by the Pandora's box Gittins index (Xie et al. 2024): the value g over which the expected improvement
    is `price` times the cost. A decision whose index is not above the incumbent has the note "stop: ..." (Xie et al. 2025), and
    with `stop` is the agent's last. "per_cost" divides the expected improvement by the cost. Costs are predicted from those of
    the evaluated points.
    """

    horizon_use: ClassVar[str] = ""

    surrogate: Annotated[str, OneOf(SUITED)] = "warped"
    coordinates: Annotated[str, OneOf(LEARNED)] = "learned"
    refit: Annotated[int, Ge(1)] = 1
    acquisition: Annotated[str, OneOf(("ei", "ucb"))] = "ei"
    """Acquisition function, fixed by the algorithm's name."""
    incumbent: Annotated[str, OneOf(INCUMBENTS)] = "mean"
    """Reference of the improvement: largest posterior mean, or largest observation."""
    beta: Annotated[float, Ge(0)] = 2.0
    """Standard deviations of the upper confidence bound."""
    search: Annotated[str, OneOf(SEARCHES)] = "climb"
    """Maximisation: L-BFGS-B from many starts, or Newton's method."""
    cost: Annotated[str, OneOf(COSTS)] = "ignored"
    """Use of the costs that the objective reports: none, improvement per cost, or Gittins index."""
    price: Annotated[float, Gt(0)] = 1e-3
    """With pbgi, the improvement that one unit of cost is worth."""
    stop: bool = False
    """With pbgi, end with the first decision that is not worth its cost."""

    def __post_init__(self) -> None:
        Surrogate.__post_init__(self)
        if self.cost != "ignored" and self.acquisition != "ei":
            raise SettingError("cost", 'requires expected improvement; use gp_ei, or set cost = "ignored"', self.cost)
        if self.stop and self.cost != "pbgi":
            raise SettingError("stop", 'compares Gittins indices; set cost = "pbgi", or false', self.stop)

    @property
    def needs_costs(self) -> bool:
        """Return whether costs are used."""
        return self.cost != "ignored"

    def costing(self, state: LocalState, cost: Callable[[Array], Array]) -> LocalState:
        """Record the costs of the evaluated points."""
        return changed(state, costs=priced(state, self.coordinates, cost))

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        """Start without observations."""
        return several.begin(problem, self.begin) if several.is_several(problem) else self.begin(problem)

    def ask(self, state: Any, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Any]:
        """Maximise the acquisition; replace an evaluated point by a uniform one."""
        if isinstance(state, Several):
            return improve(self, state, streams, self.incumbent)
        if not len(state.u):
            return Decision(first_point(state, streams), "own"), state
        known = self.fit(state.cautious(), streams)
        seen = self.seen(known)
        if self.needs_costs:
            return self._by_cost(known, seen, streams), state.fitted_by(known)
        decision = self.chosen(self._maximum(self.posterior(seen), seen, streams), known, streams)
        return decision, state.fitted_by(known)

    def _by_cost(self, known: LocalState, seen: LocalState, streams: Streams) -> Decision:
        """Choose by costs; `seen` are the observations in the coordinates of the surrogate."""
        costs = cost_model(seen, from_coordinates(known.u, self.coordinates), streams)
        posterior = self.posterior(seen)
        best = incumbent(posterior, self.incumbent, min(len(seen.u), KEPT))
        index = by_index(posterior, costs, self.price / self.unit(seen))
        function = index if self.cost == "pbgi" else per_cost(posterior, costs, best)
        u = maximise_acquisition(function, seen, seen.axes or self.coordinates, streams)
        decision = self.chosen(u, known, streams)
        stops = self.cost == "pbgi" and float(index(np.atleast_2d(u))[0][0]) <= best
        return decision._replace(note=STOP, last=self.stop) if stops else decision

    def _maximum(self, posterior: Posterior, state: LocalState, streams: Streams) -> Array:
        """Return the point `(d,)`, in coordinates, where the acquisition is largest."""
        # Expectations at points under way count too: else one that promises much would be chosen again.
        coordinates = state.axes or self.coordinates
        best = incumbent(posterior, self.incumbent, min(len(state.u), KEPT) if self.search == "newton" else len(posterior.x))
        if self.search == "climb":
            criterion = Criterion(best) if self.acquisition == "ei" else Criterion(self.beta, bounding=True)
            return maximise_posterior(posterior, criterion, state, coordinates, streams)

        def acquisition(u: Array) -> tuple[Array, Array]:
            at = prediction(posterior, u)
            return expected_improvement(at, best) if self.acquisition == "ei" else upper_confidence_bound(at, self.beta)

        return maximise_acquisition(acquisition, state, coordinates, streams)

    def pending(self, state: Any, x: Array) -> Any:
        """Record the points that are being evaluated."""
        return several.noting(state, x, self.noting) if isinstance(state, Several) else self.noting(state, x)

    def avoiding(self, state: Any, x: Array) -> Any:
        """Record the points whose evaluations failed."""
        return several.avoiding(state, x, self.noting_failed) if isinstance(state, Several) else self.noting_failed(state, x)

    def tell(self, state: LocalState, x: Array, y: Array) -> LocalState:
        """Append the observations."""
        return self.observed(state, x, y)

    def tell_outcomes(self, state: Several, x: Array, values: Array, margins: Array) -> Several:
        """Append the metrics of each evaluation."""
        return several.told(state, x, np.hstack([values, margins]), self.tell, self.noting_failed)

    def handles(self, problem: Problem) -> str:
        """Return why the settings do not suit the objectives and bounds of a problem; empty where they do."""
        if self.acquisition != "ei" or self.search != "climb":
            return "an upper confidence bound and search = 'newton' are for one objective without bounds; use 'gp_ei' or 'ts'"
        if self.cost != "ignored":
            return "costs are weighed for one objective without bounds; set cost = 'ignored'"
        return unsuitable_for_improvement(problem)


def incumbent(posterior: Posterior, kind: str, seen: int) -> float:
    """Return the value to improve on: the largest posterior "mean" at the first `seen` points, or value "observed"."""
    values = posterior.y if kind == "observed" else observed_means(posterior)
    return float(values[:seen].max())


Acquisition = Callable[[Array], tuple[Array, Array]]


def priced(state: LocalState, coordinates: str, cost: Callable[[Array], Array]) -> Array:
    """Return the costs `(n + f,)` of an agent's observed points and then of those that failed."""
    points = state.u if state.failed is None else np.concatenate([state.u, state.failed])
    return cost(from_coordinates(points, coordinates)) if len(points) else np.empty(0)


def cost_model(state: LocalState, x: Array, streams: Streams) -> Posterior:
    """Fit a process to the logarithms of the costs of the evaluated points.

    The points of the state are in the coordinates of a surrogate, `x (n, d)` are the same in the unit cube.
    """
    if state.costs is None:
        raise SettingError("cost", 'requires an objective that reports costs; set cost = "ignored"')
    settings = ROBUST if state.lattice is None else settings_of_typed(SCALED, x, state.lattice)
    u = state.u if state.failed is None else np.concatenate([state.u, state.failed])
    values = np.append(state.y, np.full(len(u) - len(state.y), -np.inf))
    rows = representatives(u, values, KEPT)  # those of the surrogate, since a decision weighs both models near the best point
    u, y = u[rows], np.log(state.costs)[rows]
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


ALGORITHMS = {
    "gp_ei": Entry(
        GP,
        {"acquisition": "ei", "beta": 2.0},
        {"faithful": {**surrogate.FAITHFUL, "incumbent": "observed", "search": "newton"}},
        "Bayesian optimisation with expected improvement, without communication",
    ),
    "gp_ucb": Entry(
        GP,
        {"acquisition": "ucb", "incumbent": "mean"},
        {"faithful": {**surrogate.FAITHFUL, "search": "newton"}},
        "Bayesian optimisation with an upper confidence bound, without communication",
    ),
}
