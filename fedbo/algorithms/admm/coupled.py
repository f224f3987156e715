"""The agent half of ADMM: a federated acquisition, a message about the last iterate, and the agreed evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedbo.algorithms.admm.federated_acquisition import (
    ACQUISITIONS,
    NOTHING,
    TERMS,
    Subproblem,
    Term,
    bound,
    improvement,
    locate,
    mean,
    sample,
)
from fedbo.algorithms.admm.native_scaling import NativeScaling, Row, Rows, check_scaling, scaling_of
from fedbo.algorithms.admm.penalty_schedule import PenaltySchedule
from fedbo.algorithms.base import Array, Decision, Field, Inbound, Payload, Problem
from fedbo.algorithms.components.coordinates import COORDINATES
from fedbo.algorithms.components.schedules import Schedule, amount, check_amount
from fedbo.algorithms.components.surrogate import KNOWN, LocalState, Surrogate
from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check


class ADMMAgent(NamedTuple):
    """An agent's state: its observations, its constraint, and its progress in the method.

    matrix `(m, d)`: C.
    rounds: number of decisions that evaluate.
    last: number of the last decision.
    z `(d,)`: the last iterate in native units.
    relaxed `(m,)`: the relaxed C z that others receive.
    multiplier, target `(m,)`, rho: those of the next subproblem; rho is 0 before the first answer.
    t: number of decisions.
    answered: number of the newest answer.
    fresh: whether no answer has followed on `z` yet.
    residuals: the primal and the dual residual of the newest answer.
    """

    local: LocalState
    scaling: NativeScaling
    matrix: Array
    rounds: int
    last: int
    z: Array
    relaxed: Array
    multiplier: Array
    target: Array
    rho: float = 0.0
    t: int = 0
    answered: int = -1
    fresh: bool = False
    done: bool = False
    over: bool = False
    residuals: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Coupled(Surrogate, ABC):
    """The settings and the agent half that ADMM for consensus and for allocation share (Krishnamoorthy).

    The constraint is one of native units. `PenaltySchedule` has the settings that are not named here.

    low, high: the native corners of the unit cube (of a `log` parameter their logarithms); empty for 0 and 1.
    box_low, box_high: the agents' boxes within it, one row for all agents or one for each.
    acquisition: "lcb", mean and `kappa` standard deviations; "ts", a draw with kappa standard deviations; "ei" or "pi",
      expected improvement or its probability; or "epsilon_greedy", the mean, and a uniform point with probability `epsilon`.
    term: the coupling is "inside" the improvement, or "added" to it as in the text.
    kappa, epsilon: schedules (see `schedules`).
    iterate: what others receive: the "query", as in the text, or the best point by the posterior "mean" and the term. With
      "mean" exploration does not disturb the other agents.
    relaxation: over-relaxation above 1.
    rho: the penalty, in units of the objective over those of the constraint squared.
    evaluations: number of decisions that evaluate one point each. In later decisions agents continue with their posterior means
      and only exchange messages; in the last one each evaluates the agreed point. By default all but the last fifth of the
      iterations. Once the residuals are below `tolerance`, the agreed point is evaluated at once.
    """

    surrogate: Annotated[str, OneOf(KNOWN)] = "smooth"
    coordinates: Annotated[str, OneOf(COORDINATES)] = "plain"
    clip: Annotated[float, Ge(0), Lt(1)] = 0.0
    low: Row = ()
    """Native lower corner of the unit cube; logarithms of `log` parameters. Default: 0."""
    high: Row = ()
    """Native upper corner of the unit cube. Default: 1."""
    box_low: Rows = ()
    """Lower corners of the agents' own boxes. Default: the cube."""
    box_high: Rows = ()
    """Upper corners of the agents' own boxes. Default: the cube."""
    acquisition: Annotated[str, OneOf(ACQUISITIONS)] = "lcb"
    """Acquisition function of the local search."""
    term: Annotated[str, OneOf(TERMS)] = "inside"
    """For ei and pi: improvement of objective plus penalty, or of the objective alone."""
    kappa: Schedule = 4.0
    """Standard deviations of lcb and ts: a number, schedule or function of t."""
    epsilon: Schedule = "1/t"
    """Probability of a uniform point: a number, schedule or function of t."""
    iterate: Annotated[str, OneOf(("query", "mean"))] = "mean"
    """Point that is sent: the evaluated one, or the best by posterior mean."""
    relaxation: Annotated[float, Gt(0), Lt(2)] = 1.0
    """Over-relaxation factor."""
    rho: Annotated[float, Gt(0), Lt(inf)] = 1.0
    """Penalty that is reached in the end."""
    rho_start: Annotated[float, Gt(0), Le(1)] = 0.02
    """Initial share of rho."""
    rho_until: Annotated[float, Gt(0), Le(1)] = 0.7
    """Share of the iterations after which rho is reached."""
    balance: float = 0.0
    """Ratio of residuals beyond which rho is doubled or halved; 0: never."""
    tolerance: Annotated[float, Ge(0), Lt(inf)] = 0.0
    """Residual below which ADMM has converged; 0: never."""
    patience: Annotated[int, Ge(1)] = 5
    """Rounds below the tolerance before it ends."""
    evaluations: Annotated[int, Ge(0)] | None = None
    """Decisions that evaluate. Default: four fifths of the iterations."""

    def __post_init__(self) -> None:
        check(self)
        check_amount(self.kappa, "kappa")
        check_amount(self.epsilon, "epsilon")
        if self.balance and not 1 < self.balance < inf:
            raise SettingError("balance", "must be 0 (none) or above 1", self.balance)

    @abstractmethod
    def violation(self, points: Array) -> float:
        """Return by how much the points `(N, d)` of all agents, in native units, miss the constraint."""

    @abstractmethod
    def _matrix(self, problem: Problem) -> Array:
        """Return the agent's C `(m, d)`."""

    @abstractmethod
    def _answered(self, state: ADMMAgent, payload: Payload) -> ADMMAgent:
        """Update multiplier and target with the coordinator's answer."""

    @abstractmethod
    def _message(self, state: ADMMAgent, use: Array) -> Payload:
        """Write the message about the iterate, where `use (m,)` is C z."""

    @property
    def queries(self) -> None:
        """One point while the method explores, then none, and one in the end."""
        return None

    def sends(self, step: int) -> bool:
        """Return True after every step; the message before the first decision is the best initial point."""
        return True

    def check(self, problem: Problem) -> None:
        """Refuse settings that do not suit the problem; SettingError."""
        check_scaling((self.low, self.high), (self.box_low, self.box_high), problem)
        if self.evaluations is not None and self.evaluations >= problem.iterations:
            words = f"below the {problem.iterations} iterations: the last one evaluates the common point"
            raise SettingError("evaluations", f"must be {words}, not {self.evaluations}")
        for t in range(1, problem.iterations + 1):
            amount(self.kappa, t, "kappa")
            amount(self.epsilon, t, "epsilon")

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Put uniform points `(q, d)` into the agent's own box."""
        scaling = self._scaling(problem)
        return (
            scaling.to_cube(scaling.start + (scaling.end - scaling.start) * uniform)
            if self.box_low or self.box_high
            else uniform
        )

    def _scaling(self, problem: Problem) -> NativeScaling:
        return scaling_of((self.low, self.high), (self.box_low, self.box_high), problem, self.coordinates)

    def penalty(self, problem: Problem) -> PenaltySchedule:
        """Return the schedule of rho: grown for the share `rho_until` of the iterations, balanced for half of the rest."""
        reached = self.rho_until * problem.iterations if self.rho_start < 1 else 0.0
        balanced = (reached + problem.iterations) / 2
        return PenaltySchedule(
            self.rho,
            self.rho_start,
            reached,
            balance=self.balance,
            balanced=balanced,
            tolerance=self.tolerance,
            patience=self.patience,
        )

    def agent_init(self, problem: Problem, streams: Streams) -> ADMMAgent:
        """Start without observations: those of an earlier task are not used."""
        matrix, rounds = self._matrix(problem), self.evaluations
        if rounds is None:
            rounds = problem.iterations - max(problem.iterations // 5, 1)
        zeros = np.zeros(len(matrix))
        scaling = self._scaling(problem)
        middle = 0.5 * (scaling.start + scaling.end)
        return ADMMAgent(
            self.begin(problem),
            scaling,
            matrix,
            rounds=rounds,
            last=problem.iterations,
            z=middle,
            relaxed=zeros,
            multiplier=zeros,
            target=zeros,
        )

    def ask(self, state: ADMMAgent, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, ADMMAgent]:
        """Choose the next point by the federated acquisition, or the agreed point when it is due; no point when it is over."""
        state = self._received(state, inbox)
        state = state._replace(t=state.t + 1)
        dim = len(state.z)
        if state.over:
            return Decision(np.empty((0, dim)), "none"), state
        if not len(state.local.u):
            return Decision(state.scaling.to_cube(_native(state, _uniform(dim, streams))[None, :]), "own"), state
        known = self.fit(state.local.cautious(), streams)
        state = state._replace(local=state.local.fitted_by(known))
        if state.rho and (state.done or state.t >= state.last):
            return _agreed(state)
        if state.t > state.rounds:
            return Decision(np.empty((0, dim)), "none"), state
        z = self._query(state._replace(local=known), streams)
        if self.iterate == "query":
            state = state._replace(z=z)
        return Decision(state.scaling.to_cube(z[None, :]), "federated" if state.rho else "own"), state

    def _received(self, state: ADMMAgent, inbox: Sequence[Inbound]) -> ADMMAgent:
        """Update the state with the newest answer, which contains all earlier ones."""
        newest = max(inbox, key=lambda message: message.step, default=None)
        if newest is None or newest.step <= state.answered:
            return state
        state = self._answered(state, newest.payload)
        rho, done = float(newest.payload["rho"][1]), bool(newest.payload["done"][0])
        primal, dual = newest.payload["residuals"].tolist()
        return state._replace(rho=rho, done=done, answered=newest.step, fresh=False, residuals=(primal, dual))

    def _local(self, state: ADMMAgent) -> Subproblem:
        assert state.local.hyper is not None
        # Before there is an answer nothing couples the agent to others.
        term = Term(state.matrix, state.multiplier, state.target, state.rho)
        return Subproblem(self.posterior(state.local), state.local.hyper.scale, state.scaling, term)

    def _query(self, state: ADMMAgent, streams: Streams) -> Array:
        """Choose the native point `(d,)` to evaluate: the largest federated acquisition ((6) of the text)."""
        t, local, dim = state.t, self._local(state), len(state.z)
        kappa, rng = amount(self.kappa, t, "kappa"), streams.rng("candidates")
        if self.acquisition == "epsilon_greedy" and streams.rng("coin").random() < amount(self.epsilon, t, "epsilon"):
            return _native(state, _uniform(dim, streams))
        if self.acquisition in ("ei", "pi"):
            v, value = locate(improvement(local, self.acquisition, self.term), local, _known(state), rng)
            if self.term == "added" or value > NOTHING:
                return _native(state, v)
        function = mean(local)
        if self.acquisition == "lcb":
            function = bound(local, kappa)
        elif self.acquisition == "ts" and kappa:
            function = sample(local, kappa, streams.rng("own draw"))
        return _native(state, locate(function, local, _known(state), rng)[0])

    def avoiding(self, state: ADMMAgent, x: Array) -> ADMMAgent:
        """Record the points whose evaluations failed."""
        return state._replace(local=self.noting_failed(state.local, x))

    def tell(self, state: ADMMAgent, x: Array, y: Array) -> ADMMAgent:
        """Append the observations."""
        return state._replace(local=self.observed(state.local, x, y))

    def outbox(self, state: ADMMAgent, streams: Streams) -> tuple[Payload | None, ADMMAgent]:
        """Send the last iterate and the needed part of the multiplier: 2 m numbers."""
        if state.over or not len(state.local.u):
            return None, state
        z = state.z
        if not state.rho or state.local.hyper is None:  # no answer yet: the best point of its own
            z = state.scaling.to_native_u(state.local.u[int(state.local.y.argmax())][None, :])[0]
        elif self.iterate == "mean" or state.t > state.rounds:
            local = self._local(state)
            z = _native(state, locate(mean(local), local, _known(state), streams.rng("iterate"))[0])
        use = state.matrix @ z
        relaxed = self.relaxation * use + (1 - self.relaxation) * state.target if state.rho else use
        state = state._replace(z=z, relaxed=relaxed, fresh=True)
        return self._message(state, use), state


def _agreed(state: ADMMAgent) -> tuple[Decision, ADMMAgent]:
    """Evaluate the feasible point nearest to the last iterate."""
    off = state.target - state.matrix @ state.z
    z = np.clip(state.z + np.linalg.pinv(state.matrix) @ off, state.scaling.start, state.scaling.end)
    note = "primal residual {:.6g}, dual residual {:.6g}".format(*state.residuals)
    return Decision(state.scaling.to_cube(z[None, :]), "agreed", note=note), state._replace(z=z, over=True)


def _known(state: ADMMAgent) -> Array:
    """Return native points to search around: the last iterate, and its projection on the others' target."""
    off = state.target - state.matrix @ state.z
    return np.stack([state.z, state.z + np.linalg.pinv(state.matrix) @ off])


def _native(state: ADMMAgent, v: Array) -> Array:
    return np.asarray(np.clip(state.scaling.at(v[None, :])[1][0], state.scaling.start, state.scaling.end))


def _uniform(dim: int, streams: Streams) -> Array:
    return streams.rng("uniform point").random(dim)


def penalty_fields() -> dict[str, Field]:
    """Declare the fields of every answer besides the values (see `penalty_payload`)."""
    return {"rho": Field((2,)), "residuals": Field((2,)), "done": Field((1,))}
