"""Checks of files before they are used: of their format, and of their recorded SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedbo.settings.errors import FedboError
from fedbo.settings.version import fedbo_version

# Three marks keep a fedbo from misreading the files of another one; each reader refuses what it does not know.
# - `FORMAT`, in the metadata of tables and in each sealed document: manifests and indices of snapshots. Raise it if a column, a
#   key or a name of a file changes its meaning or goes; a new column that may be null changes nothing.
# - the number in `MAGIC` of `checkpoint.py`, the first line of a checkpoint: raise it if the same value gets other bytes.
# - the names of the fields of each class, in the checkpoint itself: nothing to raise, a class with other fields is refused.
FORMAT = 3


class DamagedError(FedboError, ValueError):
    """A file that is missing or has changed: `path` is the file, `why` the reason, and `remedy` the way to repair it."""

    def __init__(self, path: Path, why: str, remedy: str = "") -> None:
        # All of them are arguments, so that the error comes through Ray as it is.
        super().__init__(path, why, remedy)
        self.path, self.why, self.remedy = path, why, remedy

    def __str__(self) -> str:
        """Return the error as one line."""
        return f"'{self.path}': is damaged ({self.why})" + (f"; {self.remedy}" if self.remedy else "")


class FormatError(FedboError, ValueError):
    """A file in a format that this version does not know."""


def check_format(path: Path | str, found: int, by: str | None = None) -> None:
    """Check that this version reads a format; FormatError names the version that wrote another one, or how to go on."""
    if found != FORMAT:
        which = "open it with " + (f"fedbo {by}" if by else "a later fedbo")
        remedy = which if found > FORMAT else "a development version wrote it: run the study again"
        raise FormatError(f"'{path}': has format {found}, but this fedbo reads format {FORMAT}; {remedy}")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file; FileNotFoundError when there is none."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, expected: str) -> None:
    """Check that a file exists and has the `expected` SHA-256, unless that is empty (unknown); raise DamagedError otherwise."""
    if not path.is_file():
        raise DamagedError(path, "it is missing")
    if expected and sha256_of(path) != expected:
        raise DamagedError(path, "its SHA-256 differs from the recorded one")


def seal(document: Mapping[str, Any], indent: int | None = None) -> str:
    """Return a document as JSON with its format and, last, the SHA-256 of all the rest."""
    whole = json.loads(json.dumps({**document, "format": FORMAT, "fedbo": fedbo_version()}))
    whole.pop("sha256", None)
    return json.dumps({**whole, "sha256": _sum(whole)}, indent=indent) + "\n"


def unseal(path: Path, kinds: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Read the output of `seal`; `kinds` are the types of its keys, with None for a key that may be missing.

    FileNotFoundError when there is none, DamagedError when it has changed or a key is missing or of another type, FormatError
    when its format is another.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except ValueError as error:
        raise DamagedError(path, f"it is not JSON: {error}".splitlines()[0]) from None
    if not isinstance(found, dict):
        raise DamagedError(path, "it is not a JSON object")
    if found.pop("sha256", None) != _sum(found):
        raise DamagedError(path, "its sha256 differs from its content")
    _check_kinds(path, found, {"format": int})
    check_format(path, found["format"], found.get("fedbo"))
    _check_kinds(path, found, kinds)
    return found


def _check_kinds(path: Path, found: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    for key, kind in kinds.items():
        if not isinstance(found.get(key), kind):
            raise DamagedError(path, f"its '{key}' is of another type" if key in found else f"it has no '{key}'")


def _sum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
