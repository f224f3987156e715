"""What agents tell each other about their rungs: quantiles of the values there, within the messages of the algorithm.

Values of several agents differ in location and scale. So an agent tells them in units of its own: less the median of its values
at the lowest rung of the bracket, where none has been stopped before, and over their mean absolute deviation from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedbo.actors.stopping.rungs import Elsewhere, Place, RungState
from fedbo.actors.stopping.stoppers import Levels
from fedbo.algorithms.base import (
    Algorithm,
    Array,
    Avoiding,
    Decision,
    Declaration,
    Field,
    Inbound,
    Overlapping,
    Payload,
    Problem,
)
from fedbo.algorithms.streams import Streams

COUNTS, DECILES = "rung_counts", "rung_deciles"
_TENTHS = np.arange(1, 10) / 10


class RungDeciles(NamedTuple):
    """What an agent told last, after `step`: how many values it has at each rung `(R,)`, and their deciles `(R, 9)`."""

    step: int
    counts: Array
    deciles: Array


class ExchangeState(NamedTuple):
    """The coordinator's state: that of the algorithm, and what each agent told last."""

    algorithm: Any
    told: dict[int, RungDeciles]


@dataclass(frozen=True, slots=True)
class RungExchange:
    """An algorithm whose messages tell the deciles of each agent's values at the rungs of `brackets`, too.

    Every message has them, and every answer those of all other agents together; where the algorithm sends none, there is a
    message with them alone after every step. The states of agents are those of the algorithm. `is_silent` says
    whether it sends nothing, and `is_mute` whether it answers nothing.
    """

    algorithm: Algorithm
    brackets: tuple[Levels, ...]
    is_silent: bool
    is_mute: bool

    @property
    def places(self) -> list[Place]:
        """List the rungs below the largest fidelity, bracket by bracket."""
        return [(bracket, level) for bracket, levels in enumerate(self.brackets) for level in levels[:-1]]

    @property
    def queries(self) -> int | None:
        """Give the number of points of every decision."""
        return self.algorithm.queries

    def sends(self, step: int) -> bool:
        """As the algorithm; where it never sends, after every step."""
        return self.is_silent or self.algorithm.sends(step)

    def upload(self, problem: Problem) -> Declaration:
        """Declare the fields of the algorithm, and those of the rungs."""
        return {**(self.algorithm.upload(problem) or {}), **self._fields}

    def download(self, problem: Problem) -> Declaration:
        """Declare the fields of the algorithm, and those of the rungs."""
        return {**(self.algorithm.download(problem) or {}), **self._fields}

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        """Make the algorithm's state."""
        return self.algorithm.agent_init(problem, streams)

    def ask(self, state: Any, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Any]:
        """Let the algorithm choose, by its own part of the messages."""
        return self.algorithm.ask(state, () if self.is_mute else [_without(one) for one in inbox], streams)

    def tell(self, state: Any, x: Array, y: Array) -> Any:
        """Tell the algorithm."""
        return self.algorithm.tell(state, x, y)

    def pending(self, state: Any, x: Array) -> Any:
        """Let the algorithm take note of the points under way."""
        assert isinstance(self.algorithm, Overlapping)
        return self.algorithm.pending(state, x)

    def avoiding(self, state: Any, x: Array) -> Any:
        """Pass the algorithm the points that failed."""
        assert isinstance(self.algorithm, Avoiding)
        return self.algorithm.avoiding(state, x)

    def outbox(self, state: Any, streams: Streams) -> tuple[Payload | None, Any]:
        """Write the algorithm's message with rungs of which nothing is known; the agent adds what it knows (`telling`)."""
        payload: Payload | None = {}
        if not self.is_silent:
            payload, state = self.algorithm.outbox(state, streams)
        return None if payload is None else self.telling(payload, None), state

    def server_init(self, problem: Problem) -> ExchangeState:
        """Know of no rungs."""
        return ExchangeState(self.algorithm.server_init(problem), {})

    def receive(self, state: ExchangeState, message: Inbound, now: float) -> ExchangeState:
        """Keep what an agent tells of rungs, unless it told something later; let the algorithm take in the rest."""
        newest = state.told.get(message.sender)
        if newest is None or newest.step <= message.step:
            state.told[message.sender] = RungDeciles(message.step, message.payload[COUNTS], message.payload[DECILES])
        own = state.algorithm if self.is_silent else self.algorithm.receive(state.algorithm, _without(message), now)
        return state._replace(algorithm=own)

    def broadcast(
        self, state: ExchangeState, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], ExchangeState]:
        """Add to every answer of the algorithm the deciles of all agents but its recipient."""
        payloads: dict[int, Payload] = {agent: {} for agent in recipients}
        own = state.algorithm
        if not self.is_mute:
            payloads, own = self.algorithm.broadcast(own, recipients, staleness_weight, streams)
        answers: dict[int, Payload] = {
            agent: {**payload, **self._of_others(state, agent)} for agent, payload in payloads.items()
        }
        return answers, state._replace(algorithm=own)

    def telling(self, payload: Payload, rungs: RungState | None) -> Payload:
        """Put the rungs of an agent into its message."""
        counts, deciles = np.zeros(len(self.places)), np.zeros((len(self.places), len(_TENTHS)))
        for number, place in enumerate(self.places):
            scale = None if rungs is None else rungs.scale(place[0])
            if rungs is not None and scale is not None and place in rungs.values:
                values = np.array(list(rungs.values[place].values()))
                counts[number], deciles[number] = len(values), np.quantile((values - scale[0]) / scale[1], _TENTHS)
        return {**payload, COUNTS: counts, DECILES: deciles}

    def heard(self, rungs: RungState | None, inbox: Sequence[Inbound]) -> RungState | None:
        """Let the rungs of an agent know what the newest answer says of others."""
        if not inbox:
            return rungs
        counts, deciles = inbox[-1].payload[COUNTS], inbox[-1].payload[DECILES]
        others = {
            place: Elsewhere(float(count), tuple(points.tolist()))
            for place, count, points in zip(self.places, counts, deciles, strict=True)
            if count > 0
        }
        return (rungs or RungState())._replace(others=others)

    @property
    def bytes(self) -> int:
        """Count the bytes of a message that are for the rungs: ten numbers for each."""
        return 8 * (1 + len(_TENTHS)) * len(self.places)

    @property
    def _fields(self) -> Declaration:
        return {COUNTS: Field((len(self.places),), low=0.0), DECILES: Field((len(self.places), len(_TENTHS)))}

    def _of_others(self, state: ExchangeState, agent: int) -> Payload:
        """Merge what all other agents told: counts `(R,)` and deciles `(R, 9)`."""
        told = [one for other, one in sorted(state.told.items()) if other != agent]
        counts, deciles = np.zeros(len(self.places)), np.zeros((len(self.places), len(_TENTHS)))
        for number in range(len(self.places)) if told else ():
            weights = np.array([max(one.counts[number], 0.0) for one in told])
            counts[number] = weights.sum()
            if counts[number] > 0:
                deciles[number] = merged_deciles(weights, np.array([one.deciles[number] for one in told]))
        return {COUNTS: counts, DECILES: deciles}


def merged_deciles(counts: Array, deciles: Array) -> Array:
    """Give the deciles `(9,)` of several samples with these `counts (k,)` and `deciles (k, 9)`, of which each has equal weight.

    Decile j is the smallest of them up to which they have j / 10 of all weight.
    """
    points, weights = deciles.ravel(), np.repeat(counts, deciles.shape[1])
    order = np.argsort(points, kind="stable")
    below = np.cumsum(weights[order])
    tenths = np.arange(1, 10)
    place = np.searchsorted(10 * below, tenths * below[-1])  # in whole numbers, which no rounding moves
    found: Array = points[order][np.minimum(place, len(points) - 1)]
    return found


def _without(message: Inbound) -> Inbound:
    """Give a message without what it tells of rungs."""
    payload = {name: array for name, array in message.payload.items() if name not in (COUNTS, DECILES)}
    return message._replace(payload=payload)
