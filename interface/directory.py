"""The directory of a run: who may write to it, its manifest, and its tables put together from the parts."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedbo.actors.evaluation import EVALUATIONS
from fedbo.actors.home import Home
from fedbo.actors.rows import OBSERVATIONS, Key, write_table
from fedbo.coordinator.actor import Ended
from fedbo.coordinator.journal import EVENTS, MOMENTS
from fedbo.coordinator.ledger import RELEASES, accounted
from fedbo.objectives.base import described
from fedbo.paths import DirectoryError as DirectoryError
from fedbo.paths import make_folder, usable
from fedbo.paths import out_of_space as out_of_space
from fedbo.schemas import canonical
from fedbo.study import Study

_NUMBERED = ("cell", "algorithm", "replicate", "agent", "number")


def new_directory(study: Study, out: Path | None) -> Path:
    """Make the directory of a new run; DirectoryError when it is in use, with what would do."""
    if out is None:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        out = Path("runs") / f"{study.study.name}-{stamp}"
    with usable(out, "no folder can be made there"):
        if unfinished(out):
            raise DirectoryError(f"'{out}' holds a run that has not ended; go on with it: fedbo resume {out}")
        taken = out.exists() and (not out.is_dir() or not _untouched(out, study))
    if taken:
        raise FileExistsError(f"'{out}' exists and is not an empty directory; name a new one")
    make_folder(out)
    return out.resolve()


def unfinished(directory: Path) -> bool:
    """Say whether a directory holds a run that has not ended."""
    try:
        return bool(read_manifest(directory)["status"] != "complete")
    except (DirectoryError, KeyError):
        return False


def _untouched(directory: Path, study: Study) -> bool:
    """Say whether a directory is empty, but for what a process leaves that is killed before it has begun this study."""
    for path in directory.iterdir():
        ours = path.name == "study.toml" and path.is_file() and path.read_bytes() == study.to_toml().encode()
        if not ours and path.name != ".lock" and not _is_draft(path):
            return False
    return True


def _is_draft(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".part")


def discard_drafts(directory: Path) -> None:
    """Remove files that processes were writing when they were killed."""
    for path in filter(_is_draft, directory.iterdir()):
        path.unlink(missing_ok=True)


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Keep everybody else from writing to a directory; DirectoryError when somebody does so already."""
    path = directory / ".lock"
    with ExitStack() as stack:
        while True:
            file = stack.enter_context(path.open("a+"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                words = f"'{directory}': is being run by process {file.read().strip() or 'unknown'}; wait for it, or end it"
                raise DirectoryError(words) from None
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break  # else its last owner has just removed it
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def new_manifest(study: Study) -> dict[str, Any]:
    """Describe a run that begins."""
    cells = [(cell, cell.study.federation()) for cell in study.cells()]
    return {
        "name": study.study.name,
        "status": "running",
        "study_sha256": study.digest(),
        "seed": study.study.seed,
        "labels": list(study.labels),
        "cells": [dict(cell.values) for cell, _ in cells],
        "objective": [described(federation) or cell.study.objective.name for cell, federation in cells],
        "metric": [asdict(federation.metric) for _, federation in cells],
        "parameters": [[asdict(parameter) for parameter in federation.parameters] for _, federation in cells],
        "versions": versions(),
        "platform": platform.platform(),
        "started": now(),
        "resumed": 0,
        "seconds": 0.0,
    }


def versions() -> dict[str, str]:
    """Give the versions on which the bits of a result may depend."""
    packages = ("fedbo", "numpy", "scipy", "scikit-learn", "ray", "pyarrow")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def read_manifest(directory: Path) -> dict[str, Any]:
    """Read the manifest of a run; DirectoryError when there is none."""
    path = directory / "manifest.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DirectoryError(f"'{directory}': holds no run, it has no manifest.json; give the directory of one") from None
    except NotADirectoryError:
        raise DirectoryError(f"'{directory}': is a file; give the directory of a run") from None
    except ValueError as error:
        raise DirectoryError(f"'{path}': is damaged ({error}); run the study again") from None
    except OSError as error:
        raise DirectoryError(f"'{path}': cannot be read ({error.strerror}); give the directory of a run") from None
    if not isinstance(found, dict):
        raise DirectoryError(f"'{path}': is damaged (it holds no table); run the study again")
    return found


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest, whole or not at all."""
    write_text(directory / "manifest.json", json.dumps(manifest, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    draft = path.with_name(f".{path.name}.part")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def now() -> str:
    """Give the time as the manifest has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def best_values(ended: Sequence[Ended]) -> dict[str, Any]:
    """Give the known optima by cell, replicate and agent."""
    values: dict[str, Any] = {}
    for end in ended:
        known = values.setdefault(str(end.key.cell), {}).setdefault(str(end.key.replicate), {})
        # The single agent of a centralised run has no known one, and does not hide that of the agent with its number.
        known |= {str(agent): value for agent, value in end.best_values.items() if value is not None or str(agent) not in known}
    return values


def gather(study: Study, directory: Path, keys: Sequence[Key]) -> None:
    """Put the parts together into one table of each kind, in canonical order, as far as the runs have come."""
    homes = [Home.of(directory / "parts", key) for key in keys]
    for kind, schema in (("observations", OBSERVATIONS), ("events", EVENTS)):
        tables = [pq.read_table(path, schema=schema) for home in homes for path in home.tables(kind)]
        table = pa.concat_tables(tables or [schema.empty_table()])
        write_table(canonical(table, study.labels), directory / f"{kind}.parquet")
    moments = [pq.read_table(path, schema=MOMENTS) for home in homes for path in home.tables("record")]
    if moments:
        write_table(canonical(pa.concat_tables(moments), study.labels), directory / "record.parquet")
        made = [pq.read_table(path, schema=EVALUATIONS) for home in homes for path in home.tables("evaluations")]
        whole = pa.concat_tables(made or [EVALUATIONS.empty_table()])
        write_table(whole.sort_by([(name, "ascending") for name in _NUMBERED]), directory / "evaluations.parquet")
    _gather_ledger(study, directory, homes)
    learned = sorted((directory / "parts" / "histories").glob("*/*.parquet"))
    if learned:
        whole = pa.concat_tables([pq.read_table(path, schema=OBSERVATIONS) for path in learned])
        write_table(whole, directory / "histories.parquet")


def _gather_ledger(study: Study, directory: Path, homes: Sequence[Home]) -> None:
    """Put the privacy ledger together, run by run, if anything was private."""
    cells = {cell.number: cell.study for cell in study.cells()}
    releases, spent = [], []
    for home in homes:
        parts = [pq.read_table(path, schema=RELEASES) for path in home.tables("releases")]
        if parts:
            of_cell = cells[home.key.cell]
            ledger, own = accounted(pa.concat_tables(parts), of_cell.privacy.deltas or (), of_cell.federation().n_agents)
            releases.append(ledger)
            spent.append(own)
    if releases:
        write_table(canonical(pa.concat_tables(releases), study.labels), directory / "privacy.parquet")
        write_table(canonical(pa.concat_tables(spent), study.labels), directory / "privacy_agents.parquet")


def discard_parts(directory: Path) -> None:
    """Remove the parts of a run that is complete."""
    shutil.rmtree(directory / "parts", ignore_errors=True)
