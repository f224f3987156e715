"""The manifest of a run: how it is written, read and checked."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import DamagedError, check_file, seal, unseal
from fedbo.study.paths import DirectoryError, refuse_address

MANIFEST, STUDY = "manifest.json", "study.toml"
_KINDS: Mapping[str, Any] = {  # with None for keys that a run has only after its end, or need not have
    **dict.fromkeys(("name", "status", "study_sha256"), str),
    **dict.fromkeys(("labels", "cells", "parameters"), list),
    **dict.fromkeys(("versions", "plugins", "code"), dict),
    **dict.fromkeys(("files", "best_values", "reveals"), dict | None),
    **dict.fromkeys(("goals", "complete_runs"), list | None),
    **dict.fromkeys(("ended", "error", "started", "kernels"), str | None),
    **{"metric": list | dict, "seed": int | None, "seconds": int | float, "snapshot_seconds": int | float | None},
}
FORK = "fork.json"  # which a fork has in place of a manifest


def read_manifest(directory: Path) -> dict[str, Any]:
    """Read the manifest of a run.

    Raises:
        DirectoryError: there is no manifest.
        DamagedError: the manifest has changed since it was written, or is not that of a run.
    """
    refuse_address(directory)
    path = directory / MANIFEST
    copy = directory / "parts" / MANIFEST
    try:
        return unseal(path, _KINDS)
    except FileNotFoundError:
        if copy.is_file():
            raise DamagedError(path, "it is missing", back(path)) from None
        remedy = remedy_of(directory, "pass the directory of a run")
        raise DirectoryError(f"'{directory}': is not a run directory: it has no manifest.json; {remedy}") from None
    except NotADirectoryError:
        raise DirectoryError(f"'{directory}': is a file; pass the directory of a run") from None
    except DamagedError as error:
        raise DamagedError(path, error.why, back(path)) from None
    except OSError as error:
        raise DirectoryError(f"'{path}': cannot be read ({error.strerror}); pass the directory of a run") from None


def remedy_of(directory: Path, remedy: str) -> str:
    """Return the `remedy` for a directory that holds no run, or for a fork one of its runs."""
    return f"it contains a fork; pass one of its runs: {directory / 'original'}" if (directory / FORK).is_file() else remedy


def back(path: Path) -> str:
    """Return how to restore a file of a run: from its copy among the parts, or otherwise by running the study again."""
    copy, directory = path.parent / "parts" / path.name, path.parent
    if copy.is_file():
        return f"restore its copy: cp {shlex.quote(str(copy))} {shlex.quote(str(path))}"
    study, anew = (shlex.quote(str(each)) for each in (directory / STUDY, f"{directory}-anew"))
    if path.name == STUDY:
        return f"restore the study file: fedbo validate STUDY --full > {study}"
    if _names_code(directory / STUDY):  # which may be of another person, and would run
        return f"the study names Python code; read {study}, then run it again"
    return f"run the study again: fedbo run {study} --out {anew}"


def _names_code(study: Path) -> bool:
    from fedbo.study.document import StudyError, read
    from fedbo.study.files import places_of_code

    try:
        return any(places_of_code(read(study)))
    except StudyError:
        return False


def write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest with its format and its checksum, atomically."""
    atomic.write_text(directory / MANIFEST, seal(manifest, indent=2))


def copy_among_parts(directory: Path) -> None:
    """Keep copies of the study and of the manifest until the run has ended, in case one is damaged."""
    for name in (STUDY, MANIFEST):
        atomic.copy(directory / name, directory / "parts" / name)


def check_tables(directory: Path, manifest: Mapping[str, Any], names: Iterable[str] | None = None) -> None:
    """Check the tables and the study of a run, or the given names, against its manifest; DamagedError if one differs."""
    noted = manifest.get("files", {})
    for name in noted if names is None else (name for name in names if name in noted):
        try:
            check_file(directory / name, noted[name])
        except DamagedError as error:
            raise DamagedError(error.path, error.why, back(error.path)) from None
