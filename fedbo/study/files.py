"""The files, plug-ins and code that a study names: their paths, distributions and places, and the hashes for its digest."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from pydantic import BaseModel

from fedbo.objectives.catalog import catalogue
from fedbo.objectives.typed_function import given_function
from fedbo.settings.plugins import NAMED, Catalogue, PluginError, used
from fedbo.settings.rooms import optional
from fedbo.settings.trust import REMEDY, UntrustedError, admit, file_of, places_in, source_digest
from fedbo.study.base import Named
from fedbo.study.document import Document, Loc, lookup, shorten, with_value

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
    ("cluster", "background", "file"),
)
_OBSERVATIONS = "observations.parquet"


def resolve_paths(document: Document, folder: Path, trust: bool = False, modules: bool = True) -> Document:
    """Return the document with paths of files resolved against a folder; with `modules`, also those of modules in it.

    With `trust`, the code that the document names may be imported.
    """
    for loc, place in _objects(document):
        document = with_value(document, loc, _place_in(folder, place, modules))
    if trust:
        admit(places_in(document))
    for loc, path in _named(document):  # the objective says which of its settings are paths
        document = with_value(document, loc, str(folder / path))
    return document


def names_files(document: Document) -> bool:
    """Return whether a document names files, or code by its place."""
    return any(True for _ in (*_named(document), *_objects(document)))


def hash_files(document: Document, code: Mapping[str, str]) -> Document:
    """Return the document with the SHA-256 of its file or table for each path, and of other `code` that it names."""
    for loc, path in _named(document):
        document = with_value(document, loc, _sha256(Path(path)))
    for loc, place in _objects(document):
        if (file := file_of(place)) is not None:
            document = with_value(document, loc, f"{code.get(place) or _sha256(file)}:{place.rpartition(':')[2]}")
    modules = {place: digest for place, digest in sorted(code.items()) if file_of(place) is None}
    return {**document, "code": modules} if modules else document


def source_hashes(document: Document) -> dict[str, str]:
    """Return the SHA-256 of each function or class that a document names, as this process executes it, by its place.

    The hash covers the whole file, and the modules of its folder that it imports. For a function that was passed in Python it
    covers the compiled function only.
    """
    found: dict[str, str] = {}
    for place in sorted(set(places_in(document))):
        module, _, name = place.rpartition(":")
        given = given_function(place) if module != "__main__" else getattr(sys.modules[module], name, None)
        digest = source_digest(place) if given is None else _function_digest(given)
        found |= {} if digest is None else {place: digest}
    return found


def _function_digest(function: object) -> str | None:
    """Return the hash of the compiled code of a function, or of the class of a callable object; None where there is none."""
    whole: Any = function
    inner: Any = inspect.unwrap(getattr(whole, "func", whole))  # of a functools.partial
    named = [inner] if inspect.isroutine(inner) else list(vars(inner if inspect.isclass(inner) else type(inner)).values())
    codes = [found for each in named if isinstance(found := getattr(each, "__code__", None), CodeType)]
    return hashlib.sha256("".join(map(_words_of, codes)).encode()).hexdigest() if codes else None


def _words_of(code: CodeType) -> str:
    """Return everything that a compiled function does, as text that is the same in every process; without lines and files."""
    parts = [code.co_name, code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, code.co_argcount]
    for value in code.co_consts:
        known = sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
        parts.append(_words_of(value) if isinstance(value, CodeType) else known)
    return repr(parts)


def _place_in(folder: Path, place: str, modules: bool) -> str:
    """Resolve the place of an object, "file.py:object" or "module:object"."""
    module, _, name = place.rpartition(":")
    if (file := file_of(place)) is not None:
        return f"{folder / file}:{name}"
    beside = folder / f"{module}.py"
    return f"{beside}:{name}" if modules and module.isidentifier() and beside.is_file() else place


def _sha256(path: Path) -> str:
    """Return the hash of a file, the observations of a run, or the table of evaluations in a folder."""
    if (path / _OBSERVATIONS).is_file():
        path = path / _OBSERVATIONS
    if path.is_dir() and (fingerprint := optional("table_fingerprint")) is not None:
        return str(fingerprint(path))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _own(objective: str) -> Sequence[str]:
    """Return the settings of an objective that are paths; empty if it does not exist or cannot be used."""
    try:
        return getattr(catalogue()[objective], "paths", ())
    except (KeyError, PluginError):
        return ()


def _named(document: Document) -> Iterator[tuple[Loc, str]]:
    """Yield the places in a document that name files, those of a sweep included, with their paths."""
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


def _objects(document: Document) -> Iterator[tuple[Loc, str]]:
    """Yield the places in a document that name an object, "file.py:object" or "module:object", with the name."""
    places: list[Loc] = [("objective", "name"), ("agents", "history", "algorithm"), ("agents", "history", "algorithm", "name")]
    places += [("objective", "function"), ("objective", "cost")]
    places += [
        ("exchange", "mode"),
        ("exchange", "selection", "who"),
        ("availability", "model"),
        *(("timing", *model) for model in _MODELS),
    ]
    places += [("algorithm", number, "name") for number in range(_count(document, "algorithm"))]
    of_group = (*_MODELS, ("availability", "model"))
    places += [("group", number, *model) for number in range(_count(document, "group")) for model in of_group]
    sweep = document.get("sweep")
    for key, values in sweep.items() if isinstance(sweep, dict) else ():
        if key.split(".")[-1] in (*_KEYS, "function") and isinstance(values, list):
            places += [("sweep", key, number) for number in range(len(values))]
    yield from (found for found in _strings(document, places) if ":" in found[1])


_MODELS = (("evaluation", "model"), ("latency", "model"))


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


_KEYS = ("name", "model", "mode", "who")  # of a catalogue, as the last part of a key that is swept
_PLACE = re.compile(r"\S[^:]*:[^\W\d][\w.]*")  # of an object in a module or a file
_MOST, _LONGEST = 5, 200  # places that a line names, and characters of each


def named(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the groups and names of everything that a study, or a table of it, names in catalogues that plug-ins can extend."""
    if isinstance(value, tuple):
        for each in value:
            yield from named(each)
    elif isinstance(value, BaseModel):
        if isinstance(value, Named) and isinstance(known := type(value).catalogue(), Catalogue):
            yield known.group, getattr(value, value.key)
            if isinstance(chosen := value.settings.get("selection"), dict):
                yield "selections", str(chosen.get("who"))
        for key in type(value).model_fields:
            yield from named(getattr(value, key))
        for key, values in getattr(value, "sweep", {}).items():
            if key.split(".")[-1] in _KEYS:  # a swept name may belong to every group
                yield from ((group, each) for group in NAMED for each in values if isinstance(each, str))


def distributions(study: BaseModel) -> dict[str, str]:
    """Return the plug-ins that a study names, as "group.name", with their distributions and versions."""
    return used(named(study))


def code_in(document: Any, refused: UntrustedError) -> str:
    """Return one line with the keys of a document that name Python code, the refused place among them, and a remedy."""
    found = {f"{key} = {shorten(place, _LONGEST)!r}": None for key, place in places_of_code(document)}
    listed = [*found][:_MOST] + ["…"] * (len(found) > _MOST)
    return (
        f"names Python code ({', '.join(listed) or repr(shorten(refused.place, _LONGEST))}), which would be executed; {REMEDY}"
    )


def places_of_code(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys and values that have the form of a place of code, except names and labels."""
    if isinstance(value, str):
        if _PLACE.fullmatch(value):
            yield key, value
    elif isinstance(value, dict):
        for name, each in value.items():
            if (key, name) != ("", "study") and name not in ("label", "file", "run", "devices"):
                yield from places_of_code(each, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from places_of_code(each, key)
