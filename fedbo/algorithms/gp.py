"""Bayesian optimisation with a Gaussian process, every agent alone: expected improvement and upper confidence bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge

from fedbo.algorithms.base import Array, Decision, Inbound, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components import several, surrogate
from fedbo.algorithms.components.coordinates import LEARNED
from fedbo.algorithms.components.inner_search import maximise_acquisition, maximise_posterior
from fedbo.algorithms.components.local_only import LocalOnly
from fedbo.algorithms.components.several import Several
from fedbo.algorithms.components.several_improvement import improve, unsuitable_for_improvement
from fedbo.algorithms.components.surrogate import SUITED, LocalState, Surrogate, first_point
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf
from fedbo.surrogates.acquisition import Criterion, expected_improvement, prediction, upper_confidence_bound
from fedbo.surrogates.gp import Posterior, predict
from fedbo.surrogates.maximise import MaximiserSettings

INCUMBENTS = ("mean", "observed")
SEARCHES = ("climb", "newton")
# An acquisition costs far more than a draw: fewer candidates, fewer climbs.
SEARCH = MaximiserSettings(spacing=1.6, starts=8, iterations=20)


@dataclass(frozen=True, slots=True)
class GP(Surrogate, LocalOnly):
    """Bayesian optimisation; `Surrogate` has the settings of the Gaussian process.

    `acquisition` is "ei", expected improvement (Mockus 1978; Jones et al. 1998) over the `incumbent`, which is the largest
    posterior "mean" at an evaluated point, as suits noisy values, or the largest "observed" value; or "ucb", mean plus `beta`
    standard deviations (Srinivas et al. 2010). `search` "climb" climbs it by L-BFGS-B, for the improvement its logarithm (Ament
    et al. 2023), from candidates everywhere and near the best points; "newton" by Newton's method from candidates everywhere.

    With bounds on metrics, gp_ei adds the logarithms of the probabilities that they are kept; before the first feasible point
    it takes the most probable one. With two objectives it maximises the expected improvement of the hypervolume.
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
        decision = self.chosen(self._maximum(self.posterior(seen), seen, streams), known, streams)
        return decision, state.fitted_by(known)

    def _maximum(self, posterior: Posterior, state: LocalState, streams: Streams) -> Array:
        """Return the point `(d,)`, in coordinates, where the acquisition is largest."""
        # What is expected of points under way counts too: one that promises much would be chosen again else.
        coordinates = state.axes or self.coordinates
        best = incumbent(posterior, self.incumbent, len(state.u if self.search == "newton" else posterior.x))
        if self.search == "climb":
            criterion = Criterion(best) if self.acquisition == "ei" else Criterion(self.beta, bounding=True)
            return maximise_posterior(posterior, criterion, state, coordinates, streams)

        def acquisition(u: Array) -> tuple[Array, Array]:
            at = prediction(posterior, u)
            return expected_improvement(at, best) if self.acquisition == "ei" else upper_confidence_bound(at, self.beta)

        return maximise_acquisition(acquisition, state, coordinates, streams, SEARCH)

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
        return unsuitable_for_improvement(problem)


def incumbent(posterior: Posterior, kind: str, seen: int) -> float:
    """Return the value to improve on: the largest posterior "mean" at the first `seen` points, or value "observed"."""
    values = posterior.y[:seen] if kind == "observed" else predict(posterior, posterior.x[:seen])[0]
    return float(values.max())


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
