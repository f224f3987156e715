"""Bayesian optimisation with a Gaussian process, every agent alone: expected improvement and upper confidence bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from fedbo.algorithms.base import Array, Decision, Inbound, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components import surrogate
from fedbo.algorithms.components.inner_search import maximise_acquisition
from fedbo.algorithms.components.local_only import LocalOnly
from fedbo.algorithms.components.surrogate import LocalState, Surrogate, evaluable
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf
from fedbo.surrogates.acquisition import expected_improvement, prediction, upper_confidence_bound
from fedbo.surrogates.gp import Posterior, predict
from fedbo.surrogates.maximise import MaximiserSettings

INCUMBENTS = ("mean", "observed")
# An acquisition costs far more than a draw: fewer candidates, fewer climbs.
SEARCH = MaximiserSettings(spacing=1.6, starts=8, iterations=20)


@dataclass(frozen=True, slots=True)
class GP(Surrogate, LocalOnly):
    """Bayesian optimisation; `Surrogate` has the settings of the Gaussian process.

    `acquisition` is "ei", expected improvement (Mockus 1978; Jones et al. 1998) over the `incumbent`, which is the largest
    posterior "mean" at an evaluated point, as suits noisy values, or the largest "observed" value; or "ucb", mean plus `beta`
    standard deviations (Srinivas et al. 2010).
    """

    acquisition: Annotated[str, OneOf(("ei", "ucb"))] = "ei"
    incumbent: Annotated[str, OneOf(INCUMBENTS)] = "mean"
    beta: Annotated[float, Ge(0)] = 2.0

    def agent_init(self, problem: Problem, streams: Streams) -> LocalState:
        """Begin without observations."""
        return self.begin(problem)

    def ask(self, state: LocalState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, LocalState]:
        """Maximise the acquisition; a point that has been evaluated already gives way to a uniform one."""
        dim = state.u.shape[1]
        if not len(state.u):
            return Decision(evaluable(state, streams.rng("first point").random((1, dim))), "own"), state
        state = self.fit(state, streams)
        posterior = self.posterior(state)
        best = incumbent(posterior, self.incumbent, len(state.u))

        def acquisition(u: Array) -> tuple[Array, Array]:
            at = prediction(posterior, u)
            return expected_improvement(at, best) if self.acquisition == "ei" else upper_confidence_bound(at, self.beta)

        u = maximise_acquisition(acquisition, state, self.coordinates, streams, SEARCH)
        return self.fresh(u, state, streams, "own"), state

    def pending(self, state: LocalState, x: Array) -> LocalState:
        """Take note of the points that are being evaluated."""
        return self.noting(state, x)

    def tell(self, state: LocalState, x: Array, y: Array) -> LocalState:
        """Append the observations."""
        return self.observed(state, x, y)


def incumbent(posterior: Posterior, kind: str, seen: int) -> float:
    """Give the value to improve on, the largest of the posterior's "mean" at the `seen` points or of those "observed"."""
    values = posterior.y[:seen] if kind == "observed" else predict(posterior, posterior.x[:seen])[0]
    return float(values.max())


ALGORITHMS = {
    "gp_ei": Entry(
        GP,
        {"acquisition": "ei", "beta": 2.0},
        {"faithful": {**surrogate.FAITHFUL, "incumbent": "observed"}},
        "Bayesian optimisation with expected improvement, every agent alone",
    ),
    "gp_ucb": Entry(
        GP,
        {"acquisition": "ucb", "incumbent": "mean"},
        {"faithful": surrogate.FAITHFUL},
        "Bayesian optimisation with an upper confidence bound, every agent alone",
    ),
}
