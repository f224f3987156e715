"""Stoppers as pure functions of the rungs: asynchronous successive halving, Hyperband, and the median rule."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol

from annotated_types import Ge

from fedbo.actors.storage.evaluations import Query
from fedbo.settings.ranges import check

Key = tuple[int, int]  # step and point of an evaluation
Place = tuple[int, int]  # a bracket and a fidelity
Verdict = Literal["go", "stop", "pause"]
Levels = tuple[int, ...]  # fidelities of the rungs of a bracket, ascending; the last is the largest


class RungState(NamedTuple):
    """The state that a stopper decides by. It is a function of the ends that an agent received, in their order.

    - `values`: for each rung, the values of evaluations there, in the order in which they reached it.
    - `paused`: evaluations that are paused at a rung.
    """

    values: dict[Place, dict[Key, float]] = {}
    paused: dict[Key, Query] = {}

    def reached(self, place: Place, key: Key, value: float) -> RungState:
        """Return the state after an evaluation reached a rung with a value."""
        return self._replace(values={**self.values, place: {**self.values.get(place, {}), key: value}})

    def pausing(self, query: Query) -> RungState:
        """Return the state with an evaluation paused at the rung that it has reached."""
        return self._replace(paused={**self.paused, (query.step, query.point): query})

    def going_on(self, key: Key) -> RungState:
        """Return the state after a paused evaluation resumed."""
        return self._replace(paused={one: query for one, query in self.paused.items() if one != key})


def best_of(values: dict[Key, float], count: int) -> list[Key]:
    """Return the `count` evaluations with the largest values; ties go to the earlier one."""
    return sorted(values, key=lambda key: -values[key])[:count]


class Stopper(Protocol):
    """A rule for evaluations at rungs. `checkpoint` is the time that it takes to resume a paused evaluation."""

    checkpoint: float

    @property
    def variant(self) -> str:
        """Return "promote" if evaluations pause at rungs."""

    def brackets(self, smallest: int, largest: int) -> tuple[Levels, ...]:
        """Return the rungs of each bracket."""

    def shares(self, count: int) -> tuple[float, ...]:
        """Return the shares of evaluations that start in each of `count` brackets, up to a common factor."""

    def verdict(self, state: RungState, levels: Levels, place: Place, key: Key) -> Verdict:
        """Return the verdict on an evaluation whose value at a rung below the largest fidelity is in `state` already."""

    def promoted(self, state: RungState) -> Key | None:
        """Return the paused evaluation to resume now that there is a place, if any."""


def halving_levels(smallest: int, largest: int, reduction: int) -> Levels:
    """Return smallest, smallest * reduction, ... below the largest fidelity, followed by the largest fidelity."""
    levels = [smallest]
    while levels[-1] * reduction < largest:
        levels.append(levels[-1] * reduction)
    return (*levels, largest)


def is_among_best(values: dict[Key, float], key: Key, reduction: int) -> bool:
    """Return whether a value is among the best 1 / `reduction` of those at a rung; always True for the best one."""
    ahead = sum(value > values[key] for value in values.values())
    # With fewer than `reduction` values at the rung, only the best continues.
    return ahead == 0 or ahead < len(values) // reduction


@dataclass(frozen=True, slots=True)
class Halving:
    """Asynchronous successive halving (ASHA; Li et al. 2020, Alg. 2); with brackets, asynchronous Hyperband.

    Rungs are at `smallest` times the powers of `reduction`; the best 1 / `reduction` of each rung continue. The variant "stop"
    decides once, when an evaluation reaches its rung, by the evaluations that reached it before; the best always continues. The
    variant "promote" is that of the paper: all pause, and one that is among the best resumes as soon as there is a place,
    before a new point is decided on. To resume takes `checkpoint` units of time.
    """

    reduction: Annotated[int, Ge(2)] = 3
    """Factor between rungs; the best 1 / reduction continue."""
    smallest: Annotated[int, Ge(1)] | None = None
    """Fidelity of the first rung. Default: the smallest of the objectives."""
    variant: Literal["stop", "promote"] = "stop"
    """Stop at a rung, or pause there and perhaps be promoted later."""
    checkpoint: Annotated[float, Ge(0.0)] = 0.0
    """Units of time that resuming a paused evaluation takes; virtual time only."""
    disk_limit: Annotated[int, Ge(1), "it is in MiB"] = 10_240
    """Disk that the checkpoints of an agent's paused evaluations may take [MiB]; real time only."""

    def __post_init__(self) -> None:
        check(self)

    def brackets(self, smallest: int, largest: int) -> tuple[Levels, ...]:
        """Return the rungs of the only bracket."""
        return (halving_levels(self.smallest or smallest, largest, self.reduction),)

    def shares(self, count: int) -> tuple[float, ...]:
        """Return equal shares; there is only one bracket."""
        return (1.0,) * count

    def verdict(self, state: RungState, levels: Levels, place: Place, key: Key) -> Verdict:
        """Return "pause" in the variant "promote", else "go" for the best and "stop" for others."""
        if self.variant == "promote":
            return "pause"
        return "go" if is_among_best(state.values[place], key, self.reduction) else "stop"

    def promoted(self, state: RungState) -> Key | None:
        """Return the best paused evaluation among the best of its rung, from the highest rung on (Alg. 2, `get_job`)."""
        for place in sorted(state.values, key=lambda place: (-place[1], place[0])):
            values = state.values[place]
            for key in best_of(values, len(values) // self.reduction):
                span = state.paused[key].span if key in state.paused else None
                if span is not None and (span.bracket, span.fidelity) == place:
                    return key
        return None

    def losers(self, state: RungState) -> list[Key]:
        """Return the paused evaluations, those first that are not among the best 1 / `reduction`, each kind by age."""
        best = {(place, key) for place, all_ in state.values.items() for key in best_of(all_, len(all_) // self.reduction)}
        places = {
            key: (query.span.bracket, query.span.fidelity) for key, query in state.paused.items() if query.span is not None
        }
        return sorted(places, key=lambda key: (places[key], key) in best)


@dataclass(frozen=True, slots=True)
class Hyperband(Halving):
    """Successive halving in brackets (Li et al. 2018), asynchronously: bracket s starts at rung s.

    The bracket of an evaluation is drawn at random, with the shares of Hyperband.
    """

    def brackets(self, smallest: int, largest: int) -> tuple[Levels, ...]:
        """Return the rungs of each bracket: bracket s omits the lowest s rungs, the last one has the largest fidelity only."""
        levels = halving_levels(self.smallest or smallest, largest, self.reduction)
        return tuple(levels[first:] for first in range(len(levels)))

    def shares(self, count: int) -> tuple[float, ...]:
        """Return ceil((S + 1) / (S + 1 - s) * reduction^(S - s)), with S + 1 brackets (Li et al. 2018, Alg. 1 line 3)."""
        # -(-a // b) is the ceiling of a / b in integers, free of rounding errors.
        return tuple(float(-(-count * self.reduction ** (count - 1 - s) // (count - s))) for s in range(count))


@dataclass(frozen=True, slots=True)
class Median:
    """The median stopping rule (Golovin et al. 2017), at rungs from `grace` on, `interval` apart.

    An evaluation stops when its best value so far is below the median of the running means of the other evaluations that came
    as far. It needs at least `others` of these.
    """

    grace: Annotated[int, Ge(1)] | None = None
    """Fidelity of the first rung. Default: the smallest of the objectives."""
    interval: Annotated[int, Ge(1)] = 1
    """Fidelities between two rungs."""
    others: Annotated[int, Ge(1)] = 3
    """Other evaluations that must have come as far."""
    checkpoint: ClassVar[float] = 0.0
    variant: ClassVar[str] = "stop"

    def __post_init__(self) -> None:
        check(self)

    def brackets(self, smallest: int, largest: int) -> tuple[Levels, ...]:
        """Return the rungs of the only bracket."""
        return ((*range(self.grace or smallest, largest, self.interval), largest),)

    def shares(self, count: int) -> tuple[float, ...]:
        """Return equal shares; there is only one bracket."""
        return (1.0,) * count

    def verdict(self, state: RungState, levels: Levels, place: Place, key: Key) -> Verdict:
        """Return "go" if the best value so far is at least the median of the others' running means, else "stop"."""
        bracket, fidelity = place
        passed = [state.values[bracket, level] for level in levels if level <= fidelity]
        means = [fmean(values[other] for values in passed) for other in passed[-1] if other != key]
        if len(means) < self.others:
            return "go"
        return "go" if max(values[key] for values in passed) >= median(means) else "stop"

    def promoted(self, state: RungState) -> Key | None:
        """Return None, since nothing is paused."""
        return None


STOPPERS: dict[str, type[Halving] | type[Median]] = {"asha": Halving, "hyperband": Hyperband, "median": Median}
