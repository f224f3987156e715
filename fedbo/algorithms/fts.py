"""Federated Thompson sampling (Dai et al. 2020, Algorithm 1), and the two controls that every claim for it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms import ts
from fedbo.algorithms.base import AnswerColumns, Array, Declaration, Field, Inbound, Occasions, Payload, Problem
from fedbo.algorithms.catalog import Entry
from fedbo.algorithms.components.draw_search import Values
from fedbo.algorithms.components.federated import Federated, FederatedState
from fedbo.algorithms.components.inner_search import maximise_draw, maximise_in_cube
from fedbo.algorithms.components.schedules import check_probabilities
from fedbo.algorithms.components.several import metrics
from fedbo.algorithms.reveals import Reveals
from fedbo.algorithms.streams import Numbers, StreamBlock, Streams
from fedbo.algorithms.ts import TS
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf
from fedbo.settings.records import changed
from fedbo.surrogates.draws import compiled_surface, message_function
from fedbo.surrogates.features import Features

Columns = dict[str, npt.NDArray[Any]]
_PURPOSE = "P_N at the coordinator"  # of the draw of a sender
_ONE = np.ones(1)
_ONE.flags.writeable = False  # the weight of the only message that agents hold, for all of them


class FTSServer(NamedTuple):
    """The coordinator's state: the newest message of each agent n, `omega[row[n]]`, and who has sent one, `held (N,)`.

    Where all messages are relayed, row n of `omega (N, M)` is that of agent n. Otherwise an agent gets a row, the next of those
    `used`, with its first message, so that an agent that is never asked costs none.
    """

    omega: Array
    held: Array
    row: npt.NDArray[np.int64]
    used: int = 0


@dataclass(frozen=True, slots=True)
class FTS(Federated):
    """Federated Thompson sampling; `Federated` has the settings that are not named here.

    A message is one draw omega_n from the linear model; with `centre` it is multiplied by the standard deviation of the values
    again. A federated query maximises a function made of the messages that an agent holds. With several objectives or bounds a
    message has one block of M numbers for each, and `own.scalarise` compares points.

    query: "draw", phi(x)' omega_n of one agent n drawn from P_N as in the paper. "mean" is the mean of all messages, weighted
      by P_N times independent exponential weights (the Bayesian bootstrap), so that it varies as much as the agents disagree.
      With a robust `aggregation` it is the centre by P_N alone.
    weights: P_N, one number for each agent; empty for uniform.
    every: with 0 and `query` "draw" a receiver uses a message once and then removes its agent from P_N.
    relay: "all" passes on the messages of all agents, N M numbers; "one" that of one agent, which the coordinator draws from
      P_N.
    control: "noise" replaces every omega_n by a draw from N(0, I).
    """

    horizon_use: ClassVar[str] = ""
    reveals: ClassVar[Reveals] = Reveals.DRAWS

    query: Annotated[str, OneOf(("draw", "mean"))] = "mean"
    """Follow one drawn message, as in the paper, or a weighted mean of all."""
    weights: tuple[float, ...] = ()
    """Weights P_N of the agents. Default: uniform."""
    relay: Annotated[str, OneOf(("all", "one"))] = "all"
    """Pass on all messages with P_N, or one drawn from P_N."""

    def __post_init__(self) -> None:
        Federated.__post_init__(self)
        if any(not 0 <= weight < np.inf for weight in self.weights) or (self.weights and not sum(self.weights) > 0):
            raise SettingError("weights", "must be at least 0 with a positive sum", self.weights)
        if not self.aggregation.is_mean and (self.query, self.relay) != ("mean", "all"):
            needed = 'must have rule = "mean" if an agent follows a single message'
            raise SettingError("aggregation", needed, self.aggregation.rule, 'or set query = "mean" and relay = "all"')

    def upload(self, problem: Problem) -> Declaration | None:
        """Declare one draw omega_n `(M,)`, or one for each metric, `(k M,)`.

        Raises SettingError when the settings do not suit the problem.
        """
        if self.weights and len(self.weights) != problem.n_agents:
            raise SettingError(
                "weights", f"must be one number for each of the {problem.n_agents} agents, not {len(self.weights)}"
            )
        check_probabilities(self.p, problem.iterations)
        return {"omega": Field((self.features * metrics(problem),))}

    def download(self, problem: Problem) -> Declaration | None:
        """Declare the newest messages of all agents with P_N, or the message of one agent and its number."""
        width = self.features * metrics(problem)
        if self.relay == "one":
            return {"omega": Field((width,)), "sender": Field((1,), "int64")}
        return {"omega": Field((problem.n_agents, width)), "weight": Field((problem.n_agents,))}

    def _capacity(self, problem: Problem) -> int:
        return problem.n_agents if self.relay == "all" else 1

    def held(self, payload: Payload) -> tuple[Array, Array]:
        if self.relay == "one":
            return payload["omega"][None, :], _ONE
        return payload["omega"], payload["weight"]

    def federated_query(self, state: FederatedState, streams: Streams) -> tuple[Array, FederatedState]:
        omega, weight = self._function(state.omega, state.weight, streams)
        function = message_function(state.features, omega)
        u = maximise_draw(function, state.local, self.own.coordinates, streams)
        return u, state if weight is state.weight else changed(state, weight=weight)

    def federated_queries(self, features: Features, held: Sequence[tuple[Array, Array]], streams: StreamBlock) -> Array:
        if self.relay == "one" and self.query == "draw":  # there is no choice to draw
            omega = np.array([vectors[0] for vectors, _ in held])
        else:
            omega = np.array([self._function(*vectors, own)[0] for vectors, own in zip(held, streams, strict=True)])
        return maximise_in_cube(features, omega, streams)

    def _surfaces(self, states: Sequence[FederatedState], streams: Streams) -> tuple[list[Values], Sequence[FederatedState]]:
        found = [self._function(each.omega, each.weight, streams) for each in states]  # by one stream: the same agents for all
        dim, features = states[0].local.u.shape[1], states[0].features
        after = [changed(each, weight=weight) for each, (_, weight) in zip(states, found, strict=True)]
        return [compiled_surface(message_function(features, omega), dim)[0] for omega, _ in found], after

    def _function(self, omega: Array, weight: Array, streams: Streams) -> tuple[Array, Array]:
        """Choose the weights `(M,)` of the function to follow, and take from P_N what may be used only once."""
        if self.query == "mean":
            if not self.aggregation.is_mean:  # a bootstrap may give half of the weight to a few who lie
                return self.aggregation.of(omega, weight), weight
            bootstrap = weight * streams.rng("P_N").standard_exponential(len(weight))
            return bootstrap @ omega / bootstrap.sum(), weight
        chosen = 0
        if len(weight) > 1:
            chosen = int(streams.rng("P_N").choice(len(weight), p=weight / weight.sum()))
        if not self.every:
            weight = weight.copy()
            weight[chosen] = 0.0
        return omega[chosen], weight

    @property
    def width(self) -> float:
        """Messages are draws omega_n ~ N(nu_n, sigma^2 Sigma_n^-1) (section 3.1)."""
        return 1.0

    def messages(self, omega: Array, spread: Array, used: Numbers, streams: Iterable[Streams]) -> Array:
        if self.control == "noise":
            return np.array([own.rng("message").standard_normal(self.features) for own in streams])
        return spread[:, None] * omega

    def server_init(self, problem: Problem) -> FTSServer:
        """Start without messages."""
        count = problem.n_agents if self.relay == "all" else 0
        row = np.arange(count) if self.relay == "all" else np.full(problem.n_agents, -1)
        return FTSServer(np.zeros((count, self.features * metrics(problem))), np.zeros(problem.n_agents), row)

    def receive(self, state: FTSServer, message: Inbound, now: float) -> FTSServer:
        """Store an agent's newest message."""
        sender = message.sender
        if state.row[sender] < 0:
            state = self._with_rows(state, [sender])
        state.omega[state.row[sender]] = message.payload["omega"]
        state.held[sender] = 1.0
        return state

    def _with_rows(self, state: FTSServer, senders: Sequence[int]) -> FTSServer:
        """Give rows to agents that have none."""
        omega, count = state.omega, len(state.omega)
        while state.used + len(senders) > count:
            count = max(64, 2 * count)
        if count > len(omega):
            omega = np.zeros((count, state.omega.shape[1]))
            omega[: len(state.omega)] = state.omega
        state.row[senders] = np.arange(state.used, state.used + len(senders))
        return state._replace(omega=omega, used=state.used + len(senders))

    def broadcast(
        self, state: FTSServer, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], FTSServer]:
        """Relay the messages of the others; an agent without a message has P_N = 0 (section 3.1 on stragglers)."""
        preference = state.held * staleness_weight * np.asarray(self.weights or 1.0)
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
        """Draw one sender for each recipient."""
        asked = np.array(recipients, dtype=np.int64)
        places, chosen = _drawn(preference, asked, streams.each(asked, np.full(len(asked), streams.step)).uniforms(_PURPOSE))
        sent = zip(asked[places].tolist(), state.row[chosen].tolist(), chosen[:, None], strict=True)
        return {agent: {"omega": state.omega[row].copy(), "sender": sender} for agent, row, sender in sent}

    @property
    def is_joint(self) -> bool:
        """Return whether an answer is one message."""
        return self.relay == "one"

    def _received(self, state: FTSServer, senders: Numbers, omega: Array) -> FTSServer:
        """Store the newest messages of agents."""
        first = dict.fromkeys(senders[state.row[senders] < 0].tolist())
        state = self._with_rows(state, list(first)) if first else state
        state.omega[state.row[senders]] = omega  # of equal rows NumPy keeps the last
        state.held[senders] = 1.0
        return state

    def answer_each(
        self,
        state: FTSServer,
        senders: Numbers,
        payload: Columns,
        staleness_weight: Array,
        occasions: Occasions,
        streams: Streams,
    ) -> tuple[AnswerColumns, FTSServer]:
        """Relay one message to each recipient, of those that were there by then; P_N changes with first messages alone."""
        recipients, after, numbers = occasions
        uniform, taken, count = streams.each(recipients, numbers).uniforms(_PURPOSE), len(senders), len(recipients)
        weights, chosen, start = staleness_weight * np.asarray(self.weights or 1.0), np.full(count, -1), 0
        preference, known, new = state.held * weights, state.held > 0, list[int]()
        for place, sender in enumerate(senders.tolist()):
            if not known[sender]:
                known[sender] = True
                new.append(place)
        for place, end in zip([*new, -1], [*after.searchsorted(new, side="right").tolist(), count], strict=True):
            if end > start:
                places, found = _drawn(preference, recipients[start:end], uniform[start:end])
                chosen[start + places] = found
                if len(places) < end - start:  # there is nobody whose message one of them could get
                    first = start + int((np.append(places, -1) != np.arange(len(places) + 1)).argmax())
                    taken, count = int(after[first]), int(numbers.searchsorted(numbers[first], side="right"))
                    break
                start = end
            if place >= 0:
                preference[senders[place]] = weights[senders[place]]
        answered = np.flatnonzero(chosen[:count] >= 0)
        chosen = chosen[answered]
        omega = _newest(state, senders, payload["omega"], chosen, after[answered])
        state = self._received(state, senders[:taken], payload["omega"][:taken])
        return AnswerColumns(answered, {"omega": omega, "sender": chosen[:, None]}), state


def _newest(state: FTSServer, senders: Numbers, omega: Array, chosen: Numbers, after: Numbers) -> Array:
    """Return the newest message `(l, M)` of each of the `chosen` agents, once so many messages `omega (k, M)` were received."""
    if not len(senders):
        return state.omega[state.row[chosen]]
    width = len(senders) + 1
    order = np.sort(senders * width + np.arange(len(senders)))
    last = order[order.searchsorted(chosen * width + after) - 1]
    is_new = (last // width == chosen) & (last % width < after)
    found = np.empty((len(chosen), omega.shape[1]))
    found[is_new] = omega[last[is_new] % width]
    found[~is_new] = state.omega[state.row[chosen[~is_new]]]
    return found


def _drawn(preference: Array, asked: Numbers, uniform: Array) -> tuple[Numbers, Numbers]:
    """Find a sender from P_N without the agent itself, by inversion of a `uniform` number for each of the `asked` agents.

    Return the places of those that have a sender, and the senders. The others know nobody but themselves.
    """
    reach = np.cumsum(preference)
    places = np.flatnonzero(reach[-1] - preference[asked] > 0)
    asked = asked[places]
    own = preference[asked]
    place = uniform[places] * (reach[-1] - own)
    place += np.where(place >= reach[asked] - own, own, 0.0)
    return places, reach.searchsorted(place, side="right")


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
