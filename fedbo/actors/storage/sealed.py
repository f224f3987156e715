"""Checks of files before they are used: of their format, and of the SHA-256 that was noted for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedbo.settings.errors import FedboError

# Of tables, manifests and indices of snapshots. Format 1 is what says no format; up to 2 events had their facts in one text.
FORMAT = 3


class Damaged(FedboError, ValueError):
    """A file that is missing or not as it was written: `path` is the file, `why` what is wrong, `remedy` what would do."""

    def __init__(self, path: Path, why: str, remedy: str = "") -> None:
        # All of them are arguments, so that the error comes through Ray as it is.
        super().__init__(path, why, remedy)
        self.path, self.why, self.remedy = path, why, remedy

    def __str__(self) -> str:
        """Say it in one line."""
        return f"'{self.path}': is damaged ({self.why})" + (f"; {self.remedy}" if self.remedy else "")


class OtherFormat(FedboError, ValueError):
    """A file of a format that this version does not know."""


@cache
def installed() -> str:
    """Give the version of fedbo that is installed."""
    return version("fedbo")


def check_format(path: Path | str, found: int, by: str | None = None) -> None:
    """Let formats pass that this version reads; OtherFormat, with the version that wrote it, for any later one."""
    if not 1 <= found <= FORMAT:
        which = f"fedbo {by}" if by else "a later fedbo"
        raise OtherFormat(f"'{path}': was written in format {found}, this is format {FORMAT}; open it with {which}")


def sha256_of(path: Path) -> str:
    """Give the SHA-256 of a file; FileNotFoundError when there is none."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, expected: str) -> None:
    """Let a file pass that has this SHA-256, or is there at all where it is not known (empty); Damaged else."""
    if not path.is_file():
        raise Damaged(path, "it is missing")
    if expected and sha256_of(path) != expected:
        raise Damaged(path, "its contents are not those that were written, by their SHA-256")


def seal(document: Mapping[str, Any], indent: int | None = None) -> str:
    """Write a document as JSON with its format and, last, the SHA-256 of all else."""
    whole = json.loads(json.dumps({**document, "format": FORMAT, "fedbo": installed()}))
    whole.pop("sha256", None)
    return json.dumps({**whole, "sha256": _sum(whole)}, indent=indent) + "\n"


def unseal(path: Path) -> dict[str, Any]:
    """Read what `seal` wrote, or a document of format 1, which has no sum.

    FileNotFoundError when there is none, Damaged when it is not as it was written, OtherFormat when a later version wrote it.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except ValueError as error:
        raise Damaged(path, f"it is no JSON: {error}".splitlines()[0]) from None
    if not isinstance(found, dict):
        raise Damaged(path, "it is no table of JSON")
    expected = found.pop("sha256", None)
    if (expected is not None or "format" in found) and expected != _sum(found):
        raise Damaged(path, "its contents are not those that were written, by its sha256")
    check_format(path, found.get("format", 1), found.get("fedbo"))
    return found


def _sum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
