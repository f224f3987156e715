"""The extension of a finished run by a larger budget, more replicates or more algorithms: checks, and what is kept."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import OBSERVATIONS, RunKey, read_table
from fedbo.actors.storage.sealed import DamagedError, check_file, sha256_of
from fedbo.algorithms.base import Anytime, Waiting
from fedbo.analysis.manifest import STUDY, back
from fedbo.coordinator.runtime.actor import Coordinator, Run
from fedbo.coordinator.runtime.replaying import extend_run
from fedbo.execution.directory import KEPT
from fedbo.execution.earlier import RealTimeRecord, recall_evaluations
from fedbo.execution.jobs import learnings, runs
from fedbo.objectives.typed_function import given_function
from fedbo.study.document import StudyError, one_line
from fedbo.study.paths import DirectoryError
from fedbo.study.study import Study, load_study, recall_study
from fedbo.study.tables import AlgorithmTable

_BUDGET = ("iterations", "evaluations", "time", "target", "cost")
_FREE = ("hosting", "recovery")
_WHAT = "budget.iterations, .evaluations, .time, .target and .cost, study.replicates, and algorithms added to the others"


def check_carried(directory: Path) -> None:
    """Raise DirectoryError for a tuning whose function was passed in Python, and which is not in this process."""
    function = str(recall_study(directory / STUDY).objective.settings.get("function", ""))
    if function.startswith("given:") and given_function(function) is None:
        remedy = "call fedbo.tune again with more iterations and resume=True"
        raise DirectoryError(f"'{directory}': tuned a function that was passed in Python; {remedy}")


def extended_study(before: Study, path: Path, overrides: Sequence[str], added: Sequence[Mapping[str, Any]]) -> Study:
    """Return the extended study of a finished run; StudyError when its runs would start differently."""
    more = load_study(path, overrides, trust=True, derived=True)
    if added:
        document = more.document()
        more = load_study({**document, "algorithm": [*document["algorithm"], *added]}, trust=True, derived=True)
    for line in why_no_extension(before, more):
        raise StudyError(f"--set {line}")
    return more


def is_longer(before: Study, after: Study) -> bool:
    """Return whether existing runs continue, rather than only new ones being added."""
    return before.budget != after.budget


def runs_to_keep(before: Study, after: Study, work: Sequence[Run]) -> set[RunKey]:
    """Return the keys of the runs that an extension does not change."""
    if is_longer(before, after):
        return set()
    return {run.key for run in work if run.key.algorithm in before.labels and run.key.replicate < before.study.replicates}


def why_no_extension(before: Study, after: Study) -> list[str]:
    """Return the reasons why a study is not an extension of another one, in lines that start with the key."""
    old, new = before.document(), after.document()
    if getattr(before.privacy, "deltas", None) is None:  # they are chosen with the first private algorithm
        new.get("privacy", {}).pop("deltas", None)
    differ = [key for key in {**old, **new} if key not in _FREE and (old.get(key) or {}) != (new.get(key) or {})]
    found = []
    for table in differ:
        if table not in ("study", "budget", "algorithm"):
            found.append(f"{table}: cannot change after the start of the run; you can change {_WHAT}")
    if "study" in differ:
        found += _header(before, after)
    if "algorithm" in differ:
        found += _algorithms(before, after)
    if "budget" in differ:
        found += _budget(before, after)
    return found


def _header(before: Study, after: Study) -> list[str]:
    if before.study.seed != after.study.seed:
        return [f"study.seed={after.study.seed}: cannot change after the start of the run; run the study in a new directory"]
    if after.study.replicates < before.study.replicates:
        return [f"study.replicates={after.study.replicates}: is fewer than the {before.study.replicates} of the run; set more"]
    return []


def _algorithms(before: Study, after: Study) -> list[str]:
    tables = {table.title: table for table in after.algorithm}
    for table in before.algorithm:
        if tables.get(table.title) != table:
            return [f"algorithm.{table.title}: has already run with its settings; add another algorithm with another label"]
    return []


def _budget(before: Study, after: Study) -> list[str]:
    """Return why the runs cannot continue with the new budget, as lines."""
    old, new = before.budget, after.budget
    if before.timing.clock == "wall" and (why := _why_not_continued(before)):
        remedy = "start a new run from its observations: pass the run as start in fedbo.tune, or in [agents.history]"
        return [f"budget: a run in real time {why} cannot be extended; {remedy}"]
    if before.has_secure_noise:
        return ["budget: used secure noise, whose key was deleted, so the run cannot be extended; run it again"]
    if old.pulls != new.pulls:
        return [
            f"budget.pulls={new.pulls}: is the horizon of the algorithm and cannot change; run the study in a new directory"
        ]
    if swept := [key for key in before.sweep if key.startswith("budget.")]:
        return [f"{swept[0]}: is swept, so each cell has its own value; run the larger values as a new study"]
    sign = before.federation().metric.sign
    for key in _BUDGET:
        was, now = getattr(old, key), getattr(new, key)
        smaller = was != now and (was is None or (now is not None and (sign if key == "target" else 1) * (now - was) < 0))
        if smaller:
            said = "had none" if was is None else f"had {one_line(was)}"
            return [f"budget.{key}={one_line(now)}: would have ended the run earlier, which {said}; set a larger value"]
    return _users_of_horizon(before) if old.iterations != new.iterations else []


def _why_not_continued(study: Study) -> str:
    """Return why the agents of a run in real time cannot take another step after its end; empty where they can."""
    if study.hosting.kind == "sites":
        return "whose agents were at sites"
    if study.fault:
        return "with planned faults"
    if study.availability.model != "always" or any(group.availability is not None for group in study.group):
        return "with absences"
    if any(isinstance(table.make(), Waiting) for table in study.algorithm):
        return "in which agents wait for each other"
    selection = study.exchange.make().selection
    return "in which agents are idle between rounds" if selection.idles or selection.concurrency else ""


def continue_runs(directory: Path, manifest: Mapping[str, Any], before: Study, after: Study) -> None:
    """Turn the finished runs of a study in real time into interrupted ones with a larger budget."""
    parts = directory / "parts"
    for job in learnings(after, parts):
        Coordinator().learn(job)
    record = RealTimeRecord(directory, before, manifest)
    longer = {run.key: run for run in runs(after, parts)}
    for run in runs(before, parts):
        segments, events, evaluations = record.of(run)
        extend_run([*segments, replace(longer[run.key], hosts=0)], events, evaluations)


def _users_of_horizon(study: Study) -> list[str]:
    tables = {(table.title, repr(table)): table for cell in study.cells() for table in cell.study.algorithm}
    return [f"budget.iterations: {why}" for table in tables.values() if (why := why_not_extended(table))]


def why_not_extended(table: AlgorithmTable) -> str:
    """Return why an algorithm's runs cannot get more iterations; empty where they can."""
    algorithm = table.make()
    if not isinstance(algorithm, Anytime):
        return (
            f"'{table.title}' does not declare whether it uses the budget; add horizon_use to its class, or run the study again"
        )
    if algorithm.horizon_use:
        return f"'{table.title}' uses the budget from its first decision: it {algorithm.horizon_use}; run the study again"
    return ""


def set_aside(directory: Path) -> dict[str, str]:
    """Copy the tables and the study of a finished run to the parts; return the SHA-256 of each copy by name."""
    paths = (directory / STUDY, *sorted(directory.glob("*.parquet")))
    return {path.name: atomic.copy(path, directory / "parts" / KEPT / path.name) for path in paths}


def check_kept(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Check the tables that `set_aside` copied for an extension; DamagedError where one is missing or has changed."""
    noted = manifest.get("kept_files") or dict.fromkeys(["observations.parquet"] if manifest.get("kept_runs") else [], "")
    for name, digest in noted.items():
        path, table = directory / "parts" / KEPT / name, directory / name
        try:
            check_file(path, digest)
        except DamagedError as error:
            whole = table.is_file() and digest == sha256_of(table)  # until tables are gathered it is the one that was copied
            restored = f"restore it: cp {shlex.quote(str(table))} {shlex.quote(str(path))}"
            raise DamagedError(path, error.why, restored if whole else back(table)) from None


def settle(directory: Path) -> None:
    """Finish an extension that a kill interrupted between its manifest and its study, which is written after it."""
    kept, copy, path = directory / "parts" / KEPT / STUDY, directory / "parts" / STUDY, directory / STUDY
    if kept.is_file() and copy.is_file() and path.read_bytes() == kept.read_bytes():
        atomic.write_text(path, copy.read_text(encoding="utf-8"))


def recall(parts: Path, work: Sequence[Run]) -> None:
    """Make the earlier evaluations available to the continued runs."""
    path = parts / KEPT / "observations.parquet"
    if path.is_file() and work:
        table = read_table(path, OBSERVATIONS)
        for run in work:
            recall_evaluations(table, run)
