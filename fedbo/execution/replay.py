"""The replay of a run, and the first event at which it differs from the recorded run."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedbo.actors.storage import atomic
from fedbo.actors.storage.rows import read_table
from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis.manifest import STUDY, back, check_tables, read_manifest, write_manifest
from fedbo.coordinator.runtime.actor import Coordinator
from fedbo.coordinator.runtime.replaying import replay_run
from fedbo.coordinator.runtime.reports import replay_reports
from fedbo.execution.directory import discard_parts, gather, new_directory, new_manifest, other_kernels
from fedbo.execution.earlier import RealTimeRecord
from fedbo.execution.jobs import learnings, runs
from fedbo.settings.shown import quoted
from fedbo.study.paths import DirectoryError, locked
from fedbo.study.study import Study, load_study


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay: the hashes of both event logs, and the first difference, if any.

    `directory` holds the replay, where it was kept. Observations are compared too if they were `observed`, not at sites.
    """

    events: int
    recorded: str
    replayed: str
    difference: str | None
    directory: str | None
    observed: bool = True

    @property
    def same(self) -> bool:
        """Return whether nothing differs."""
        return self.difference is None

    @property
    def words(self) -> str:
        """Return the result in words."""
        kept = f"\nreplay:  {self.directory}" if self.directory else ""
        if self.difference is not None:
            return f"{self.difference}{kept}"
        seen = "and the same observations" if self.observed else "of the coordinator; the agents were at their sites"
        return f"no difference: {self.events} events, sha256 {self.recorded[:16]}…, {seen}{kept}"


def replay(directory: Path, out: Path | None = None, verify: bool = False, trust: bool = False) -> Replay:
    """Run a finished run again and compare the two; DirectoryError when it has not ended, or names functions without `trust`.

    In virtual time the study is run again. A run in real time is replayed from its record: the same events at the same times
    and the same outcomes of evaluations, without waiting. The replay is kept in `out`; without `out` it is kept beside the
    other runs, unless `verify` is set.
    """
    manifest = read_manifest(directory)
    if manifest["status"] != "complete":
        raise DirectoryError(f"'{directory}': has not ended; resume it first: fedbo resume {quoted(directory)}")
    if "forked" in manifest:
        raise DirectoryError(
            f"'{directory}': is a branch of another run, so its study does not reproduce it; fork that run again"
        )
    study = load_study(directory / "study.toml", trust=trust, derived=True)
    at_sites = study.hosting.kind == "sites"  # where observations are, so that only the coordinator can be replayed
    names = _COMPARED[:1] if at_sites else _COMPARED
    compared = {f"{name}.parquet" for name in names}  # row by row; of all others the sums are checked
    check_tables(directory, manifest, [name for name in manifest.get("files", ()) if name not in compared])
    if study.has_secure_noise:
        raise DirectoryError(f"'{directory}': used secure noise, whose key was deleted, so it cannot be replayed")
    with _place(study, out, verify) as place:
        _carry_out(study, directory, place)
        kept = None if verify and out is None else str(place)
        return compare(directory, place, kept, names)


@contextmanager
def _place(study: Study, out: Path | None, verify: bool) -> Iterator[Path]:
    if verify and out is None:
        with tempfile.TemporaryDirectory(prefix="fedbo-replay-") as folder:
            yield Path(folder)
        return
    directory = new_directory(study, out)
    with locked(directory):
        yield directory


def _carry_out(study: Study, directory: Path, place: Path) -> None:
    """Run all jobs in this process."""
    parts, recorded = place / "parts", read_manifest(directory)
    atomic.make_folder(parts)
    atomic.write_text(place / STUDY, study.to_toml())
    manifest = new_manifest(study)
    coordinator, work = Coordinator(), runs(study, parts)
    for job in learnings(study, parts):
        coordinator.learn(job)
    real = RealTimeRecord(directory, study, recorded) if study.timing.clock == "wall" else None
    for run in work:
        if real is None:
            coordinator.run(replace(run, hosts=0))
        elif study.hosting.kind == "sites":
            replay_reports(run, real.of(run)[1], real.reports_of(run))
        else:
            replay_run(*real.of(run))
    files = gather(study, place, [run.key for run in work])
    discard_parts(place)
    copied = {key: recorded[key] for key in ("best_values", "complete_runs", "seconds")}
    write_manifest(place, {**manifest, **copied, "status": "complete", "error": None, "files": files})


_COMPARED = ("events", "observations", "privacy")


def compare(recorded: Path, replayed: Path, kept: str | None = None, names: Sequence[str] = _COMPARED) -> Replay:
    """Compare the tables of two runs that have these names bit by bit, events first."""
    tables = {}
    for name in names:
        if name != "privacy" or (recorded / f"{name}.parquet").exists():  # nothing need be private
            first, second = (_table(folder / f"{name}.parquet") for folder in (recorded, replayed))
            # A column that was added since the recording is in the replayed table alone.
            tables[name] = [first, second.select([column for column in second.column_names if column in first.column_names])]
    hashes = [_hash(table) for table in tables["events"]]
    difference = None
    for name, (first, second) in tables.items():
        if difference is None and (len(first), _hash(first)) != (len(second), _hash(second)):
            difference = _first_difference(name, first, second)
            if others := other_kernels(read_manifest(recorded)):
                difference += f"\n{others}"
    return Replay(
        events=len(tables["events"][0]),
        recorded=hashes[0],
        replayed=hashes[1],
        difference=difference,
        directory=kept,
        observed="observations" in names,
    )


def _table(path: Path) -> pa.Table:
    try:
        return read_table(path)
    except FileNotFoundError:
        raise DamagedError(path, "it is missing", back(path)) from None
    except DamagedError as error:
        raise DamagedError(path, error.why, back(path)) from None


def _hash(table: pa.Table) -> str:
    found = hashlib.sha256()
    for batch in table.combine_chunks().to_batches():
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found.update(repr(row).encode())
    return found.hexdigest()


def _first_difference(name: str, first: pa.Table, second: pa.Table) -> str:
    """Return the first row that differs, with both versions of it."""
    rows: Sequence[list[dict[str, Any]]] = [table.to_pylist() for table in (first, second)]
    for number in range(max(map(len, rows))):
        one, other = (found[number] if number < len(found) else None for found in rows)
        if repr(one) != repr(other):
            return f"{name} differ first in row {number}:\n  recorded: {_shown(one)}\n  replayed: {_shown(other)}"
    raise AssertionError("the tables do not differ")


def _shown(row: dict[str, Any] | None) -> str:
    return (
        "nothing: the log ends before this row" if row is None else ", ".join(f"{key} {value!r}" for key, value in row.items())
    )
