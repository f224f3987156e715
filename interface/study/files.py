"""The files that a study names: paths relative to its folder, and the hashes that enter its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedbo.objectives.catalog import catalogue
from fedbo.objectives.tables.table import fingerprint
from fedbo.settings.plugins import PluginError
from fedbo.settings.trust import admit, file_of, places_in
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


def resolve_paths(document: Document, folder: Path, trust: bool = False) -> Document:
    """Resolve the paths of files against a folder; with `trust`, the code that the document names may be imported."""
    for loc, file, name in _objects(document):
        document = with_value(document, loc, f"{folder / file}:{name}")
    if trust:
        admit(places_in(document))
    for loc, path in _named(document):  # the objective says which of its settings are paths
        document = with_value(document, loc, str(folder / path))
    return document


def hash_files(document: Document) -> Document:
    """Put the SHA-256 of each file, or of what is in a table, in the place of its path."""
    for loc, path in _named(document):
        document = with_value(document, loc, _sha256(Path(path)))
    for loc, file, name in _objects(document):
        document = with_value(document, loc, f"{_sha256(file)}:{name}")
    return document


def _sha256(path: Path) -> str:
    """Hash a file, the observations of a run, or the table of evaluations that a folder holds."""
    if (path / _OBSERVATIONS).is_file():
        path = path / _OBSERVATIONS
    return fingerprint(path) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def _own(objective: str) -> Sequence[str]:
    """List the settings of an objective that are paths; none of one that does not exist or cannot be used."""
    try:
        return getattr(catalogue()[objective], "paths", ())
    except (KeyError, PluginError):
        return ()


def _named(document: Document) -> Iterator[tuple[Loc, str]]:
    """List where a document names files, those of a sweep included, with their paths."""
    objective, sweep = document.get("objective"), document.get("sweep")
    name = objective.get("name") if isinstance(objective, dict) else None
    own = _own(str(name))
    places: list[Loc] = [*_PLACES, *(("objective", setting) for setting in own)]
    places += [("group", number, *place) for number in range(_count(document, "group")) for place in _OF_GROUP]
    swept = tuple(".".join(map(str, place)) for place in ({*places} | {*_OF_GROUP}))
    for key, values in sweep.items() if isinstance(sweep, dict) else ():
        if isinstance(values, list) and key.endswith(swept):
            places += [("sweep", key, number) for number in range(len(values))]
    yield from _strings(document, places)


def _objects(document: Document) -> Iterator[tuple[Loc, Path, str]]:
    """List where a document names an object in a file, "file.py:object", with both parts."""
    places: list[Loc] = [("objective", "name"), ("agents", "history", "algorithm"), ("agents", "history", "algorithm", "name")]
    places += [("exchange", "mode"), ("availability", "model"), *(("timing", *model) for model in _MODELS)]
    places += [("algorithm", number, "name") for number in range(_count(document, "algorithm"))]
    places += [
        ("group", number, *model)
        for number in range(_count(document, "group"))
        for model in (*_MODELS, ("availability", "model"))
    ]
    sweep = document.get("sweep")
    for key, values in sweep.items() if isinstance(sweep, dict) else ():
        if key.split(".")[-1] in ("name", "model", "mode") and isinstance(values, list):
            places += [("sweep", key, number) for number in range(len(values))]
    for loc, place in _strings(document, places):
        if (file := file_of(place)) is not None:
            yield loc, file, place.rpartition(":")[2]


_MODELS = (("evaluation", "model"), ("latency", "model"))
_HISTORY = (("history", "algorithm"), ("history", "algorithm", "name"))


def _count(document: Document, key: str) -> int:
    found = document.get(key)
    return len(found) if isinstance(found, list) else 0


def _strings(document: Document, places: Sequence[Loc]) -> Iterator[tuple[Loc, str]]:
    for loc in places:
        try:
            found = lookup(document, loc)
        except KeyError:
            continue
        if isinstance(found, str):
            yield loc, found
