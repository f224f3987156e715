"""What lies between an agent and the coordinator: latency, bandwidth, and the faults that befall messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedbo.algorithms.base import Declaration, Payload
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.environment import World
from fedbo.coordinator.environment.faults import (
    BEFALLS,
    Befall,
    Corruption,
    Delay,
    Duplication,
    Loss,
    NetworkPartition,
    Reordering,
    Restart,
)
from fedbo.coordinator.environment.timing import Timing, durations
from fedbo.coordinator.events import AckTimeout, AnswerReceived, Effect, EventLine, MessageAtLink, MessageReceived
from fedbo.coordinator.messages import decode, encode, size, varies, weight
from fedbo.coordinator.state import CoreState


class Network:
    """Takes messages and says when they come to what; lines of the log go to `tell`."""

    def __init__(self, world: World, streams: Streams, upload: Declaration | None, tell: Callable[[EventLine], None]) -> None:
        self._world, self._streams, self._declared, self._tell = world, streams, upload, tell
        self._up_bytes = weight(upload)
        self._varies = varies(upload)

        def latency(agent: int) -> Timing:
            return world.of(agent).latency

        self._first = {way: durations(latency, f"latency {way}", streams) for way in ("up", "down")}
        self._again = {way: durations(latency, f"latency {way} again", streams) for way in ("up", "down")}
        self._befalls = [
            (place, fault, frozenset(fault.agents)) for place, fault in enumerate(world.plan) if isinstance(fault, BEFALLS)
        ]
        self._narrow = any(models.bandwidth for models in (world.common, *world.exceptions.values()))
        self.breaks = any(isinstance(fault, NetworkPartition | Restart) for fault in world.plan)  # whether ways are ever cut
        self._replays = any(isinstance(fault, Corruption) and fault.how == "replay" for _, fault, _ in self._befalls)

    def up(self, message: MessageReceived, state: CoreState, now: float) -> list[Effect]:
        """Send a message to the coordinator; one without contents takes as long as any other, and is not in the log."""
        agent, step, attempt = message.source, message.step, message.attempt
        bytes_ = size(message.payload)
        if bytes_:
            self._tell((now, "sent", agent, step, bytes_, "again" if attempt else ""))
        if self._is_cut(agent, state):
            return self._lost(message, agent, step, bytes_, "up", now)
        delay = self._delay("up", agent, step, attempt, bytes_ or self._up_bytes)
        if not self._befalls:
            return [(delay, self._arrival(message))]
        return self._befall_up(message, delay, state, now)

    def down(self, answer: AnswerReceived, bytes_: int, state: CoreState, now: float) -> list[Effect]:
        """Send an answer to an agent."""
        agent, number, attempt = answer.agent, answer.number, answer.attempt
        if self._is_cut(agent, state):
            return self._lost(answer, agent, number, bytes_, "down", now)
        delay = self._delay("down", agent, number, attempt, bytes_)
        if not self._befalls:
            return [(delay, answer)]
        copies = [0.0]
        for place, fault in self._striking(agent, number, attempt, "down", now):
            if isinstance(fault, Loss):
                return self._lost(answer, agent, number, bytes_, "down", now)
            delay, copies = self._detour(place, fault, (agent, number, attempt, "down"), delay, copies)
        return [(delay + later, answer) for later in copies]

    def reached(self, message: MessageReceived, state: CoreState, now: float) -> list[Effect]:
        """Let a message wait for its turn on the coordinator's own link."""
        assert self._world.link is not None
        # One that was cut short on its way, or is without contents, takes as long as any other.
        bytes_ = size(message.payload) if self._varies else self._up_bytes
        state.free = max(now, state.free) + bytes_ / self._world.link
        return [(state.free - now, message)]

    def lost_at_the_door(
        self, message: MessageReceived | AnswerReceived, bytes_: int, state: CoreState, now: float
    ) -> list[Effect]:
        """Lose a message that arrives where its way is cut; nothing when it is not."""
        agent, up = (message.source, True) if isinstance(message, MessageReceived) else (message.agent, False)
        number = message.step if isinstance(message, MessageReceived) else message.number
        if not (0 <= agent < len(state.cut)) or not self._is_cut(agent, state):
            return []
        return self._lost(message, agent, number, bytes_, "up" if up else "down", now)

    def _is_cut(self, agent: int, state: CoreState) -> bool:
        return bool(state.down or state.cut[agent])

    def _delay(self, way: str, agent: int, number: int, attempt: int, bytes_: int) -> float:
        if attempt:
            delay = self._again[way](agent, number * self._world.attempts + attempt)
        else:
            delay = self._first[way](agent, number)
        if not self._narrow:
            return delay
        bandwidth = self._world.of(agent).bandwidth
        return delay + bytes_ / bandwidth if bandwidth else delay

    def _arrival(self, message: MessageReceived) -> MessageReceived | MessageAtLink:
        return MessageAtLink(message) if self._world.link else message

    def _lost(
        self, message: MessageReceived | AnswerReceived, agent: int, number: int, bytes_: int, way: str, now: float
    ) -> list[Effect]:
        if bytes_ or way == "down":
            self._tell((now, "lost", agent, number, bytes_, way))
        return [(self._world.retry, AckTimeout(message))]

    def _befall_up(self, message: MessageReceived, delay: float, state: CoreState, now: float) -> list[Effect]:
        agent, step, attempt = message.source, message.step, message.attempt
        copies, carried, key = [0.0], message, (agent, step, attempt, "up")
        effects: list[Effect] = []
        for place, fault in self._striking(agent, step, attempt, "up", now):
            if isinstance(fault, Loss):
                return self._lost(message, agent, step, size(message.payload), "up", now)
            if isinstance(fault, Corruption) and fault.how == "replay":
                if agent in state.previous:  # in place of this message, which gets no answer then
                    carried = state.previous[agent]
                    effects = [(self._world.retry, AckTimeout(message))]
            elif isinstance(fault, Corruption) and self._declared is not None:
                rng = self._rng(place, key, "damage")
                carried = carried._replace(payload=corrupted(carried.payload, self._declared, fault.how, rng))
            else:
                delay, copies = self._detour(place, fault, key, delay, copies)
        if self._replays:
            state.previous[agent] = message
        return [(delay + later, self._arrival(carried)) for later in copies] + effects

    def _striking(self, agent: int, number: int, attempt: int, way: str, now: float) -> list[tuple[int, Befall]]:
        return [
            (place, fault)
            for place, fault, agents in self._befalls
            if fault.direction in (way, "both")
            and agent in agents
            and fault.start <= now < (float("inf") if fault.end is None else fault.end)
            and self._rng(place, (agent, number, attempt, way), "befalls").random() < fault.probability
        ]

    def _detour(
        self, place: int, fault: Befall, key: tuple[int, int, int, str], delay: float, copies: list[float]
    ) -> tuple[float, list[float]]:
        if isinstance(fault, Delay):
            return delay + fault.by, copies
        if isinstance(fault, Reordering):
            return delay + fault.by * float(self._rng(place, key, "detour").random()), copies
        assert isinstance(fault, Duplication)
        return delay, [*copies, copies[-1] + fault.by]

    def _rng(self, place: int, key: tuple[int, int, int, str], purpose: str) -> np.random.Generator:
        agent, number, attempt, way = key
        return self._streams.of(agent).at(number).rng(f"fault {place} {purpose} {way} {attempt}")


def corrupted(payload: Payload, declared: Declaration, how: str, rng: np.random.Generator) -> Any:
    """Damage a message on its way; what cannot be read any more arrives as bytes."""
    try:
        data = bytearray(encode(payload, declared))
    except (KeyError, TypeError, ValueError):
        return payload  # it was no message before
    if not data:
        return payload  # there is nothing to damage
    if how == "shape":
        return bytes(data[: int(rng.integers(len(data)))])
    if how == "bits":
        place = int(rng.integers(8 * len(data)))
        data[place // 8] ^= 1 << (place % 8)
        return decode(bytes(data), declared)
    arrays = {name: array.copy() for name, array in decode(bytes(data), declared).items()}
    floats = [array for array in arrays.values() if array.dtype.kind == "f" and array.size]
    if floats:
        chosen = floats[int(rng.integers(len(floats)))]
        chosen.flat[int(rng.integers(chosen.size))] = np.nan
    return arrays
