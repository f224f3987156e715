"""The results of a fork: the original run, its branches, and their effects, paired by replicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from rich.console import Group, RenderableType
from rich.text import Text

from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.sealed import unseal
from fedbo.analysis.averages import mean_and_error, replicate_means
from fedbo.analysis.comparison import first_place
from fedbo.analysis.disruptions import disruptions
from fedbo.analysis.finished_run import ResultError
from fedbo.analysis.grouping import by_cell_and_algorithm, by_run, column_of
from fedbo.analysis.result import Result
from fedbo.analysis.summary import Difference, Estimate, difference, final_estimate, paired
from fedbo.analysis.traces import Array, IncumbentTrace
from fedbo.figures.reports.tables import gap_in_words, plain, table_of
from fedbo.lab.fork.room import ANSWER
from fedbo.settings.shown import quoted

BEST = "best"
COSTS = {
    "end": "end of the run",
    "level": "time to a level that both reach",
    "waiting": "waiting time of an agent",
    "bytes": "bytes transmitted",
    "evaluations": "evaluations",
    "epsilon": "epsilon",
}
_HEADINGS = ("algorithm", "at", "what", "original ± se", "changed ± se", "effect [95 %]")
ORIGINAL, TRUNK, BRANCH = "original", "trunk", "branch"


@dataclass(frozen=True, slots=True)
class ForkEffect:
    """The effect of a change at one point on one algorithm in one cell, on one `fact` of a whole run.

    `way` is the change that distinguishes the branch from others at this point, "" without others.
    `fact` is "best", the mean final best native value over targets, or a cost (see `COSTS`). `difference` is that of the branch
    to the original run, with its 95 % interval over replicates; None with a single one.
    """

    cell: int
    algorithm: str
    at: str
    way: str
    fact: str
    original: Estimate
    changed: Estimate
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork: its directory, the original run, and its branches, with the point and the way in which each differs.

    `changes` are all those of the fork, as dotted.key=value.
    """

    directory: Path
    original: Result
    branches: Sequence[Result]
    at: Sequence[str]
    ways: Sequence[str]
    changes: Sequence[str]

    @classmethod
    def open(cls, directory: str | Path, trust: bool = False) -> Fork:
        """Read a fork that has ended; ResultError when it has not."""
        folder = Path(directory)
        if ANSWER.has_begun_in(folder):
            raise ResultError(f"'{directory}': contains an unfinished fork; resume it: fedbo resume {quoted(directory)}")
        if not ANSWER.is_in(folder):
            raise ResultError(f"'{directory}': contains no finished fork; pass the directory that fedbo fork printed")
        noted: Mapping[str, Any] = unseal(folder / ANSWER.file)
        places = [folder / f"{BRANCH}-{number:04d}" for number in range(1, 1 + len(noted["at"]))]
        branches = [Result.open(place, trust) for place in places]
        return cls(folder, Result.open(folder / ORIGINAL, trust), branches, noted["at"], noted["ways"], noted["changes"])

    def effects(self) -> list[ForkEffect]:
        """Compare each branch with the original run, on the same replicates: a row for each fact and algorithm."""
        found, before = list[ForkEffect](), by_cell_and_algorithm(self.original.traces)
        spent = _run_costs(self.original)
        for at, way, branch in zip(self.at, self.ways, self.branches, strict=True):
            costs = _run_costs(branch)
            for (cell, label), mine in by_cell_and_algorithm(branch.traces).items():
                metric, other = branch.metric(cell), before[cell, label]
                was, now = final_estimate(other, metric), final_estimate(mine, metric)
                gap = difference(mine, other, metric)
                found.append(ForkEffect(cell, label, at, way, BEST, original=was, changed=now, difference=gap))
                pairs = [
                    (spent[key] | {"level": early}, costs[key] | {"level": late})
                    for key in costs
                    if key[:2] == (cell, label) and key in spent
                    for early, late in [_times_to_common_level(other, mine, key.replicate)]
                ]
                for fact in COSTS:
                    if any(fact in late for _, late in pairs):
                        was, now, gap = _compared(np.array([(early[fact], late[fact]) for early, late in pairs]))
                        found.append(ForkEffect(cell, label, at, way, fact, original=was, changed=now, difference=gap))
        return found


def _run_costs(result: Result) -> dict[RunKey, dict[str, float]]:
    """Return the costs of each run, by `COSTS`."""
    evaluated, ledgers = dict(by_run(result.observations)), dict(by_run(result.privacy))
    none = result.observations.slice(0, 0), result.privacy.slice(0, 0)
    return {
        key: run_costs(evaluated.get(key, none[0]), events, ledgers.get(key, none[1])) for key, events in by_run(result.events)
    }


def run_costs(observations: Any, events: Any, ledger: Any) -> dict[str, float]:
    """Return the costs of one run, by `COSTS`; epsilon, where anything was private, is that at the smallest delta."""
    rows = observations.filter(pc.not_equal(observations["phase"], "history"))
    (lived,) = disruptions(rows, events)
    costs = {
        "end": float(column_of(rows, "finished").max(initial=0.0)),
        "waiting": lived.waiting + lived.queueing,
        "bytes": lived.bytes_up + lived.bytes_down,
        "evaluations": float(len(rows)),
    }
    if len(ledger):
        last = ledger.slice(len(ledger) - 1).to_pylist()[0]
        costs["epsilon"] = last["epsilon"][int(np.argmin(last["deltas"]))]
    return costs


def _times_to_common_level(
    one: Sequence[IncumbentTrace], other: Sequence[IncumbentTrace], replicate: int
) -> tuple[float, float]:
    """Return the times at which each run first reached the worse of both final values."""
    ends = [float(replicate_means(found, "time", np.array([np.inf]))[replicate][0]) for found in (one, other)]
    first, second = (first_place(found, replicate, min(ends)) for found in (one, other))
    return first, second


def _compared(values: Array) -> tuple[Estimate, Estimate, Difference | None]:
    """Compare `values (r, 2)` of a fact, in the original and in the branch."""
    mean, error = mean_and_error(values)
    was, now = (Estimate(float(m), float(e) if len(values) > 1 else None) for m, e in zip(mean, error, strict=True))
    return was, now, paired(values[:, 1] - values[:, 0])


def fork_table(fork: Fork) -> RenderableType:
    """Format the effect of a change on each algorithm, a table for each cell of a sweep; only changed facts."""
    tables, effects = list[RenderableType](), fork.effects()
    moved = [one for one in effects if one.original != one.changed]
    changing = {one.fact for one in moved} | {BEST}
    labels = dict.fromkeys(one.algorithm for one in effects)  # in their order
    shown = {one.algorithm for one in moved} or set(labels)
    for cell, title in enumerate(fork.original.study.titles()):
        metric = fork.original.metric(cell)
        lines: list[tuple[str | Text, ...]] = [
            (
                one.algorithm if one.fact == BEST else "",
                one.at if one.fact == BEST else "",
                *((one.way if one.fact == BEST else "",) if any(fork.ways) else ()),
                f"best {metric.name}" if one.fact == BEST else COSTS[one.fact],
                str(one.original),
                str(one.changed),
                gap_in_words(one.difference, metric.sign if one.fact == BEST else -1),
            )
            for one in effects
            if one.cell == cell and one.fact in changing and one.algorithm in shown
        ]
        tables.append(table_of(title, (*_HEADINGS[:2], *(["change"] if any(fork.ways) else []), *_HEADINGS[2:]), lines))
    changed = f"changed: {', '.join(fork.changes) or 'nothing'}; differences are paired by replicate, on the same draws"
    if same := [COSTS[fact] for fact in COSTS if fact in {one.fact for one in effects} - changing]:
        changed += f"; unchanged: {', '.join(same)}"
    if unchanged := [label for label in labels if label not in shown]:
        changed += f"; no effect on: {', '.join(unchanged)}"
    if fork.original.privacy.num_rows:
        changed += ". A fork on real data spends privacy again: add its epsilon to the epsilon of the run"
    return Group(*tables, Text(changed, style="dim"))


def fork_facts(fork: Fork) -> dict[str, Any]:
    """Return a fork as plain data."""
    return {
        "directory": str(fork.directory),
        "at": list(fork.at),
        "ways": list(fork.ways),
        "changes": list(fork.changes),
        "effects": plain(fork.effects()),
    }
