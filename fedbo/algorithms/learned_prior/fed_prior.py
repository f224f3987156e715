"""A federated prior by empirical Bayes, a method of ours: agents learn the common shape of their functions from each other.

Every agent sends its posterior mean and its certainty at shared design points. The coordinator answers with the mean of the
others, and the directions in which they differ: a prior. The agent's function departs from it by a separate process
(docs/algorithms/fed_prior.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components import several
from fedbo.algorithms.components.centres import Aggregation, bounded_products
from fedbo.algorithms.components.draw_search import SCALARISATIONS, unsuitable
from fedbo.algorithms.components.failures import Outcomes, Prior, outcomes_of, success
from fedbo.algorithms.components.several import Several, metrics
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.learned_prior import several_prior
from fedbo.algorithms.learned_prior.learned_prior import LearnedPrior, Moments, for_own_level, learned_prior, shrunk
from fedbo.algorithms.learned_prior.prior_agent import MOST, PriorAgent, PriorState, Surface
from fedbo.algorithms.learned_prior.prior_space import PriorSpace, common_points
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf

LEAST = 1e-9  # certainty below which nobody has looked
LOUDEST = 4.0  # by what factor agents may differ in scale before that is taken for a difference of units


class PriorServer(NamedTuple):
    """The coordinator's state: the newest message of every agent: `values (N, M)`, `certainty (N, M)`, `stretch (N,)`.

    All are 0 where an agent has sent nothing. `feasible (N, M)` are probabilities of success, where these are shared.
    """

    values: Array
    certainty: Array
    stretch: Array
    feasible: Array | None = None


class PriorServers(NamedTuple):
    """The coordinator's state with several objectives or bounds: one for each."""

    metrics: tuple[PriorServer, ...]


class Told(NamedTuple):
    """Sums of the others' messages: `values (M,)` and `certainty (M,)`."""

    values: Array
    certainty: Array

    @property
    def level(self) -> float:
        """Return the mean of the others over all design points."""
        return float(self.values.sum() / self.certainty.sum())

    @property
    def mean(self) -> Array:
        """Return the mean of the others, with one more agent that knows only the level."""
        return np.asarray((self.values + self.level) / (self.certainty + 1.0))


ByAgent = Callable[[int], tuple[Told, Array]]


@dataclass(frozen=True, slots=True)
class FedPrior(PriorAgent):
    """Bayesian optimisation with a prior that agents learn from each other; `PriorAgent` has the settings not named here.

    A message has two numbers for each of about `points` design points. The certainty r is the share of the prior variance that
    the agent's observations have removed there. The other is the posterior mean less the level of the process, 0 in unexplored
    regions, so agents may differ in level. The answer is the mean of the others, weighted by certainty at each design point,
    and directions in which they differ. Messages with values above `LOUDEST` times the median are scaled down to that.

    directions: most directions; they are shrunk by the number of agents behind them.
    feasibility: send also the probability that an evaluation succeeds at each design point. Agents multiply the improvement by
      it, with the mean of the others as the prior of their own outcomes.
    aggregation: a robust centre replaces the mean. Directions are about it, of messages no further away than the median.

    With several objectives or bounds there is a prior for each, messages and answers have a block for each, and a decision is
    the best point of one draw for each, as in `ts`.
    """

    horizon_use: ClassVar[str] = ""

    scalarise: Annotated[str, OneOf(SCALARISATIONS)] = "hypervolume"
    """How draws of several objectives become one decision, as in ts."""
    directions: Annotated[int, Ge(0)] = 30
    """Most principal components in an answer."""
    aggregation: Aggregation = Aggregation()
    """Mean of the messages, or a robust centre."""
    feasibility: bool = False
    """Whether agents share where evaluations succeed."""

    @property
    def reveals(self) -> Reveals:
        """Return what messages reveal: mean and certainty at many points determine few observations."""
        return Reveals.NOTHING if self.control == "alone" else Reveals.COMPUTABLE

    def upload(self, problem: Problem) -> Declaration | None:
        """Declare values and certainties at the design points, both `(M,)`, and the evidence for stretched coordinates."""
        if self.control == "alone":
            return None
        k = metrics(problem)
        m = k * self.design_size(problem)
        certainty, stretch = Field((m,), low=0.0, high=1.0), Field((k,), low=-MOST, high=MOST)
        return {"values": Field((m,)), "certainty": certainty, "stretch": stretch, **self._shared(m)}

    def _shared(self, m: int) -> Declaration:
        """Declare probabilities of success `(M,)`, if agents share them."""
        return {"feasible": Field((m,), low=0.0, high=1.0)} if self.feasibility else {}

    def download(self, problem: Problem) -> Declaration | None:
        """Declare mean `(M,)` and directions `(r, M)` of the others, the largest first, and the remaining variance.

        The last field is the others' evidence for stretched coordinates.
        """
        if self.control == "alone":
            return None
        k = metrics(problem)
        m = k * self.design_size(problem)
        moments = {"mean": Field((m,)), "directions": Field((None, m)), "residual": Field((k,)), "stretch": Field((k,))}
        return {**moments, **self._shared(m)}

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        """Return the state with the observations of an earlier task."""
        if several.is_several(problem):
            return several.begin(problem, lambda alone: self.agent_init(alone, streams))
        return PriorAgent.agent_init(self, problem, streams)

    def ask(self, state: Any, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Any]:
        """Maximise the expected improvement under the prior of the others, or find the best point of several draws."""
        if isinstance(state, Several):
            return several_prior.ask(self, self.scalarise, state, inbox, streams)
        return PriorAgent.ask(self, state, inbox, streams)

    def pending(self, state: Any, x: Array) -> Any:
        """Record the points that are being evaluated."""
        if isinstance(state, Several):
            return several.noting(state, x, self.pending)
        return PriorAgent.pending(self, state, x)

    def avoiding(self, state: Any, x: Array) -> Any:
        """Record the points whose evaluations failed."""
        if isinstance(state, Several):
            return several.avoiding(state, x, self.avoiding)
        return PriorAgent.avoiding(self, state, x)

    def tell_outcomes(self, state: Several, x: Array, values: Array, margins: Array) -> Several:
        """Append the metrics of each evaluation."""
        return several.told(state, x, np.hstack([values, margins]), self.tell, self.avoiding)

    def handles(self, problem: Problem) -> str:
        """Return why the settings do not suit the objectives and bounds of a problem; empty where they do."""
        if self.feasibility:
            return "feasibility is shared for one objective without bounds; remove feasibility"
        return unsuitable(self.scalarise, problem)

    def _learned(self, answer: Payload, local: LocalState, design: Array, length: float) -> LearnedPrior:
        moments = Moments(answer["mean"], answer["directions"], float(answer["residual"][0]))
        prior = learned_prior(design, moments, length)
        return for_own_level(prior, local.u, local.y, LOUDEST) if len(local.y) else prior

    def outbox(self, state: Any, streams: Streams) -> tuple[Payload | None, Any]:
        """Write a message about all observations."""
        if isinstance(state, Several):
            return several_prior.outbox(self, state, streams)
        known, state = self._known(state, streams)
        if known is None:
            return None, state
        # About the agent's own level: sums of levels with certainties that vary over the design would look like shapes.
        r, apart = known.certainties, known.values - known.level
        values = r * apart if self.control == "noise" else apart
        payload = {"values": values, "certainty": r, "stretch": np.array([known.stretch])}
        return {**payload, **self._told_feasible(state, streams)}, state

    def _told_feasible(self, state: PriorState, streams: Streams) -> Payload:
        """Return the own probabilities of success at the design points, if agents share them; those of a control are noise."""
        if not self.feasibility:
            return {}
        space, local = self._chosen(state)[0], state.local
        design = space.seen(common_points(self.points, space.dim, local.lattice))
        outcomes = self._outcomes(local, space)
        chance = success(outcomes, Prior(design[:0], design[:0, 0], outcomes.rate), design)[0]
        if self.control == "noise":
            chance = streams.rng("noise of feasibility").random(len(design))
        if self.control == "shuffled":
            chance = streams.rng("shuffled feasibility").permutation(chance)
        return {"feasible": chance}

    def _outcomes(self, local: LocalState, space: PriorSpace) -> Outcomes:
        return outcomes_of(space.seen(local.u), None if local.failed is None else space.seen(local.failed))

    def _feasible(self, state: PriorState, space: PriorSpace) -> Surface | None:
        """Return the probability of success by the own outcomes, with those of the others as their prior."""
        if not self.feasibility or state.answer is None:
            return None
        local = state.local
        design = space.seen(common_points(self.points, space.dim, local.lattice))
        told = np.clip(state.answer["feasible"], LEAST, 1.0)
        return partial(success, self._outcomes(local, space), Prior(design, told, float(told.mean())))

    def server_init(self, problem: Problem) -> Any:
        """Start without messages."""
        n, m = problem.n_agents, self.design_size(problem)
        blank = np.zeros((n, m)) if self.feasibility else None
        servers = [PriorServer(np.zeros((n, m)), np.zeros((n, m)), np.zeros(n), blank) for _ in range(metrics(problem))]
        return PriorServers(tuple(servers)) if several.is_several(problem) else servers[0]

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        """Store an agent's newest message."""
        if isinstance(state, PriorServers):
            parts = several_prior.split(message.payload, len(state.metrics))
            for server, part in zip(state.metrics, parts, strict=True):
                self.receive(server, message._replace(payload=part), now)
            return state
        state.values[message.sender] = message.payload["values"]
        state.certainty[message.sender] = np.clip(message.payload["certainty"], 0.0, 1.0)
        state.stretch[message.sender] = np.clip(message.payload["stretch"][0], -MOST, MOST)
        if state.feasible is not None:
            state.feasible[message.sender] = np.clip(message.payload["feasible"], 0.0, 1.0)
        return state

    def broadcast(
        self, state: Any, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], Any]:
        """Answer each agent with mean and covariance of the others, from weighted sums less its own share."""
        if isinstance(state, PriorServers):
            answers = [self.broadcast(server, recipients, staleness_weight, streams)[0] for server in state.metrics]
            complete = [agent for agent in recipients if all(agent in each for each in answers)]
            return {agent: several_prior.joined([each[agent] for each in answers]) for agent in complete}, state
        weight = staleness_weight * state.certainty.any(axis=1)
        known = weight * state.certainty.sum(axis=1)
        if not known.any():
            return {}, state
        heard = state._replace(values=limited(state.values, state.certainty, weight))
        moments = self._moments(heard, weight) if self.aggregation.is_mean else self._robust_moments(heard, weight)
        choice = weight * state.certainty.mean(axis=1) * state.stretch
        payloads: dict[int, Payload] = {}
        for agent in recipients:
            if not known.sum() - known[agent] > LEAST * known.sum():
                continue
            told, spread = moments(agent)
            root = np.sqrt(np.maximum(told.certainty, LEAST))
            covariance, residual = shrunk(spread / np.outer(root, root), float(told.certainty.mean()))
            payloads[agent] = {
                "mean": told.mean,
                "directions": self._directions(covariance),
                "residual": np.array([residual]),
                "stretch": np.array([choice.sum() - choice[agent]]),
            }
            if state.feasible is not None:
                others = np.where(np.arange(len(weight)) == agent, 0.0, weight)[:, None] * (state.certainty + LEAST)
                payloads[agent] = {**payloads[agent], "feasible": (others * state.feasible).sum(axis=0) / others.sum(axis=0)}
        return payloads, state

    def _moments(self, state: PriorServer, weight: Array) -> ByAgent:
        """Return the others' sums for an agent, and their sum of squares `(M, M)` about its mean, each from sums over all."""
        values, certainty = state.values, state.certainty
        m, told = values.shape[1], Told(weight @ values, weight @ certainty)
        rows = np.hstack([values - certainty * told.mean, certainty])
        products = (rows * weight[:, None]).T @ rows

        def others(agent: int) -> tuple[Told, Array]:
            own = weight[agent]
            left = Told(told.values - own * values[agent], np.maximum(told.certainty - own * certainty[agent], 0.0))
            off = left.mean - told.mean
            kept = products - own * np.outer(rows[agent], rows[agent])
            cross = kept[:m, m:] * off
            return left, kept[:m, :m] - cross - cross.T + kept[m:, m:] * np.outer(off, off)

        return others

    def _robust_moments(self, state: PriorServer, weight: Array) -> ByAgent:
        """Return `_moments` about a robust centre, of vectors that are no longer than the median."""
        values, certainty = state.values, state.certainty

        def others(agent: int) -> tuple[Told, Array]:
            counted = np.where(np.arange(len(weight)) == agent, 0.0, weight)
            total = counted @ certainty
            centre = self.aggregation.of(values / np.maximum(certainty, LEAST), counted[:, None] * np.maximum(certainty, LEAST))
            told = Told(total * centre, total)
            return told, bounded_products(values - certainty * told.mean, counted)

        return others

    def _directions(self, covariance: Array) -> Array:
        """Return the largest principal directions `(r, M)` of a covariance `(M, M)`, scaled by their standard deviations."""
        if not (self.directions and covariance.any()):
            return np.empty((0, len(covariance)))
        values, vectors = np.linalg.eigh(covariance)
        kept = np.flatnonzero(values > 1e-9 * values[-1])[-self.directions :][::-1]
        return np.asarray((vectors[:, kept] * np.sqrt(values[kept])).T)


def limited(values: Array, certainty: Array, weight: Array) -> Array:
    """Return the values `(N, M)` with no agent's larger than `LOUDEST` times the median of those that have a weight `(N,)`.

    They are compared by their root mean squares, over that of the certainties. Else one agent whose units are a million times
    smaller would be the mean of all.
    """
    sizes = np.sqrt((values**2).sum(axis=1) / np.maximum((certainty**2).sum(axis=1), LEAST))
    most = LOUDEST * float(np.median(sizes[weight > 0]))
    return np.asarray(values * np.divide(most, sizes, out=np.ones_like(sizes), where=sizes > most)[:, None])


def _entry(control: str, summary: str) -> Entry:
    return Entry(FedPrior, {"control": control}, summary=summary)


ALGORITHMS = {
    "fed_prior": _entry("none", "Bayesian optimisation with a prior learned from other agents' observations"),
    "fed_prior_alone": _entry("alone", "fed_prior without messages"),
    "fed_prior_noise": _entry("noise", "control for fed_prior: every message is a draw from the sender's own prior"),
    "fed_prior_shuffled": _entry("shuffled", "control for fed_prior: every message has its values in random order"),
    "fed_prior_uniform": _entry("uniform", "control for fed_prior: uniform points instead of federated queries"),
}
