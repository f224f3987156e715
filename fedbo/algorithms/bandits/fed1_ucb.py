"""Fed1-UCB in its exact model (Shi and Shen 2021): phased elimination of arms by their mean over all agents, on a grid.

In a phase every agent pulls every active arm f(p) times and sends its means. The coordinator averages them over the agents and
drops the arms that are certainly not the best. With one arm left no agent sends any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt

from fedbo.algorithms.bandits.arms import grid, nearest
from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem, horizon
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.centres import Aggregation
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Streams
from fedbo.settings.ranges import Marked, OneOf

Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
MISSING = ("wait", "mean")


class Fed1State(NamedTuple):
    """An agent's state.

    x `(K, d)`: the arms.
    pulls, total `(K,)`: pulls of each arm, and the sums of their values.
    active `(K,)`: the arms that were left in the newest answer.
    rounds: T.
    planned: the pulls asked for so far.
    flying: arms and pulls that were asked for and have no value yet.
    heard: whether an answer has arrived.
    missing: number of agents without which the arms were chosen.
    """

    x: Array
    pulls: Counts
    total: Array
    active: Flags
    rounds: int
    planned: int = 0
    flying: tuple[tuple[int, int], ...] = ()
    heard: bool = False
    missing: int = 0


class Fed1Server(NamedTuple):
    """The coordinator's state: the newest means and pulls of every agent, each `(N, K)`, and the active arms `(K,)`.

    `step (N,)` is the step after which an agent sent them, -1 for none; `needed (N,)` are the agents that optimise.
    """

    mean: Array
    pulls: Counts
    step: Counts
    active: Flags
    needed: Flags
    rounds: int


@dataclass(frozen=True, slots=True)
class Fed1UCB(Marked):
    """Fed1-UCB on a grid of about `arms` midpoints (see `grid` of `arms.py`).

    Arm k is dropped when its mean over the agents plus B is below the largest less B. Here B = sqrt(`constant` `sigma`^2 log T
    / (M n)) for M agents with n pulls each; where pulls differ, 1 / (M n) is the mean of all 1 / n over M.

    length: a phase is f = ceil(length log T) pulls of every active arm by every agent.
    constant: 4 in the authors' code and 6 in their theory.
    sigma: the standard deviation of the noise, or a bound on it.
    missing: "wait" drops nothing until every agent that optimises has sent once; "mean" uses the agents that have. The result
      may then be the best arm of these only, and the note of the points names the number of missing agents.
    aggregation: a robust centre replaces the agents' mean (as in Fed-MoM-UCB, with the median of means), and B widens with its
      scatter.
    """

    horizon_use: ClassVar[str] = "computes its phases from the budget"
    reveals: ClassVar[Reveals] = Reveals.OBSERVATIONS

    arms: Annotated[int, Ge(1)] = 50
    """About the number of arms, on a grid."""
    sigma: Annotated[float, Gt(0), Lt(inf)] = 0.5
    """Standard deviation of the noise, or a bound; 1/2 for rewards in [0, 1]."""
    constant: Annotated[float, Gt(0), Lt(inf)] = 4.0
    """Constant of the confidence: 4 in the authors' code, 6 in the theory."""
    length: Annotated[float, Gt(0), Lt(inf)] = 10.0
    """Length of a phase in units of log T."""
    missing: Annotated[str, OneOf(MISSING)] = "wait"
    """Wait until every agent has reported once, or use those that have."""
    aggregation: Aggregation = Aggregation()
    """Mean of the agents' means, or a robust centre."""

    @property
    def queries(self) -> None:
        """A phase has as many points as there are active arms."""
        return None

    def sends(self, step: int) -> bool:
        """Return True after every phase; with one arm left there is nothing to send."""
        return step > 0

    def upload(self, problem: Problem) -> Declaration:
        """Declare the means and numbers of all pulls so far of every arm, zeros where there are none; ValueError without T."""
        horizon(problem)
        k = len(grid(problem.dim, self.arms))
        return {"mean": Field((k,)), "pulls": Field((k,), "int64")}

    def download(self, problem: Problem) -> Declaration:
        """Declare the active arms, and the number of agents that were missing when they were chosen."""
        return {"active": Field((len(grid(problem.dim, self.arms)),), "bool"), "missing": Field((1,), "int64")}

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Return no points."""
        return uniform[:0]

    def phases(self, problem: Problem) -> int:
        """Bound the phases: each but the last two pulls two arms at least."""
        rounds = horizon(problem)
        return rounds // (2 * self._length(rounds)) + 2

    def agent_init(self, problem: Problem, streams: Streams) -> Fed1State:
        """Start with all arms."""
        x = grid(problem.dim, self.arms)
        k = len(x)
        return Fed1State(x, np.zeros(k, np.int64), np.zeros(k), np.ones(k, bool), horizon(problem))

    def ask(self, state: Fed1State, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Fed1State]:
        """Pull every active arm for a phase, or the last one for all that remains; the last phase is cut at T.

        Without an answer to the last phase another is made of the same arms, since means over more pulls are as good. The
        order of the arms is drawn, so that the cut does not always spare the same.
        """
        active, missing = state.active, state.missing
        for message in inbox:  # arms never come back, so neither the order of answers nor a second copy matters
            active = active & message.payload["active"]
            missing = int(message.payload["missing"][0])
        state = state._replace(active=active, missing=missing, heard=state.heard or bool(inbox))
        order = streams.rng("order of arms").permutation(np.flatnonzero(active))
        pulls = self._pulls(len(order), state)
        order = order[: len(pulls)]
        flying = tuple(zip(order.tolist(), pulls.tolist(), strict=True))
        state = state._replace(planned=state.planned + int(pulls.sum()), flying=state.flying + flying)
        note = f"{missing} missing" if state.heard and missing else None
        return Decision(state.x[order], "federated" if state.heard else "own", pulls=pulls, note=note), state

    def _pulls(self, arms: int, state: Fed1State) -> Counts:
        """Return the pulls of the next phase, at most one entry for each arm; beyond T, after failures, a single one."""
        left = max(state.rounds - state.planned, 1)
        if arms == 1:
            return np.array([left])
        phase = self._length(state.rounds)
        pulls = np.clip(left - phase * np.arange(arms), 0, phase)
        return np.asarray(pulls[pulls > 0])

    def _length(self, rounds: int) -> int:
        """Return f(p), the same in all phases."""
        return max(ceil(self.length * log(rounds)), 1)

    def tell(self, state: Fed1State, x: Array, y: Array) -> Fed1State:
        """Add the pulls and their sums; a point counts as often as it was asked for."""
        pulls, total, flying = state.pulls.copy(), state.total.copy(), list(state.flying)
        for arm, mean in zip(nearest(state.x, x).tolist(), y, strict=True):
            place = next((place for place, (there, _) in enumerate(flying) if there == arm), None)
            times = 1 if place is None else flying.pop(place)[1]
            pulls[arm] += times
            total[arm] += times * mean
        return state._replace(pulls=pulls, total=total, flying=tuple(flying))

    def outbox(self, state: Fed1State, streams: Streams) -> tuple[Payload | None, Fed1State]:
        """Send all means so far, while there is something to choose between."""
        if state.active.sum() == 1:
            return None, state
        return {"mean": state.total / np.maximum(state.pulls, 1), "pulls": state.pulls.copy()}, state

    def server_init(self, problem: Problem) -> Fed1Server:
        """Start with all arms and no messages."""
        n, k = problem.n_agents, len(grid(problem.dim, self.arms))
        needed = np.isin(np.arange(n), problem.targets)
        mean, pulls = np.zeros((n, k)), np.zeros((n, k), np.int64)
        return Fed1Server(mean, pulls, np.full(n, -1), active=np.ones(k, bool), needed=needed, rounds=horizon(problem))

    def receive(self, state: Fed1Server, message: Inbound, now: float) -> Fed1Server:
        """Store an agent's newest message; ignore an older one."""
        if message.step > state.step[message.sender]:
            state.mean[message.sender] = message.payload["mean"]
            state.pulls[message.sender] = message.payload["pulls"]
            state.step[message.sender] = message.step
        return state

    def broadcast(
        self, state: Fed1Server, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], Fed1Server]:
        """Drop arms and send the remaining ones. Pulls do not age, so `staleness_weight` has no effect."""
        heard, active = state.step >= 0, state.active.copy()
        if not heard.any():
            return {}, state
        silent = int((state.needed & ~heard).sum())
        if self.missing == "mean" or not silent:
            rows = np.ix_(heard, state.active)
            active[state.active] = self.kept(state.mean[rows], state.pulls[rows], state.rounds)
        active.flags.writeable = False
        answer = {"active": active, "missing": np.array([silent if self.missing == "mean" else 0])}
        return dict.fromkeys(recipients, answer), state._replace(active=active)

    def kept(self, mean: Array, pulls: Counts, rounds: int) -> Flags:
        """Return which of the arms may be the best `(K,)`, by the means and pulls of M agents `(M, K)`."""
        with np.errstate(divide="ignore"):
            spread = (1.0 / pulls).sum(axis=0) / len(pulls) ** 2  # infinite where an agent has no pull yet
        bound = self.aggregation.widening * np.sqrt(self.constant * self.sigma**2 * log(max(rounds, 2)) * spread)
        means = mean.mean(axis=0) if self.aggregation.is_mean else self.aggregation.of(mean, np.ones(len(mean)))
        return np.asarray(means + bound >= (means - bound).max())


ALGORITHMS = {"fed1_ucb": Entry(Fed1UCB, summary="Fed1-UCB: elimination of grid arms by their mean over all agents")}
