"""Collaborative Bayesian optimisation via consensus (Yue, Liu, Berahas, Johnson, Al Kontar 2023): agents mix where to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge

from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.collaborative import Collaborative, CollaborativeState, improvement
from fedbo.algorithms.components.coordinates import from_coordinates, to_coordinates
from fedbo.algorithms.components.inner_search import maximise_posterior
from fedbo.algorithms.components.surrogate import Surrogate, evaluable
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import OneOf
from fedbo.surrogates.acquisition import criterion_values


class ConsensusServer(NamedTuple):
    """The coordinator's state: the newest proposal of every agent.

    x `(N, d)`: the proposals.
    utility `(N,)`: the logarithms of their expected improvement.
    step `(N,)`: the step after which they were made, -1 for none.
    until: W is the identity after this step.
    """

    x: Array
    utility: Array
    step: npt.NDArray[np.int64]
    until: int


@dataclass(frozen=True, slots=True)
class ConsensusBO(Collaborative):
    """Collaborative Bayesian optimisation via consensus; `Collaborative` has the settings that are not named here.

    Every agent proposes the point with the largest expected improvement under its surrogate. It evaluates the mix x_k = sum_j
    W_kj(t) x_j of all proposals, with a symmetric and doubly stochastic W(t). Early on agents agree where to search; in the end
    each follows itself.

    matrix: "uniform", W(t) = (1 - t/T) / K + (t/T) I, or "leader". The leader has the proposal with the largest expected
      improvement: the others move closer to it, and it moves closer to theirs.
    until: W is the identity from this step on; 0 for the end of the budget.
    """

    reveals: ClassVar[Reveals] = Reveals.OBSERVATIONS

    matrix: Annotated[str, OneOf(("uniform", "leader"))] = "uniform"
    """Consensus matrix: uniform mixing, or moving towards the leader."""
    until: Annotated[int, Ge(0), "0 means the iterations of the budget"] = 0
    """Step from which agents follow themselves; 0: the budget's iterations."""
    every: Annotated[int, Ge(0), "0 means once, before the start"] = 1

    @property
    def horizon_use(self) -> str:
        """Return the use of T by the mix; empty if `until` is set."""
        return "" if self.until else "reduces its mixing until the last iteration"

    def upload(self, problem: Problem) -> Declaration:
        """Declare the proposal `(d,)`, with the logarithm of its expected improvement if that selects the leader."""
        declared = {"x": Field((problem.dim,), low=0.0, high=1.0)}
        return {**declared, "utility": Field((1,))} if self.matrix == "leader" else declared

    def download(self, problem: Problem) -> Declaration:
        """Declare the mix of all proposals `(d,)`."""
        return {"x": Field((problem.dim,))}

    def _decide(self, state: CollaborativeState, streams: Streams) -> tuple[Decision, CollaborativeState]:
        if state.answer is None:
            return self._own_query(state, streams)
        # A mix is that of one round: it is evaluated once, and an agent that is not answered follows its own proposal.
        x = evaluable(state.local, state.answer["x"][None, :])
        u = to_coordinates(x, self.own.coordinates)[0]
        if state.local.is_near_failure(u):
            return self._own_query(state._replace(answer=None), streams)
        return self.own.fresh(u, state.local, streams, "federated"), state._replace(answer=None)

    def outbox(self, state: CollaborativeState, streams: Streams) -> tuple[Payload | None, CollaborativeState]:
        """Propose a point; an agent without observations in this task proposes nothing, despite an earlier task."""
        if not len(state.local.u):
            return None, state
        streams = streams.within(f"{streams.scope}proposal")
        local = self.own.fit(state.local.cautious(), streams)
        posterior = self.own.posterior(local)
        criterion = improvement(posterior)
        u = maximise_posterior(posterior, criterion, local, self.own.coordinates, streams)[None, :]
        payload = {"x": from_coordinates(u, self.own.coordinates)[0]}
        if self.matrix == "leader":
            # In the units of the objective, for the scale of a surrogate is its agent's own.
            assert local.hyper is not None
            payload["utility"] = criterion_values(posterior, criterion, u) + np.log(local.hyper.scale)
        return payload, state._replace(local=state.local.fitted_by(local))

    def server_init(self, problem: Problem) -> ConsensusServer:
        """Start without proposals."""
        n, until = problem.n_agents, self.until or max(problem.iterations, 1)
        return ConsensusServer(np.zeros((n, problem.dim)), np.zeros(n), np.full(n, -1), until)

    def receive(self, state: ConsensusServer, message: Inbound, now: float) -> ConsensusServer:
        """Store an agent's newest proposal, moved into the unit cube if it was damaged."""
        state.x[message.sender] = np.clip(message.payload["x"], 0.0, 1.0)
        state.utility[message.sender] = message.payload.get("utility", np.zeros(1))[0]
        state.step[message.sender] = message.step
        return state

    def broadcast(
        self, state: ConsensusServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], ConsensusServer]:
        """Answer each agent that has proposed a point with its mix; its own proposal gets the weight that stale ones lose."""
        there = np.flatnonzero(state.step >= 0)
        leader = int(state.utility[there].argmax()) if self.matrix == "leader" and len(there) else -1
        payloads: dict[int, Payload] = {}
        for agent in recipients:
            if state.step[agent] < 0:
                continue
            row = mixing_row(int(np.searchsorted(there, agent)), len(there), int(state.step[agent]), state.until, leader)
            mix = state.x[agent] + (row * staleness_weight[there]) @ (state.x[there] - state.x[agent])
            payloads[agent] = {"x": np.clip(mix, 0.0, 1.0)}
        return payloads, state


def mixing_row(row: int, count: int, step: int, until: int, leader: int = -1) -> Array:
    """Return a row `(K,)` of W(t), which mixes K proposals, for t = `step` of T = `until`, with a `leader` or -1 for none.

    The uniform matrix is that of the paper, and the leader-driven one that of the authors' code. Every entry loses 1/(T K). The
    leader's row and column gain 1/T, except their common entry, which loses (K - 2)/T more. Where that entry would become
    negative, it is 0, and all entries between two other agents are equal.
    """
    k, done = count, step / until
    identity = np.zeros(k)
    identity[row] = 1.0
    if done >= 1 or k == 1:
        return identity
    weights = (1.0 - done) / k + done * identity
    if leader < 0:
        return weights
    lost = 1.0 / (until * k)
    if (1.0 - done) / k + done > (k - 1) ** 2 * lost:
        weights += (k - 1) * lost if row == leader else -lost
        weights[leader] += -k * (k - 1) * lost if row == leader else k * lost
        return weights
    weights = np.full(k, 1.0 / (k - 1) if row == leader else (k - 2) / (k - 1) ** 2)
    weights[leader] = 0.0 if row == leader else 1.0 / (k - 1)
    return weights


# As the authors ran it: inputs and values as they are, hyperparameters fitted anew in every iteration.
FAITHFUL = {"own": Surrogate(coordinates="plain", clip=0.0, refit=1)}

ENTRY = Entry(ConsensusBO, presets={"faithful": FAITHFUL}, summary="agents evaluate a mix of all agents' proposals")
