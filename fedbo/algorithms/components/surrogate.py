"""The Gaussian process with which an agent models its objective: settings, state, fit, and the choice at its maximum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Lt

from fedbo.algorithms.base import Array, Decision, Origin, Problem
from fedbo.algorithms.components.coordinates import COORDINATES, FEW, beginning, distance, from_coordinates, to_coordinates
from fedbo.algorithms.components.failures import supposed_values
from fedbo.algorithms.components.typed_coordinates import columns, embedded, restored
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import Marked, OneOf
from fedbo.settings.records import changed, copied
from fedbo.surrogates.features import Features
from fedbo.surrogates.gp import (
    POWERS,
    CoordinateTrials,
    Hyperparameters,
    Posterior,
    condition,
    distances_below,
    fit_gp,
    fit_warped,
    predict,
    representatives,
    warp,
)
from fedbo.surrogates.gp_settings import FINE, ROBUST, SCALED, SMOOTH, GPSettings
from fedbo.surrogates.projected import COMBINATIONS, SAME_POINT, Lattice, ProjectedSpace

FITTED = {"robust": ROBUST, "smooth": SMOOTH, "faithful": GPSettings()}
KNOWN = (*FITTED, "fixed")
SUITED = ("suited", "warped", *KNOWN)
PENDING_VALUES = ("hallucinated", "constant_liar", "ignore")
WARPED = {"warped": SCALED, "fine": FINE}
TRIED = 3  # inputs whose coordinates are tried in a fit
COST = 10.0  # log units by which observations must be likelier in other coordinates than those to begin with
FEWEST = 10  # observations; by fewer no other coordinates were ever likelier by COST in trials
SELDOM, OFTEN = 10, 25  # a choice by n observations serves n / 10 more, and a climb n / 25
SURPRISE = 4.0  # mean square of standardised prediction errors, 1 if the model is right, above which a fit is not kept
KEPT = 256  # observations of a posterior, which costs their square for each candidate and their cube once
SPREAD = 8  # uniform points from which the first one after failures is chosen


@dataclass(slots=True)
class LocalState:
    """An agent's observations in the surrogate's coordinates, and the fit to them.

    u `(n, d)`, y `(n,)`: the observations.
    hyper, fitted: the hyperparameters, and the number of observations that they were fitted to.
    chosen: number of observations by which transformations and coordinates were chosen.
    shared: the features of the surrogate "features".
    factor: that of the first points, as `linear.draw_one` returns it, with the surrogate "features".
    lattice: which points can be evaluated, if not all.
    waiting `(p, d)`: pending points, in coordinates.
    power: power of the transform of the values, with the surrogate "warped".
    axes: learned coordinates.
    failed `(f, d)`: points whose evaluation failed.
    supposed: number of last observations that represent failed points (see `cautious`).
    costs `(n + f,)`: costs of the observed points and then of the failed ones, where a method asks for them.
    """

    u: Array
    y: Array
    hyper: Hyperparameters | None = None
    fitted: int = 0
    chosen: int = 0
    shared: Features | None = None
    factor: Array | None = None
    lattice: Lattice | None = None
    waiting: Array | None = None
    power: float = 1.0
    axes: tuple[str, ...] | None = None
    failed: Array | None = None
    supposed: int = 0
    costs: Array | None = None

    def grown(self, factor: Array | None) -> LocalState:
        """Return the state with this factor; building it from its fields needs a third of the time of `_replace`."""
        after = copied(self)
        after.factor = factor
        return after

    def cautious(self) -> LocalState:
        """Return the state to decide by: failed points are observations of supposed values (see `failures`).

        Messages are never made of it. It is the state itself without failures, without an observation, or where failures look
        like chance.
        """
        if self.failed is None or not len(self.y):
            return self
        values = supposed_values(self.u, self.y, self.failed)
        if values is None:
            return self
        u, y = np.concatenate([self.u, self.failed]), np.concatenate([self.y, values])
        return changed(self, u=u, y=y, failed=None, supposed=len(self.failed))

    def shortened(self) -> LocalState:
        """Return the state with at most `KEPT` observations, which stand for all."""
        if len(self.y) <= KEPT:
            return self
        rows = representatives(self.u, self.y, KEPT)
        return changed(self, u=self.u[rows], y=self.y[rows])

    def turned(self, turn: Callable[[Array], Array]) -> LocalState:
        """Return the state with all its points mapped by `turn` to coordinates `(n, e)`."""
        waiting, failed = (None if points is None else turn(points) for points in (self.waiting, self.failed))
        return changed(self, u=turn(self.u), waiting=waiting, failed=failed)

    def fitted_by(self, other: LocalState) -> LocalState:
        """Return the state with the fit of another one, which is this state or its `cautious` form."""
        if other.u is self.u:
            return other
        return changed(self, hyper=other.hyper, fitted=other.fitted, chosen=other.chosen, power=other.power, axes=other.axes)

    def is_near_failure(self, u: Array) -> bool:
        """Check whether the evaluated point nearest to `u (d,)` failed; False where failures look like chance."""
        known = self.cautious()
        count = len(known.y) - known.supposed
        if known.supposed:
            return distance(known.u[count:], u) < distance(known.u[:count], u)
        return known.failed is not None and not count

    @property
    def dim(self) -> int:
        """Count the inputs; categories may have several coordinates."""
        return self.u.shape[1] if self.lattice is None else len(self.lattice.levels)

    @property
    def taken(self) -> Array:
        """List the points `(n + p + f, d)` that need not be chosen again."""
        more = [points for points in (self.waiting, self.failed) if points is not None]
        return np.concatenate([self.u, *more]) if more else self.u


@dataclass(frozen=True, slots=True)
class Surrogate(Marked):
    """An agent's model of its objective.

    surrogate:
    - "robust": Matern-5/2, one length scale for each input, standardised values, priors.
    - "smooth": as "robust" with a squared exponential, and without a floor under the noise.
    - "faithful": as the authors of FTS fitted theirs.
    - "warped": as "robust", with priors that scale with the number of inputs and allow noise-free values, after a power
      transform of the values that the evidence chooses.
    - "suited": "warped", but in up to two inputs with the length scales of "robust".
    - "fixed": never fitted; a squared-exponential kernel of `length_scale` with noise variance `noise`.

    coordinates: those of the surrogate (see the module of this name). With "learned" ones, the fit of a "warped" surrogate
      tries others for one or more inputs at a time, and keeps the likelier ones.
    clip: raise values below this quantile to it, so that the surrogate resolves good values; not with "warped" length scales.
    refit: least number of observations between two fits; with many observations there are more (`_is_whole_due`).
    standardise: for "fixed", shift and scale the values to mean 0 and variance 1; otherwise it uses the values as they are.
    pending_values: "hallucinated" gives pending points the surrogate's expected values (Desautels et al. 2014). "constant_liar"
      uses the smallest value observed (after Ginsbourger et al. 2010). "ignore" leaves them out, as in asynchronous Thompson
      sampling (Kandasamy et al. 2018); no pending point is chosen again.
    """

    surrogate: Annotated[str, OneOf(SUITED)] = "robust"
    """Model of the objective; suited: robust or warped, by the number of inputs."""
    coordinates: Annotated[str, OneOf(COORDINATES)] = "arcsine"
    """Coordinates of the surrogate's inputs; learned: by likelihood."""
    clip: Annotated[float, Ge(0), Lt(1)] = 0.5
    """Quantile of the observed values below which values are raised to it."""
    refit: Annotated[int, Ge(1)] = 5
    """Least number of observations between two fits of the hyperparameters."""
    length_scale: Annotated[float, Gt(0)] = 0.2
    """Length scale of the surrogates fixed and features."""
    noise: Annotated[float, Gt(0)] = 0.01
    """Noise variance of the surrogates fixed and features."""
    standardise: bool = True
    """Whether fixed and features standardise values."""
    pending_values: Annotated[str, OneOf(PENDING_VALUES)] = "hallucinated"
    """Values assumed at pending points."""

    def begin(self, problem: Problem) -> LocalState:
        """Start without observations."""
        return LocalState(np.empty((0, problem.dim)), np.empty(0), lattice=problem.lattice)

    def noting(self, state: LocalState, x: Array) -> LocalState:
        """Record the points `(p, d)` of the unit cube that are being evaluated."""
        return changed(state, waiting=to_coordinates(x, self.coordinates) if len(x) else None)

    def noting_failed(self, state: LocalState, x: Array) -> LocalState:
        """Record the points `(f, d)` of the unit cube whose evaluations failed."""
        return changed(state, failed=to_coordinates(x, self.coordinates) if len(x) else None)

    def observed(self, state: LocalState, x: Array, y: Array) -> LocalState:
        """Append the observations `y (q,)` at the points `x (q, d)` of the unit cube."""
        after = copied(state)
        after.u = np.concatenate([state.u, to_coordinates(x, self.coordinates)])
        after.y = np.concatenate([state.y, y])
        return after

    def fresh(self, u: Array, state: LocalState, streams: Streams, origin: Origin) -> Decision:
        """Decide for the point with coordinates `u (d,)`, or for a uniform one where u has been evaluated already."""
        x = from_coordinates(u[None, :], self.coordinates)
        return self.unrepeated(x, distance(state.taken, u), state, streams, origin)

    def unrepeated(self, x: Array, away: float, state: LocalState, streams: Streams, origin: Origin) -> Decision:
        """Decide for the point `x (1, d)` at distance `away` from all evaluated ones, or for a uniform one if it is evaluated.

        Where all points of a typed space have been evaluated, it is evaluated again, as a noisy objective may need.
        """
        if away < SAME_POINT and not self._has_run_out(state):
            return Decision(evaluable(state, streams.rng("instead of a repeated point").random(x.shape)), "random")
        return Decision(evaluable(state, x), origin)

    def _has_run_out(self, state: LocalState) -> bool:
        """Return whether every point of a small discrete space has been evaluated."""
        if state.lattice is None or 0 in state.lattice.levels or math.prod(state.lattice.levels) > COMBINATIONS:
            return False
        space = ProjectedSpace(state.lattice, partial(to_coordinates, name=self.coordinates), taken=state.taken)
        return not len(space.untaken(space.candidates()))

    def kind(self, dim: int) -> str:
        """Return the kind of surrogate: "suited" is "fine" in up to two inputs and "warped" in more."""
        return self.surrogate if self.surrogate != "suited" else "fine" if dim <= FEW else "warped"

    def fit(
        self, state: LocalState, streams: Streams, along: LocalState | None = None, powers: Sequence[float] = POWERS
    ) -> LocalState:
        """Refit the hyperparameters when enough observations have arrived.

        With `along` the coordinates are those of another state's fit and not learned; `powers` are the transforms to try.
        """
        if not len(state.u):
            return state
        kind = self.kind(state.dim)
        if kind == "fixed":
            y = self.clipped(state.y)
            offset, scale = (float(y.mean()), float(y.std()) or 1.0) if self.standardise else (0.0, 1.0)
            return changed(
                state, hyper=Hyperparameters(self.length_scale, 1.0, self.noise, family="se", offset=offset, scale=scale)
            )
        is_moved = along is not None and along.axes != state.axes
        n, is_whole = len(state.u), is_moved or self._is_whole_due(state)
        if not is_whole and n - state.fitted < max(self.refit, n // OFTEN):
            return state
        rng, chosen = streams.rng("restarts"), n if is_whole else state.chosen
        if kind not in WARPED:
            hyper = fit_gp(state.u, self.clipped(state.y), FITTED[kind], rng, state.hyper)
            return changed(state, hyper=hyper, fitted=n, chosen=chosen)
        settings = WARPED[kind]
        if not is_whole:  # one climb, from what is known already
            quick = replace(settings, noisy=0.0)
            return changed(self._warped_along(state, state.axes, (state.power,), quick, rng), fitted=n)
        if along is not None:
            return changed(self._warped_along(state, along.axes, powers, settings, rng), fitted=n, chosen=n)
        return changed(self._warped(state, settings, rng), fitted=n, chosen=n)

    def _is_whole_due(self, state: LocalState) -> bool:
        """Return whether to choose transformations and coordinates anew, and not only to climb on from the hyperparameters.

        The likelihood of n observations changes by about 1 / n with each of them, so the distance between choices grows with n.
        Values that differ from their predictions by far more than expected show a wrong choice, which is then not kept.
        """
        n = len(state.u)
        new = n - state.chosen
        if state.hyper is None or new >= max(self.refit, state.chosen // SELDOM):
            return True
        if n <= state.fitted or n > KEPT or new < max(self.refit, n // OFTEN):
            return False
        return self._surprise(state, n - state.fitted) > SURPRISE

    def _surprise(self, state: LocalState, new: int) -> float:
        """Return the mean square of the newest prediction errors, each given all earlier observations, over their variances."""
        posterior = self.posterior(self.seen(changed(state, waiting=None)))
        errors = posterior.factor[-new:, -new:].T @ posterior.alpha[-new:]
        return float(errors @ errors) / new

    def _warped(self, state: LocalState, settings: GPSettings, rng: np.random.Generator) -> LocalState:
        """Fit hyperparameters and the power of the values, and try other coordinates for some inputs where they are learned."""
        y = self._resolved(state)
        if self.coordinates != "learned":
            fit = fit_warped(state.u, y, settings, (rng, state.hyper))
            return changed(state, hyper=fit.hyper, power=fit.power)
        x, dim, lattice = from_coordinates(state.u, "learned"), state.u.shape[1], state.lattice
        settings = settings if lattice is None else settings_of_typed(settings, x, lattice)
        first = beginning("learned", dim)
        axes = state.axes or (first,) * dim
        points = np.array([modelled_points(x, name, lattice) for name in COORDINATES])
        at = np.arange(dim) if lattice is None else np.array([column for column, _ in columns(lattice)])
        kinds, drawn = np.zeros(points.shape[2], np.int64), rng.permutation(dim)[: TRIED if len(y) >= FEWEST else 0]
        kinds[at] = [COORDINATES.index(name) for name in axes]
        tried = at[drawn] if lattice is None else at[[k for k in drawn if k not in lattice.unordered]]
        trials = CoordinateTrials(points, kinds, tried, COORDINATES.index(first), COST)
        present = points[kinds, :, np.arange(len(kinds))].T
        fit = fit_warped(present, y, settings, (rng, state.hyper), POWERS, trials)
        axes = tuple(COORDINATES[kind] for kind in kinds[at])
        return changed(state, hyper=fit.hyper, power=fit.power, axes=axes)

    def _warped_along(
        self,
        state: LocalState,
        axes: tuple[str, ...] | None,
        powers: Sequence[float],
        settings: GPSettings,
        rng: np.random.Generator,
    ) -> LocalState:
        """Fit hyperparameters and the power of the values in given coordinates."""
        u = state.u
        if axes is not None:
            x = from_coordinates(u, self.coordinates)
            settings = settings if state.lattice is None else settings_of_typed(settings, x, state.lattice)
            u = modelled_points(x, axes, state.lattice)
        start = state.hyper if state.axes == axes else None
        fit = fit_warped(u, self._resolved(state), settings, (rng, start), powers)
        return changed(state, hyper=fit.hyper, power=fit.power, axes=axes)

    def seen(self, state: LocalState) -> LocalState:
        """Return the state with its points in the coordinates of a "warped" surrogate, by its `axes`."""
        if state.axes is None:
            return state
        axes = state.axes
        return state.turned(lambda u: modelled_points(from_coordinates(u, self.coordinates), axes, state.lattice))

    def chosen(self, u: Array, state: LocalState, streams: Streams) -> Decision:
        """Decide for the point `(d,)` that is given in the coordinates of `seen`."""
        if state.axes is not None and state.lattice is not None:
            x = state.lattice.project(restored(u[None, :], state.axes, state.lattice))
            u = to_coordinates(x, self.coordinates)[0]
        elif state.axes is not None:
            u = to_coordinates(from_coordinates(u[None, :], state.axes), self.coordinates)[0]
        return self.fresh(u, state, streams, "own")

    def modelled(self, state: LocalState) -> Array:
        """Return the values `(n,)` as the surrogate models them, clipped, transformed, or both."""
        y = self._resolved(state)
        return warp(y, state.power) if self.kind(state.dim) in WARPED else y

    def _resolved(self, state: LocalState) -> Array:
        """Return the values `(n,)`, clipped except for "warped"."""
        return state.y if self.kind(state.dim) == "warped" else self.clipped(state.y)

    def clipped(self, y: Array) -> Array:
        """Raise the values `(n,)` below the quantile `clip` (the lower of two neighbours) to it."""
        return np.maximum(y, np.sort(y)[int(self.clip * (len(y) - 1))]) if self.clip else y

    def posterior(self, state: LocalState) -> Posterior:
        """Return the process conditioned on the values as it models them, in units with mean 0 and scale 1."""
        assert state.hyper is not None
        hyper = state.hyper
        u, y = self.supposed(state)
        standard = Hyperparameters(hyper.length_scale, hyper.variance, hyper.noise_variance, hyper.family)
        return condition(standard, u, (y - hyper.offset) / hyper.scale)

    def unit(self, state: LocalState) -> float:
        """Return the difference of native values that is one unit of the posterior at and above the best value.

        Below the best value a transform of power p < 1 makes a unit larger: by q^(1 - p) at the distance q of `warp`.
        """
        assert state.hyper is not None
        # `warp` has slope 1 at its largest value, in units of the median distance below it.
        median = distances_below(self._resolved(state))[1] if self.kind(state.dim) in WARPED else 1.0
        return median * state.hyper.scale

    def supposed(self, state: LocalState) -> tuple[Array, Array]:
        """Return the points `(n + p, d)` and modelled values `(n + p,)`, with supposed values for pending points.

        Of more than `KEPT` observations there are those that stand for all, so a decision takes the same time at any number. A
        pending point is then as certain as an observed one, so the acquisition is small near it.
        """
        assert state.hyper is not None
        y = self.modelled(state)
        rows = representatives(state.u, y, KEPT)
        u, y = state.u[rows], y[rows]
        if state.waiting is None or self.pending_values == "ignore":
            return u, y
        if self.pending_values == "constant_liar":
            expected = np.full(len(state.waiting), y.min())
        else:
            expected = predict(condition(state.hyper, u, y), state.waiting)[0]
        return np.concatenate([u, state.waiting]), np.concatenate([y, expected])


def modelled_points(x: Array, axes: str | tuple[str, ...], lattice: Lattice | None) -> Array:
    """Turn points of the unit cube `(n, d)` into the coordinates `(n, e)` in which a "warped" surrogate sees them."""
    return to_coordinates(x, axes) if lattice is None else embedded(x, axes, lattice)


def settings_of_typed(settings: GPSettings, x: Array, lattice: Lattice) -> GPSettings:
    """Scale length scales by the number of active axes at points `(n, d)`, not by the number of coordinates."""
    if not settings.growing:
        return settings
    active = float((~lattice.inactive(x)).sum(axis=1).mean())
    return replace(settings, length_scale=settings.length_scale.times(math.sqrt(active)), growing=False)


def first_point(state: LocalState, streams: Streams) -> Array:
    """Draw a uniform point `(1, d)` of the unit cube to evaluate; where all have failed, one that is far from these."""
    rng, dim = streams.rng("first point"), state.u.shape[1]
    x = evaluable(state, rng.random((1, dim)))
    if state.failed is None:
        return x
    x = np.concatenate([x, evaluable(state, rng.random((SPREAD - 1, dim)))])
    far = [distance(state.failed, point) for point in x]  # near enough in the cube, whatever the coordinates
    return x[[int(np.argmax(far))]]


def evaluable(state: LocalState, x: Array) -> Array:
    """Return the points `(n, d)` of the unit cube that would be evaluated in the place of x."""
    return x if state.lattice is None else state.lattice.project(x)


def standardised(y: Array) -> Array:
    """Shift and scale values `(n,)` to mean 0 and standard deviation 1; equal values become 0."""
    centred, spread = scaled(y)
    return centred / spread


def scaled(y: Array) -> tuple[Array, float]:
    """Return the values `(n,)` less their mean, and their standard deviation, or 1 where that is 0."""
    if not len(y):
        return y, 1.0
    centred = y - np.add.reduce(y) / len(y)
    return centred, math.sqrt(float(centred @ centred) / len(y)) or 1.0


FAITHFUL = {"surrogate": "faithful", "coordinates": "plain", "clip": 0.0, "refit": 5}
