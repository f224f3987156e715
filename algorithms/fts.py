"""Federated Thompson sampling (Dai et al. 2020, Algorithm 1), and the two controls that every claim for it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedbo.algorithms import ts
from fedbo.algorithms.base import Array, Decision, Declaration, Field, Inbound, Payload, Problem
from fedbo.algorithms.catalog import Entry, unknown
from fedbo.algorithms.coordinates import to_coordinates
from fedbo.algorithms.schedules import Schedule, check, probability
from fedbo.algorithms.streams import Streams
from fedbo.algorithms.ts import TS, TSState, scaled, scatter
from fedbo.surrogates.draws import message_function
from fedbo.surrogates.features import Features, draw_features, phi
from fedbo.surrogates.linear import draw_weights
from fedbo.surrogates.maximise import maximise


class FTSState(NamedTuple):
    """An agent's state: its own Thompson sampling, what it learned before, and the messages it holds.

    `history_phi (t_n, M)`, `history_y (t_n,)` are the features and values of an earlier task, `phi (n, M)` the features of
    its own observations; `omega (N, M)` are the messages it holds and `weight (N,)` its P_N, 0 for those it does not
    hold; `t` counts its decisions.
    """

    own: TSState
    features: Features
    history_phi: Array
    history_y: Array
    phi: Array
    omega: Array
    weight: Array
    t: int = 0


class FTSServer(NamedTuple):
    """The coordinator's state: the newest message of every agent, `omega (N, M)`, and who has sent one, `held (N,)`."""

    omega: Array
    held: Array


@dataclass(frozen=True, slots=True)
class FTS:
    """Federated Thompson sampling.

    In iteration t an agent maximises a draw from its own posterior with probability `p` (see `schedules`), as `own` says, and
    otherwise a function made of the messages that it holds. With `query` "draw" that is phi(x)' omega_n of one agent n drawn
    from P_N, as in the paper; with "mean" it is the mean of all messages, weighted by P_N times independent exponential
    weights (the Bayesian bootstrap), so that it varies as much as the agents disagree. P_N is `weights`: empty for uniform,
    else one number for each agent.

    All agents share `features` random features with `kernel` and `length_scale`. A message is one draw omega_n from the
    Bayesian linear model with noise variance `noise` on them; with `centre`, of the values less their mean and over their
    standard deviation, by which the draw is multiplied again.

    A federated query that is nearer than `apart` to an evaluated point, in every coordinate, would tell little: the agent
    follows its own surrogate then.

    `every` k sends a fresh message before the first and after every k-th iteration, and t_n grows. `every` 0 sends one before
    the first iteration only; with `query` "draw" its receiver uses it once and then removes its agent from P_N. `relay` "all"
    passes on the messages of all agents, N M numbers; "one" that of one agent, which the coordinator draws from P_N.

    `control` "noise" replaces every omega_n by a draw from N(0, I), and "uniform" every federated query by a uniform point:
    the same schedule without the information.
    """

    own: TS = field(default_factory=TS)
    p: Schedule = "1-1/sqrt(t)"
    query: str = "mean"
    weights: tuple[float, ...] = ()
    features: int = 100
    kernel: str = "matern52"
    length_scale: float = 0.2
    noise: float = 0.01
    centre: bool = True
    apart: float = 0.03
    every: int = 1
    relay: str = "all"
    control: str = "none"

    def __post_init__(self) -> None:
        check(self.p, "p")
        choices = {
            "query": ("draw", "mean"),
            "kernel": ("se", "matern32", "matern52"),
            "relay": ("all", "one"),
            "control": ("none", "noise", "uniform"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(unknown(name, getattr(self, name), known))
        for name in ("length_scale", "noise"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.features < 1:
            raise ValueError(f"features must be at least 1, not {self.features}")
        if not self.apart >= 0:
            raise ValueError(f"apart must be at least 0, not {self.apart}")
        if self.every < 0:
            raise ValueError(f"every must be 0 (once, before the start) or more, not {self.every}")
        if any(not 0 <= weight < np.inf for weight in self.weights) or (self.weights and not sum(self.weights) > 0):
            raise ValueError(f"weights must be at least 0 with a positive sum, not {self.weights}")

    @property
    def queries(self) -> int:
        """One point for each decision."""
        return 1

    def sends(self, step: int) -> bool:
        """Before the start, and after every `every`-th iteration."""
        return step == 0 if not self.every else step % self.every == 0

    def upload(self, problem: Problem) -> Declaration | None:
        """One draw omega_n `(M,)`; ValueError when the settings do not suit the problem."""
        if self.weights and len(self.weights) != problem.n_agents:
            raise ValueError(f"weights must be one number for each of the {problem.n_agents} agents, not {len(self.weights)}")
        for t in range(1, problem.iterations + 1):
            probability(self.p, t)
        return {"omega": Field((self.features,))}

    def download(self, problem: Problem) -> Declaration | None:
        """The newest messages of all agents with P_N, or the message of one agent and its number."""
        if self.relay == "one":
            return {"omega": Field((self.features,)), "sender": Field((1,), "int64")}
        return {"omega": Field((problem.n_agents, self.features)), "weight": Field((problem.n_agents,))}

    def agent_init(self, problem: Problem, streams: Streams) -> FTSState:
        """Draw the shared features and take in what was learned before."""
        rng = streams.shared("shared features")
        features = draw_features(rng, problem.dim, self.features, self.length_scale, self.kernel)
        known = problem.history_x if problem.history_x is not None else np.empty((0, problem.dim))
        values = problem.history_y if problem.history_y is not None else np.empty(0)
        rows = phi(features, to_coordinates(known, self.own.coordinates))
        holds = (problem.n_agents if self.relay == "all" else 1) if problem.agent in problem.targets else 0
        omega, weight = np.zeros((holds, self.features)), np.zeros(holds)
        own = self.own.agent_init(problem, streams)
        return FTSState(own, features, rows, values, np.empty((0, self.features)), omega, weight)

    def ask(self, state: FTSState, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, FTSState]:
        """Follow the own surrogate or the messages (Alg. 1 lines 2 to 7)."""
        for message in inbox:
            state = self._hold(state, message.payload)
        # The surrogate is fitted on schedule, also before a federated query: TS alone has the same hyperparameters then.
        state = state._replace(t=state.t + 1, own=self.own.fit(state.own, streams))
        holds = bool((state.weight > 0).any())
        if not holds or streams.rng("coin").random() <= probability(self.p, state.t):
            decision, own = self.own.ask(state.own, (), streams)
            return decision, state._replace(own=own)
        return self._federated(state, streams)

    def _hold(self, state: FTSState, payload: Payload) -> FTSState:
        if self.relay == "one":
            return state._replace(omega=payload["omega"][None, :], weight=np.ones(1))
        return state._replace(omega=payload["omega"], weight=payload["weight"])

    def _federated(self, state: FTSState, streams: Streams) -> tuple[Decision, FTSState]:
        omega, state = self._function(state, streams)
        dim = state.own.u.shape[1]
        u, _ = maximise(message_function(state.features, omega), scatter(dim, streams), dim)
        if len(state.own.u) and float(np.abs(state.own.u - u).max(axis=1).min()) < self.apart:
            decision, own = self.own.ask(state.own, (), streams)
            return decision, state._replace(own=own)
        if self.control == "uniform":
            return Decision(streams.rng("uniform instead").random((1, dim)), "uniform"), state
        return self.own.fresh(u, state.own, streams, "federated"), state

    def _function(self, state: FTSState, streams: Streams) -> tuple[Array, FTSState]:
        """Choose the weights `(M,)` of the function to follow, and take from P_N what may be used only once."""
        rng = streams.rng("P_N")
        if self.query == "mean":
            bootstrap = state.weight * rng.standard_exponential(len(state.weight))
            return bootstrap @ state.omega / bootstrap.sum(), state
        chosen = int(rng.choice(len(state.weight), p=state.weight / state.weight.sum()))
        if self.every:
            return state.omega[chosen], state
        weight = state.weight.copy()
        weight[chosen] = 0.0
        return state.omega[chosen], state._replace(weight=weight)

    def tell(self, state: FTSState, x: Array, y: Array) -> FTSState:
        """Append the observations."""
        own = self.own.tell(state.own, x, y)
        if own.phi is not None and self._one_set_of_features:
            rows = own.phi[len(own.phi) - len(x) :]
        else:
            rows = phi(state.features, to_coordinates(x, self.own.coordinates))
        return state._replace(own=own, phi=np.concatenate([state.phi, rows]))

    @property
    def _one_set_of_features(self) -> bool:
        mine, owns = (self.features, self.length_scale), (self.own.features, self.own.length_scale)
        return self.kernel == "se" and mine == owns

    def outbox(self, state: FTSState, streams: Streams) -> tuple[Payload | None, FTSState]:
        """Draw omega_n ~ N(nu_n, sigma^2 Sigma_n^-1) from all that is known (section 3.1).

        Before the first iteration a message is about the earlier task alone, if there was one.
        """
        rng = streams.rng("message")
        rows, y = state.history_phi, state.history_y
        if state.t or not len(y):
            rows, y = np.concatenate([rows, state.phi]), np.concatenate([y, state.own.y])
        if not len(y):
            return None, state  # who knows nothing has nothing to say
        if self.control == "noise":
            return {"omega": rng.standard_normal(self.features)}, state
        if not self.centre:
            return {"omega": draw_weights(rows, y, self.noise, rng)}, state
        centred, spread = scaled(y)
        return {"omega": spread * draw_weights(rows, centred / spread, self.noise, rng)}, state

    def server_init(self, problem: Problem) -> FTSServer:
        """Begin without messages."""
        return FTSServer(np.zeros((problem.n_agents, self.features)), np.zeros(problem.n_agents))

    def receive(self, state: FTSServer, message: Inbound, now: float) -> FTSServer:
        """Keep an agent's newest message."""
        state.omega[message.sender] = message.payload["omega"]
        state.held[message.sender] = 1.0
        return state

    def broadcast(
        self, state: FTSServer, recipients: Sequence[int], worth: Array, streams: Streams
    ) -> tuple[dict[int, Payload], FTSServer]:
        """Pass the messages of the others on; whoever has sent none has P_N = 0 (section 3.1 on stragglers)."""
        preference = state.held * worth * np.asarray(self.weights or 1.0)
        if self.relay == "one":
            return self._relayed(state, preference, recipients, streams), state
        omega = state.omega.copy()  # one for all recipients, since none may write to it
        omega.flags.writeable = False
        payloads: dict[int, Payload] = {}
        for agent in recipients:
            weight = preference.copy()
            weight[agent] = 0.0
            total = weight.sum()
            if total > 0:
                payloads[agent] = {"omega": omega, "weight": weight / total}
        return payloads, state

    def _relayed(self, state: FTSServer, preference: Array, recipients: Sequence[int], streams: Streams) -> dict[int, Payload]:
        """Draw one sender for each recipient from P_N without the recipient itself, by inversion."""
        reach = np.cumsum(preference)
        payloads: dict[int, Payload] = {}
        for agent in recipients:
            own = preference[agent]
            if not reach[-1] - own > 0:
                continue
            place = streams.of(agent).rng("P_N at the coordinator").random() * (reach[-1] - own)
            place += own if place >= reach[agent] - own else 0.0
            chosen = int(np.searchsorted(reach, place, side="right"))
            payloads[agent] = {"omega": state.omega[chosen].copy(), "sender": np.array([chosen])}
        return payloads


FAITHFUL = {
    "own": TS(**ts.FAITHFUL),  # type: ignore[arg-type]
    "p": "1-1/t^2",
    "query": "draw",
    "features": 100,
    "kernel": "se",
    "length_scale": 0.01,
    "noise": 1e-6,
    "centre": False,
    "apart": 0.0,
    "every": 0,
}


def _entry(control: str, summary: str) -> Entry:
    return Entry(FTS, {"control": control}, {"faithful": FAITHFUL}, summary)


ALGORITHMS = {
    "fts": _entry("none", "federated Thompson sampling"),
    "fts_noise": _entry("noise", "control for fts: every message is a draw from N(0, I)"),
    "fts_uniform": _entry("uniform", "control for fts: uniform points instead of federated queries"),
}
