"""Early stopping in one study: a stopper on the fidelity axis of the objectives, and the segments of an evaluation."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from fedbo.actors.storage.evaluations import Query, Span
from fedbo.algorithms.streams import Streams
from fedbo.objectives.outcome import Outcome
from fedbo.settings.records import changed
from fedbo.stopping.stoppers import Key, Levels, RungState, Stopper, Verdict


class Judged(NamedTuple):
    """The outcome of a rung: the rungs after it, the verdict, and the query with which the evaluation continues if it does."""

    rungs: RungState
    verdict: Verdict | None
    query: Query


@dataclass(frozen=True, slots=True)
class Stopping:
    """Early stopping by a `stopper`, with fidelities from `smallest` to `largest`.

    An evaluation is a chain of segments, from one rung of its bracket to the next. Up to fidelity f it takes f / `largest` of
    the time of a full evaluation.
    """

    stopper: Stopper
    smallest: int
    largest: int
    brackets: tuple[Levels, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "brackets", self.stopper.brackets(self.smallest, self.largest))

    def no_rungs(self) -> RungState:
        """Return the state of an agent of which no evaluation has reached a rung."""
        return RungState()

    def first(self, streams: Streams, step: int, point: int) -> Span:
        """Return the first segment of an evaluation; `streams` are those of its agent.

        Its bracket is drawn by its step and point.
        """
        bracket, count = 0, len(self.brackets)
        if count > 1:
            bounds = list(accumulate(self.stopper.shares(count)))
            # The draw depends on step and point alone, so that a retry or a replay gets the same bracket.
            drawn = streams.at(step).rng("bracket").random(point + 1)[point]
            bracket = bisect_right(bounds, drawn * bounds[-1], hi=count - 1)
        return Span(bracket, 0, self.brackets[bracket][0], 0)

    def next(self, span: Span) -> Span:
        """Return the next segment of the same leg."""
        levels = self.brackets[span.bracket]
        return span._replace(since=span.fidelity, fidelity=levels[levels.index(span.fidelity) + 1])

    def judge(self, rungs: RungState, query: Query, outcome: Outcome) -> Judged:
        """Note an evaluation's value at the end of a segment and judge it; the verdict is None at the largest fidelity."""
        span = query.span
        assert span is not None
        key, place = (query.step, query.point), (span.bracket, span.fidelity)
        rungs = rungs.reached(place, key, outcome.value)
        if span.fidelity == self.largest:
            return Judged(rungs, None, query)
        verdict = self.stopper.verdict(rungs, self.brackets[span.bracket], place, key)
        if verdict == "go":
            return Judged(rungs, verdict, changed(query, span=self.next(span)))
        return Judged(rungs.pausing(query) if verdict == "pause" else rungs, verdict, query)

    def promoted(self, rungs: RungState) -> tuple[RungState, Query | None]:
        """Resume the paused evaluation that the stopper promotes, if any, in a new leg."""
        key = self.stopper.promoted(rungs)
        if key is None:
            return rungs, None
        query = rungs.paused[key]
        assert query.span is not None
        return rungs.going_on(key), changed(query, span=self.next(query.span)._replace(leg=query.span.fidelity))

    def curve(self, rungs: RungState, query: Query) -> list[float]:
        """Return the values of an evaluation at the rungs of its present leg."""
        key: Key = (query.step, query.point)
        span = query.span
        assert span is not None
        passed = [level for level in self.brackets[span.bracket] if span.leg < level <= span.fidelity]
        return [rungs.values[span.bracket, level][key] for level in passed]
