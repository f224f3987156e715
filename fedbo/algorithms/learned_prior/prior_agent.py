"""The agent half of a federated prior: Bayesian optimisation under a prior from the other agents, and its messages.

The methods define the contents of a message and the prior of an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge

from fedbo.algorithms.base import Array, Decision, Inbound, Payload, Problem
from fedbo.algorithms.components.coordinates import COORDINATES
from fedbo.algorithms.components.surrogate import KEPT, LocalState, evaluable, first_point, scaled
from fedbo.algorithms.learned_prior.learned_prior import (
    Belief,
    LearnedPrior,
    believe,
    expected,
    fit,
    flat_prior,
    interpolation_length,
    predictor,
)
from fedbo.algorithms.learned_prior.prior_space import PriorSpace, choices, common_points
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import Marked, OneOf
from fedbo.settings.records import changed
from fedbo.surrogates.acquisition import log_expected_improvement
from fedbo.surrogates.gp import condition, log_marginal_likelihood, predict, representatives
from fedbo.surrogates.posterior import factorise

Surface = Callable[[Array], tuple[Array, Array]]
MOST = 10.0  # the most evidence of one agent for or against stretched coordinates, in log units


class PriorState(NamedTuple):
    """An agent's state: its observations, an earlier task, and the newest answer.

    history_x `(t_n, d)`, history_y `(t_n,)`: the earlier task, points in the unit cube.
    fitted: its Gaussian processes, one for each choice of coordinates.
    stretch: log evidence of its observations for stretched coordinates.
    answer: the newest answer.
    t: number of its decisions.
    """

    local: LocalState
    history_x: Array
    history_y: Array
    fitted: tuple[LocalState, ...]
    stretch: float = 0.0
    answer: Payload | None = None
    t: int = 0


class Known(NamedTuple):
    """An agent's knowledge at the design points.

    values `(M,)`: the posterior mean, equal to `level` where the certainty is 0.
    certainties `(M,)`: shares of the prior variance that its observations have removed, in [0, 1].
    certainty: the same share of the mean variance.
    level: the level of its process.
    stretch: that of the agent's state.
    """

    values: Array
    certainties: Array
    certainty: float
    level: float
    stretch: float


@dataclass(frozen=True, slots=True)
class PriorAgent(Marked):
    """Settings and agent half that methods of a federated prior have in common.

    The agent maximises the logarithm of expected improvement under the others' prior, a residual process, and its observations.

    points: approximate number of design points.
    coordinates: "learned" chooses arcsine or stretched ones by the evidence of all agents' observations, which each agent
      sends.
    alone_after: after this many decisions every second one ignores the prior, which guards against an overconfident prior.
    every: send a fresh message before the first and after every k-th iteration; 0 sends one before the first only.
    control: "noise" sends draws from the prior of the agent's process, "shuffled" permutes the values of the design points.
      "uniform" replaces all points chosen under the prior by uniform ones, and "alone" sends nothing.
    """

    queries: ClassVar[int | None] = 1

    points: Annotated[int, Ge(2)] = 100
    """Design points M; in two inputs the largest square number below."""
    coordinates: Annotated[str, OneOf(("learned", *COORDINATES))] = "learned"
    """Coordinates of the inputs; learned: the likelier of arcsine and stretched."""
    alone_after: Annotated[int, Ge(0)] = 10
    """Decisions after which every second one ignores the others."""
    every: Annotated[int, Ge(0), "0 means once, before the start"] = 5
    """Iterations between two messages; 0: one message before the first."""
    control: Annotated[str, OneOf(("none", "noise", "shuffled", "uniform", "alone"))] = "none"
    """Control of an experiment, fixed by the algorithm's name."""

    def sends(self, step: int) -> bool:
        """Return True before the start, and after every `every`-th iteration."""
        if self.control == "alone":
            return False
        return step == 0 if not self.every else step % self.every == 0

    def agent_init(self, problem: Problem, streams: Streams) -> PriorState:
        """Return the state with the observations of an earlier task."""
        known = problem.history_x if problem.history_x is not None else np.empty((0, problem.dim))
        values = problem.history_y if problem.history_y is not None else np.empty(0)
        begun = LocalState(np.empty((0, problem.dim)), np.empty(0), lattice=problem.lattice)
        return PriorState(begun, known, values, (begun,) * len(self._choices(begun)))

    def design_size(self, problem: Problem) -> int:
        """Count the design points, M."""
        return len(common_points(self.points, problem.dim, problem.lattice))

    def _choices(self, local: LocalState) -> tuple[PriorSpace, ...]:
        """List the space in the coordinates between which there is a choice."""
        return choices(local.u.shape[1], self.coordinates, local.lattice)

    def ask(self, state: PriorState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, PriorState]:
        """Maximise the expected improvement under the prior of the others, or under a flat one."""
        for message in inbox:
            state = state._replace(answer=message.payload)
        state = state._replace(t=state.t + 1)
        local, dim = state.local, state.local.u.shape[1]
        federated = state.answer is not None and not (state.t > self.alone_after and state.t % 2)
        if federated and self.control == "uniform":
            return Decision(evaluable(local, streams.rng("uniform instead").random((1, dim))), "uniform"), state
        if not federated and not len(local.u):
            return Decision(first_point(local, streams), "own"), state
        local = local.cautious()
        state = self._fitted(state._replace(local=local), streams, for_choice=True)._replace(local=state.local)
        space, fitted = self._chosen(state)
        feasible = self._feasible(state, space) if federated else None
        local = local.turned(space.seen)
        prior = self._prior(state.answer if federated else None, local, space)
        belief = belief_of(prior._replace(lengths=space.lengths(fitted)), local)
        predicted = predictor(belief)
        best = float(predicted(local.u, slopes=False).mean.max()) if len(local.u) else None

        def acquisition(u: Array, slopes: bool = True) -> tuple[Array, Array]:
            at = predicted(u, slopes)
            if best is None:
                return at.mean, at.mean_gradient
            value, gradient = log_expected_improvement(at, best)
            if feasible is None:
                return value, gradient
            chance, rise = feasible(u)
            return value + np.log(chance), gradient + rise / chance[:, None] if slopes else gradient

        return space.decide(acquisition, local, streams, "federated" if federated else "own"), state

    def _chosen(self, state: PriorState) -> tuple[PriorSpace, LocalState]:
        """Return the coordinates in which the observations of all agents are most likely, and the agent's process in them."""
        others = 0.0 if state.answer is None else float(state.answer["stretch"][0])
        spaces = self._choices(state.local)
        place = int(state.stretch + others > 0) if len(spaces) > 1 else 0
        return spaces[place], state.fitted[place]

    def _prior(self, answer: Payload | None, local: LocalState, space: PriorSpace) -> LearnedPrior:
        """Make the prior that an answer describes, or a flat one about the own observations."""
        if answer is None:
            return flat_prior(local.u.shape[1], *level(local))
        design = common_points(self.points, space.dim, local.lattice)
        return self._learned(answer, local, space.seen(design), interpolation_length(len(design), space.dim))

    def _feasible(self, state: PriorState, space: PriorSpace) -> Surface | None:
        """Return the probability that an evaluation succeeds, in the coordinates of a space; here None."""
        return None

    def _learned(self, answer: Payload, local: LocalState, design: Array, length: float) -> LearnedPrior:
        """Make the prior that an answer describes at the design points `(M, e)`, interpolated with a length scale."""
        raise NotImplementedError

    def _fitted(self, state: PriorState, streams: Streams, for_choice: bool = False) -> PriorState:
        """Fit the own processes anew when enough observations have come in; before the start to an earlier task alone."""
        x, y = state.history_x, state.history_y
        if state.t or not len(y):
            x, y = np.concatenate([x, state.local.u]), np.concatenate([y, state.local.y])
        spaces = self._choices(state.local)
        if not len(y) or (for_choice and len(spaces) == 1 and spaces[0].lattice is None):
            return state
        known = state.fitted[0]
        if known.hyper is not None and len(y) - known.fitted < spaces[0].refit and for_choice:
            return state
        rows, count = representatives(x, y, KEPT), len(y)
        x, y = x[rows], y[rows]
        fitted = tuple(space.fit(last, x, y, count, streams) for space, last in zip(spaces, state.fitted, strict=True))
        density = [log_marginal_likelihood(one.hyper, one.u, one.y)[0] for one in fitted if one.hyper is not None]
        return state._replace(fitted=fitted, stretch=float(np.clip(density[-1] - density[0], -MOST, MOST)))

    def pending(self, state: PriorState, x: Array) -> PriorState:
        """Record the points that are being evaluated."""
        return state._replace(local=changed(state.local, waiting=x if len(x) else None))

    def avoiding(self, state: PriorState, x: Array) -> PriorState:
        """Record the points whose evaluations failed."""
        return state._replace(local=changed(state.local, failed=x if len(x) else None))

    def tell(self, state: PriorState, x: Array, y: Array) -> PriorState:
        """Append the observations."""
        local = state.local
        return state._replace(local=changed(local, u=np.concatenate([local.u, x]), y=np.concatenate([local.y, y])))

    def _known(self, state: PriorState, streams: Streams) -> tuple[Known | None, PriorState]:
        """Return the agent's current knowledge, before the first iteration from an earlier task alone, changed by a control."""
        state = self._fitted(state, streams)
        space, known = self._chosen(state)
        if known.hyper is None:
            return None, state
        hyper, stretch = known.hyper, state.stretch
        design = space.seen(common_points(self.points, space.dim, state.local.lattice))
        values, variance = predict(condition(hyper, known.u, known.y), design)
        prior = hyper.scale**2 * hyper.variance
        certainties, certainty = np.clip(1.0 - variance / prior, 0.0, 1.0), 1.0 - float(variance.mean()) / prior
        if self.control == "noise":
            root = factorise(hyper.kernel(design, design))[0]
            values = hyper.offset + hyper.scale * (root @ streams.rng("noise").standard_normal(len(design)))
        if self.control == "shuffled":
            order = streams.rng("shuffled").permutation(len(values))
            values, certainties = values[order], certainties[order]
        if self.control in ("noise", "shuffled"):
            stretch = 0.0
        return Known(values, certainties, certainty, hyper.offset, stretch), state


def level(local: LocalState) -> tuple[float, float]:
    """Return the mean and the scale of an agent's observations."""
    return (float(local.y.mean()), scaled(local.y)[1]) if len(local.y) else (0.0, 1.0)


def belief_of(prior: LearnedPrior, local: LocalState) -> Belief:
    """Fit the parameters of a prior, and condition on the observations; pending points have their expected values."""
    local = local.shortened()
    parameters = fit(prior, local.u, local.y)
    belief = believe(prior, parameters, local.u, local.y)
    if local.waiting is None:
        return belief
    y = np.concatenate([local.y, expected(belief, local.waiting)])
    return believe(prior, parameters, np.concatenate([local.u, local.waiting]), y)
