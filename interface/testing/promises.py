"""What is promised of every study that the checks accept, tried on one study: a list of what was broken.

- It ends, and its tables obey the invariants.
- A replay gives the same tables.
- Under every hosting it gives the same bytes.
- Killed at random moments, by SIGKILL, and resumed, it gives the same bytes.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path

import ray

import fedbo
from fedbo.execution.replay import replay
from fedbo.study.study import Study, load_study
from fedbo.testing.carrying_out import LEGAL_ENDS, Ending, Hostings, begin_or_go_on, dying, forked, hosted, tables
from fedbo.testing.invariants import violations

HOSTINGS: tuple[tuple[str, int | None], ...] = (("packed", 1), ("packed", 2), ("packed", 3), ("dedicated", None))
# What a fork tells of how a study may end besides well: by its own wish, or because nothing could make progress any more.
_LEGAL_ENDS = tuple(error.__name__ for error in LEGAL_ENDS)


def broken_laws(study: Study, folder: Path, seconds: float, again: bool = False) -> list[str]:
    """Run a study in a fork and check its tables, and with `again` replay it; `seconds` is the limit of each."""
    directory = folder / "run"
    ended = forked(lambda: begin_or_go_on(study, directory), folder, seconds)
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
    often = load_study({**study.document(), "recovery": {"events": 6}})
    began = time.monotonic()
    alone = forked(lambda: _counted(often, folder / "alone", None), folder, seconds)
    took = time.monotonic() - began
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
