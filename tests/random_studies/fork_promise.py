"""The promise of forks, tried on one study: a list of what was broken.

Forked at a random moment with nothing changed, a study gives the same bytes; a fork that is killed goes on to the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbo.actors.storage.rows import read_table
from fedbo.analysis.grouping import by_run
from fedbo.lab.fork.fork import fork_run
from fedbo.lab.fork.room import ANSWER
from fedbo.lab.fork.trunk import ForkPoint
from fedbo.study.study import Study
from tests.random_studies.carrying_out import LEGAL_NAMES, Untried, begin_or_go_on, differences, dying, forked, tables, words
from tests.random_studies.chaos.knobs import NONE_TURNED, Knobs, draw_knobs, in_words, turn

_CHANGES = (
    *(f"exchange={{mode = '{mode}'}}" for mode in ("barrier", "deadline", "first_k", "buffered", "immediate")),
    "timing.latency={model = 'exponential', mean = 0.5}",
    "timing.evaluation={model = 'exponential', mean = 0.3}",
    "availability={model = 'markov', present = 3.0, absent = 1.0}",
    "availability={model = 'always'}",
    "evaluation.retries=2",
    "network.retry=0.3",
)


def broken_fork(study: Study, folder: Path, seconds: float, seed: int) -> list[str]:
    """Fork a run at a random event and at a random time with nothing changed, which gives the same bytes, and with a change.

    With a change, all that happened before the fork is the same.
    """
    rng = random.Random(f"fork {seed}")
    if study.privacy.secure_noise:
        raise Untried("its noise cannot be drawn again")
    ended = forked(lambda: begin_or_go_on(study, folder / "run"), folder, seconds)
    if ended.error.startswith(LEGAL_NAMES):
        raise Untried(ended.error)
    if ended.code:
        return [words(ended, "the run", seconds)]
    table = read_table(folder / "run" / "events.parquet")
    last = min(max(part["time"].to_pylist()) for _, part in by_run(table))
    fewest = min(len(part) for _, part in by_run(table))
    broken = list[str]()
    points = [ForkPoint(event=rng.randint(1, max(1, fewest // 3))), ForkPoint(time=last * rng.random() + 1e-9)]
    change = rng.choice(_CHANGES)
    forks = list[tuple[str, ForkPoint, list[str], int]]()
    for name, point, sets in (("event", points[0], []), ("time", points[1], []), ("change", points[1], [change])):
        found = forked(lambda: _forked(folder / "run", point, sets, folder / name), folder, 2 * seconds)  # noqa: B023
        refused = (*LEGAL_NAMES, "ForkError", "StudyError") if sets else ("ForkError: --at",)
        if found.error.startswith(refused):
            continue
        if found.code:
            return [words(found, f"the fork at {point} with {sets}", seconds)]
        forks.append((name, point, sets, found.given))
        branch = folder / name / "branch-0001"
        if not sets:
            broken += differences(tables(folder / "run"), tables(branch), f"forked at {point}")
        elif _until(table, point) != _until(read_table(branch / "events.parquet"), point):
            broken.append(f"forked at {point} with {sets}: other events before it")
    if not forks:
        raise Untried("its runs have ended before the points that were drawn")
    return broken or _broken_by_kill(folder, forks[-1], rng, seconds)


def _broken_by_kill(folder: Path, fork: tuple[str, ForkPoint, list[str], int], rng: random.Random, seconds: float) -> list[str]:
    """Fork once more, to be killed before a random file operation, go on with that, and compare the branch."""
    name, point, sets, operations = fork
    before = rng.randint(1, operations)
    knobs = draw_knobs("forks", before, rng.random())
    forked(lambda: _forked(folder / "run", point, sets, folder / "killed", before, knobs), folder, 2 * seconds)
    ended = forked(lambda: _forked(folder / "run", point, sets, folder / "killed"), folder, 2 * seconds)
    which = f"at {point} with {sets}, killed before file operation {before} with {in_words(knobs)}"
    if ended.code:
        return [words(ended, f"the fork {which}", seconds)]
    whole, resumed = (tables(folder / each / "branch-0001") for each in (name, "killed"))
    return differences(whole, resumed, f"forked {which}")


def _forked(
    run: Path, point: ForkPoint, sets: Sequence[str], out: Path, before: int | None = None, knobs: Knobs = NONE_TURNED
) -> int:
    """Fork a run, or go on with that, to be killed before a file operation where one is given; give how many there were."""
    turn(knobs)
    count = dying(out, before)
    if not ANSWER.is_in(out):
        fork_run(run, [point], sets, out)
    return count()


def _until(table: Any, point: ForkPoint) -> str:
    assert point.time is not None
    return repr([row for row in table.to_pylist() if row["time"] < point.time])
