"""Tries what is promised of every study on random ones: `python -m tests.random_studies --studies 100 --try laws`."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from fedbo.algorithms.catalog import algorithms
from fedbo.study.study import Study, load_study
from fedbo_hunt.shrinking import shrink
from tests.random_studies.carrying_out import Hostings, Untried, import_for_runs
from tests.random_studies.chaos.knobs import draw_knobs
from tests.random_studies.chaos.liveness import broken_liveness
from tests.random_studies.chaos.real_time import broken_in_real_time, draw_real_time_study
from tests.random_studies.chaos.sometimes import run_series
from tests.random_studies.chaos.trials import chaos_trials
from tests.random_studies.fork_promise import broken_fork
from tests.random_studies.power.promise import broken_by_power_cuts, cuts_made
from tests.random_studies.promises import (
    broken_by_jobs,
    broken_by_kills,
    broken_extension,
    broken_hostings,
    broken_idle,
    broken_laws,
    broken_windows,
    broken_workers,
    start_ray,
)
from tests.random_studies.studies import draw_study, features
from tests.random_studies.views import broken_views

ON_RAY = ("hostings", "workers", "real-time")
TRIALS = (
    "laws",
    "hostings",
    "workers",
    "kills",
    "jobs",
    "extensions",
    "forks",
    "liveness",
    "real-time",
    "ray-chaos",
    "power-cuts",
    "views",
    "windows",
    "idle",
)
Trial = Callable[[Study, Path, int], list[str]]


def trials(given: argparse.Namespace) -> Trial:
    """Give what is tried on each study."""
    if given.what == "laws":
        return lambda study, folder, seed: broken_laws(study, folder, given.limit, again=seed % given.replay == 0)
    if given.what == "kills":
        return lambda study, folder, seed: broken_by_kills(study, folder, given.limit, given.kills, seed)[0]
    if given.what == "jobs":
        return lambda study, folder, seed: broken_by_jobs(study, folder, given.limit, given.kills, seed)[0]
    if given.what == "extensions":
        return lambda study, folder, seed: broken_extension(study, folder, given.limit, seed)
    if given.what == "liveness":
        return lambda study, folder, seed: broken_liveness(study, folder, given.limit, seed)
    if given.what == "forks":
        return lambda study, folder, seed: broken_fork(study, folder, given.limit, seed)
    if given.what == "power-cuts":
        return lambda study, folder, seed: broken_by_power_cuts(study, folder, given.limit, given.cuts, seed)
    if given.what == "views":
        return lambda study, folder, seed: broken_views(study, folder, given.limit, seed)
    if given.what == "windows":
        return lambda study, folder, seed: broken_windows(study, folder, given.limit, seed)
    if given.what == "idle":
        return lambda study, folder, seed: broken_idle(study, folder, given.limit, seed)
    start_ray()
    if given.what == "real-time":
        return lambda study, folder, seed: broken_in_real_time(draw_real_time_study(seed), folder, seed)
    if given.what == "workers":
        return lambda study, folder, seed: broken_workers(study, folder)
    hostings = Hostings()
    often = given.kills / 100
    return lambda study, folder, seed: broken_hostings(
        study,
        folder,
        hostings,
        random.Random(seed) if random.Random(f"kill {seed}").random() < often else None,
        knobs=draw_knobs("hostings", seed),
    )


def tried(trial: Trial, study: Study, seed: int, room: Path) -> list[str] | None:
    """Try one study in a folder that is removed; an error is what it broke; None where nothing is promised of it."""
    folder = Path(tempfile.mkdtemp(dir=room))
    try:
        return trial(study, folder, seed)
    except Untried:
        return None
    except Exception as error:
        return [f"{type(error).__name__}: {str(error)[:300]}"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class TrialCounts:
    """The count of the studies that were drawn, and by what they have of those that were tried and of those that broke."""

    def __init__(self) -> None:
        self.drawn, self.tried, self.broken, self._began = 0, Counter[str](), Counter[str](), time.monotonic()

    def add(self, study: Study, found: list[str] | None) -> None:
        """Count a study and what it broke."""
        self.drawn += 1
        if found is not None:
            self.tried.update(["studies", *features(study)])
        if found:
            self.broken.update(["studies", *features(study)])

    @property
    def seconds(self) -> float:
        """Give how long it has taken."""
        return time.monotonic() - self._began

    def __str__(self) -> str:
        untried = self.drawn - self.tried["studies"]
        left = f", {untried} of which nothing is promised" if untried else ""
        return f"{self.broken['studies']} broken{left}; {self.seconds:.0f} s"

    def table(self) -> str:
        """Write what was tried, and what broke, by what studies have."""
        lines = [f"{name:32}{count:8}{self.broken[name]:8}" for name, count in sorted(self.tried.items())]
        return "\n".join([f"{'of those with':32}{'tried':>8}{'broken':>8}", *lines])


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, try, tell what was broken, and with --shrink by which smallest study."""
    given = _given(arguments)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    given.room.mkdir(parents=True, exist_ok=True)
    if given.what == "ray-chaos":
        _try_under_chaos(given)
    if given.sometimes is not None:
        _reach_situations(given)
    names = list(algorithms()) if "every" in given.algorithm else given.algorithm or [None]
    trial, series = trials(given), TrialCounts()
    with tempfile.TemporaryDirectory() as files:
        if given.what not in ON_RAY:
            import_for_runs(draw_study(0)[1], Path(files))
        for seed in itertools.count(given.first):
            if series.drawn == given.studies or series.seconds > given.seconds:
                break
            (folder := Path(files) / str(seed)).mkdir()
            document, study = draw_study(seed, folder, names[seed % len(names)])
            if not {*document, *features(study)} >= set(given.tables):
                continue
            found = tried(trial, study, seed, given.room)
            series.add(study, found)
            if found:
                print(f"seed {seed}: {len(found)} broken, such as {found[0]}", flush=True)
                if given.shrink:
                    least = shrink(document, lambda one: bool(tried(trial, load_study(one), seed, given.room)), 60)  # noqa: B023
                    print(f"  {json.dumps(least)}", flush=True)
            if series.drawn % 500 == 0:
                print(f"{series.drawn} studies, {series}", flush=True)
    if given.count:
        print(series.table())
    if given.what == "power-cuts":
        print(", ".join(f"{count} {name}" for name, count in sorted(cuts_made.items())))
    print(f"{series.drawn} studies, seeds {given.first} to {seed - 1}: {series}")
    sys.exit(bool(series.broken))


def _try_under_chaos(given: argparse.Namespace) -> NoReturn:
    """Try studies in processes of their own, each with a Ray whose calls fail; print each study, for its time tells a lot."""
    series, broken, resumes = time.monotonic(), 0, 0
    for result in chaos_trials(given.first, given.studies, given.limit, given.room):
        broken, resumes = broken + bool(result.broken), resumes + result.resumes
        said = f"broken: {result.broken[0]}" if result.broken else "the same bytes, or its laws hold"
        print(f"seed {result.seed}, {result.way}: {said}; {result.resumes} resumes, {result.seconds:g} s", flush=True)
    seconds = time.monotonic() - series
    print(f"{given.studies} studies, seeds from {given.first}: {broken} broken; {resumes} resumes; {seconds:.0f} s")
    sys.exit(bool(broken))


def _reach_situations(given: argparse.Namespace) -> NoReturn:
    """Try studies by their laws and by kills until each situation was reached often enough; print how often each was."""
    with tempfile.TemporaryDirectory() as files:
        import_for_runs(draw_study(0)[1], Path(files))
    series = run_series(given.first, given.studies, given.sometimes, given.limit, given.room)
    print(series)
    rare = series.rare(given.sometimes)
    print(f"fewer than {given.sometimes} times: {'; '.join(rare) or 'none'}")
    sys.exit(bool(series.broken or rare))


def _given(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.random_studies", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no study after so many seconds")
    parser.add_argument("--try", dest="what", choices=TRIALS, default="laws")
    parser.add_argument(
        "--algorithm",
        action="append",
        default=[],
        help='the first algorithm of each study, of several in turn; "every": all; "own"',
    )
    parser.add_argument("--count", action="store_true", help="print how many studies had what was drawn")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a study may take")
    parser.add_argument("--replay", type=int, default=10, help="replay one study of so many")
    parser.add_argument(
        "--kills", type=int, default=5, help="kills of a study, or its jobs; with hostings, in so many of 100 studies a host"
    )
    parser.add_argument("--cuts", type=int, default=20, help="power cuts in a study")
    parser.add_argument("--room", type=Path, default=Path(tempfile.gettempdir()), help="the folder for runs")
    parser.add_argument(
        "--with",
        dest="tables",
        action="append",
        default=[],
        help="pass over studies without this table, such as cluster, or this of what --count tells; may be given several times",
    )
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument(
        "--sometimes",
        nargs="?",
        type=int,
        const=50,
        metavar="TIMES",
        help="count the situations that studies reach, and try more that may reach what was reached less often than this",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
