"""Stoppers, as pure functions of the rungs: asynchronous successive halving, alone and in brackets, and the median rule."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import Annotated, ClassVar, Literal, Protocol

from annotated_types import Ge

from fedbo.actors.stopping.rungs import Key, Place, RungState, best_of
from fedbo.settings.ranges import check

Verdict = Literal["go", "stop", "pause"]
Levels = tuple[int, ...]  # fidelities of the rungs of a bracket, ascending; the last is the largest


class Stopper(Protocol):
    """A rule for evaluations at rungs. `checkpoint` is how long it takes to go on with one that was paused."""

    checkpoint: float

    def brackets(self, smallest: int, largest: int) -> tuple[Levels, ...]:
        """Give the rungs of each bracket."""

    def shares(self, count: int) -> tuple[float, ...]:
        """Give the shares of evaluations that begin in each of `count` brackets, up to a common factor."""

    def verdict(self, state: RungState, levels: Levels, place: Place, key: Key) -> Verdict:
        """Say what becomes of an evaluation that has reached a rung below the largest fidelity, and is noted there."""

    def promoted(self, state: RungState) -> Key | None:
        """Give the paused evaluation that goes on now that there is a place, if any."""


def halving_levels(smallest: int, largest: int, reduction: int) -> Levels:
    """Give smallest, smallest * reduction, ... below the largest fidelity, and that."""
    levels = [smallest]
    while levels[-1] * reduction < largest:
        levels.append(levels[-1] * reduction)
    return (*levels, largest)


def is_among_best(values: dict[Key, float], key: Key, reduction: int) -> bool:
    """Return whether a value is among the best 1 / `reduction` of those at a rung; the best one always is."""
    ahead = sum(value > values[key] for value in values.values())
    return ahead == 0 or ahead < len(values) // reduction


@dataclass(frozen=True, slots=True)
class Halving:
    """Asynchronous successive halving (ASHA; Li et al. 2020, Alg. 2), and with brackets the asynchronous Hyperband.

    Rungs are at `smallest` times the powers of `reduction`, of which each lets the best 1 / `reduction` go on. The variant
    "stop" decides once, when an evaluation reaches its rung, by those that were there before it; the best always goes on. The
    variant "promote" is that of the paper: all pause, and one that is among the best goes on as soon as there is a place,
    before a new point is decided on; to load its state takes `checkpoint` units of time.
    """

    reduction: Annotated[int, Ge(2)] = 3
    """Factor between rungs; the best 1 / reduction continue."""
    smallest: Annotated[int, Ge(1)] | None = None
    """Fidelity of the first rung. Default: the smallest of the objectives."""
    variant: Literal["stop", "promote"] = "stop"
    """Stop at a rung, or pause there and perhaps be promoted later."""
    checkpoint: Annotated[float, Ge(0.0)] = 0.0
    """Units of time that resuming a paused evaluation takes."""

    removed: ClassVar[dict[str, tuple[object, str]]] = {
        "compare": ("own", "was removed, since it gained nothing; leave it out, and agents compare with their own evaluations")
    }

    def __post_init__(self) -> None:
        check(self)

    def brackets(self, smallest: int, largest: int) -> tuple[Levels, ...]:
        """Give the rungs of the only bracket."""
        return (halving_levels(self.smallest or smallest, largest, self.reduction),)

    def shares(self, count: int) -> tuple[float, ...]:
        """Let all begin in the only bracket."""
        return (1.0,) * count

    def verdict(self, state: RungState, levels: Levels, place: Place, key: Key) -> Verdict:
        """Let all pause, or the best go on."""
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


@dataclass(frozen=True, slots=True)
class Hyperband(Halving):
    """Successive halving in brackets (Li et al. 2018), asynchronously: bracket s begins at its rung s.

    The bracket of an evaluation is drawn, with the share of evaluations that Hyperband gives it.
    """

    def brackets(self, smallest: int, largest: int) -> tuple[Levels, ...]:
        """Give the rungs of each bracket: those of the first one without the lowest s, down to the largest fidelity alone."""
        levels = halving_levels(self.smallest or smallest, largest, self.reduction)
        return tuple(levels[first:] for first in range(len(levels)))

    def shares(self, count: int) -> tuple[float, ...]:
        """Give ceil((S + 1) / (S + 1 - s) * reduction^(S - s)), with S + 1 brackets (Li et al. 2018, Alg. 1 line 3)."""
        return tuple(float(-(-count * self.reduction ** (count - 1 - s) // (count - s))) for s in range(count))


@dataclass(frozen=True, slots=True)
class Median:
    """The median stopping rule (Golovin et al. 2017): at every rung, from `grace` steps on and `interval` steps apart.

    An evaluation stops when its best value so far is below the median of the means so far of the others that came as far, if
    these are at least `others`.
    """

    grace: Annotated[int, Ge(1)] | None = None
    """Fidelity of the first rung. Default: the smallest of the objectives."""
    interval: Annotated[int, Ge(1)] = 1
    """Fidelities between two rungs."""
    others: Annotated[int, Ge(1)] = 3
    """Other evaluations that must have come as far."""
    checkpoint: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check(self)

    def brackets(self, smallest: int, largest: int) -> tuple[Levels, ...]:
        """Give the rungs of the only bracket."""
        return ((*range(self.grace or smallest, largest, self.interval), largest),)

    def shares(self, count: int) -> tuple[float, ...]:
        """Let all begin in the only bracket."""
        return (1.0,) * count

    def verdict(self, state: RungState, levels: Levels, place: Place, key: Key) -> Verdict:
        """Compare the best value with the median of running means."""
        bracket, fidelity = place
        passed = [state.values[bracket, level] for level in levels if level <= fidelity]
        means = [fmean(values[other] for values in passed) for other in passed[-1] if other != key]
        if len(means) < self.others:
            return "go"
        return "go" if max(values[key] for values in passed) >= median(means) else "stop"

    def promoted(self, state: RungState) -> Key | None:
        """Give none: nothing is paused."""
        return None


STOPPERS: dict[str, type[Halving] | type[Median]] = {"asha": Halving, "hyperband": Hyperband, "median": Median}
