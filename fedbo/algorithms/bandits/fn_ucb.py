"""FN-UCB (Dai et al. 2023), the variant with less communication: neural contextual bandits that share their data.

The gradient g(x) of a network at its first weights theta_0, which all agents share, is a vector of features. An agent uses a
ridge regression on these features with the data of all agents (UCB^b). With time it weights the mean of all agents' trained
networks (UCB^a) more. Letters are as in the paper; where the two differ, the code follows the authors' code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt

from fedbo.algorithms.bandits.arms import grid
from fedbo.algorithms.bandits.neural import (
    Ridge,
    Sample,
    added,
    descend,
    empty,
    jacobian,
    norms,
    parameters,
    ridge,
    updated,
    value,
)
from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import Marked, OneOf
from fedbo.surrogates.posterior import Diverged

CRITERIA = ("determinant", "diagonal")
STARTS = ("mean", "last", "initial")
OUTWEIGHS = 1e6  # times the sum of all others: only a damaged message does so


class FNState(NamedTuple):
    """An agent's state.

    initial `(p,)`: theta_0.
    weights `(p,)`: its trained network.
    precision `(p, p)`, moment `(p,)`: W_i and B_i, the sums of g g' and y g over its data.
    local: the ridge of W_i.
    others `(p,)`: the sum of the others' B.
    team: the ridge of all agents' W, V.
    network `(p,)`, spread `(p, p)`: the means of all networks and of all inverses of `local`, in the newest answer.
    t, last: the round, and t_last.
    called: whether another agent has asked for a message.
    heard: whether an answer has arrived.
    """

    initial: Array
    weights: Array
    precision: Array
    moment: Array
    local: Ridge
    others: Array
    team: Ridge
    network: Array
    spread: Array
    sample: Sample
    t: int = -1
    last: int = 0
    called: bool = False
    heard: bool = False


class FNServer(NamedTuple):
    """The coordinator's state: the newest message of every agent.

    step `(N,)`: the step after which it was sent, -1 for none.
    came `(N,)`: the number of the answer before which it arrived.
    answers: the number of answers.
    call: `came` of the newest message that an agent sent without being asked.
    """

    precision: Array
    moment: Array
    local: Array
    weights: Array
    step: npt.NDArray[np.int64]
    came: npt.NDArray[np.int64]
    answers: int = 0
    call: int = -1


@dataclass(frozen=True, slots=True)
class FNUCB(Marked):
    """FN-UCB on a grid of about `arms` midpoints (see `grid` of `arms.py`), moved to [-1, 1]^d and divided by sqrt(d).

    An agent plays the arm with the largest alpha UCB^a + (1 - alpha) UCB^b. It sends when (t - t_last) log(det V / det V_last)
    exceeds `threshold` D. Before that it trains its network by gradient descent with weight decay lambda / n. In the authors'
    code all networks share one memory; `start` "mean" is nearest to it.

    width: rectified units of the one hidden layer; the first weights are normal draws.
    ridge: lambda.
    nu_b, nu_a: nu and nu_2, the factors of the two bounds.
    delay, rise: alpha is 0 for the first `delay` rounds and then rises linearly to 1 over `rise` rounds.
    criterion: "determinant", or "diagonal" for the products of the diagonals, as in the authors' code.
    steps, rate: steps of gradient descent and their rate; there is no training while alpha is 0.
    until: no training from this round on.
    start: the first weights of training: the "mean" of all networks, the agent's "last" weights, or the "initial" ones as in
      the paper.
    """

    queries: ClassVar[int | None] = 1
    horizon_use: ClassVar[str] = ""
    reveals: ClassVar[Reveals] = Reveals.COMPUTABLE

    arms: Annotated[int, Ge(1)] = 100
    """About the number of arms, on a grid."""
    width: Annotated[int, Ge(1)] = 20
    """Hidden units of the network."""
    ridge: Annotated[float, Gt(0), Lt(inf)] = 0.1
    """Regularisation lambda."""
    nu_a: Annotated[float, Ge(0), Lt(inf)] = 0.1
    """Confidence width of UCB^a."""
    nu_b: Annotated[float, Ge(0), Lt(inf)] = 0.1
    """Confidence width of UCB^b."""
    delay: Annotated[int, Ge(0)] = 3
    """Rounds during which alpha_t is 0."""
    rise: Annotated[int, Ge(0)] = 700
    """Rounds in which alpha_t then rises linearly to 1."""
    threshold: Annotated[float, Ge(0), Lt(inf)] = 0.0
    """Threshold D on the growth of log det V at which an agent sends."""
    criterion: Annotated[str, OneOf(CRITERIA)] = "determinant"
    """Determinants, or products of diagonals as in the authors' code."""
    steps: Annotated[int, Ge(0)] = 30
    """Gradient steps before each message."""
    rate: Annotated[float, Gt(0), Lt(inf)] = 0.01
    """Learning rate of these steps."""
    until: Annotated[int, Ge(0)] = 2000
    """Last round with training."""
    start: Annotated[str, OneOf(STARTS)] = "mean"
    """Start of training: mean of all networks, own last, or initial weights."""

    def sends(self, step: int) -> bool:
        """Return True after every round; the criterion decides in `outbox`."""
        return step > 0

    def upload(self, problem: Problem) -> Declaration:
        """Declare W_i and B_i of the agent's data, (lambda I + W_i)^-1, the network, and whether the criterion was met."""
        return {**_shared(parameters(problem.dim, self.width), positive=True), "call": Field((1,), observed=False)}

    def download(self, problem: Problem) -> Declaration:
        """Declare W and B of all others, the means of all inverses and networks, and whether a fresh message is requested."""
        return {**_shared(parameters(problem.dim, self.width)), "call": Field((1,))}

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Return no points."""
        return uniform[:0]

    def agent_init(self, problem: Problem, streams: Streams) -> FNState:
        """Start with the weights that all agents share, and no data."""
        p = parameters(problem.dim, self.width)
        initial = streams.shared("first weights").standard_normal(p)
        square, row = np.zeros((p, p)), np.zeros(p)
        own, sample = ridge(square, self.ridge), empty(problem.dim)
        return FNState(
            initial,
            initial,
            square,
            moment=row,
            local=own,
            others=row,
            team=own,
            network=initial,
            spread=own.inverse,
            sample=sample,
        )

    def ask(self, state: FNState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, FNState]:
        """Play the arm with the largest bound."""
        state = self.begun(state, inbox)
        arms = grid(state.sample.x.shape[1], self.arms)
        best = int(np.argmax(self.bounds(state, inward(arms))))
        return Decision(arms[best : best + 1].copy(), "federated" if state.heard else "own"), state

    def begun(self, state: FNState, inbox: Sequence[Inbound]) -> FNState:
        """Begin a round with the received messages."""
        state = state._replace(t=state.t + 1)
        if not inbox:
            return state
        answer = max(inbox, key=lambda message: message.step).payload
        return state._replace(
            others=answer["moment"],
            team=ridge(state.precision + answer["precision"], self.ridge),
            network=answer["weights"],
            spread=answer["local"],
            last=state.t - 1,
            called=bool(answer["call"][0]),
            heard=True,
        )

    def alpha(self, t: int) -> float:
        """Return the weight of UCB^a in round t = 0, 1, ..."""
        return float(t >= self.delay) if not self.rise else min(max((t - self.delay) / self.rise, 0.0), 1.0)

    def bounds(self, state: FNState, x: Array) -> Array:
        """Return alpha UCB^a + (1 - alpha) UCB^b at the network's inputs `x (K, d)`."""
        rows, alpha = jacobian(state.initial, x), self.alpha(state.t)
        bounds = np.zeros(len(x))
        if alpha < 1.0:
            mean = rows @ (state.team.inverse @ (state.others + state.moment))
            bounds += (1.0 - alpha) * (mean + self.nu_b * sqrt(self.ridge) * norms(rows, state.team.inverse))
        if alpha > 0.0:
            mean = value(state.network, x)
            bounds += alpha * (mean + self.nu_a * sqrt(self.ridge) * norms(rows, state.spread))
        return bounds

    def tell(self, state: FNState, x: Array, y: Array) -> FNState:
        """Update the state with the values."""
        for point, target in zip(inward(x), y, strict=True):
            state = self.learned(state, point, float(target))
        return state

    def learned(self, state: FNState, x: Array, y: float) -> FNState:
        """Update the state with one value at an input `x (d,)` of the network."""
        row = jacobian(state.initial, x[None, :])[0]
        return state._replace(
            precision=state.precision + np.outer(row, row),
            moment=state.moment + y * row,
            local=updated(state.local, row),
            team=updated(state.team, row),
            sample=added(state.sample, x, y),
        )

    def outbox(self, state: FNState, streams: Streams) -> tuple[Payload | None, FNState]:
        """Train and send when the criterion is met or another agent has asked for a message."""
        growth = state.team.volume if self.criterion == "determinant" else state.team.width
        call = (state.t - state.last) * growth > self.threshold
        if not (call or state.called):
            return None, state
        if self.alpha(state.t + 1) > 0.0 and state.t < self.until:
            state = state._replace(weights=self.trained(state))
        payload = {
            "precision": state.precision,
            "moment": state.moment,
            "local": state.local.inverse,
            "weights": state.weights,
            "call": np.array([float(call)]),
        }
        return payload, state._replace(called=False)

    def trained(self, state: FNState) -> Array:
        """Fit the network to the agent's own data; start at the initial weights if training diverges from a spoilt mean."""
        start = {"mean": state.network, "last": state.weights, "initial": state.initial}[self.start]
        n = float(state.sample.times.sum())
        if not n:
            return start
        try:
            return descend(start, state.sample, self.steps, self.rate, self.ridge / n)
        except Diverged:
            return descend(state.initial, state.sample, self.steps, self.rate, self.ridge / n)

    def server_init(self, problem: Problem) -> FNServer:
        """Start without messages."""
        n, p = problem.n_agents, parameters(problem.dim, self.width)
        nobody = np.full(n, -1)
        return FNServer(
            np.zeros((n, p, p)),
            np.zeros((n, p)),
            np.zeros((n, p, p)),
            weights=np.zeros((n, p)),
            step=nobody,
            came=nobody.copy(),
        )

    def receive(self, state: FNServer, message: Inbound, now: float) -> FNServer:
        """Store an agent's newest message; ignore an older one."""
        if message.step <= state.step[message.sender]:
            return state
        for name in ("precision", "moment", "local", "weights"):
            getattr(state, name)[message.sender] = message.payload[name]
        state.step[message.sender], state.came[message.sender] = message.step, state.answers
        return state._replace(call=state.answers) if message.payload["call"][0] else state

    def broadcast(
        self, state: FNServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], FNServer]:
        """Send the data of the others and the mean network; ask the agents that were silent at the last call."""
        there = state.step >= 0
        if not (state.came == state.answers).any():  # nothing is new
            return {}, state
        weight = np.where(there, staleness_weight, 0.0)
        weight = (weight if weight.any() else there) / (weight if weight.any() else there).sum()
        common = {"local": np.tensordot(weight, state.local, 1), "weights": weight @ state.weights}
        precision, moment = state.precision.sum(axis=0), state.moment.sum(axis=0)
        payloads: dict[int, Payload] = {}
        for agent in recipients:  # observations do not age, so the sums take no account of staleness
            own = {
                "precision": _of_others(precision, state.precision, agent),
                "moment": _of_others(moment, state.moment, agent),
            }
            payloads[agent] = {**common, **own, "call": np.array([float(state.came[agent] < state.call)])}
        for array in common.values():  # one copy for all recipients, since none may write to it
            array.flags.writeable = False
        return payloads, state._replace(answers=state.answers + 1)


def inward(x: Array) -> Array:
    """Move points `(n, d)` of the unit cube into the unit ball, the network's inputs."""
    return np.asarray((2.0 * x - 1.0) / sqrt(x.shape[1]))


def _of_others(total: Array, parts: Array, agent: int) -> Array:
    """Return the `total` of the `parts (N, ...)` less the agent's part; sum anew when that part dominates the total."""
    rest = np.asarray(total - parts[agent])
    if np.abs(parts[agent]).max() <= OUTWEIGHS * np.abs(rest).max():
        return rest
    return np.asarray(np.delete(parts, agent, axis=0).sum(axis=0))  # the difference would be what rounding has left


def _shared(p: int, positive: bool = False) -> dict[str, Field]:
    square = Field((p, p), positive=positive)
    return {"precision": square, "moment": Field((p,)), "local": square, "weights": Field((p,))}


ALGORITHMS = {"fn_ucb": Entry(FNUCB, summary="FN-UCB: neural bandits with shared sums of gradients and averaged networks")}
