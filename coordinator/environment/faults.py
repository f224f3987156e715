"""The fault plan: what goes wrong, with whom and when, as data that acts on simulated and on live agents alike.

Faults of *processes*, of agents or of the coordinator, begin at a time, at an event number, or at random with a rate; faults of
*messages* meet each transmission with a probability, within a span of time. `agents` is "all", the name of a group, or a tuple
of agents.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbo.algorithms.settings import SettingError, UnknownChoice

Who = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Crash:
    """Agents' processes die: the step at hand is begun again when they are back after `restart` units of time.

    Without `restart` they never come back. With `state` "lost" an agent forgets what it learned since its last checkpoint.
    """

    kind: ClassVar[str] = "crash"
    agents: Who = "all"
    at: float | None = None
    event: int | None = None
    rate: float | None = None
    state: str = "kept"
    restart: float | None = None

    def __post_init__(self) -> None:
        _check_begin(self)
        if self.state not in ("kept", "lost"):
            raise UnknownChoice("state", self.state, ("kept", "lost"))
        if self.restart is not None and not self.restart > 0:
            raise SettingError("restart", "must be above 0", self.restart, "leave it out for a loss for good")


@dataclass(frozen=True, slots=True)
class Hang:
    """Agents stand still for `duration`, and nobody is told."""

    kind: ClassVar[str] = "hang"
    agents: Who = "all"
    at: float | None = None
    event: int | None = None
    rate: float | None = None
    duration: float = 1.0

    def __post_init__(self) -> None:
        _check_begin(self)
        _positive(self.duration, "duration")


@dataclass(frozen=True, slots=True)
class Slow:
    """Agents work `factor` times slower for `duration`."""

    kind: ClassVar[str] = "slow"
    agents: Who = "all"
    at: float | None = None
    event: int | None = None
    rate: float | None = None
    duration: float = 1.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        _check_begin(self)
        _positive(self.duration, "duration")
        if not self.factor >= 1:
            raise SettingError("factor", "must be at least 1", self.factor)


@dataclass(frozen=True, slots=True)
class NetworkPartition:
    """A network partition: agents are cut off from the coordinator for `duration`: what is under way between them is lost."""

    kind: ClassVar[str] = "partition"
    agents: Who = "all"
    at: float | None = None
    event: int | None = None
    rate: float | None = None
    duration: float = 1.0

    def __post_init__(self) -> None:
        _check_begin(self)
        _positive(self.duration, "duration")


@dataclass(frozen=True, slots=True)
class Restart:
    """The coordinator is down for `duration`; it comes back with its state, but what reaches it meanwhile is lost."""

    kind: ClassVar[str] = "coordinator"
    at: float | None = None
    event: int | None = None
    rate: float | None = None
    duration: float = 1.0

    def __post_init__(self) -> None:
        _check_begin(self)
        _positive(self.duration, "duration")


@dataclass(frozen=True, slots=True)
class Loss:
    """Transmissions are lost."""

    kind: ClassVar[str] = "loss"
    agents: Who = "all"
    probability: float = 0.1
    start: float = 0.0
    end: float | None = None
    direction: str = "both"

    def __post_init__(self) -> None:
        _check_span(self)


@dataclass(frozen=True, slots=True)
class Duplication:
    """Messages arrive twice, the second copy `by` units of time after the first."""

    kind: ClassVar[str] = "duplication"
    agents: Who = "all"
    probability: float = 0.1
    start: float = 0.0
    end: float | None = None
    direction: str = "both"
    by: float = 0.0

    def __post_init__(self) -> None:
        _check_span(self)
        if not self.by >= 0:
            raise SettingError("by", "must be at least 0", self.by)


@dataclass(frozen=True, slots=True)
class Reordering:
    """Messages take up to `by` units of time longer, uniformly drawn, so that later ones may overtake them."""

    kind: ClassVar[str] = "reordering"
    agents: Who = "all"
    probability: float = 0.1
    start: float = 0.0
    end: float | None = None
    direction: str = "both"
    by: float = 1.0

    def __post_init__(self) -> None:
        _check_span(self)
        _positive(self.by, "by")


@dataclass(frozen=True, slots=True)
class Delay:
    """Messages take `by` units of time longer."""

    kind: ClassVar[str] = "delay"
    agents: Who = "all"
    probability: float = 0.1
    start: float = 0.0
    end: float | None = None
    direction: str = "both"
    by: float = 1.0

    def __post_init__(self) -> None:
        _check_span(self)
        _positive(self.by, "by")


@dataclass(frozen=True, slots=True)
class Corruption:
    """Messages to the coordinator arrive damaged.

    `how` is "bits" (one bit flipped), "nan" (one number replaced), "shape" (the end cut off) or "replay" (the agent's
    previous message in place of this one).
    """

    kind: ClassVar[str] = "corruption"
    agents: Who = "all"
    probability: float = 0.1
    start: float = 0.0
    end: float | None = None
    direction: ClassVar[str] = "up"
    how: str = "bits"

    def __post_init__(self) -> None:
        _check_span(self)
        if self.how not in ("bits", "nan", "shape", "replay"):
            raise UnknownChoice("how", self.how, ("bits", "nan", "shape", "replay"))


ProcessFault = Crash | Hang | Slow | NetworkPartition | Restart
MessageFault = Loss | Duplication | Reordering | Delay | Corruption
Fault = ProcessFault | MessageFault
Plan = tuple[Fault, ...]

PROCESS_FAULTS: tuple[type[ProcessFault], ...] = (Crash, Hang, Slow, NetworkPartition, Restart)
MESSAGE_FAULTS: tuple[type[MessageFault], ...] = (Loss, Duplication, Reordering, Delay, Corruption)
FAULTS: dict[str, type[Fault]] = {declared.kind: declared for declared in (*PROCESS_FAULTS, *MESSAGE_FAULTS)}


def fault_times(fault: ProcessFault, rng: np.random.Generator) -> Iterator[float]:
    """Give the times at which a fault begins, ascending; none when it does at an event number or at the rate 0."""
    if fault.at is not None:
        return iter((fault.at,))
    if not fault.rate:
        return iter(())
    rate = fault.rate
    return itertools.accumulate(float(rng.exponential(1 / rate)) for _ in itertools.repeat(None))


def _check_begin(fault: ProcessFault) -> None:
    given = [name for name in ("at", "event", "rate") if getattr(fault, name) is not None]
    if len(given) != 1:
        if not given:
            raise ValueError("give one of at, event and rate")
        raise SettingError(given[0], "must be the only one of at, event and rate", " and ".join(given))
    if fault.at is not None and not fault.at >= 0:
        raise SettingError("at", "must be at least 0, when the study starts", fault.at)
    if fault.event is not None and fault.event < 1:
        raise SettingError("event", "must be at least 1, the first event", fault.event)
    if fault.rate is not None and not fault.rate >= 0:
        raise SettingError("rate", "must be at least 0", fault.rate)


def _check_span(fault: MessageFault) -> None:
    if not 0 <= fault.probability <= 1:
        raise SettingError("probability", "must be in [0, 1]", fault.probability)
    if not fault.start >= 0:
        raise SettingError("start", "must be at least 0, when the study starts", fault.start)
    if fault.end is not None and not fault.end > fault.start:
        raise SettingError("end", f"must be above start = {fault.start}", fault.end)
    if fault.direction not in ("both", "up", "down"):
        raise UnknownChoice("direction", fault.direction, ("both", "up", "down"))


def _positive(value: float, name: str) -> None:
    if not value > 0:
        raise SettingError(name, "must be above 0", value)
