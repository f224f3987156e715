"""The agent half of guided Bayesian optimisation: its surrogate, what it knows of its optimum, and the factor of others' hints.

The methods define the contents of a message and the Gaussians of an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge

from fedbo.algorithms.base import Array, Decision, Field, Inbound, Payload, Problem
from fedbo.algorithms.components.coordinates import LEARNED, distance, to_coordinates
from fedbo.algorithms.components.inner_search import maximise_posterior
from fedbo.algorithms.components.surrogate import SUITED, LocalState, Surrogate, evaluable, first_point
from fedbo.algorithms.gp import incumbent
from fedbo.algorithms.streams import WORLD, Streams
from fedbo.settings.ranges import OneOf
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import Criterion
from fedbo.surrogates.gp import predict
from fedbo_rivals.guidance import guide_rows, heaviest, maximise_guided, maximise_guided_draw, places_of_maxima

ACQUISITIONS = ("ei", "ts", "ucb")
CONTROLS = ("none", "noise", "shuffled", "centre", "alone")
SILENT = ("centre", "alone")  # controls without messages
MIDDLE, WIDE = 0.5, 0.25  # mean and standard deviation of the Gaussian that nobody sends
NARROWEST = 0.01  # least standard deviation of a received Gaussian


class GuideState(NamedTuple):
    """An agent's state.

    local: its observations.
    history_x `(t_n, d)`, history_y `(t_n,)`: an earlier task, points in the unit cube.
    answer: the newest answer.
    t: number of its decisions.
    sent: its last message, where messages are sent on a change only.
    """

    local: LocalState
    history_x: Array
    history_y: Array
    answer: Payload | None = None
    t: int = 0
    sent: Payload | None = None


class LikelyOptimum(NamedTuple):
    """An agent's belief about its optimum: the heaviest Gaussian of the places where draws of its posterior are largest.

    share: its weight in the mixture.
    mean, variance `(d,)`: in the unit cube.
    value: posterior mean less one standard deviation at the mean, in standard units of the agent's values.
    """

    share: float
    mean: Array
    variance: Array
    value: float


@dataclass(frozen=True, slots=True)
class GuideAgent(Surrogate):
    """Settings and agent half of guided optimisation; `Surrogate` has the settings of the Gaussian process.

    The posterior standard deviation is multiplied by S(x) = 1 + lambda_t sum_p w_p exp(-|(x - mu_p) / sigma_p|^2 / 2). The
    factor lambda_t is `strength` / sqrt(t), and the weights w_p have the sum 1. The mean stays as it is. t counts the agent's
    own decisions, so the guidance of an agent that joins late is as strong as that of one that began early.

    acquisition: "ei", expected improvement over the largest posterior mean; "ucb", mean plus `beta` standard deviations; "ts",
      a draw whose difference from the mean is multiplied by S.
    draws, features, candidates: a message summarises where `draws` posterior draws, each of so many orthogonal random features,
      are largest among uniform candidates that all agents share.
    every: send a fresh message before the first and after every k-th iteration; 0 sends one before the first only.
    control: "noise" sends a uniform place in place of the mean. "shuffled" turns each message by a random symmetry of the cube,
      which keeps its distance from the centre. "centre" replaces all messages by one wide Gaussian in the middle, and "alone"
      sends nothing.
    """

    queries: ClassVar[int | None] = 1

    surrogate: Annotated[str, OneOf(SUITED)] = "warped"
    coordinates: Annotated[str, OneOf(LEARNED)] = "learned"
    acquisition: Annotated[str, OneOf(ACQUISITIONS)] = "ei"
    """Acquisition function: expected improvement, a posterior draw, or an upper confidence bound."""
    beta: Annotated[float, Ge(0)] = 2.0
    """Standard deviations of the upper confidence bound."""
    strength: Annotated[float, Ge(0)] = 1.0
    """Factor of the guidance in the first decision."""
    draws: Annotated[int, Ge(2)] = 100
    """Posterior draws behind a message."""
    features: Annotated[int, Ge(1)] = 100
    """Orthogonal random features of a posterior draw."""
    candidates: Annotated[int, Ge(2)] = 250
    """Uniform points among which each draw is maximised."""
    every: Annotated[int, Ge(0), "0 means once, before the start"] = 1
    """Iterations between two messages; 0: one message before the first."""
    control: Annotated[str, OneOf(CONTROLS)] = "none"
    """Control of an experiment, fixed by the algorithm's name."""

    def sends(self, step: int) -> bool:
        """Return True before the start, and after every `every`-th iteration."""
        if self.control in SILENT:
            return False
        return step == 0 if not self.every else step % self.every == 0

    def agent_init(self, problem: Problem, streams: Streams) -> GuideState:
        """Return the state with the observations of an earlier task."""
        known = problem.history_x if problem.history_x is not None else np.empty((0, problem.dim))
        values = problem.history_y if problem.history_y is not None else np.empty(0)
        return GuideState(self.begin(problem), known, values)

    def ask(self, state: GuideState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, GuideState]:
        """Maximise the acquisition with the widened standard deviation; without observations follow the heaviest Gaussian."""
        for message in inbox:
            state = state._replace(answer=message.payload)
        state = state._replace(t=state.t + 1)
        local, guides = state.local, self._guides(state)
        if not len(local.u):
            return self._first(local, guides, streams), state
        known = self.fit(local.cautious(), streams)
        seen = self.seen(known)
        decision = self.chosen(self._maximum(seen, guides, streams), known, streams)
        if guides is not None and decision.origin == "own":
            decision = decision._replace(origin="federated")
        return decision, state._replace(local=local.fitted_by(known))

    def _guides(self, state: GuideState) -> Payload | None:
        """Return the Gaussians that widen this decision; their weights `(p,)` add up to lambda_t."""
        answer, dim = state.answer, state.history_x.shape[1]
        if self.control == "centre":
            middle, spread = np.full((1, dim), MIDDLE), np.full((1, dim), WIDE**2)
            answer = {"weight": np.ones(1), "mean": middle, "variance": spread}
        if answer is None or not len(answer["weight"]):
            return None
        weight = answer["weight"] * (self.strength / (sqrt(state.t) * answer["weight"].sum()))
        variance = np.clip(answer["variance"], NARROWEST**2, 1.0)
        return {"weight": weight, "mean": np.clip(answer["mean"], 0.0, 1.0), "variance": variance}

    def _first(self, local: LocalState, guides: Payload | None, streams: Streams) -> Decision:
        """Decide without observations: at the heaviest mean if that is new, or at a uniform point."""
        if guides is None or local.failed is not None:
            return Decision(first_point(local, streams), "own")
        x = evaluable(local, guides["mean"][[int(guides["weight"].argmax())]])
        away = distance(local.taken, to_coordinates(x, self.coordinates)[0]) if len(local.taken) else 1.0
        return self.unrepeated(x, away, local, streams, "federated")

    def _maximum(self, seen: LocalState, guides: Payload | None, streams: Streams) -> Array:
        """Return the point, in the coordinates of `seen`, where the acquisition is largest."""
        posterior, coordinates = self.posterior(seen), seen.axes or self.coordinates
        rows = None if guides is None else guide_rows(guides, coordinates, seen)
        if self.acquisition == "ts":
            return maximise_guided_draw(posterior, rows, seen, coordinates, self.features, streams)
        best = incumbent(posterior, "mean", len(posterior.x)) if self.acquisition == "ei" else self.beta
        criterion = Criterion(best, self.acquisition == "ucb")
        if rows is None:
            return maximise_posterior(posterior, criterion, seen, coordinates, streams)
        return maximise_guided(posterior, criterion, rows, seen, coordinates, streams)

    def pending(self, state: GuideState, x: Array) -> GuideState:
        """Record the points that are being evaluated."""
        return state._replace(local=self.noting(state.local, x))

    def avoiding(self, state: GuideState, x: Array) -> GuideState:
        """Record the points whose evaluations failed."""
        return state._replace(local=self.noting_failed(state.local, x))

    def tell(self, state: GuideState, x: Array, y: Array) -> GuideState:
        """Append the observations."""
        return state._replace(local=self.observed(state.local, x, y))

    def _optimum(self, state: GuideState, streams: Streams) -> LikelyOptimum | None:
        """Return what a message tells, changed by a control; None without observations.

        Before the first iteration it follows from an earlier task alone, if there was one.
        """
        known = self._known(state, streams)
        if known is None:
            return None
        seen = self.seen(known)
        posterior, dim = self.posterior(seen), state.history_x.shape[1]
        x = _candidates(streams.of(WORLD).at(0), self.candidates, dim)
        x = x if known.lattice is None else known.lattice.project(x)
        u = self._in_coordinates(x, seen)
        places = places_of_maxima(posterior, u, streams.rng("draws of a message"), self.draws, self.features)
        share, mean, variance = heaviest(x[places], int(streams.rng("mixture").integers(2**31)))
        mean = np.clip(mean, 0.0, 1.0)
        middle, spread = predict(posterior, self._in_coordinates(mean[None], seen))
        value = float(middle[0] - np.sqrt(max(spread[0], 0.0)))
        return self._controlled(LikelyOptimum(share, mean, variance, value), streams)

    def _known(self, state: GuideState, streams: Streams) -> LocalState | None:
        """Return the fitted observations behind a message, without pending points; None where there are none."""
        local = changed(state.local, waiting=None, failed=None)
        if len(state.history_y):
            u, y = to_coordinates(state.history_x, self.coordinates), state.history_y
            if state.t:
                u, y = np.concatenate([u, local.u]), np.concatenate([y, local.y])
            local = LocalState(u, y, lattice=local.lattice)
        if not len(local.y):
            return None
        # A fit to supposed values of failed points must not enter a message. Fits of messages are not kept, so that the agent's
        # own decisions are the same with any number of messages.
        if state.local.failed is not None:
            local = changed(local, hyper=None)
        return local if local.hyper is not None else self.fit(local, streams.within(f"{streams.scope}message"))

    def _in_coordinates(self, x: Array, seen: LocalState) -> Array:
        """Return points `(n, d)` of the unit cube in the coordinates of `seen`."""
        u = to_coordinates(x, self.coordinates)
        return self.seen(LocalState(u, np.zeros(len(u)), axes=seen.axes, lattice=seen.lattice)).u

    def _controlled(self, optimum: LikelyOptimum, streams: Streams) -> LikelyOptimum:
        if self.control == "noise":
            return optimum._replace(mean=streams.rng("noise").random(len(optimum.mean)))
        if self.control == "shuffled":
            rng = streams.rng("shuffled")
            order, reversed_ = rng.permutation(len(optimum.mean)), rng.random(len(optimum.mean)) < 0.5
            mean = optimum.mean[order]
            return optimum._replace(mean=np.where(reversed_, 1.0 - mean, mean), variance=optimum.variance[order])
        return optimum


def gaussians_declared(dim: int) -> dict[str, Field]:
    """Declare the Gaussians of an answer: weights `(p,)`, means and variances `(p, d)`."""
    return {"weight": Field((None,)), "mean": Field((None, dim)), "variance": Field((None, dim))}


@lru_cache(maxsize=16)
def _candidates(streams: Streams, count: int, dim: int) -> Array:
    """Return the uniform points `(c, d)` that all agents of a replicate share."""
    points = streams.rng("candidates of draws").random((count, dim))
    points.flags.writeable = False
    return points
