"""What is promised of every study that the checks accept, tried on one study: a list of what was broken.

- It ends, and its tables obey the invariants.
- A replay gives the same tables.
- Under every hosting it gives the same bytes.
- Killed at random moments, by SIGKILL, and resumed, it gives the same bytes.
- In jobs that are told of their end, or killed, it gives the same bytes.
- Run with less of a budget and extended, and killed then, it gives the same bytes.

That of forks is in `fork_promise`.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray

import fedbo
from fedbo.analysis.manifest import STUDY, read_manifest
from fedbo.execution.extension import extended_study, why_not_extended
from fedbo.execution.replay import replay
from fedbo.execution.runner import resume_study, run_study
from fedbo.fast import accelerate
from fedbo.study.study import Study, StudyError, load_study
from fedbo_hunt.surroundings import Draws, draw_availability, draw_fault
from tests.random_studies.carrying_out import (
    LEGAL_NAMES,
    Hostings,
    Untried,
    begin_or_go_on,
    differences,
    dying,
    forked,
    hosted,
    tables,
    words,
)
from tests.random_studies.chaos.knobs import NONE_TURNED, Knobs, draw_knobs, in_words, turn, turned
from tests.random_studies.invariants import violations

HOSTINGS: tuple[tuple[str, int | None], ...] = (("packed", 1), ("packed", 2), ("packed", 3), ("dedicated", None))


def broken_laws(study: Study, folder: Path, seconds: float, again: bool = False) -> list[str]:
    """Run a study in a fork and check its tables, and with `again` replay it; `seconds` is the limit of each."""
    directory = folder / "run"
    ended = forked(lambda: begin_or_go_on(study, directory), folder, seconds)
    if ended.killed:  # frequent snapshots take all the time of a run in which very much happens before it is given up
        shutil.rmtree(directory, ignore_errors=True)
        rarer = load_study({**study.document(), "recovery": {"events": 20000}})
        ended = forked(lambda: begin_or_go_on(rarer, directory), folder, seconds)
    if ended.error.startswith(LEGAL_NAMES):
        return []
    if ended.code:
        return [words(ended, "the run", seconds)]
    found = forked(lambda: violations(study, directory), folder, seconds)
    broken = [words(found, "the check", seconds)] if found.code else list(found.given)
    if again and not broken:
        same = forked(lambda: replay(directory, verify=True, trust=True).same, folder, 2 * seconds)
        broken = [] if same.given is True else [words(same, "the replay", seconds)]
    return broken


def broken_by_kills(study: Study, folder: Path, seconds: float, kills: int, seed: int) -> tuple[list[str], int]:
    """Run a study, then again with up to `kills` kills at random moments; give what differs, and how often it was killed.

    Every other kill comes before a random file operation, of which snapshots every few events make many, the others at a
    random time; both are drawn over the whole undisturbed run, so that they fall in its end as well. Each process that is
    killed or resumes has other knobs.
    """
    for events, limit in ((6, seconds / 8), (600, seconds)):  # rarer snapshots where so many of them would take all the time
        often = load_study({**study.document(), "recovery": {"events": events}})
        shutil.rmtree(folder / "alone", ignore_errors=True)
        began = time.monotonic()
        alone = forked(lambda: _counted(often, folder / "alone", None, {}), folder, limit)  # noqa: B023
        took = time.monotonic() - began
        if not alone.killed:
            break
    if alone.error.startswith(LEGAL_NAMES):
        return [], 0
    if alone.code:
        return [words(alone, "the run", seconds)], 0
    rng, directory, done = random.Random(seed), folder / "killed", 0
    while True:
        before = rng.randint(1, alone.given) if done < kills and done % 2 == 0 else None
        limit = rng.uniform(0.0, 1.1 * took) if done < kills and done % 2 else seconds
        knobs = draw_knobs("kills", seed, done)
        ended = forked(lambda: _counted(often, directory, before, knobs), folder, limit)  # noqa: B023
        if not ended.killed:
            break
        if done >= kills:
            return [words(ended, "the resumed run", seconds)], done
        done += 1
    turned_last = f"after {done} kills, the last process with {in_words(knobs)}"
    if ended.code:
        return [words(ended, f"the run resumed {turned_last}", seconds)], done
    return differences(tables(folder / "alone"), tables(directory), turned_last), done


def broken_by_jobs(study: Study, folder: Path, seconds: float, jobs: int, seed: int) -> tuple[list[str], list[str]]:
    """Run a study, then again in up to `jobs` jobs of random lengths and one that may end; give what differs, and their ends.

    Two jobs of three are told some time before their end, which may be too short for the snapshot, the others are killed.
    """
    for events, limit in ((100, seconds / 8), (20000, seconds)):
        often = load_study({**study.document(), "recovery": {"events": events}})
        shutil.rmtree(folder / "alone", ignore_errors=True)
        began = time.monotonic()
        alone = forked(lambda: begin_or_go_on(often, folder / "alone"), folder, limit)  # noqa: B023
        took = time.monotonic() - began
        if not alone.killed:
            break
    if alone.error.startswith(LEGAL_NAMES):
        return [], []
    if alone.code:
        return [words(alone, "the run", seconds)], []
    rng, directory, ends = random.Random(f"jobs {seed}"), folder / "jobs", list[str]()
    for _ in range(jobs):
        length, notice = rng.uniform(0.2 * took, took), rng.choice([0.0, rng.uniform(0.0, 0.1), 10.0])
        ended = forked(lambda: begin_or_go_on(often, directory), folder, length + notice, notice)
        told = ended.error.startswith("KeyboardInterrupt")
        if not told and not ended.killed:
            break
        ends.append("told" if told else "killed")
    else:
        ended = forked(lambda: begin_or_go_on(often, directory), folder, seconds)
    how = f"in jobs ({', '.join(ends)})"
    if ended.code:
        return [words(ended, f"the run {how}", seconds)], ends
    return differences(tables(folder / "alone"), tables(directory), how), ends


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
        if ended.error.startswith(LEGAL_NAMES):
            raise Untried(ended.error)
        if ended.code:
            return [words(ended, f"the run {name}", seconds)]
    directory = folder / "extended"
    if broken := _wrongly_taken(less, directory):
        return broken
    trial = folder / "trial"
    shutil.copytree(directory, trial)
    counted = forked(lambda: _extended(trial, sets, None), folder, seconds)
    if counted.code:
        return [words(counted, "the extension", seconds)]
    broken = differences(tables(folder / "alone"), tables(trial), f"extended by {sets}")
    if kill and not broken:
        before, knobs = rng.randint(1, counted.given), draw_knobs("extensions", seed)
        forked(lambda: _extended(directory, sets, before, knobs), folder, seconds)
        ended = forked(lambda: _extended(directory, sets, None), folder, seconds)
        which = f"by {sets}, killed before file operation {before} with {in_words(knobs)}"
        if ended.code:
            return [words(ended, f"the extension {which}", seconds)]
        broken = differences(tables(folder / "alone"), tables(directory), f"extended {which}")
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
    if budget.cost is not None:
        changes.append(("budget", "cost", budget.cost * rng.uniform(0.1, 0.9)))
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


def _extended(directory: Path, sets: Sequence[str], before: int | None, knobs: Knobs = NONE_TURNED) -> int:
    """Extend a run, or go on with that, to be killed before a file operation where one is given; give how many there were."""
    turn(knobs)
    count = dying(directory, before)
    ended = read_manifest(directory)
    if load_study(directory / "study.toml", sets).digest() != ended["study_sha256"] or ended["status"] != "complete":
        resume_study(directory, sets if ended["status"] == "complete" else ())
    return count()


def _counted(study: Study, directory: Path, before: int | None, knobs: Knobs) -> int:
    """Run or resume a study, to be killed before a file operation where one is given; give how many there were."""
    turn(knobs)
    count = dying(directory, before)
    begin_or_go_on(study, directory)
    return count()


def broken_hostings(
    study: Study,
    folder: Path,
    hostings: Hostings,
    kill: random.Random | None = None,
    kinds: Sequence[tuple[str, int | None]] = HOSTINGS,
    knobs: Knobs = NONE_TURNED,
) -> list[str]:
    """Compare the tables under some hostings with those in one process; with `kill` a host is killed at a random moment.

    Under these hostings the coordinator and its hosts have these knobs.
    """
    said = hostings.carry_out(hosted(study, "inline"), folder / "inline")
    expected, broken = tables(folder / "inline"), list[str]()
    for kind, workers in kinds:
        name = f"{kind} {workers or ''}".strip()
        with turned(knobs):
            found = hostings.carry_out(hosted(study, kind, workers), folder / name, kill, knobs)
        if said and found:
            continue  # what was written before a study ends by its own wish depends on who was how far
        broken += differences(expected, tables(folder / name), f"{name} with {in_words(knobs)}")
    return broken


def broken_workers(study: Study, folder: Path) -> list[str]:
    """Compare the tables of a study that two coordinators on Ray run side by side with those of one process."""
    ways = {"alone": hosted(study, "inline"), "workers": hosted(study, "inline", 2)}
    ended = {}
    for name, one in ways.items():
        try:
            run_study(one, folder / name)
            ended[name] = ""
        except fedbo.errors.RunError as error:
            ended[name] = type(error.__cause__).__name__
    if any(ended.values()):
        return [] if ended["alone"] == ended["workers"] else [f"inline 2: ended with {ended}"]
    return differences(tables(folder / "alone"), tables(folder / "workers"), "inline 2")


def broken_windows(study: Study, folder: Path, seconds: float, seed: int) -> list[str]:
    """Compare the tables of a study with windows and columns, however few its agents are, with those without them.

    Of two studies one is left without all that keeps windows away, where the checks accept it so.
    """
    one, ends = plain_study(study) if seed % 2 else study, dict[str, str]()
    for way, fewest in (("with", 1), ("without", 10**9)):
        ended = forked(lambda: _of_size(one, folder / way, fewest), folder, seconds)  # noqa: B023
        if ended.code and not ended.error.startswith(LEGAL_NAMES):
            return [words(ended, f"the run {way} windows", seconds)]
        ends[way] = ended.error
    if any(ends.values()):
        return [] if ends["with"] == ends["without"] else [f"it ended otherwise with windows: {ends}"]
    return differences(tables(folder / "without"), tables(folder / "with"), "with windows")


def _of_size(study: Study, directory: Path, fewest: int) -> None:
    """Run a study with columns and windows if it has so many agents."""
    accelerate._FEWEST = fewest
    begin_or_go_on(study, directory)


def broken_idle(study: Study, folder: Path, seconds: float, seed: int) -> list[str]:
    """Check a study with idle agents, and compare its observations with and without the rows of what happens to them."""
    one, found, ends = idle_study(study, seed), dict[str, Any](), dict[str, str]()
    for way, rows in (("without", False), ("with", True)):
        document = one.document() | {"record": {"idle": rows}}
        broken = broken_laws(load_study(document), folder / way, seconds)
        if broken:
            return [f"{way} rows of idle agents: {broken[0]}"]
        directory = folder / way / "run"
        found[way] = tables(directory, ("observations", "releases"))
        ends[way] = read_manifest(directory)["status"]
    if ends["with"] != ends["without"]:
        return [f"it ended otherwise with rows of idle agents: {ends}"]
    return differences(found["without"], found["with"], "with rows of idle agents")


def idle_study(study: Study, seed: int) -> Study:
    """Give a study whose rounds ask some of its agents, with absences or faults; Untried if the checks refuse that."""
    draws, document = Draws(np.random.default_rng([seed, 1])), study.document()
    agents = list(range(study.federation().n_agents))
    exchange: dict[str, Any] = document["exchange"]
    if exchange["mode"] in ("immediate", "buffered"):
        exchange |= {"mode": draws.one_of("barrier", "deadline", "first_k")}
    if exchange.get("selection", {}).get("others") != "idle":
        share = draws.number(0.2, 0.8)
        exchange["selection"] = {"who": draws.one_of("fraction", "speed"), "share": share, "others": "idle"}
    if study.availability.model == "always" and draws.chance(0.7):
        document["availability"] = draw_availability(draws)
    document["fault"] = document.get("fault", []) + [draw_fault(draws, agents, []) for _ in range(draws.whole(0, 2))]
    try:
        return load_study(document)
    except StudyError as error:
        raise Untried(str(error)) from None


_UNUSUAL = ("fault", "availability", "group", "cluster", "evaluation", "stopping", "network", "early_end", "metric", "recovery")


def plain_study(study: Study) -> Study:
    """Give a study without what is unusual for windows, or the study itself where the checks refuse that."""
    document = {name: table for name, table in study.document().items() if name not in _UNUSUAL}
    timing = {name: value for name, value in document["timing"].items() if name in ("clock", "evaluation")}
    exchange = {name: value for name, value in document["exchange"].items() if name in ("mode", "k", "length", "late")}
    latency = {"latency": {"model": "constant", "mean": 0.25}}
    budget = {name: value for name, value in document["budget"].items() if name in ("iterations", "pulls")}
    try:
        return load_study({**document, "timing": timing | latency, "exchange": exchange, "budget": budget})
    except StudyError:
        return study


def start_ray() -> None:
    """Start a Ray of this machine's own, quietly, if none runs."""
    if not ray.is_initialized():
        os.environ.setdefault("RAY_worker_niceness", "0")  # else hosts hardly run beside other work
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
