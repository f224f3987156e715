"""The files that a study names: their paths count from its own folder, and what is in them is part of its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from fedbo.document import Document, Loc, at, placed


def anchored(document: Document, folder: Path) -> Document:
    """Let the paths of files count from a folder."""
    for loc, path in _named(document):
        document = placed(document, loc, str(folder / path))
    return document


def fingerprinted(document: Document) -> Document:
    """Put the SHA-256 of each file in the place of its path."""
    for loc, path in _named(document):
        document = placed(document, loc, hashlib.sha256(Path(path).read_bytes()).hexdigest())
    return document


def _named(document: Document) -> Iterator[tuple[Loc, str]]:
    """List where a document names files, those of a sweep included, with their paths."""
    groups, sweep = document.get("group"), document.get("sweep")
    places: list[Loc] = [("agents", "initial_file"), ("availability", "file")]
    places += [("group", number, "availability", "file") for number in range(len(groups) if isinstance(groups, list) else 0)]
    for key, values in sweep.items() if isinstance(sweep, dict) else ():
        if isinstance(values, list) and key.endswith(("agents.initial_file", "availability.file")):
            places += [("sweep", key, number) for number in range(len(values))]
    for loc in places:
        try:
            path = at(document, loc)
        except KeyError:
            continue
        if isinstance(path, str):
            yield loc, path
