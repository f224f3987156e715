"""Availability models: whether an agent is available, before each of its iterations or over continuous time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt

from fedbo.algorithms.streams import Streams
from fedbo.coordinator.environment.duration_blocks import durations
from fedbo.coordinator.environment.timing import Constant, Timing
from fedbo.coordinator.environment.traces import FORMATS, cycling, ids_in, not_there, once, schedule
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import check

Array = npt.NDArray[np.float64]


class Availability(Protocol):
    """A model of absence, either before iterations or in continuous time; it adds no absences of the other kind."""

    def absences(self, rng: np.random.Generator, size: int) -> Array:
        """Return the length of the absence before each of `size` iterations; 0 means available."""

    def changes(self, agent: int, rng: np.random.Generator) -> Iterator[float]:
        """Return the ascending times at which the agent leaves, returns, leaves, …; the sequence may be endless."""


@dataclass(frozen=True, slots=True)
class Always:
    """Every agent is always available."""

    model: ClassVar[str] = "always"

    def absences(self, rng: np.random.Generator, size: int) -> Array:
        """Return no absence."""
        return np.zeros(size)

    def changes(self, agent: int, rng: np.random.Generator) -> Iterator[float]:
        """Return no change."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Before each iteration, and independently, an agent is away with this `probability`.

    It stays away for `absence` units of time; under a barrier it misses the whole round instead.
    """

    model: ClassVar[str] = "bernoulli"
    probability: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Probability of an absence before an iteration."""
    absence: Annotated[float, Gt(0), Lt(inf)] = 1.0
    """Length of an absence [units of time]; unused under modes with rounds."""

    def __post_init__(self) -> None:
        check(self)

    def absences(self, rng: np.random.Generator, size: int) -> Array:
        """Draw `size` absences, each 0 or `absence`."""
        return np.where(rng.random(size) < self.probability, self.absence, 0.0)

    def changes(self, agent: int, rng: np.random.Generator) -> Iterator[float]:
        """Return no change."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Markov:
    """An agent comes and goes: presences and absences are exponential with means `present` and `absent`, in units of time.

    At time 0 it is there with the probability that holds in the long run, present / (present + absent).
    """

    model: ClassVar[str] = "markov"
    present: Annotated[float, Gt(0), Lt(inf)] = 10.0
    """Mean length of a presence [units of time]."""
    absent: Annotated[float, Gt(0), Lt(inf)] = 2.0
    """Mean length of an absence [units of time]."""

    def __post_init__(self) -> None:
        check(self)

    def absences(self, rng: np.random.Generator, size: int) -> Array:
        """Return no absence: this model works in continuous time."""
        return np.zeros(size)

    def changes(self, agent: int, rng: np.random.Generator) -> Iterator[float]:
        """Yield the endless changes; the first length needs no correction, because exponential times have no memory."""
        now = 0.0
        if rng.random() * (self.present + self.absent) < self.present:
            now = rng.exponential(self.present)
        while True:
            yield now
            now += rng.exponential(self.absent)
            yield now
            now += rng.exponential(self.present)


@dataclass(frozen=True, slots=True)
class Daily:
    """Every agent is there for `present` units of time a day, from `start` o'clock in its own time zone.

    A day has `day` units of time, and time 0 is midnight in the first of `zones` time zones, which lie evenly over the day;
    each agent's zone is drawn once, all equally likely. With `zones` = 1 all agents come and go together.
    """

    model: ClassVar[str] = "daily"
    day: Annotated[float, Gt(0), Lt(inf)] = 24.0
    """Length of a day [units of time]."""
    present: float = 8.0
    """Presence of an agent each day [units of time]."""
    start: float = 22.0
    """Time of day at which it comes, in its own time zone."""
    zones: Annotated[int, Ge(1)] = 24
    """Time zones, evenly over the day."""

    def __post_init__(self) -> None:
        check(self)
        if not 0 < self.present <= self.day:
            raise SettingError("present", f"must be above 0 and at most a day of {self.day}", self.present)
        if not 0 <= self.start < self.day:
            raise SettingError("start", f"must be at least 0 and below a day of {self.day}", self.start)

    def absences(self, rng: np.random.Generator, size: int) -> Array:
        """Return no absence: this model works in continuous time."""
        return np.zeros(size)

    def changes(self, agent: int, rng: np.random.Generator) -> Iterator[float]:
        """Draw the agent's time zone; return the endless changes, or none when the agent is available all day."""
        start = (self.start - int(rng.integers(self.zones)) * self.day / self.zones) % self.day
        end = start + self.present
        if end <= self.day:
            return cycling(((start, end),), self.day)
        return cycling(((0.0, end - self.day), (start, self.day)), self.day)


@dataclass(frozen=True, slots=True)
class Trace:
    """Agents come and go by the times in a `file`, whose `format` is `windows` or `fedscale`.

    `windows` is a table, .csv or .parquet, with columns agent, start, end: the agent is there from start to end, or for good
    where there is no end, and away for the rest of the study. `fedscale` is FedScale's trace as JSON, which begins again when
    it is over. In both, agent k follows the k-th smallest id of the file, whole numbers or strings, and when there are fewer
    ids than agents they are used again in turn. A relative path counts from the working directory.
    """

    model: ClassVar[str] = "trace"
    file: str
    """CSV, Parquet or JSON file, relative to the study file."""
    format: str = "windows"
    """Table of presences, or FedScale's trace."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise SettingError("format", f"must be one of {', '.join(FORMATS)}", self.format)
        try:
            schedule(self.file, self.format)
        except FileNotFoundError:  # a wrong setting, like any other
            raise SettingError("file", not_there(self.file)) from None

    def absences(self, rng: np.random.Generator, size: int) -> Array:
        """Return no absence: this model works in continuous time."""
        return np.zeros(size)

    def changes(self, agent: int, rng: np.random.Generator) -> Iterator[float]:
        """Return the changes in the file."""
        return schedule(self.file, self.format)(agent)

    @property
    def ids(self) -> int:
        """Return the number of ids in the file."""
        return ids_in(self.file, self.format)


@dataclass(frozen=True, slots=True)
class Within:
    """Agents that come and go by another `model`, but only from the time `begin` until `end`.

    An agent that is present at `end` leaves for good. This model is not in the catalogue: [[group]] has `from` and `until` for
    it.
    """

    model: Availability
    begin: Annotated[float, Ge(0)] = 0.0
    end: float = inf

    def absences(self, rng: np.random.Generator, size: int) -> Array:
        """Return the absences of the inner model."""
        return self.model.absences(rng, size)

    def changes(self, agent: int, rng: np.random.Generator) -> Iterator[float]:
        """Return the changes of the inner model, clipped to the window."""
        return once(self._windows(self.model.changes(agent, rng)))

    def _windows(self, changes: Iterator[float]) -> Iterator[tuple[float, float]]:
        start: float | None = 0.0
        while start is not None and start < self.end:
            window = max(start, self.begin), min(next(changes, inf), self.end)
            if window[0] < window[1]:
                yield window
            start = next(changes, None)


_Model = Always | Bernoulli | Markov | Daily | Trace
_MODELS: tuple[type[_Model], ...] = (Always, Bernoulli, Markov, Daily, Trace)
AVAILABILITIES: dict[str, type[_Model]] = {m.model: m for m in _MODELS}


def absences(availability_of: Callable[[int], Availability], streams: Streams) -> Callable[[int, int], float]:
    """Return the function (agent, step) -> length of the absence before that iteration; 0 means available."""

    def lengths(agent: int) -> Timing:
        availability = availability_of(agent)
        return Constant(0.0) if never_before_steps(availability) else _Absences(availability)  # spares the stream

    return durations(lengths, "absence", streams)


def never_before_steps(availability: Availability) -> bool:
    """Check whether a model is known never to make its agents absent before a step."""
    if isinstance(availability, Within):
        return never_before_steps(availability.model)
    return isinstance(availability, Always | Markov | Daily | Trace)


def is_memoryless(availability: Availability) -> bool:
    """Check whether what follows a moment depends on the past only by whether the agent is there."""
    return isinstance(availability.model if isinstance(availability, Within) else availability, Markov)


def leaves(availability: Availability) -> bool:
    """Check whether agents may leave in continuous time; if not, no stream is needed."""
    return not isinstance(availability, Always | Bernoulli)


@dataclass(frozen=True, slots=True)
class _Absences:
    costs: ClassVar[bool] = False
    availability: Availability

    def speed(self, rng: np.random.Generator) -> float:
        return 1.0

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        return self.availability.absences(rng, size)


class Ascending:
    """Ascending times, read in order: only the last is kept, and `again` restarts the sequence for an earlier one.

    A long run therefore keeps no list of past times. Each is what its distance from the one before, rounded, adds to that. If
    `number` and its `time` are known, the sequence is only drawn once a later one is asked for.
    """

    def __init__(self, again: Callable[[], Iterator[float]], number: int = -1, time: float = 0.0) -> None:
        self._again, self._count, self._last = again, number + 1, time
        self._further: Iterator[float] | None = None

    def at(self, number: int) -> float:
        """Return the time of this number, or infinity beyond the end of the sequence."""
        if number == self._count - 1:
            return self._last
        if self._further is None or number < self._count:
            self._further, self._count, self._last = self._again(), 0, 0.0
        while self._count <= number:
            time = next(self._further, math.inf)
            self._last = time if time == math.inf else self._last + (time - self._last)
            self._count += 1
        return self._last


class Changes:
    """The times at which agents leave and return: number 0 is the first departure, 1 the return from it, and so on.

    A pure function of agent and number, drawn from the agent's stream "availability"; only the last time is cached.
    """

    def __init__(self, availability_of: Callable[[int], Availability], streams: Streams) -> None:
        self._availability_of, self._streams = availability_of, streams
        self._known: dict[int, Ascending] = {}

    def __call__(self, agent: int, number: int) -> float:
        """Return the time of an agent's change of this number, or infinity if there is none."""
        return (self._known.get(agent) or self.enter(agent)).at(number)

    def forget(self, agent: int) -> None:
        """Hold nothing of an agent that will not be asked for soon."""
        self._known.pop(agent, None)

    def enter(self, agent: int, number: int = -1, time: float = 0.0) -> Ascending:
        """Hold the sequence of an agent, with the number and the time of one change if that is known."""
        model, streams = self._availability_of(agent), self._streams.of(agent).at(0)

        def again() -> Iterator[float]:
            return streams.times("availability", lambda rng: model.changes(agent, rng), is_memoryless(model))

        held = self._known[agent] = Ascending(again, number, time)
        return held
