"""The files that a study names: paths relative to its folder, and the hashes that enter its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from fedbo.objectives.catalog import federations
from fedbo.objectives.tables.table import fingerprint
from fedbo.study.document import Document, Loc, lookup, with_value

_OF_GROUP: tuple[Loc, ...] = (
    ("availability", "file"),
    ("evaluation", "file"),
    ("latency", "file"),
    ("history", "file"),
    ("history", "run"),
)
_PLACES: tuple[Loc, ...] = (
    ("agents", "initial_file"),
    ("agents", "history", "file"),
    ("agents", "history", "run"),
    ("availability", "file"),
    ("timing", "devices"),
    ("timing", "evaluation", "file"),
    ("timing", "latency", "file"),
)
_OBSERVATIONS = "observations.parquet"


def resolve_paths(document: Document, folder: Path) -> Document:
    """Let the paths of files count from a folder."""
    for loc, path in _named(document):
        document = with_value(document, loc, str(folder / path))
    return document


def hash_files(document: Document) -> Document:
    """Put the SHA-256 of each file, or of what is in a table, in the place of its path."""
    for loc, path in _named(document):
        document = with_value(document, loc, _sha256(Path(path)))
    return document


def _sha256(path: Path) -> str:
    """Hash a file, the observations of a run, or the table of evaluations that a folder holds."""
    if (path / _OBSERVATIONS).is_file():
        path = path / _OBSERVATIONS
    return fingerprint(path) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def _named(document: Document) -> Iterator[tuple[Loc, str]]:
    """List where a document names files, those of a sweep included, with their paths."""
    groups, sweep = document.get("group"), document.get("sweep")
    objective = document.get("objective")
    name = objective.get("name") if isinstance(objective, dict) else None
    own = getattr(federations().get(str(name)), "paths", ())
    places: list[Loc] = [*_PLACES, *(("objective", setting) for setting in own)]
    places += [("group", n, *place) for n in range(len(groups) if isinstance(groups, list) else 0) for place in _OF_GROUP]
    swept = tuple(".".join(map(str, place)) for place in ({*places} | {*_OF_GROUP}))
    for key, values in sweep.items() if isinstance(sweep, dict) else ():
        if isinstance(values, list) and key.endswith(swept):
            places += [("sweep", key, number) for number in range(len(values))]
    for loc in places:
        try:
            path = lookup(document, loc)
        except KeyError:
            continue
        if isinstance(path, str):
            yield loc, path
