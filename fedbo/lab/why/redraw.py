"""Streams with some draws made anew: those of chosen sources of luck, from the start of a run or from one moment on.

A redraw changes the scope of a stream, so it is as reproducible as the run itself, and leaves all other draws as they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.streams import COORDINATOR, WORLD, GoesOn, Streams
from fedbo.coordinator.kernel.state import AgentRecord, CoreState
from fedbo.coordinator.runtime.actor import Run

INITIAL, NOISE, DURATIONS, LATENCY, ABSENCES = "initial points", "observation noise", "durations", "latency", "absences"
DECISIONS, SELECTION, COORDINATION, PRIVATE_NOISE, FAULT = "decisions", "selection", "coordinator", "private noise", "fault"
WORLDS = "world"  # objectives and earlier tasks, which only another replicate draws anew
_PURPOSES = (
    (re.compile(r"objective$"), WORLDS),
    (re.compile(r"initial points$"), INITIAL),
    (re.compile(r"(evaluation|added noise)$"), NOISE),
    (re.compile(r"(evaluation time|speed class)"), DURATIONS),
    (re.compile(r"latency "), LATENCY),
    (re.compile(r"(absence|availability)"), ABSENCES),
    (re.compile(r"selection$"), SELECTION),
    (re.compile(r"(privacy |secrets of |shares$)"), PRIVATE_NOISE),
)
_FAULTS = re.compile(r"(?:fault|preemption) (\d+)")
_HISTORY = "history "  # the scope of earlier tasks
_TRIES = 1000  # times drawn until they agree with the past on who is present

Source = tuple[str, int | None]
"""A source of luck: its name, and the agent whose draws are meant, or None for those of all."""
EVERY: Source = ("", None)


@lru_cache(maxsize=4096)
def source_of(purpose: str, coordinates: bool) -> str:
    """Return the name of the source that a purpose belongs to; `coordinates` for draws of the coordinator."""
    if found := _FAULTS.match(purpose):
        return f"{FAULT} {found[1]}"
    named = next((name for pattern, name in _PURPOSES if pattern.match(purpose)), None)
    return named or (COORDINATION if coordinates else DECISIONS)


@dataclass(frozen=True, slots=True)
class Used:
    """The numbers of an agent's first draws that nothing has used at some moment.

    `decision` counts steps, `message` messages by step, `evaluation` and `repetition` evaluations, `absence` the steps that an
    absence may precede.
    """

    decision: int = 0
    message: int = 0
    evaluation: int = 0
    repetition: int = 0
    absence: int = 0

    @classmethod
    def of(cls, agent: AgentRecord, synchronous: bool) -> Used:
        """Read them from the coordinator's record: what a step under way has drawn is used, its message is not."""
        unbegun = agent.ready or not agent.lease
        decided = agent.step if unbegun else agent.step + 1
        sent = agent.step if unbegun or agent.current is not None else agent.step + 1
        away = decided + (agent.absent and not synchronous)
        return cls(decided, sent, agent.next_evaluation, agent.next_repetition, away)


@dataclass(frozen=True, slots=True)
class Moment:
    """The draws that a run has used at the time `time`; `attempts` is how often a message is sent at most."""

    time: float
    round: int
    release: int
    attempts: int
    agents: Mapping[int, Used]

    @classmethod
    def of(cls, state: CoreState, run: Run, time: float) -> Moment:
        """Read it from the state of a run."""
        agents = {agent.number: Used.of(agent, run.exchange.is_synchronous) for agent in state.agents.every()}
        release = 0 if state.privacy is None else state.privacy.release
        return cls(time, state.rounds.number, release, run.environment.attempts, agents)

    def first(self, purpose: str, source: str, owner: int) -> float:
        """Return the number of the first unused draw of a purpose; infinity where all were made at the start of the run."""
        own = self.agents.get(owner, Used())
        if owner == WORLD or "direction of" in purpose or purpose.endswith(" lasts"):  # which of these is past is not known
            return np.inf
        if source == PRIVATE_NOISE:
            return self.release + (purpose == "privacy sampling") if owner == COORDINATOR else own.message
        if owner == COORDINATOR:
            return self.round + (source == SELECTION)
        if source == NOISE:
            return own.evaluation + (purpose == "added noise")
        if source == DURATIONS:
            return own.repetition if purpose.endswith("again") else own.evaluation
        if source == LATENCY or source.startswith(FAULT):
            number = self.round if " down" in purpose else own.message
            return number * self.attempts if purpose.endswith("again") else number
        return own.absence if source == ABSENCES else own.decision


@dataclass(frozen=True, slots=True, eq=False)
class Redraw:
    """Which draws of a run are made anew: for each source the `tag` of the new draws, and from which moment on, if not all.

    `seen` collects the sources that were drawn from, new or not.
    """

    tags: Mapping[Source, str] = field(default_factory=dict)
    moment: Moment | None = None
    seen: set[Source] = field(default_factory=set)

    def tag(self, source: str, owner: int) -> str:
        """Return the tag of a source's new draws for one owner; empty where the draws stay."""
        for key in ((source, owner), (source, None), EVERY):
            if key in self.tags:
                return self.tags[key]
        return ""


@dataclass(slots=True, unsafe_hash=True)
class RedrawnStreams(Streams):
    """Streams of which some are replaced, as a `redraw` says."""

    redraw: Redraw = field(default_factory=Redraw)

    def _new(self, tag: str) -> Streams:
        return Streams(self.seed, 0, self.owner, self.step, tag + self.scope)

    def _old(self) -> Streams:
        return Streams(self.seed, self.replicate, self.owner, self.step, self.scope)

    def _source(self, purpose: str) -> tuple[str, str]:
        """Return the source of a purpose and the tag of its new draws."""
        source = source_of(purpose, self.owner == COORDINATOR)
        if source == WORLDS or self.scope.startswith(_HISTORY):
            return WORLDS, ""
        self.redraw.seen.add((source, self.owner))
        return source, self.redraw.tag(source, self.owner)

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the generator for one purpose."""
        source, tag = self._source(purpose)
        moment = self.redraw.moment
        stays = not tag or (moment is not None and self.step < moment.first(purpose, source, self.owner))
        return (self._old() if stays else self._new(tag)).rng(purpose)

    def block(
        self, purpose: str, first: int, draw: Callable[[np.random.Generator], npt.NDArray[np.float64]]
    ) -> npt.NDArray[np.float64]:
        """Return the numbers from `first` on; those that the moment of the redraw has used stay."""
        source, tag = self._source(purpose)
        if not tag:
            return draw(self._old().rng(purpose))
        new, moment = draw(self._new(tag).rng(purpose)), self.redraw.moment
        used = 0.0 if moment is None else moment.first(purpose, source, self.owner) - first
        kept = int(min(max(used, 0.0), len(new)))
        return np.concatenate([draw(self._old().rng(purpose))[:kept], new[kept:]]) if kept else new

    def times(
        self,
        purpose: str,
        draw: Callable[[np.random.Generator], Iterator[float]],
        memoryless: bool = True,
        goes_on: GoesOn = None,
    ) -> Iterator[float]:
        """Return ascending times; those before the moment of the redraw stay, and all of them where there is a memory."""
        source, tag = self._source(purpose)
        moment = self.redraw.moment
        if not tag:
            return draw(self._old().rng(purpose))
        if moment is None:
            return draw(self._new(tag).rng(purpose))
        if not memoryless:
            return draw(self._old().rng(purpose))
        past, rest = _parted(draw(self._old().rng(purpose)), moment.time)
        if goes_on is not None:
            return chain(past, goes_on(self._new(tag).rng(purpose), past, moment.time))
        for number in range(_TRIES):
            before, after = _parted(draw(self._new(f"{tag}{number} ").rng(purpose)), moment.time)
            if source != ABSENCES or len(before) % 2 == len(past) % 2:
                return chain(past, after)
        return chain(past, rest)

    def shared(self, purpose: str) -> np.random.Generator:
        """Return the generator that every agent of this replicate obtains for this purpose, at any step."""
        return self.of(WORLD).at(0).rng(purpose)

    def at(self, step: int) -> Streams:
        """Return the same owner's streams at another step."""
        return RedrawnStreams(self.seed, self.replicate, self.owner, step, self.scope, self.redraw)

    def of(self, owner: int) -> Streams:
        """Return another owner's streams at the same step."""
        return RedrawnStreams(self.seed, self.replicate, owner, self.step, self.scope, self.redraw)

    def within(self, scope: str) -> Streams:
        """Return the same owner's streams for another task."""
        return RedrawnStreams(self.seed, self.replicate, self.owner, self.step, scope, self.redraw)


def redrawn(streams: Streams, redraw: Redraw) -> Streams:
    """Return streams with some draws made anew."""
    return RedrawnStreams(streams.seed, streams.replicate, streams.owner, streams.step, streams.scope, redraw)


def _parted(times: Iterator[float], moment: float) -> tuple[list[float], Iterator[float]]:
    """Split ascending times at a moment."""
    before = list[float]()
    for time in times:
        if time >= moment:
            return before, chain([time], times)
        before.append(time)
    return before, iter(())
