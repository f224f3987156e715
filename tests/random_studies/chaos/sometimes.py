"""Series of random studies that count the situations which they reach, and draw studies that may reach the rarest ones."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedbo.study.document import StudyError
from fedbo.study.study import Study, load_study
from tests.random_studies.carrying_out import STRUCK, forked
from tests.random_studies.chaos.situations import KILLS, SITUATIONS, reached
from tests.random_studies.promises import broken_by_kills, broken_laws
from tests.random_studies.studies import draw_study, features

KILLED = 5  # one study of so many is killed as well, as often
# What a study must have, one of them, for a situation that few studies reach. It may have it without reaching it.
NEEDED: dict[str, tuple[str, ...]] = {
    "lie": ("fault lie",),
    "cut off": ("fault partition",),
    "hangs": ("fault hang",),
    "coordinator": ("fault coordinator",),
    "crash": ("fault crash",),
    "slowed": ("fault slow",),
    "lost for good": ("fault crash",),
    "arrives twice": ("fault duplication",),
    "second copy": ("fault duplication",),
    "doubled": ("fault duplication",),
    "overtakes": ("fault reordering", "fault delay"),
    "given up": ("fault loss",),
    "three times": ("fault loss",),
    "lost on its way": ("fault loss",),
    "for its content": ("fault corruption",),
    "preempted": ("fault preemption",),
    "on a worker": ("cluster",),
    "workers leave": ("cluster",),
    "rung": ("stopping",),
    "promoted": ("stopping",),
    "another order": ("overlapping evaluations",),
    "unmasked": ("secure aggregation",),
    "private": ("private messages",),
    "away": ("absences",),
    "leaves in": ("absences",),
    "leaves with": ("absences",),
    "lease": ("fault hang",),
}


# Faults of processes that come so often that they meet others; those of messages have a probability.
FREQUENT: dict[str, dict[str, Any]] = {
    "coordinator": {"rate": 0.3, "duration": 1.5},
    "crash": {"rate": 0.2, "restart": 1.5},
    "hang": {"rate": 0.2, "duration": 1.5},
    "slow": {"rate": 0.2, "duration": 3.0, "factor": 3.0},
    "partition": {"rate": 0.2, "duration": 1.5},
}


class SituationCounts(NamedTuple):
    """What a series of studies reached.

    counts: of studies and kills, by situation.
    broken: what studies broke, by seed.
    tried: number of studies.
    """

    counts: Counter[str]
    broken: dict[int, list[str]]
    tried: int

    def rare(self, least: int) -> list[str]:
        """Return the situations that were reached less often than that."""
        return [name for name in (*SITUATIONS, *KILLS) if self.counts[name] < least]

    def __str__(self) -> str:
        lines = [f"{self.counts[name]:8}  {name}" for name in (*SITUATIONS, *KILLS)]
        there = len(SITUATIONS) + len(KILLS) - len(self.rare(1))
        return "\n".join([*lines, f"{there} of {len(SITUATIONS) + len(KILLS)} situations reached by {self.tried} studies"])


def needed_for(situation: str) -> tuple[str, ...]:
    """Return the features of which studies need all to reach a situation, as far as that is known."""
    return tuple(has for words, options in NEEDED.items() if words in situation for has in options[:1])


def run_series(first: int, studies: int, least: int, limit: float, room: Path) -> SituationCounts:
    """Try this many random studies, and then as many that may reach what was reached too rarely; stop when all was reached.

    With a `least` of 0 only the random ones are tried.
    """
    series = SituationCounts(Counter(), {}, 0)
    for number, seed in enumerate(itertools.count(first)):
        rare = series.rare(least)
        if number >= studies and (not rare or series.tried >= 2 * studies):
            return series
        with tempfile.TemporaryDirectory(dir=room) as folder:
            document, study = draw_study(seed, _new(Path(folder) / "files"))
            aims = [name for name in rare if name in SITUATIONS]
            if number % 2 and aims:
                study = steered(document, study, aims[number // 2 % len(aims)])
            kills = number % KILLED == 0 or set(rare) <= set(KILLS)
            if number >= studies and not kills and not _may_reach(study, rare):
                continue
            counts, broken = _try(study, Path(folder), seed, kills, limit)
        series.counts.update(counts)
        series.broken.update({seed: broken} if broken else {})
        if broken:
            print(f"seed {seed}: {len(broken)} broken, such as {broken[0]}", flush=True)
        series = series._replace(tried=series.tried + 1)
        if series.tried % 100 == 0:
            print(
                f"{series.tried} studies, up to seed {seed}; fewer than {least} times: {'; '.join(series.rare(least))}",
                flush=True,
            )
    raise AssertionError


def steered(document: Mapping[str, Any], study: Study, situation: str) -> Study:
    """Give a small study with frequent faults of all kinds that a situation needs; the study itself where that is refused.

    A study seldom has two kinds at once by chance, and then they seldom meet.
    """
    kinds = [has.removeprefix("fault ") for has in needed_for(situation) if has.startswith("fault ")]
    if not kinds:
        return study
    faults = [{"kind": kind, **FREQUENT.get(kind, {"probability": 0.5})} for kind in kinds]
    others = [fault for fault in document.get("fault", []) if fault["kind"] not in kinds]
    small = {**document, "study": {**document["study"], "replicates": 1}, "fault": [*others[:1], *faults]}
    small.pop("sweep", None)
    for one in ({**small, "algorithm": [{"name": "fts", "every": 1}]}, small):
        try:
            return load_study(one)
        except StudyError:
            continue
    return study


def _may_reach(study: Study, rare: list[str]) -> bool:
    has = set(features(study))
    return any(has.issuperset(needed_for(name)) for name in rare if name in SITUATIONS)


def _try(study: Study, folder: Path, seed: int, kills: bool, limit: float) -> tuple[Mapping[str, int], list[str]]:
    """Try a study by its laws, and some of them by kills as well; count in how many ways each situation was reached."""
    broken = broken_laws(study, _new(folder / "laws"), limit)
    if kills:
        broken += broken_by_kills(study, _new(folder / "kills"), limit, KILLED, seed)[0]
    struck = folder / "kills" / STRUCK
    paths = struck.read_text().splitlines() if struck.exists() else []
    found = forked(lambda: reached(study, folder / "laws" / "run", paths), folder, limit)
    shutil.rmtree(folder / "laws", ignore_errors=True)
    counts = found.given or {}
    return {name: 1 if name in SITUATIONS else count for name, count in counts.items()}, broken


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder
