"""One question while it is asked: which branches it takes, within the budget, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.finished_run import ResultError, check_label, fault_names
from fedbo.analysis.grouping import by_run
from fedbo.analysis.result import Result
from fedbo.analysis.summary import final_estimate
from fedbo.execution.failures import RunError
from fedbo.execution.progress import Progress, RowInfo
from fedbo.lab.why.branches import Branch, BranchEnd, Branches, event_times
from fedbo.lab.why.curve import CurvePoint, DecisionCurve, Jump
from fedbo.lab.why.ends import End, EndedRun, events_between, parse_end
from fedbo.lab.why.question import Question
from fedbo.lab.why.redraw import (
    ABSENCES,
    COORDINATION,
    DECISIONS,
    DURATIONS,
    EVERY,
    FAULT,
    INITIAL,
    LATENCY,
    NOISE,
    PRIVATE_NOISE,
    SELECTION,
    WORLDS,
    Source,
)
from fedbo.lab.why.result import JumpRow, MomentRow, SourceRow, Why
from fedbo.lab.why.shares import Spread, spread_of
from fedbo.settings.arguments import wrong
from fedbo.settings.errors import ArgumentError
from fedbo.study.study import Study

_ORDER = (INITIAL, NOISE, DECISIONS, DURATIONS, LATENCY, ABSENCES, SELECTION, COORDINATION, PRIVATE_NOISE)
_RARE = (FAULT, ABSENCES, SELECTION)  # sources whose draws may agree by chance
_EACH, _TOP, _MOST = 3, 3, 10  # draws of each source, and the sources that get up to the most


class Inquiry:
    """One question, while it is asked."""

    def __init__(
        self, directory: Path, place: Path, question: Question, known: tuple[Study, dict[str, Any]], progress: Progress | None
    ) -> None:
        self.directory, self.place, self.question = directory, place, question
        self.study, self.manifest = known
        self._result = Result(directory, self.study, self.manifest, trust=True)
        labels = self.study.labels
        if not question.algorithm and len(labels) > 1:
            raise ArgumentError(f"algorithm: is missing; choose one of the run's: {', '.join(map(repr, labels))}")
        self.label = check_label(self._result, question.algorithm or labels[0])
        if not 0 <= question.cell < len(self.study.cells()):
            raise wrong("cell", question.cell, f"must be from 0 to {len(self.study.cells()) - 1}")
        self.branches = Branches(directory, place, self.study, self.manifest, question.cell, self.label)
        self._progress, self._asked = progress, set[Branch]()

    def answer(self) -> Why:
        """Ask all branches and return the answer."""
        question = self.question
        end = parse_end(question.end) if question.end else End("", "best", number=np.inf)
        end = end.with_level(question.level if question.level is not None else self._level())
        # The rows of a design take about ten branches each.
        self._planned = (question.budget if question.end else 0) + 10 * question.wanted_rows
        if self._progress is not None:
            self._progress.start([RowInfo(question.cell, "branches", 1)])
        try:
            if not question.end:
                return self._spread_only(end)
            values = {tables.key.replicate: end.value(tables) for tables in self._tables()}
            chosen = self._chosen(values, end)
            found = self._one_run(chosen, values, end)
            if question.wanted_rows:
                found = replace(found, spread=self._spread(end, [chosen], self._active(chosen, end)[0]))
            return replace(found, branches=len(self._asked))
        finally:
            if self._progress is not None:
                self._progress.finish()
            self.branches.discard_trunks()

    def _tables(self) -> list[EndedRun]:
        """Return the tables of every original run; those of a study that failed are run again, which shows who was stuck."""
        replicates, result = range(self.study.study.replicates), self._result
        if self.manifest["status"] != "complete":
            return [self.branches.original(replicate).tables for replicate in replicates]
        keys = [RunKey(self.question.cell, self.label, replicate) for replicate in replicates]
        observed, events, ledgers = (dict(by_run(table)) for table in (result.observations, result.events, result.privacy))
        none = result.privacy.slice(0, 0)
        return [self.branches.of_run(key, observed[key], events[key], ledgers.get(key, none)) for key in keys]

    def _level(self) -> float | None:
        """Return the level of "time to level": the final mean of the first algorithm, as in other commands."""
        first = [t for t in self._result.traces if (t.cell, t.algorithm) == (self.question.cell, self.study.labels[0])]
        return final_estimate(first, self._result.metric(self.question.cell)).mean if first else None

    def _chosen(self, values: dict[int, float], end: End) -> int:
        """Return the replicate to ask: the given one, or the first that ended badly."""
        if self.question.replicate is not None:
            if self.question.replicate not in values:
                raise wrong("replicate", self.question.replicate, f"must be one of {sorted(values)}")
            return self.question.replicate
        bad = [replicate for replicate, value in values.items() if end.is_bad(value)]
        if not bad:
            shown = ", ".join(f"{value:.4g}" for value in values.values())
            raise wrong("end", end.words, f"no run of '{self.label}' ended so ({end.quantity}: {shown}); set another number")
        return bad[0]

    def _ask(self, branch: Branch, end: End) -> BranchEnd:
        try:
            found = self.branches.end(branch, end)
        except (KeyboardInterrupt, ArgumentError, ResultError):
            raise
        except Exception as error:
            raise RunError(f"a branch failed: {type(error).__name__}: {error}", self.place) from error
        self._asked.add(branch)
        if self._progress is not None:
            run, done = RunKey(self.question.cell, "branches", 0), len(self._asked)
            self._progress.update(run, done, max(self._planned, done), None)
        return found

    @property
    def _left(self) -> int:
        """Return how many branches the budget leaves."""
        return self.question.budget - len(self._asked)

    def _one_run(self, replicate: int, values: dict[int, float], end: End) -> Why:
        """Ask when the end of one run was decided, and whose luck it was."""
        tables, budget = self.branches.original(replicate).tables, self.question.budget
        is_bad = end.is_bad(values[replicate])
        active, constant = self._active(replicate, end)
        sources = self._sources(replicate, [(name, None) for name in active], budget // 5 * 2, end)
        ranked = sorted(sources, key=lambda source: self._row(replicate, source, sources[source], end).weight)
        if is_bad:
            ranked.reverse()
        curve = self._curve(replicate, end, is_bad)
        agents = self._agents(replicate, ranked[0][0]) if ranked else []
        curve.refine(self._left - min(6 * len(agents), self._left // 2))
        split = self._sources(replicate, agents, self._left, end)
        bad = sum(end.is_bad(value) for value in values.values())
        of_agents = [self._row(replicate, source, split[source], end) for source in split]
        return Why(
            directory=self.place,
            run=(self.question.cell, self.label, replicate),
            end=end.words,
            quantity=end.quantity,
            value=values[replicate],
            is_bad=is_bad,
            same_end=bad,
            runs=len(values),
            stop=curve.stop,
            time=self.study.timing.in_words,
            branches=len(self._asked),
            moments=tuple(map(_moment, curve.points)),
            jumps=tuple(_jump(jump, tables) for jump in curve.jumps()),
            sources=tuple(self._row(replicate, source, sources[source], end) for source in ranked),
            agents=tuple(sorted(of_agents, key=lambda row: -row.weight if is_bad else row.weight)),
            constant=constant,
        )

    def _curve(self, replicate: int, end: End, is_bad: bool) -> DecisionCurve:
        """Return the probability of a bad end over time, after the first draws at each moment."""
        times = event_times(self.branches.original(replicate).tables)

        def ask(time: float, number: int) -> bool:
            return self._ask(Branch(replicate, time, ((*EVERY, str(number)),)), end).bad

        curve = DecisionCurve(ask, times, times[-1] if times else 0.0, is_bad)
        curve.start(max(1, min(5, self._left // 12)))
        return curve

    def _active(self, replicate: int, end: End) -> tuple[list[str], tuple[str, ...]]:
        """Return the sources whose draws matter, and the names of those that draw nothing, found by one branch for each."""
        original = self.branches.original(replicate)
        seen = {name for name, _ in original.seen} | {NOISE}
        plan = original.run.environment.plan
        chances = [fault.probability if hasattr(fault, "probability") else fault.rate for fault in plan]
        fixed = {f"{FAULT} {place}" for place, chance in enumerate(chances) if not chance}
        names = sorted(seen - fixed, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
        same = {
            name
            for name in names
            if not name.startswith(_RARE) and self._ask(Branch(replicate, 0.0, ((name, None, "0"),)), end).same
        }
        return [name for name in names if name not in same], tuple(self._label(name) for name in names if name in same)

    def _sources(self, replicate: int, sources: Sequence[Source], budget: int, end: End) -> dict[Source, int]:
        """Draw each source alone anew, and all but it, the strongest ones more often; return the numbers of draws."""
        spare = max(0, self._left - budget)
        if not sources or self._left - spare < 2 * len(sources):
            return {}
        draws = dict.fromkeys(sources, 0)
        while True:
            rank = sorted(sources, key=lambda one: self._row(replicate, one, draws[one], end).weight, reverse=True)
            low = [one for one in sources if draws[one] < _EACH] or [one for one in rank[:_TOP] if draws[one] < _MOST]
            if not low or self._left - spare < 2:
                return draws
            chosen = min(low, key=lambda one: draws[one])
            draws[chosen] += 1
            self._row(replicate, chosen, draws[chosen], end)

    def _row(self, replicate: int, source: Source, draws: int, end: End) -> SourceRow:
        """Return the ends of so many branches that draw a source alone anew, and of as many that draw all but it."""
        numbers = [str(number) for number in range(draws)]
        alone = [self._ask(Branch(replicate, 0.0, ((*source, number),)), end).bad for number in numbers]
        kept = [self._ask(Branch(replicate, 0.0, ((*source, ""), (*EVERY, number))), end).bad for number in numbers]
        return SourceRow(self._label(*source), sum(alone), draws, sum(kept), draws)

    def _agents(self, replicate: int, name: str) -> list[Source]:
        """List the agents that a source draws for, if there are several."""
        seen = sorted(
            agent or 0 for source, agent in self.branches.original(replicate).seen if source == name and (agent or 0) >= 0
        )
        return [(name, agent) for agent in seen] if len(seen) > 1 else []

    def _label(self, name: str, agent: int | None = None) -> str:
        """Return the name of a source for people."""
        if name.startswith(FAULT):
            name = f"{FAULT} {fault_names(self.study)[int(name.split()[1])]}"
        return name if agent is None else f"{name} of agent {agent}"

    def _spread_only(self, end: End) -> Why:
        """Return the shares of the spread over all replicates, or in the given one."""
        given = self.question.replicate
        replicates = list(range(self.study.study.replicates)) if given is None else [given]
        active, constant = self._active(replicates[0], end)
        spread = self._spread(end, replicates, active)
        return Why(
            directory=self.place,
            run=(self.question.cell, self.label, given),
            quantity=end.quantity,
            runs=len(replicates),
            branches=len(self._asked),
            constant=constant,
            spread=spread,
        )

    def _spread(self, end: End, replicates: Sequence[int], active: Sequence[str]) -> Spread:
        """Return the shares of the spread of the quantity, by a pick-and-freeze design over sources, and over replicates."""
        rows, several = self.question.wanted_rows, len(replicates) > 1
        rng = np.random.default_rng([self.study.study.seed, rows])
        of_a, of_b = (rng.choice(np.array(replicates), rows).tolist() for _ in range(2))
        names = [*active, *([WORLDS] if several else [])]

        def value(replicate: int, tags: Any) -> float:
            return self._ask(Branch(replicate, 0.0, tags), end).value

        def mixed(name: str, row: int) -> float:
            if name == WORLDS:
                return value(of_b[row], ((*EVERY, f"a{row}"),))
            return value(of_a[row], ((name, None, f"b{row}"), (*EVERY, f"a{row}")))

        a = np.array([value(of_a[row], ((*EVERY, f"a{row}"),)) for row in range(rows)])
        b = np.array([value(of_b[row], ((*EVERY, f"b{row}"),)) for row in range(rows)])
        both = np.array([[mixed(name, row) for row in range(rows)] for name in names]).reshape(len(names), rows)
        labels = tuple(self._label(name) for name in names)
        if not (np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(both).all()):
            a, b, both = (
                np.array([[end.is_bad(v) for v in np.atleast_1d(x)] for x in np.atleast_2d(values)], float)
                for values in (a, b, both)
            )
            return spread_of(labels, a[0], b[0], both)
        return spread_of(labels, a, b, both)


def _moment(point: CurvePoint) -> MomentRow:
    low, high = point.interval
    return MomentRow(time=point.time, bad=point.bad, draws=point.draws, low=low, high=high)


def _jump(jump: Jump, run: EndedRun) -> JumpRow:
    events, more = events_between(run, jump.start, jump.stop)
    before, after = jump.before, jump.after
    return JumpRow(start=jump.start, stop=jump.stop, before=before, after=after, sure=jump.sure, events=events, more=more)
