"""The fault plan as data: kinds, agents and times of faults, for simulated and for live agents.

Faults of *processes*, of agents or of the coordinator, begin at a time, at an event number, or at random with a rate; faults of
*messages* affect each transmission with a probability, within a span of time; a lie affects each message before it is sent.
`agents` is "all", the name of a group, or a tuple of agents. A preemption removes workers of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, get_args

from annotated_types import Ge, Gt, Le

from fedbo.settings.durations import DurationLaw
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check

Who = str | tuple[int, ...]
Times = Annotated[float, Ge(0), "0 is the start of the study"] | tuple[float, ...]
Lasting = Annotated[float, Gt(0)] | DurationLaw
Returning = Annotated[float, Gt(0), "remove it for a permanent loss"] | DurationLaw
DIRECTIONS = ("both", "up", "down")


@dataclass(frozen=True)
class _OnAgents:
    agents: Who = "all"
    """Affected agents: "all", the name of a group, or a list."""


@dataclass(frozen=True)
class _Begun:
    """A fault of processes: it begins at a time, at an event, or at random."""

    at: Times | None = None
    """Strikes then, once or often; set exactly one of at, event, rate."""
    event: Annotated[int, Ge(1), "1 is the first event"] | None = None
    """Strikes once, after so many events."""
    rate: Annotated[float, Ge(0)] | None = None
    """Mean number of strikes per unit of time and agent, while up."""

    def __post_init__(self) -> None:
        _check_begin(self)


@dataclass(frozen=True)
class _BegunOnAgents(_Begun, _OnAgents):
    """A fault of agents, each struck at its own times, or all of them together."""

    together: bool = False
    """Whether its agents are struck at the same times, and for as long."""


@dataclass(frozen=True)
class _Spanned:
    """A fault of messages: it affects each with a probability, within a span of time."""

    probability: Annotated[float, Ge(0), Le(1)] = 0.1
    """Probability for each transmission."""
    start: Annotated[float, Ge(0), "0 is the start of the study"] = 0.0
    """Start of the fault."""
    end: float | None = None
    """End of the fault. Default: end of the study."""

    def __post_init__(self) -> None:
        check(self)
        if self.end is not None and not self.end > self.start:
            raise SettingError("end", f"must be above start = {self.start}", self.end)


@dataclass(frozen=True)
class Crash(_BegunOnAgents):
    """Agents' processes die: the step at hand is begun again when they are back after `restart` units of time.

    Without `restart` they never come back. With `state` "lost" an agent forgets what it learned since its last checkpoint.
    """

    kind: ClassVar[str] = "crash"
    state: Annotated[str, OneOf(("kept", "lost"))] = "kept"
    """Whether a crashed agent forgets all since its last checkpoint."""
    restart: Returning | None = None
    """Units of time until the agents return, or their law. Default: never."""


@dataclass(frozen=True)
class Hang(_BegunOnAgents):
    """Agents stop for `duration`, unknown to the coordinator."""

    kind: ClassVar[str] = "hang"
    duration: Lasting = 1.0
    """Units of time, or their law."""


@dataclass(frozen=True)
class Slow(_BegunOnAgents):
    """Agents work `factor` times slower for `duration`."""

    kind: ClassVar[str] = "slow"
    duration: Lasting = 1.0
    factor: Annotated[float, Ge(1)] = 2.0
    """Factor on the agents' times."""


@dataclass(frozen=True)
class NetworkPartition(_Begun, _OnAgents):
    """Agents are cut off from the coordinator for `duration`: messages sent or arriving meanwhile are lost."""

    kind: ClassVar[str] = "partition"
    rate: Annotated[float, Ge(0)] | None = None
    """Mean number of strikes per unit of time, on all at once, while up."""
    duration: Lasting = 1.0


@dataclass(frozen=True)
class Restart(_Begun):
    """The coordinator is down for `duration`; it comes back with its state, but messages that reach it meanwhile are lost."""

    kind: ClassVar[str] = "coordinator"
    rate: Annotated[float, Ge(0)] | None = None
    """Mean number of strikes per unit of time, while up."""
    duration: Lasting = 1.0


@dataclass(frozen=True)
class Preemption:
    """Workers of a cluster are taken away for `duration`, or for good without one, each at its own times.

    Its evaluations wait for another worker. Their work is lost, or kept if `checkpoint` is set: the time that a continuation
    takes. With `notice` they go on for that time and save their work in it. `workers` is "all", or the name of a class.
    """

    kind: ClassVar[str] = "preemption"
    workers: str = "all"
    """Affected workers: "all", or the name of a class."""
    at: Times | None = None
    """Strikes then, once or often; set exactly one of at, rate."""
    rate: Annotated[float, Ge(0)] | None = None
    """Mean number of strikes per unit of time and worker, while up."""
    together: bool = False
    """Whether its workers are struck at the same times, and for as long."""
    duration: Returning | None = None
    """Units of time until a worker returns, or their law. Default: never."""
    checkpoint: Annotated[float, Ge(0)] | None = None
    """Units of time at speed 1 to resume interrupted work. Default: work is lost."""
    notice: Annotated[float, Ge(0)] = 0.0
    """Units of time from a strike until its worker is away, to save in."""

    def __post_init__(self) -> None:
        _check_begin(self, ("at", "rate"))


@dataclass(frozen=True)
class Loss(_Spanned, _OnAgents):
    """Transmissions are lost."""

    kind: ClassVar[str] = "loss"
    direction: Annotated[str, OneOf(DIRECTIONS)] = "both"
    """Affected transmissions; up is to the coordinator."""


@dataclass(frozen=True)
class Duplication(_Spanned, _OnAgents):
    """Messages arrive twice, the second copy `by` units of time after the first."""

    kind: ClassVar[str] = "duplication"
    direction: Annotated[str, OneOf(DIRECTIONS)] = "both"
    by: Annotated[float, Ge(0)] = 0.0
    """Units of time between the copies."""


@dataclass(frozen=True)
class Reordering(_Spanned, _OnAgents):
    """Messages take up to `by` units of time longer, uniformly drawn, so that later ones may overtake them."""

    kind: ClassVar[str] = "reordering"
    direction: Annotated[str, OneOf(DIRECTIONS)] = "both"
    by: Annotated[float, Gt(0)] = 1.0
    """Largest additional latency, uniformly drawn [units of time]."""


@dataclass(frozen=True)
class Delay(_Spanned, _OnAgents):
    """Messages take `by` units of time longer."""

    kind: ClassVar[str] = "delay"
    direction: Annotated[str, OneOf(DIRECTIONS)] = "both"
    by: Annotated[float, Gt(0)] = 1.0
    """Additional latency [units of time]."""


@dataclass(frozen=True)
class Corruption(_Spanned, _OnAgents):
    """Messages to the coordinator arrive damaged.

    `how` is "bits" (one bit flipped), "nan" (one number replaced), "shape" (the end cut off) or "replay" (the agent's
    previous message in place of this one).
    """

    kind: ClassVar[str] = "corruption"
    direction: ClassVar[str] = "up"
    how: Annotated[str, OneOf(("bits", "nan", "shape", "replay"))] = "bits"
    """Flipped bit, NaN, cut-off end, or the agent's previous message."""


_OWN_LIES = ("inverted", "flattery", "drift", "collusion")  # made of the liar's own message and of chance
LIES = (*_OWN_LIES, "copy")


@dataclass(frozen=True)
class Lie(_Spanned, _OnAgents):
    """Agents send false values in place of their results, within the declaration of the message.

    `how` is "inverted" (numbers with their sign turned), "flattery" (all numbers as large as the largest), "drift" (the honest
    ones and a fixed direction, `strength` times as long for each unit of time), "collusion" (one direction for all who lie, as
    long as the honest message) or "copy" (the newest message of an agent that does not copy). `strength` multiplies the false
    numbers.
    """

    kind: ClassVar[str] = "lie"
    probability: Annotated[float, Ge(0), Le(1)] = 1.0
    """Probability for each message."""
    how: Annotated[str, OneOf(LIES)] = "inverted"
    """Kind of lie, see agents that lie."""
    strength: Annotated[float, Gt(0), Le(1e6)] = 1.0
    """Factor of the lie; not with copy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.how == "copy" and self.strength != 1.0:
            raise SettingError(
                "strength", 'cannot be combined with how = "copy", which sends a copy of another message', self.strength
            )

    @property
    def is_own(self) -> bool:
        """Return whether the lie depends only on the liar's own message, and not on another agent."""
        return self.how in _OWN_LIES


ProcessFault = Crash | Hang | Slow | NetworkPartition | Restart
TransmissionFault = Loss | Duplication | Reordering | Delay | Corruption
MessageFault = TransmissionFault | Lie
Fault = ProcessFault | MessageFault | Preemption
Plan = tuple[Fault, ...]

PROCESS_FAULTS: tuple[type[ProcessFault], ...] = get_args(ProcessFault)
TRANSMISSION_FAULTS: tuple[type[TransmissionFault], ...] = get_args(TransmissionFault)
MESSAGE_FAULTS: tuple[type[MessageFault], ...] = get_args(MessageFault)
FAULTS: dict[str, type[Fault]] = {declared.kind: declared for declared in get_args(Fault)}


def set_times(fault: ProcessFault | Preemption) -> tuple[float, ...]:
    """Return the times at which a fault is set to strike, ascending; none where it strikes at random or at an event."""
    at = () if fault.at is None else fault.at
    return at if isinstance(at, tuple) else (at,)


def is_shared(fault: ProcessFault | Preemption) -> bool:
    """Check whether all that a fault strikes is struck at the same times, and for as long."""
    return isinstance(fault, Restart | NetworkPartition) or fault.together


def _check_begin(fault: _Begun | Preemption, names: tuple[str, ...] = ("at", "event", "rate")) -> None:
    given, all_names = [name for name in names if getattr(fault, name) is not None], f"{', '.join(names[:-1])} and {names[-1]}"
    if not given:
        raise ValueError(f"set exactly one of {all_names}")
    if len(given) > 1:
        raise SettingError(given[0], f"cannot be combined with {given[1]}; set exactly one of {all_names}")
    check(fault)
    if isinstance(fault.at, tuple) and (not fault.at or list(fault.at) != sorted(set(fault.at))):
        raise SettingError("at", "must be one or more ascending times", fault.at)
    lasts = getattr(fault, "restart", None) or getattr(fault, "duration", None)
    if getattr(fault, "together", False) and fault.rate is None and not isinstance(lasts, DurationLaw):
        raise SettingError(
            "together", "is true of all that is struck at set times for a set time; set a rate, or remove it", True
        )
