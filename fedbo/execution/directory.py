"""The directory of a run: its manifest, and its tables, which are gathered from the parts."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fedbo.actors.storage import atomic
from fedbo.actors.storage.history_files import read_history_table
from fedbo.actors.storage.printed import PRINTED, printed_table
from fedbo.actors.storage.rows import EVALUATIONS, OBSERVATIONS, RunKey, read_table, write_table
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.sealed import DamagedError, FormatError, check_file, sha256_of
from fedbo.actors.storage.snapshot_store import SnapshotIndex, SnapshotStore
from fedbo.actors.threads import kernels
from fedbo.analysis.indicators import with_metrics
from fedbo.analysis.manifest import STUDY, read_manifest
from fedbo.analysis.schemas import canonical
from fedbo.coordinator.logged.table import EVENTS
from fedbo.coordinator.runtime.event_log import MOMENTS
from fedbo.coordinator.runtime.reports import REPORTS
from fedbo.objectives.base import described
from fedbo.settings.logs import say
from fedbo.settings.rooms import optional_or
from fedbo.settings.shown import quoted
from fedbo.settings.version import fedbo_version
from fedbo.study.files import distributions
from fedbo.study.listing import revealed
from fedbo.study.paths import PRIVATE, DirectoryError, make_folder, usable
from fedbo.study.problems import agent_goals
from fedbo.study.study import Study

if TYPE_CHECKING:
    from fedbo.coordinator.runtime.actor import RunSummary

KEPT = "kept"  # the folder among the parts with what a run was before it was extended
_NUMBERED = ("cell", "algorithm", "replicate", "agent", "number")


def new_folder(name: str) -> Path:
    """Create a new directory under `runs/`, with a name and the time, and return its path.

    Several processes may do so within a second, so that only a directory that this one has created is its own.
    """
    make_folder(Path("runs"))
    name = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    names = chain((name,), (f"{name}-{number}" for number in count(2)))
    while True:
        folder = Path("runs") / next(names)
        with usable(folder, "cannot create a folder there"), suppress(FileExistsError):
            folder.mkdir(PRIVATE)
            atomic.sync_names(folder.parent)
            return folder


def new_directory(study: Study, out: Path | None) -> Path:
    """Create the directory of a new run and return its path; DirectoryError, with the remedy, when it is in use."""
    if out is None:
        out = new_folder(study.study.name)
    with usable(out, "cannot create a folder there"):
        if unfinished(out):
            raise DirectoryError(f"'{out}' contains an unfinished run; resume it: fedbo resume {quoted(out)}")
        taken = out.exists() and (not out.is_dir() or not _untouched(out, study))
    if taken:
        raise DirectoryError(f"'{out}' exists and is not an empty directory; choose a new one")
    make_folder(out, PRIVATE)
    return out.resolve()


def unfinished(directory: Path) -> bool:
    """Return whether a directory holds a run that has not ended."""
    try:
        return bool(read_manifest(directory)["status"] != "complete")
    except (DirectoryError, DamagedError, FormatError):
        return False


def _untouched(directory: Path, study: Study) -> bool:
    """Return whether a directory is empty, apart from files of a process that was killed before it started this study."""
    for path in directory.iterdir():
        ours = path.name == "study.toml" and path.is_file() and path.read_bytes() == study.to_toml().encode()
        if not ours and path.name != ".lock" and not _is_draft(path):
            return False
    return True


def _is_draft(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".part")


def discard_drafts(directory: Path) -> None:
    """Remove the temporary files of killed processes."""
    for path in filter(_is_draft, directory.iterdir()):
        path.unlink(missing_ok=True)


def new_manifest(study: Study) -> dict[str, Any]:
    """Return the manifest of a new run."""
    cells = [(cell, cell.study.federation()) for cell in study.cells()]
    asked = [found.document() for cell, _ in cells if (found := agent_goals(cell.study)) is not None]
    return {
        "name": study.study.name,
        "status": "running",
        "study_sha256": study.digest(),
        "seed": study.study.seed,
        "labels": list(study.labels),
        "reveals": revealed(cell.study for cell in study.cells()),
        "cells": [dict(cell.values) for cell, _ in cells],
        "objective": [described(federation) or cell.study.objective.name for cell, federation in cells],
        "metric": [asdict(federation.metric) for _, federation in cells],
        **({"goals": asked} if asked else {}),
        "parameters": [[asdict(parameter) for parameter in federation.parameters] for _, federation in cells],
        "versions": versions(),
        "plugins": distributions(study),
        "code": study.code(),
        "platform": platform.platform(),
        "kernels": kernels(),
        "started": now(),
        "resumed": 0,
        "seconds": 0.0,
    }


def versions() -> dict[str, str]:
    """Return the versions of packages on which the bits of a result may depend."""
    packages = ("fedbo", "numpy", "scipy", "numba", "scikit-learn", "ray", "pyarrow")
    return {"python": platform.python_version(), **{package: _installed(package) for package in packages}}


@cache
def _installed(package: str) -> str:
    """Return the version of a package. It is cached, since the look-up takes longer than a small run."""
    return fedbo_version() if package == "fedbo" else version(package)


def check_versions(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Raise DirectoryError where a run started with versions other than the present ones."""
    if changed := {name for name, value in versions().items() if manifest["versions"].get(name) != value}:
        what = ", ".join(f"{name} {manifest['versions'].get(name)} -> {versions()[name]}" for name in sorted(changed))
        raise DirectoryError(f"'{directory}': was started with other versions ({what}); install those, or run the study again")
    if others := other_kernels(manifest):
        say(f"warning: {others}")


def other_kernels(manifest: Mapping[str, Any]) -> str:
    """Return why numbers may differ from those of a run's processor, or "" where they do not or nothing is known."""
    begun, here = manifest.get("kernels", ""), kernels()
    if begun in ("", here):
        return ""
    return f"the run was started on another kind of processor (kernels {begun}, here {here}), so last digits may differ"


def check_code(directory: Path, manifest: Mapping[str, Any], study: Study, changed: bool) -> None:
    """Compare the code of a study with that of its run: DirectoryError where they differ, or a warning if that is allowed."""
    if not (differ := differing_code(manifest, study)):
        return
    words = f"{', '.join(differ)} changed after the run started"
    if not changed:
        remedy = f"restore it, run the study again, or mix both versions: fedbo resume {quoted(directory)} --changed-code"
        raise DirectoryError(f"'{directory}': {words}; {remedy} (changed_code=True in Python)")
    say(f"warning: {words}; the results mix both versions")


def differing_code(manifest: Mapping[str, Any], study: Study) -> list[str]:
    """Return the places, without folders, of a study's code that differs from that at the run's start."""
    here, begun = study.code(), manifest.get("code", {})
    return sorted({place.rpartition("/")[2] for place, digest in begun.items() if here.get(place) != digest})


def now() -> str:
    """Return the time in the manifest's format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def best_values(ended: Sequence[RunSummary], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the known optima by cell, replicate and agent, with those that were known `before`."""
    values: dict[str, Any] = {cell: {number: {**known} for number, known in of.items()} for cell, of in (before or {}).items()}
    for end in ended:
        known = values.setdefault(str(end.key.cell), {}).setdefault(str(end.key.replicate), {})
        # The single agent of a centralised run has no known one, and does not hide that of the agent with its number.
        known |= {str(agent): value for agent, value in end.best_values.items() if value is not None or str(agent) not in known}
    return values


def gather(study: Study, directory: Path, keys: Sequence[RunKey], kept: Collection[RunKey] = ()) -> dict[str, str]:
    """Join the parts into one table of each kind, in canonical order, as far as the runs have come, and write the tables.

    The rows of `kept` runs come from the tables before an extension. Returns the SHA-256 of the study and of every table, by
    file name. DamagedError when a part is damaged.
    """
    whole = joined(study, directory / "parts", keys, kept)
    written = {f"{name}.parquet": write_table(table, directory / f"{name}.parquet") for name, table in whole.items()}
    return {**written, STUDY: sha256_of(directory / STUDY)}


def joined(study: Study, parts: Path, keys: Sequence[RunKey], kept: Collection[RunKey] = ()) -> dict[str, pa.Table]:
    """Join the parts into one table of each kind, as `gather` writes them."""
    folders = {(folder := RunFolder.of(parts, key)): SnapshotStore(folder).latest() for key in keys if key not in kept}

    def rows(kind: str, schema: pa.Schema) -> list[pa.Table]:
        return [*parts_of(folders, kind, schema), *kept_rows(parts, (kind, schema), kept)]

    whole = {}
    for kind, schema in (("observations", OBSERVATIONS), ("events", EVENTS)):
        whole[kind] = canonical(pa.concat_tables(rows(kind, schema) or [schema.empty_table()]), study.labels)
    asked = [found for cell in study.cells() if (found := agent_goals(cell.study)) is not None] if study.metric else []
    whole["observations"] = with_metrics(whole["observations"], asked)
    moments = rows("record", MOMENTS)
    if moments:
        whole["record"] = canonical(pa.concat_tables(moments), study.labels)
        made = pa.concat_tables(rows("evaluations", EVALUATIONS) or [EVALUATIONS.empty_table()])
        whole["evaluations"] = made.sort_by([(name, "ascending") for name in _NUMBERED])
    if sent := rows("reports", REPORTS):
        whole["reports"] = canonical(pa.concat_tables(sent), study.labels)
    whole |= optional_or("ledger_tables", {})(study, folders, kept)
    earlier = parts / KEPT / "printed.parquet"
    printed = printed_table([*folders], read_table(earlier, PRINTED) if earlier.is_file() else None)
    if len(printed):
        whole["printed"] = canonical(printed, study.labels)
    learned = sorted((parts / "histories").glob("*/*.parquet"))
    if learned:
        whole["histories"] = pa.concat_tables([read_history_table(path) for path in learned])
    return whole


def parts_of(folders: Mapping[RunFolder, SnapshotIndex], kind: str, schema: pa.Schema) -> list[pa.Table]:
    """Read the parts of a table at these snapshots; DamagedError when one has changed."""
    found = []
    for folder, latest in folders.items():
        for path in SnapshotStore(folder).tables(kind, latest):
            try:
                check_file(path, latest.tables.get(path.name, ""))
                found.append(read_table(path, schema))
            except DamagedError as error:
                raise DamagedError(path, error.why, folder.remedy) from None
    return found


def kept_rows(parts: Path, which: tuple[str, pa.Schema], keys: Collection[RunKey]) -> list[pa.Table]:
    """Return the rows of some runs of a table from before an extension; an empty list where nothing was kept.

    They are read with the schema of the table, since Parquet names the items of lists differently and the first table counts.
    """
    name, schema = which
    path = parts / KEPT / f"{name}.parquet"
    if not keys or not path.is_file():
        return []
    table = read_table(path, schema)
    columns = (table[column].to_pylist() for column in RunKey._fields)
    return [table.filter(pa.array([key in keys for key in zip(*columns, strict=True)], pa.bool_()))]


def discard_parts(directory: Path) -> None:
    """Remove the parts of a complete run."""
    atomic.remove_folder(directory / "parts")
