"""One-shot FLoRA (Zhou et al. 2021, 2023): a loss surface from all evaluations determines one configuration for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.collaborative import Collaborative, CollaborativeState, Surface
from fedbo.algorithms.components.coordinates import from_coordinates, to_coordinates
from fedbo.algorithms.components.inner_search import maximise_about
from fedbo.algorithms.components.surrogate import LocalState, evaluable, standardised
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf
from fedbo.surrogates.acquisition import prediction
from fedbo.surrogates.gp import Posterior

SENT = 2000  # pairs of one message at most, evenly taken: a process of more would take seconds and gigabytes
POOLED = 300  # one surface of all pairs is fitted to so many at most, evenly taken from all agents


class EvaluatedTable(NamedTuple):
    """What one agent has sent: points in coordinates `(n, d)`, their values `(n,)`, and the surrogate fitted to them."""

    u: Array
    y: Array
    fitted: Posterior | None = None


@dataclass(frozen=True, slots=True)
class FLoRA(Collaborative):
    """One-shot FLoRA; `Collaborative` has the settings that are not named here.

    **This is what federated optimisation forbids**: the message is the table of all that an agent has evaluated. The
    coordinator fits a loss surface to the values of all agents, and answers with its best configuration. Every agent evaluates
    it next and then continues alone.

    surface: "single", one Gaussian process of all pairs (SGM); "cautious", the same less `caution` standard deviations (SGM+U);
      or the "worst" (MPLM) or "average" (APLM) prediction of one process for each agent.
    after: the iteration after which the one message is sent; 0 is before the first.
    """

    horizon_use: ClassVar[str] = ""
    reveals: ClassVar[Reveals] = Reveals.OBSERVATIONS

    surface: Annotated[str, OneOf(("average", "worst", "single", "cautious"))] = "average"
    """Loss surface: mean or worst of the agents' processes, a single or a cautious one."""
    after: Annotated[int, Ge(0), "0 means before the first iteration"] = 0
    """Iteration after which messages are sent; 0: before the first."""
    caution: Annotated[float, Ge(0)] = 1.0
    """Standard deviations subtracted by the cautious surface."""

    def sends(self, step: int) -> bool:
        """Return True once, after iteration `after`."""
        return step == self.after

    def upload(self, problem: Problem) -> Declaration:
        """Declare all evaluations of an agent: `x (n, d)` and `y (n,)`."""
        longest = min(problem.history + problem.initial + problem.iterations, SENT)
        x, y = Field((None, problem.dim), observed=False, longest=longest), Field((None,), longest=longest)
        return {"x": x, "y": y}

    def download(self, problem: Problem) -> Declaration:
        """Declare the configuration `(d,)` for all."""
        return {"x": Field((problem.dim,))}

    def _decide(self, state: CollaborativeState, streams: Streams) -> tuple[Decision, CollaborativeState]:
        if state.answer is None:
            return self._own_query(state, streams)
        x = evaluable(state.local, state.answer["x"][None, :])
        u = to_coordinates(x, self.own.coordinates)[0]
        if state.local.is_near_failure(u):
            return self._own_query(state._replace(answer=None), streams)
        return self.own.fresh(u, state.local, streams, "federated"), state._replace(answer=None)

    def outbox(self, state: CollaborativeState, streams: Streams) -> tuple[Payload | None, CollaborativeState]:
        """Send all observations, or an even part of more than `SENT` of them."""
        u, y = self._known(state)
        kept = slice(None, None, max(-(-len(y) // SENT), 1))
        u, y = u[kept], y[kept]
        return ({"x": from_coordinates(u, self.own.coordinates), "y": y} if len(y) else None), state

    def server_init(self, problem: Problem) -> dict[int, EvaluatedTable]:
        """Start without messages."""
        return {}

    def receive(self, state: dict[int, EvaluatedTable], message: Inbound, now: float) -> dict[int, EvaluatedTable]:
        """Store an agent's evaluations; damaged points are moved into the unit cube."""
        x = np.clip(message.payload["x"], 0.0, 1.0)
        if len(x):
            state[message.sender] = EvaluatedTable(to_coordinates(x, self.own.coordinates), message.payload["y"])
        return state

    def broadcast(
        self, state: dict[int, EvaluatedTable], recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], dict[int, EvaluatedTable]]:
        """Send the configuration with the best value on the surface of all received evaluations."""
        if not state:
            return {}, state
        senders = sorted(state)
        if self.surface in ("single", "cautious"):
            pooled = self._pooled([state[sender] for sender in senders])
            surface = self._lower(self._surrogate(pooled, streams))
        else:
            for sender in senders:
                if state[sender].fitted is None:
                    fitted = self._surrogate(state[sender], streams.of(sender))
                    state[sender] = state[sender]._replace(fitted=fitted)
            surface = self._of_all([state[sender] for sender in senders])
        best = np.stack([state[sender].u[state[sender].y.argmax()] for sender in senders])
        u = maximise_about(lambda u: surface(u)[0], surface, best, streams)
        x = from_coordinates(np.clip(u, 0.0, 1.0)[None, :], self.own.coordinates)[0]
        return dict.fromkeys(recipients, {"x": x}), state

    def _pooled(self, tables: Sequence[EvaluatedTable]) -> EvaluatedTable:
        """Put all pairs together, evenly thinned, the values of each agent clipped and standardised by themselves."""
        u = np.concatenate([table.u for table in tables])
        y = np.concatenate([standardised(self.own.clipped(table.y)) for table in tables])
        kept = slice(None, None, -(-len(y) // POOLED))
        return EvaluatedTable(u[kept], y[kept])

    def _surrogate(self, table: EvaluatedTable, streams: Streams) -> Posterior:
        # The coordinator fits as agents do, by streams of its own.
        fitted = self.own.fit(LocalState(table.u, table.y), streams.within(f"{streams.scope}surface"))
        return self.own.posterior(fitted)

    def _lower(self, posterior: Posterior) -> Surface:
        if self.surface == "single":
            return lambda u: _mean(posterior, u)

        def surface(u: Array) -> tuple[Array, Array]:
            at = prediction(posterior, u)
            sd = np.sqrt(np.maximum(at.variance, 1e-300))
            return at.mean - self.caution * sd, at.mean_gradient - (0.5 * self.caution / sd)[:, None] * at.variance_gradient

        return surface

    def _of_all(self, tables: Sequence[EvaluatedTable]) -> Surface:
        """Join the predictions of one surrogate for each agent, each in units of its agent's values."""
        posteriors = [table.fitted for table in tables if table.fitted is not None]

        def surface(u: Array) -> tuple[Array, Array]:
            means, gradients = (np.stack(part) for part in zip(*(_mean(one, u) for one in posteriors), strict=True))
            if self.surface == "average":
                return means.mean(axis=0), gradients.mean(axis=0)
            worst = means.argmin(axis=0)
            return means.min(axis=0), gradients[worst, np.arange(len(u))]

        return surface


def _mean(posterior: Posterior, u: Array) -> tuple[Array, Array]:
    """Return the posterior mean `(n,)` and its gradient `(n, d)`."""
    at = prediction(posterior, u)
    return at.mean, at.mean_gradient


ENTRY = Entry(FLoRA, {"every": 0}, summary="not federated: agents send all evaluations once, and all receive one configuration")
