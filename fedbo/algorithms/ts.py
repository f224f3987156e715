"""Thompson sampling: every agent alone, maximising a draw from its own Gaussian process (FTS with p_t = 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Lt

from fedbo.algorithms.base import Array, Decision, Inbound, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components import several, surrogate
from fedbo.algorithms.components.coordinates import FEW, LEARNED
from fedbo.algorithms.components.draw_search import SCALARISATIONS, Judge, SearchBox, best_of_draws, make_judge, unsuitable
from fedbo.algorithms.components.feature_columns import FeatureColumns, serves, shared_features
from fedbo.algorithms.components.inner_search import maximise_draw, maximise_typed_draw, projected
from fedbo.algorithms.components.local_only import LocalOnly
from fedbo.algorithms.components.several import Several, scoped
from fedbo.algorithms.components.several_models import fitted, standard_units, unclipped, with_fits
from fedbo.algorithms.components.surrogate import SUITED, LocalState, Surrogate, first_point
from fedbo.algorithms.components.typed_coordinates import region
from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check
from fedbo.settings.records import changed
from fedbo.surrogates.draws import Draw, WeightSpace, compiled_surface, message_function, posterior_draw, weight_space_draw
from fedbo.surrogates.gp import POWERS
from fedbo.surrogates.kernels import LengthScale
from fedbo.surrogates.linear import (
    Models,
    Observations,
    draw_one,
    draw_weights,
    feature_rows,
    linear_model,
    mean,
    normals_for,
    scaled_values,
    update,
)
from fedbo.surrogates.posterior import mean as mean_at
from fedbo.surrogates.trust_region import box, side, within

DRAWS = ("pathwise", "weights")
REGIONS = ("trust", "cube")


@dataclass(frozen=True, slots=True)
class TS(Surrogate, LocalOnly):
    """Thompson sampling on a Gaussian process; `Surrogate` has the settings that are not named here.

    surrogate: also "features", a Bayesian linear model on `features` random features of the kernel of "fixed". All agents share
      them, and it costs least.
    region: "trust" maximises a draw in a trust region around the best point where there are more than two inputs (Eriksson et
      al. 2019), except with "features" or several objectives; "cube" searches everywhere.
    draw: "pathwise", from the exact posterior, or "weights", with `features` fresh random features as in the papers.
    beta: scales the posterior's standard deviation in the draw (beta_t of Dai et al. 2020, Alg. 1 line 4); "theoretical" is the
      value of their Theorem 1.
    norm, delta: RKHS norm and failure probability of Theorem 1.
    scalarise: how draws of several objectives are compared. "hypervolume" maximises min_i (f_i - r_i) / w_i over the references
      r (Golovin and Zhang 2020), "chebyshev" the augmented Chebyshev function of ParEGO, each with weights w drawn for every
      decision; "pareto" takes the point of the front of the draws that is farthest from evaluated ones (qPOTS).
    """

    horizon_use: ClassVar[str] = ""

    surrogate: Annotated[str, OneOf((*SUITED, "features"))] = "suited"
    coordinates: Annotated[str, OneOf(LEARNED)] = "learned"
    region: Annotated[str, OneOf(REGIONS)] = "trust"
    """Where a draw is maximised: a trust region, or the cube."""
    draw: Annotated[str, OneOf(DRAWS)] = "pathwise"
    """Pathwise draws from the exact posterior, or fresh random features."""
    features: Annotated[int, Ge(1)] = 200
    """Random features of a draw, or of the surrogate features."""
    beta: float | str = 1.0
    """Factor on the posterior's standard deviation."""
    norm: Annotated[float, Ge(0)] = 1.0
    """RKHS norm B of the theoretical beta_t."""
    delta: Annotated[float, Gt(0), Lt(1)] = 0.1
    """Failure probability of the theoretical beta_t."""
    scalarise: Annotated[str, OneOf(SCALARISATIONS)] = "hypervolume"
    """How draws of several objectives become one decision."""

    def __post_init__(self) -> None:
        check(self)
        if self.beta != "theoretical" and (isinstance(self.beta, str) or not self.beta > 0):
            raise SettingError("beta", 'must be above 0, or "theoretical"', repr(self.beta))

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        """Start without observations."""
        if several.is_several(problem):
            return several.begin(problem, lambda alone: self.agent_init(alone, streams))
        state = self.begin(problem)
        if self.surrogate != "features":
            return state
        shared = shared_features(streams, problem.dim, self.features, self.length_scale)
        return changed(state, shared=shared)

    def ask(self, state: Any, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Any]:
        """Maximise a draw from the posterior; replace an evaluated point by a uniform one."""
        if isinstance(state, Several):
            return self._ask_of_several(state, streams)
        if not len(state.u):
            return Decision(first_point(state, streams), "own"), state
        known = self.fit(state.cautious(), streams)
        if known.shared is not None:
            return self._ask_on_features(state, known, streams)
        seen = self.seen(known)
        decision = self.chosen(self._maximum(self.function(seen, streams), seen, streams), known, streams)
        return decision, state.fitted_by(known)

    def _ask_on_features(self, state: LocalState, known: LocalState, streams: Streams) -> tuple[Decision, LocalState]:
        """Decide by the surrogate "features", given what is `known` in this state."""
        assert known.shared is not None
        # The factor of points under way or failed is not kept: observations may come in another order, or not at all.
        passing = known.waiting is not None or known is not state
        omega, factor = self.weights(known, streams, keep=not passing)
        u = maximise_draw(message_function(known.shared, omega), known, self.coordinates, streams)
        kept = state if passing or factor is known.factor else state.grown(factor)
        return self.fresh(u, known, streams, "own"), kept

    def weights(self, state: LocalState, streams: Streams, keep: bool = True) -> tuple[Array, Array | None]:
        """Draw the weights `(m,)` of f_t ~ GP(mu, beta_t^2 sigma^2); return them with the factor to `keep` if any."""
        assert state.shared is not None
        rng, beta = streams.rng("own draw"), self._beta(state)
        if not keep:  # which costs half of what a root does that is made anew
            x, y, factor = self._observed(state)
            return draw_weights(feature_rows(state.shared, x), y, self.noise, rng, beta, factor), None
        models = Models(state.shared, self.noise, self.clip, self.standardise)
        normals = rng.standard_normal(int(normals_for(np.array(len(state.y)), self.features)))
        omega, _, factor = draw_one(models, Observations(state.u, state.y, state.factor), beta, normals)
        return omega, factor

    def columns(self, problem: Problem, streams: Streams) -> FeatureColumns | None:
        """Keep the states of many agents as arrays, with the surrogate "features"."""
        if several.is_several(problem) or not serves(self, problem):
            return None
        return FeatureColumns(self, problem, streams)

    def _maximum(self, draw: Draw, state: LocalState, streams: Streams) -> Array:
        """Return the point `(d,)`, in coordinates, where a draw is largest, in the cube or the trust region."""
        # The incumbents of a smooth draw are not worth the climb: its candidates are dense enough.
        extra = None if self.surrogate == "features" else state.u
        anywhere = self.region == "cube" or state.dim <= FEW or extra is None
        if state.lattice is not None and state.axes is not None:
            space = projected(state, state.axes)
            if not anywhere:
                low, high = region(*self._region(state), state.lattice)
                space = space._replace(low=low, high=high)
            return maximise_typed_draw(draw, state, space, streams)
        if anywhere or state.lattice is not None:
            return maximise_draw(draw, state, state.axes or self.coordinates, streams, extra)
        low, high = box(*self._region(state))
        starts = np.clip((state.u - low) / (high - low), 0.0, 1.0)
        return low + (high - low) * maximise_draw(within(draw, low, high), state, self.coordinates, streams, starts)

    def _region(self, state: LocalState) -> tuple[Array, float, LengthScale]:
        """Return the centre, the side and the length scales of the trust region."""
        posterior = self.posterior(changed(state, waiting=None))
        centre = state.u[int(mean_at(posterior, state.u).argmax())]
        observed = state.y[: len(state.y) - state.supposed]  # in the order in which they were made
        return centre, side(observed, state.dim), posterior.hyper.length_scale

    def fit(
        self, state: LocalState, streams: Streams, along: LocalState | None = None, powers: Sequence[float] = POWERS
    ) -> LocalState:
        """Refit the hyperparameters when enough observations have arrived."""
        return state if self.surrogate == "features" else Surrogate.fit(self, state, streams, along, powers)

    def function(self, state: LocalState, streams: Streams) -> Draw:
        """Draw a function f_t ~ GP(mu, beta_t^2 sigma^2) in the surrogate's coordinates."""
        if state.shared is not None:
            return message_function(state.shared, self.weights(state, streams, keep=state.waiting is None)[0])
        assert state.hyper is not None
        beta, rng = self._beta(state), streams.rng("own draw")
        u, y = self.supposed(state)
        if self.draw == "weights":
            return weight_space_draw(state.hyper, u, y, rng, WeightSpace(self.features, beta))
        return posterior_draw(state.hyper, u, y, rng, self.features, beta)

    def _observed(self, state: LocalState) -> Observations:
        """Return the points `(n + p, d)` and scaled values `(n + p,)`, with supposed values for pending points."""
        assert state.shared is not None
        y = scaled_values(state.y, self.clip, self.standardise)
        if state.waiting is None or self.pending_values == "ignore":
            return Observations(state.u, y, state.factor)
        if self.pending_values == "constant_liar":
            supposed = np.full(len(state.waiting), y.min())
        else:
            model = update(linear_model(self.features, self.noise), feature_rows(state.shared, state.u), y)
            supposed = feature_rows(state.shared, state.waiting) @ mean(model)
        return Observations(np.concatenate([state.u, state.waiting]), np.concatenate([y, supposed]), state.factor)

    def _beta(self, state: LocalState) -> float:
        return self.theoretical_beta(state) if isinstance(self.beta, str) else self.beta

    def theoretical_beta(self, state: LocalState) -> float:
        """Compute beta_t = B + sigma sqrt(2 (gamma_{t-1} + 1 + log(4 / delta))) (Dai et al. 2020, Theorem 1).

        gamma is the information gain of the observed points, which can be computed, rather than its upper bound.
        """
        if state.shared is not None:
            rows = feature_rows(state.shared, state.u)
            gram, noise = rows @ rows.T, self.noise
        else:
            assert state.hyper is not None
            gram, noise = state.hyper.kernel(state.u, state.u), state.hyper.noise_variance
        gamma = 0.5 * float(np.linalg.slogdet(gram / noise + np.eye(len(gram)))[1])
        return self.norm + math.sqrt(noise * 2 * (gamma + 1 + math.log(4 / self.delta)))

    def _ask_of_several(self, state: Several, streams: Streams) -> tuple[Decision, Several]:
        """Find the best point of one draw from the posterior of each metric."""
        if not all(len(each.u) for each in state.states):
            return Decision(first_point(state.states[0], streams), "own"), state
        own, known = unclipped(self), fitted(unclipped(self), state, streams)
        seen, units = [own.seen(each) for each in known], standard_units(own, state, known)
        judge = make_judge(self.scalarise, state, units, streams)
        draws = [own._standard_draw(each, scoped(streams, metric)) for metric, each in enumerate(seen)]
        complete = units[0][state.complete]
        u = best_of_draws(draws, judge, own._room(seen, judge, complete), seen[0].taken, streams)
        return own.chosen(u, known[0], streams), state._replace(states=with_fits(state.states, known))

    def _standard_draw(self, state: LocalState, streams: Streams) -> Callable[[Array], Array]:
        """Draw a function of points `(n, e)`, in units of the standardised model."""
        draw = self.function(state, streams)
        if state.hyper is not None:
            draw = draw._replace(
                offset=(draw.offset - state.hyper.offset) / state.hyper.scale, scale=draw.scale / state.hyper.scale
            )
        return compiled_surface(draw, state.u.shape[1])[0]

    def _room(self, seen: Sequence[LocalState], judge: Judge, complete: Array) -> SearchBox:
        """Return where draws of several metrics are searched: the cube, or a trust region about the best point by the means."""
        first = seen[0]
        low, high = np.zeros(first.u.shape[1]), np.ones(first.u.shape[1])
        space = None if first.lattice is None else projected(first, first.axes or self.coordinates)
        # About one point of a front, a region would leave the others out.
        anywhere = self.region == "cube" or first.dim <= FEW or self.surrogate == "features" or len(judge.weights) > 1
        if anywhere or (space is not None and first.axes is None):
            return SearchBox(low, high, space)
        posteriors = [self.posterior(changed(each, waiting=None)) for each in seen]
        means = np.column_stack([mean_at(each, first.u) for each in posteriors])
        centre, length = first.u[int(judge.merits(means).argmax())], side(judge.merits(complete), first.dim)
        scales = [np.broadcast_to(np.asarray(each.hyper.length_scale), low.shape) for each in posteriors]
        common = tuple(np.exp(np.log(scales).mean(axis=0)).tolist())
        if space is not None and first.lattice is not None:
            low, high = region(centre, length, common, first.lattice)
            return SearchBox(low, high, space._replace(low=low, high=high))
        return SearchBox(*box(centre, length, common))

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
        return unsuitable(self.scalarise, problem)


FAITHFUL = {**surrogate.FAITHFUL, "region": "cube", "draw": "weights", "features": 200, "beta": 1.0}

ALGORITHMS = {
    "ts": Entry(TS, presets={"faithful": FAITHFUL}, summary="Thompson sampling on a Gaussian process, without communication")
}
