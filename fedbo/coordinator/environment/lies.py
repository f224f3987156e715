"""False messages: lies of agents, within the declaration of the message, and damage on the way.

An agent that lies evaluates, learns and decides as any other, and pays for its messages as any other. A lie changes the fields
that are declared as `observed`, have floating-point numbers, and are not positive matrices. The numbers stay between the bounds
of the declaration; NaN, which marks a missing value, stays.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import LARGEST, Declaration, Field, Payload
from fedbo.algorithms.messages import decode, encode
from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.faults import Lie, Plan

Numbers = npt.NDArray[Any]


class SentMessage(NamedTuple):
    """A message that may be copied: its sender, its step, and the arrays."""

    sender: int
    step: int
    payload: Payload


class Lies:
    """The lies of a fault plan; the caller keeps the state, which is the message that may be copied."""

    def __init__(self, plan: Plan, declared: Declaration | None, streams: Streams) -> None:
        self._lies = [(place, fault, frozenset(fault.agents)) for place, fault in enumerate(plan) if isinstance(fault, Lie)]
        self._streams = streams
        self._fields = {name: field for name, field in (declared or {}).items() if is_falsifiable(field)}
        self._copiers = frozenset[Any]().union(*(agents for _, fault, agents in self._lies if fault.how == "copy"))
        self.are_told = bool(self._lies)

    def falsified(self, message: SentMessage, newest: SentMessage | None, now: float) -> tuple[Payload, tuple[str, ...]]:
        """Return the message that is sent in place of an honest one, and its lies; no lies if it is sent unchanged.

        `newest` is the message that may be copied.
        """
        agent, step, payload = message
        told = list[str]()
        for place, lie, agents in self._lies:
            if agent not in agents or not lie.start <= now < (math.inf if lie.end is None else lie.end):
                continue
            if self._streams.of(agent).at(step).uniform(f"fault {place} befalls") >= lie.probability:
                continue
            other = payload
            if lie.how != "copy":
                changed = {name: self._numbers(place, lie, agent, name, payload[name], now) for name in self._fields}
                other = {**payload, **changed}
            elif newest is not None:
                other = newest.payload
            if any(
                not np.array_equal(other[name], array, equal_nan=array.dtype.kind == "f") for name, array in payload.items()
            ):
                payload, told = other, [*told, lie.how]
        return payload, tuple(told)

    def may_be_copied(self, agent: int) -> bool:
        """Check whether other agents may copy an agent: no agent copies one that itself copies at any time."""
        return bool(self._copiers) and agent not in self._copiers

    @np.errstate(over="ignore")  # what overflows is the largest number that may be sent
    def _numbers(self, place: int, lie: Lie, agent: int, name: str, honest: Numbers, now: float) -> Numbers:
        """Return the false numbers of one field, of the same shape and dtype as the honest ones."""
        there, field = np.isfinite(honest), self._fields[name]
        size = float(np.sqrt(np.mean(np.square(honest[there], dtype=np.float64)))) if there.any() else 0.0
        low, high = np.asarray(field.low), np.asarray(field.high)
        most = min(LARGEST, float(np.finfo(honest.dtype).max))
        bounded = bool(np.isfinite([low, high]).all())
        if lie.how == "inverted":
            middle = (low + high) / 2 if bounded else 0.0
            numbers = middle - lie.strength * (honest - middle)
        elif lie.how == "flattery":
            largest = lie.strength * float(np.abs(honest[there]).max(initial=0.0))
            numbers = np.broadcast_to(high if bounded else largest, honest.shape)
        else:
            owner = self._streams if lie.how == "collusion" else self._streams.of(agent)
            direction = owner.at(0).rng(f"fault {place} direction of {name}").standard_normal(honest.shape)
            if lie.how == "collusion":
                numbers = lie.strength * size * direction
            else:
                numbers = honest + lie.strength * (now - lie.start) * size * direction
        return np.where(there, np.clip(np.clip(numbers, -most, most), low, high), honest).astype(honest.dtype)


def is_falsifiable(field: Field) -> bool:
    """Check whether a lying agent may change a field of its message."""
    return field.observed and not field.positive and np.dtype(field.dtype).kind == "f"


def corrupted(payload: Payload, declared: Declaration, how: str, rng: np.random.Generator) -> Any:
    """Damage a message on its way; a message that can no longer be decoded arrives as bytes."""
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
