"""ADMM for federated Bayesian optimisation (Krishnamoorthy; Krishnamoorthy and Paulson 2023): consensus and allocation.

The text minimises the sum of all agents' objectives. Here values are maximised, so the acquisition changes its sign and the
text's delta is subtracted (see `federated_acquisition`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.admm.coupled import ADMMAgent, Coupled, penalty_fields
from fedbo.algorithms.admm.native_scaling import Row, Rows
from fedbo.algorithms.admm.penalty_schedule import PenaltySchedule, PenaltyState, penalty_payload
from fedbo.algorithms.base import Array, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf

SENSES = ("equal", "at_most")


class ADMMServer(NamedTuple):
    """The server's state: two rows of every agent's newest message, and their aggregates.

    first `(N, m)`: x for consensus, C z for allocation.
    second `(N, m)`: the dual for consensus, the relaxed C z for allocation.
    before `(N, m)`: C z at the last answer.
    step `(N,)`: the message's step, -1 for none.
    fresh `(N,)`: whether the message arrived after the last answer.
    centre `(m,)`: the mean point, or the mean excess over the total.
    price `(m,)`: the price, for allocation alone.
    """

    penalty: PenaltySchedule
    first: Array
    second: Array
    before: Array
    step: npt.NDArray[np.int64]
    fresh: npt.NDArray[np.bool_]
    centre: Array
    price: Array
    progress: PenaltyState = PenaltyState()

    @property
    def held(self) -> npt.NDArray[np.bool_]:
        """Return which agents have sent a message, `(N,)`."""
        return np.asarray(self.step >= 0)


def _empty_server(penalty: PenaltySchedule, n: int, m: int) -> ADMMServer:
    first, second, before = np.zeros((3, n, m))
    nobody = np.zeros(n, dtype=bool)
    return ADMMServer(
        penalty, first, second, before=before, step=np.full(n, -1), fresh=nobody, centre=np.full(m, np.nan), price=np.zeros(m)
    )


def _store_newest(state: ADMMServer, message: Inbound, first: str, second: str) -> ADMMServer:
    """Store an agent's newest message; ignore an older one."""
    if message.step <= state.step[message.sender]:
        return state
    state.first[message.sender] = message.payload[first]
    state.second[message.sender] = message.payload[second]
    state.step[message.sender] = message.step
    state.fresh[message.sender] = True
    return state


def _round_share(state: ADMMServer) -> float:
    """Return the messages since the last answer as a share of a round."""
    return float(state.fresh.sum()) / max(int(state.held.sum()), 1)


@dataclass(frozen=True, slots=True)
class Consensus(Coupled):
    """Consensus ADMM: the sum of w_i f_i(x_i) is optimised subject to x_i = xbar; `Coupled` has the settings.

    An agent sends x_i and its dual, 2 d numbers, and updates the dual: lambda_i += rho (x_i - xbar) ((5) of the text). The
    coordinator answers with xbar = sum of w_i (x_i + lambda_i / rho) over sum of w_i. In lock-step this is the mean of x_i,
    since the duals add up to zero. It also holds when some messages are older than others (Chang et al. 2016).

    weights: w, one number above 0 for each agent; empty for ones.
    """

    horizon_use: ClassVar[str] = "computes its penalty and its last decision from the budget"
    reveals: ClassVar[Reveals] = Reveals.OBSERVATIONS

    weights: Row = ()
    """Weights w_i of the agents' objectives. Default: all 1."""

    def upload(self, problem: Problem) -> Declaration:
        """Declare the iterate x_i `(d,)` in native units, and its dual `(d,)`; SettingError for unsuitable settings."""
        self.check(problem)
        if self.weights and (len(self.weights) != problem.n_agents or not min(self.weights) > 0):
            words = f"one number above 0 for each of the {problem.n_agents} agents"
            raise SettingError("weights", f"must be {words}, not {self.weights}")
        low, high = self.low or 0.0, self.high or 1.0
        return {"x": Field((problem.dim,), low=low, high=high), "dual": Field((problem.dim,))}

    def download(self, problem: Problem) -> Declaration:
        """Declare the point to agree on, and the fields of `penalty_payload`."""
        return {"centre": Field((problem.dim,)), **penalty_fields()}

    def violation(self, points: Array) -> float:
        """Return how far apart the points `(N, d)` are: the largest distance along a coordinate."""
        return float(np.ptp(points, axis=0).max())

    def _matrix(self, problem: Problem) -> Array:
        return np.eye(problem.dim)

    def _answered(self, state: ADMMAgent, payload: Payload) -> ADMMAgent:
        centre = payload["centre"]
        if not state.fresh:  # one step of the dual for each iterate
            return state._replace(target=centre)
        return state._replace(target=centre, multiplier=state.multiplier + payload["rho"][0] * (state.relaxed - centre))

    def _message(self, state: ADMMAgent, use: Array) -> Payload:
        # With over-relaxation the dual makes up for the way from x to the relaxed point.
        return {"x": use, "dual": state.multiplier + state.rho * (state.relaxed - use)}

    def server_init(self, problem: Problem) -> ADMMServer:
        """Start without messages."""
        return _empty_server(self.penalty(problem), problem.n_agents, problem.dim)

    def receive(self, state: ADMMServer, message: Inbound, now: float) -> ADMMServer:
        """Store an agent's newest message."""
        return _store_newest(state, message, "x", "dual")

    def broadcast(
        self, state: ADMMServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], ADMMServer]:
        """Send the point to agree on to all recipients."""
        weight = state.held * staleness_weight * np.asarray(self.weights or 1.0)
        if not weight.sum() > 0:
            return {}, state
        rho, was = state.penalty.at(state.progress), state.centre
        if state.fresh.any() or np.isnan(was).any():
            centre = weight @ (state.first + state.second / rho) / weight.sum()
            # Boyd et al. 2011, (7.7): r is the distance from agreement, s what the mean has moved, times rho.
            there = state.held
            primal = float(np.linalg.norm(state.first[there] - centre))
            moved = np.inf if np.isnan(was).any() else float(np.linalg.norm(centre - was))
            residuals = (primal, rho * np.sqrt(there.sum()) * moved)
            progress = state.penalty.next(state.progress, residuals, int(there.sum()) * len(centre), _round_share(state))
            state.fresh[:] = False
            state = state._replace(centre=centre, progress=progress)
        answer: dict[str, Any] = {"centre": state.centre.copy(), **penalty_payload(state.penalty, state.progress, rho)}
        return dict.fromkeys(recipients, _frozen(answer)), state


@dataclass(frozen=True, slots=True)
class Allocation(Coupled):
    """Resource allocation: the sum of f_i(z_i) is optimised subject to sum of C_i z_i = b; `Coupled` has the settings.

    total: b; empty for zeros.
    sense: "equal", or "at_most", where the sum may be less and the price is never negative.
    matrices: the C_i, m rows of d numbers, one matrix for all agents or one for each; empty for the unit matrix.
    changes: rows of a round k and the b that holds from round k on.

    An agent sends C_i z_i, plainly and over-relaxed, 2 m numbers. The coordinator answers with the price lambda += rho e and
    the excess e = mean of C_i z_i less b / N. The agent's next penalty is about C_i z_i - e (Boyd et al. 2011, section 7.3).
    The text uses the mean of all z_i instead, which its author did not run. Agents with a non-zero C_i in a row of the
    constraint share that row, and N is their number.
    """

    horizon_use: ClassVar[str] = "computes its penalty and its last decision from the budget"
    reveals: ClassVar[Reveals] = Reveals.OBSERVATIONS

    total: Row = ()
    """Amounts b to be shared. Default: zeros."""
    sense: Annotated[str, OneOf(SENSES)] = "equal"
    """Whether b is used up, or something may be left."""
    matrices: tuple[Rows, ...] = ()
    """Matrices C_i with m rows: one for all agents, or one each."""
    changes: Rows = ()
    """Rows of a round and the amounts b from that round on."""

    def __post_init__(self) -> None:
        Coupled.__post_init__(self)
        if list(self.changes) != sorted(self.changes, key=lambda row: row[:1]):
            raise SettingError("changes", "must be sorted by round", self.changes)

    def upload(self, problem: Problem) -> Declaration:
        """Declare the resource use C_i z_i `(m,)`, plain and relaxed; SettingError for unsuitable settings."""
        self.check(problem)
        if len(self.matrices) not in (0, 1, problem.n_agents):
            needed = f"must have one matrix, or one for each of the {problem.n_agents} agents, not {len(self.matrices)}"
            raise SettingError("matrices", needed)
        m = self._rows(problem)
        for matrix in self.matrices:
            if len(matrix) != m or any(len(row) != problem.dim for row in matrix):
                raise SettingError("matrices", f"must all have {m} rows of {problem.dim} numbers, not {matrix}")
        if len(self.total) not in (0, m):
            raise SettingError("total", f"must have {m} numbers, one for each row of the constraint, not {self.total}")
        if any(len(row) != m + 1 for row in self.changes):
            raise SettingError("changes", f"must have a round and {m} numbers in each row, not {self.changes}")
        return {"use": Field((m,)), "relaxed": Field((m,))}

    def download(self, problem: Problem) -> Declaration:
        """Declare the price and the excess, each `(m,)`, and the fields of `penalty_payload`."""
        m = self._rows(problem)
        return {"price": Field((m,)), "excess": Field((m,)), **penalty_fields()}

    def _rows(self, problem: Problem) -> int:
        return len(self.matrices[0]) if self.matrices else problem.dim

    def violation(self, points: Array) -> float:
        """Return by how much the use of points `(N, d)` misses the last total, or exceeds it: the largest over all rows."""
        used = np.einsum("nmd,nd->nm", np.array(self.matrices), points) if len(self.matrices) > 1 else points
        used = points @ np.array(self.matrices[0]).T if len(self.matrices) == 1 else used
        total = self.changes[-1][1:] if self.changes else self.total
        excess = used.sum(axis=0) - (np.array(total) if total else 0.0)
        return float(np.abs(np.maximum(excess, 0.0) if self.sense == "at_most" else excess).max())

    def _matrix(self, problem: Problem) -> Array:
        if not self.matrices:
            return np.eye(problem.dim)
        return np.array(self.matrices[problem.agent if len(self.matrices) > 1 else 0])

    def _answered(self, state: ADMMAgent, payload: Payload) -> ADMMAgent:
        return state._replace(multiplier=payload["price"], target=state.relaxed - payload["excess"])

    def _message(self, state: ADMMAgent, use: Array) -> Payload:
        return {"use": use, "relaxed": state.relaxed}

    def server_init(self, problem: Problem) -> ADMMServer:
        """Start without messages and with the price 0."""
        return _empty_server(self.penalty(problem), problem.n_agents, self._rows(problem))

    def receive(self, state: ADMMServer, message: Inbound, now: float) -> ADMMServer:
        """Store an agent's newest message."""
        return _store_newest(state, message, "use", "relaxed")

    def broadcast(
        self, state: ADMMServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], ADMMServer]:
        """Send the price and the excess to all recipients; with part of the messages the price moves by that part."""
        if not state.held.any():
            return {}, state
        rho = state.penalty.at(state.progress)
        if state.fresh.any():
            state = self._priced(state, rho)
        answer: dict[str, Any] = {"price": state.price.copy(), "excess": state.centre.copy()}
        return dict.fromkeys(recipients, _frozen({**answer, **penalty_payload(state.penalty, state.progress, rho)})), state

    def _priced(self, state: ADMMServer, rho: float) -> ADMMServer:
        there, share, sharers = state.held, _round_share(state), self._sharers(state)
        aim = self._total(state) / sharers
        mean = state.second[there].sum(axis=0) / sharers
        excess = mean - aim
        if self.sense == "at_most":  # a remainder up to the price's worth is nobody's excess
            excess = np.maximum(excess, -state.price / rho)
        price = state.price + share * rho * excess
        plain = np.sqrt(sharers) * (state.first[there].sum(axis=0) / sharers - mean + excess)
        was = np.zeros_like(excess) if np.isnan(state.centre).any() else state.centre
        moved = state.second[there] - state.before[there] - (excess - was)
        residuals = (float(np.linalg.norm(plain)), rho * float(np.linalg.norm(moved)))
        progress = state.penalty.next(state.progress, residuals, int(sharers.sum()), share)
        state.fresh[:] = False
        state.before[:] = state.second
        return state._replace(centre=excess, price=price, progress=progress)

    def _sharers(self, state: ADMMServer) -> Array:
        """Count the agents that share each row of the constraint, `(m,)`."""
        if len(self.matrices) <= 1:
            return np.full(len(state.price), float(state.held.sum()))
        takes = np.abs(np.array(self.matrices)).sum(axis=2) > 0
        return np.asarray(np.maximum(takes[state.held].sum(axis=0), 1), dtype=np.float64)

    def _total(self, state: ADMMServer) -> Array:
        total = np.array(self.total) if self.total else np.zeros(len(state.price))
        for row in self.changes:
            if state.progress.rounds >= row[0]:
                total = np.array(row[1:])
        return total


def _frozen(answer: dict[str, Any]) -> Payload:
    """Make the arrays read-only, since all recipients share them."""
    for array in answer.values():
        array.flags.writeable = False
    return answer


FAITHFUL = {"surrogate": "faithful", "acquisition": "lcb", "term": "added", "kappa": 2.0, "iterate": "query", "rho_start": 1.0}

_FIXED = {"pending_values": "hallucinated"}  # none is pending when an agent decides

ALGORITHMS = {
    "admm_consensus": Entry(
        Consensus, _FIXED, {"faithful": FAITHFUL}, "ADMM: all agents agree on one point, and each has its own surrogate"
    ),
    "admm_allocation": Entry(
        Allocation, _FIXED, {"faithful": FAITHFUL}, "ADMM: agents share a resource, coordinated by a price"
    ),
}
