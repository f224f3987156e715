"""What is promised of every study that the checks accept, tried on one study: a list of what was broken.

- It ends, and its tables obey the invariants.
- A replay gives the same tables.
- Under every hosting it gives the same bytes.
- Killed at random moments, by SIGKILL, and resumed, it gives the same bytes.
- Run with less of a budget and extended, and killed then, it gives the same bytes.
- Forked at a random moment with nothing changed, it gives the same bytes; a fork that is killed goes on to the same.
"""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

import fedbo
from fedbo.actors.storage.rows import read_table
from fedbo.coordinator.runtime.forking import ForkPoint
from fedbo.execution.extension import extended_study, why_not_extended
from fedbo.execution.fork import fork_run
from fedbo.execution.replay import replay
from fedbo.results.fork import is_fork
from fedbo.results.grouping import by_run
from fedbo.results.manifest import STUDY, read_manifest
from fedbo.study.study import Study, StudyError, load_study
from fedbo.testing.carrying_out import LEGAL_ENDS, Ending, Hostings, begin_or_go_on, dying, forked, hosted, tables
from fedbo.testing.invariants import violations

HOSTINGS: tuple[tuple[str, int | None], ...] = (("packed", 1), ("packed", 2), ("packed", 3), ("dedicated", None))
# What a fork tells of how a study may end besides well: by its own wish, or because nothing could make progress any more.
_LEGAL_ENDS = tuple(error.__name__ for error in LEGAL_ENDS)


class Untried(Exception):
    """A study of which nothing is promised, and why."""


def broken_laws(study: Study, folder: Path, seconds: float, again: bool = False) -> list[str]:
    """Run a study in a fork and check its tables, and with `again` replay it; `seconds` is the limit of each."""
    directory = folder / "run"
    ended = forked(lambda: begin_or_go_on(study, directory), folder, seconds)
    if ended.killed:  # frequent snapshots take all the time of a run in which very much happens before it is given up
        shutil.rmtree(directory, ignore_errors=True)
        rarer = load_study({**study.document(), "recovery": {"events": 20000}})
        ended = forked(lambda: begin_or_go_on(rarer, directory), folder, seconds)
    if ended.error.startswith(_LEGAL_ENDS):
        return []
    if ended.code:
        return [_words(ended, "the run", seconds)]
    found = forked(lambda: violations(study, directory), folder, seconds)
    broken = [_words(found, "the check", seconds)] if found.code else list(found.given)
    if again and not broken:
        same = forked(lambda: replay(directory, verify=True, trust=True).same, folder, 2 * seconds)
        broken = [] if same.given is True else [_words(same, "the replay", seconds)]
    return broken


def broken_by_kills(study: Study, folder: Path, seconds: float, kills: int, seed: int) -> tuple[list[str], int]:
    """Run a study, then again with up to `kills` kills at random moments; give what differs, and how often it was killed.

    Every other kill comes before a random file operation, of which snapshots every few events make many, the others at a
    random time; both are drawn over the whole undisturbed run, so that they fall in its end as well.
    """
    for events, limit in ((6, seconds / 8), (600, seconds)):  # rarer snapshots where so many of them would take all the time
        often = load_study({**study.document(), "recovery": {"events": events}})
        shutil.rmtree(folder / "alone", ignore_errors=True)
        began = time.monotonic()
        alone = forked(lambda: _counted(often, folder / "alone", None), folder, limit)  # noqa: B023
        took = time.monotonic() - began
        if not alone.killed:
            break
    if alone.error.startswith(_LEGAL_ENDS):
        return [], 0
    if alone.code:
        return [_words(alone, "the run", seconds)], 0
    rng, directory, done = random.Random(seed), folder / "killed", 0
    while True:
        before = rng.randint(1, alone.given) if done < kills and done % 2 == 0 else None
        limit = rng.uniform(0.0, 1.1 * took) if done < kills and done % 2 else seconds
        ended = forked(lambda: _counted(often, directory, before), folder, limit)  # noqa: B023
        if not ended.killed:
            break
        if done >= kills:
            return [_words(ended, "the resumed run", seconds)], done
        done += 1
    if ended.code:
        return [_words(ended, "the resumed run", seconds)], done
    return _differences(tables(folder / "alone"), tables(directory), f"after {done} kills"), done


def broken_extension(study: Study, folder: Path, seconds: float, seed: int, kill: bool = True) -> list[str]:
    """Run a study with less of one budget and extend it, killed once at a random moment; compare with the study run at once.

    More iterations must be refused where an algorithm uses T. Untried where no run of the study can be extended.
    """
    rng = random.Random(f"extension {seed}")
    given = with_less(study, rng)
    if given is None:
        raise Untried("it has no budget of which it can be given less")
    whole, less, sets = given
    for name, one in (("alone", whole), ("extended", less)):
        ended = forked(lambda: begin_or_go_on(one, folder / name), folder, seconds)  # noqa: B023
        if ended.error.startswith(_LEGAL_ENDS):
            raise Untried(ended.error)
        if ended.code:
            return [_words(ended, f"the run {name}", seconds)]
    directory = folder / "extended"
    if broken := _wrongly_taken(less, directory):
        return broken
    trial = folder / "trial"
    shutil.copytree(directory, trial)
    counted = forked(lambda: _extended(trial, sets, None), folder, seconds)
    if counted.code:
        return [_words(counted, "the extension", seconds)]
    broken = _differences(tables(folder / "alone"), tables(trial), f"extended by {sets}")
    if kill and not broken:
        before = rng.randint(1, counted.given)
        forked(lambda: _extended(directory, sets, before), folder, seconds)
        ended = forked(lambda: _extended(directory, sets, None), folder, seconds)
        if ended.code:
            return [_words(ended, f"the extension killed before file operation {before}", seconds)]
        broken = _differences(tables(folder / "alone"), tables(directory), f"killed, and extended by {sets}")
    return broken


def _wrongly_taken(study: Study, directory: Path) -> list[str]:
    """Say which of the algorithms that use T would be given more iterations all the same."""
    reasons = list(filter(None, map(why_not_extended, study.algorithm)))
    if not reasons or study.budget.iterations is None or "budget.iterations" in study.sweep:
        return []
    try:
        extended_study(study, directory / STUDY, [f"budget.iterations={study.budget.iterations + 1}"], ())
    except StudyError as error:
        return [] if reasons[0] in str(error) else [f"more iterations are refused without the reason: {error}"]
    return ["more iterations are not refused"]


def with_less(study: Study, rng: random.Random) -> tuple[Study, Study, list[str]] | None:
    """Give a study, the same with less of a budget, and what makes that the whole one; None where it cannot be extended.

    A study of which nothing can be taken away is given a replicate more.
    """
    budget, document = study.budget, study.document()
    changes: list[tuple[str, str, Any]] = []
    if budget.iterations is not None and budget.iterations > 1 and not any(map(why_not_extended, study.algorithm)):
        changes.append(("budget", "iterations", rng.randint(1, budget.iterations - 1)))
    if budget.time is not None:
        changes.append(("budget", "time", budget.time * rng.uniform(0.1, 0.9)))
    if budget.evaluations is not None and budget.evaluations > 1:
        changes.append(("budget", "evaluations", rng.randint(1, budget.evaluations - 1)))
    if study.study.replicates > 1:
        changes.append(("study", "replicates", rng.randint(1, study.study.replicates - 1)))
    changes = [(table, key, value) for table, key, value in changes if f"{table}.{key}" not in study.sweep]
    if study.privacy.secure_noise or any(key.startswith("budget.") for key in study.sweep):
        return None
    table, key, value = rng.choice(changes) if changes else ("study", "replicates", study.study.replicates + 1)
    try:
        other = load_study({**document, table: {**document[table], key: value}})
    except StudyError:
        return None
    whole, less = (study, other) if changes else (other, study)
    return whole, less, [f"{table}.{key}={whole.document()[table][key]}"]


def _extended(directory: Path, sets: Sequence[str], before: int | None) -> int:
    """Extend a run, or go on with that, to be killed before a file operation where one is given; give how many there were."""
    count = dying(directory, before)
    ended = read_manifest(directory)
    if load_study(directory / "study.toml", sets).digest() != ended["study_sha256"] or ended["status"] != "complete":
        fedbo.resume(directory, overrides=sets if ended["status"] == "complete" else ())
    return count()


def broken_fork(study: Study, folder: Path, seconds: float, seed: int) -> list[str]:
    """Fork a run at a random event and at a random time with nothing changed, which gives the same bytes, and with a change.

    With a change, all that happened before the fork is the same.
    """
    rng = random.Random(f"fork {seed}")
    if study.privacy.secure_noise:
        raise Untried("its noise cannot be drawn again")
    ended = forked(lambda: begin_or_go_on(study, folder / "run"), folder, seconds)
    if ended.error.startswith(_LEGAL_ENDS):
        raise Untried(ended.error)
    if ended.code:
        return [_words(ended, "the run", seconds)]
    table = read_table(folder / "run" / "events.parquet")
    last = min(max(part["time"].to_pylist()) for _, part in by_run(table))
    fewest = min(len(part) for _, part in by_run(table))
    broken = list[str]()
    points = [ForkPoint(event=rng.randint(1, max(1, fewest // 3))), ForkPoint(time=last * rng.random() + 1e-9)]
    change = rng.choice(_CHANGES)
    forks = list[tuple[str, ForkPoint, list[str], int]]()
    for name, point, sets in (("event", points[0], []), ("time", points[1], []), ("change", points[1], [change])):
        found = forked(lambda: _forked(folder / "run", point, sets, folder / name), folder, 2 * seconds)  # noqa: B023
        refused = (*_LEGAL_ENDS, "ForkError", "StudyError") if sets else ("ForkError: --at",)
        if found.error.startswith(refused):
            continue
        if found.code:
            return [_words(found, f"the fork at {point} with {sets}", seconds)]
        forks.append((name, point, sets, found.given))
        branch = folder / name / "branch-0001"
        if not sets:
            broken += _differences(tables(folder / "run"), tables(branch), f"forked at {point}")
        elif _until(table, point) != _until(read_table(branch / "events.parquet"), point):
            broken.append(f"forked at {point} with {sets}: other events before it")
    if not forks:
        raise Untried("its runs have ended before the points that were drawn")
    return broken or _broken_by_kill(folder, forks[-1], rng, seconds)


def _broken_by_kill(folder: Path, fork: tuple[str, ForkPoint, list[str], int], rng: random.Random, seconds: float) -> list[str]:
    """Fork once more, to be killed before a random file operation, go on with that, and compare the branch."""
    name, point, sets, operations = fork
    before = rng.randint(1, operations)
    forked(lambda: _forked(folder / "run", point, sets, folder / "killed", before), folder, 2 * seconds)
    ended = forked(lambda: _forked(folder / "run", point, sets, folder / "killed"), folder, 2 * seconds)
    if ended.code:
        return [_words(ended, f"the fork at {point} with {sets}, killed before file operation {before}", seconds)]
    whole, resumed = (tables(folder / each / "branch-0001") for each in (name, "killed"))
    return _differences(whole, resumed, f"forked at {point} with {sets}, killed before file operation {before}")


def _forked(run: Path, point: ForkPoint, sets: Sequence[str], out: Path, before: int | None = None) -> int:
    """Fork a run, or go on with that, to be killed before a file operation where one is given; give how many there were."""
    count = dying(out, before)
    if not is_fork(out):
        fork_run(run, [point], sets, out)
    return count()


_CHANGES = (
    *(f"exchange={{mode = '{mode}'}}" for mode in ("barrier", "deadline", "first_k", "buffered", "immediate")),
    "timing.latency={model = 'exponential', mean = 0.5}",
    "timing.evaluation={model = 'exponential', mean = 0.3}",
    "availability={model = 'markov', present = 3.0, absent = 1.0}",
    "availability={model = 'always'}",
    "evaluation.retries=2",
    "network.retry=0.3",
)


def _until(table: Any, point: ForkPoint) -> str:
    assert point.time is not None
    return repr([row for row in table.to_pylist() if row["time"] < point.time])


def _counted(study: Study, directory: Path, before: int | None) -> int:
    """Run or resume a study, to be killed before a file operation where one is given; give how many there were."""
    count = dying(directory, before)
    begin_or_go_on(study, directory)
    return count()


def broken_hostings(
    study: Study,
    folder: Path,
    hostings: Hostings,
    kill: random.Random | None = None,
    kinds: Sequence[tuple[str, int | None]] = HOSTINGS,
) -> list[str]:
    """Compare the tables under some hostings with those in one process; with `kill` a host is killed at a random moment."""
    said = hostings.carry_out(hosted(study, "inline"), folder / "inline")
    expected, broken = tables(folder / "inline"), list[str]()
    for kind, workers in kinds:
        name = f"{kind} {workers or ''}".strip()
        found = hostings.carry_out(hosted(study, kind, workers), folder / name, kill)
        if said and found:
            continue  # what was written before a study ends by its own wish depends on who was how far
        broken += _differences(expected, tables(folder / name), name)
    return broken


def broken_workers(study: Study, folder: Path) -> list[str]:
    """Compare the tables of a study that two coordinators on Ray run side by side with those of one process."""
    ways = {"alone": hosted(study, "inline"), "workers": hosted(study, "inline", 2)}
    ended = {}
    for name, one in ways.items():
        try:
            fedbo.run(one, out=folder / name)
            ended[name] = ""
        except fedbo.RunError as error:
            ended[name] = type(error.__cause__).__name__
    if any(ended.values()):
        return [] if ended["alone"] == ended["workers"] else [f"inline 2: ended with {ended}"]
    return _differences(tables(folder / "alone"), tables(folder / "workers"), "inline 2")


def _differences(expected: dict[str, bytes], found: dict[str, bytes], name: str) -> list[str]:
    other = sorted(table for table in expected.keys() | found.keys() if expected.get(table) != found.get(table))
    return [f"{name}: other bytes in {', '.join(other)}"] if other else []


def _words(ended: Ending, what: str, seconds: float) -> str:
    return f"{what} took longer than {seconds:g} s" if ended.killed else f"{what}: {ended.error or ended.given}"


def start_ray() -> None:
    """Start a Ray of this machine's own, quietly, if none runs."""
    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
