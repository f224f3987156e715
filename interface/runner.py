"""Running a study: its runs one by one or spread over Ray, and the directory that is left when they have ended."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedbo.actors.rows import OBSERVATIONS, write_table
from fedbo.coordinator.actor import Ended
from fedbo.coordinator.journal import EVENTS
from fedbo.display import Display
from fedbo.jobs import learnings, runs
from fedbo.progress import Progress
from fedbo.results import Result
from fedbo.schemas import canonical
from fedbo.study import Study
from fedbo.workforce import workforce


class RunError(RuntimeError):
    """A study that began could not be completed; what was done is in `directory`."""

    def __init__(self, message: str, directory: Path) -> None:
        super().__init__(message)
        self.directory = directory


def run_study(study: Study, out: Path | None = None, progress: Progress | None = None) -> Result:
    """Run a whole study and give its results.

    `out` is a directory that is new or empty; without it one is made under `runs/`. RunError when anything in
    it fails, KeyboardInterrupt (with the directory) after Ctrl-C: in both cases all that was observed has been written.
    """
    directory = _directory(study, out)
    (directory / "study.toml").write_text(study.to_toml(), encoding="utf-8")
    manifest = _manifest(study)
    _write_manifest(directory, manifest)
    learning, work = learnings(study, directory / "parts"), runs(study, directory / "parts")
    begun, failure = time.monotonic(), None
    ended: list[Ended] = []
    try:
        with _interrupts() as interrupted, workforce(study) as force:
            show = Display(progress, study, learning, work)
            try:
                force.carry_out(learning, interrupted, show.learned, [])
                if not interrupted():
                    force.carry_out(work, interrupted, show.look, ended)
            finally:
                show.finish()
    except Exception as error:
        failure = error
    complete = len(ended) == len(work) and not any(end.outcome.stopped for end in ended)
    manifest["status"] = "failed" if failure else "complete" if complete else "interrupted"
    manifest["error"] = str(failure) if failure else None
    manifest["complete_runs"] = sorted([*end.key] for end in ended if not end.outcome.stopped)
    manifest["best_values"] = _best_values(ended)
    manifest["ended"], manifest["seconds"] = _now(), round(time.monotonic() - begun, 3)
    _gather(study, directory)
    _write_manifest(directory, manifest)
    if failure:
        raise RunError(f"{type(failure).__name__}: {failure}", directory) from failure
    if not complete:
        raise KeyboardInterrupt(directory)
    return Result.open(directory)


def _directory(study: Study, out: Path | None) -> Path:
    if out is None:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        out = Path("runs") / f"{study.study.name.replace(os.sep, '-')}-{stamp}"
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"'{out}' exists and is not an empty directory; name a new one")
    out.mkdir(parents=True, exist_ok=True)
    return out.resolve()


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a wish to stop, which the runs heed after the evaluation at hand; the second one kills."""
    asked = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _manifest(study: Study) -> dict[str, Any]:
    federations = [cell.study.federation() for cell in study.cells()]
    packages = ("fedbo", "numpy", "scipy", "scikit-learn", "ray", "pyarrow")
    return {
        "name": study.study.name,
        "status": "running",
        "study_sha256": study.digest(),
        "seed": study.study.seed,
        "labels": list(study.labels),
        "cells": [dict(cell.values) for cell in study.cells()],
        "metric": [asdict(federation.metric) for federation in federations],
        "parameters": [[asdict(parameter) for parameter in federation.parameters] for federation in federations],
        "versions": {"python": platform.python_version(), **{package: version(package) for package in packages}},
        "platform": platform.platform(),
        "started": _now(),
    }


def _write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    draft = directory / ".manifest.json.part"
    draft.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    draft.replace(directory / "manifest.json")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _best_values(ended: Sequence[Ended]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for end in ended:
        by_agent = {str(agent): value for agent, value in end.best_values.items()}
        values.setdefault(str(end.key.cell), {})[str(end.key.replicate)] = by_agent
    return values


def _gather(study: Study, directory: Path) -> None:
    """Put the parts together into one table of each kind, in canonical order, and remove them."""
    parts = directory / "parts"
    for name, schema in (("observations", OBSERVATIONS), ("events", EVENTS)):
        files = sorted((parts / name).glob("*.parquet"))
        table = pa.concat_tables([pq.read_table(file, schema=schema) for file in files] or [schema.empty_table()])
        write_table(canonical(table, study.labels), directory / f"{name}.parquet")
    learned = sorted((parts / "histories").glob("*/*.parquet"))
    if learned:
        write_table(
            pa.concat_tables([pq.read_table(file, schema=OBSERVATIONS) for file in learned]),
            directory / "histories.parquet",
        )
    shutil.rmtree(parts, ignore_errors=True)
