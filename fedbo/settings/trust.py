"""Code that a study names by its place, "package.module:object" or "file.py:object": imported only if it is trusted.

Importing a module runs it, and a study or a run may come from other people. So all such code is imported by `module_at`, which
refuses every place that this process has not admitted. A place stays admitted until the process ends. Other processes of a run
get the places with their task, and the hashes of what was executed there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from fedbo.settings.errors import FedboError
from fedbo.settings.own_modules import digest_of, import_own, renew

REMEDY = "if you trust its author, add --trust (trust=True in Python)"
_admitted: set[str] = set()
_of_run: dict[str, str] = {}  # the code of the run for which this process works, as `admitted` returned it


class UntrustedError(FedboError):
    """A study names Python code that is not trusted.

    This is not a ValueError, so that no check of a setting treats it as an invalid value and continues.
    """

    def __init__(self, place: str) -> None:
        super().__init__(place)  # by which it is made again in another process
        self.place = place

    def __str__(self) -> str:
        """Return the place, the risk and the remedy."""
        return f"the study names Python code ({self.place!r}), which would be executed; {REMEDY}"


class ChangedCodeError(FedboError, RuntimeError):
    """Code of a study has changed since the run started, and a process that needs it had not read it before."""


def admit(places: Iterable[str]) -> None:
    """Trust the code at some places from now on, in this process, and read again what has changed since it was read."""
    _admitted.update(map(_absolute, places))
    renew()


def admitted(document: Any) -> dict[str, str]:
    """Return the places in a document that this process trusts, for other processes of a run, with the hashes of their code."""
    places = _admitted.intersection(map(_absolute, places_in(document)))
    return {place: source_digest(place) or "" for place in sorted(places)}


def is_admitted(package: str) -> bool:
    """Return whether a place in this package or module is trusted."""
    return any(place.rpartition(":")[0].partition(".")[0] == package for place in _admitted)


def admit_same(code: Mapping[str, str]) -> None:
    """Trust the code of a run that another process began; ChangedCodeError unless this process reads the same."""
    _admitted.update(code)
    _of_run.clear()
    _of_run.update(code)
    if _differing(code):
        renew()  # this process may have read an earlier version for another run
    if differ := _differing(code):
        words = f"{', '.join(map(repr, differ))} changed after the run started"
        raise ChangedCodeError(f"{words}; restore it, or run the study again")


def _differing(code: Mapping[str, str]) -> list[str]:
    return [place for place, digest in code.items() if digest and source_digest(place) not in (digest, None)]


class WithCode:
    """A value that another process receives with the hashes of this run's code, and never with an earlier version of it."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> Any:
        return _second, (_Admitting(dict(_of_run)), self._value)  # unpickled in this order


class _Admitting:
    def __init__(self, code: dict[str, str]) -> None:
        self._code = code

    def __reduce__(self) -> Any:
        return admit_same, (self._code,)


def _second(first: None, value: Any) -> Any:
    return value


def places_in(value: Any) -> Iterator[str]:
    """Yield the strings in a document, however deep, that could be places of code."""
    if isinstance(value, str):
        if ":" in value:
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from places_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from places_in(each)


def file_of(place: str) -> Path | None:
    """Return the file in a place "file.py:object"; None for a module."""
    file = place.rpartition(":")[0]
    return Path(file) if file.endswith(".py") else None


def module_at(place: str, files: bool = False) -> ModuleType:
    """Import the module of a place, or with `files` its file; UntrustedError, before any code runs, unless it was admitted."""
    name = place.rpartition(":")[0]
    if _absolute(place) not in _admitted:
        raise UntrustedError(place)
    file = file_of(place) if files else None
    return import_own(name) if file is None else _import_file(file)


def source_digest(place: str) -> str | None:
    """Return the SHA-256 of the code at a place, as it was executed or else as it is; None without a file, and for fedbo's."""
    name, file = place.rpartition(":")[0], file_of(place)
    if name.partition(".")[0] == "fedbo":  # the manifest has its version
        return None
    return digest_of(name if file is None else file.stem, file if file is None or file.is_file() else None)


def _absolute(place: str) -> str:
    file = file_of(place)
    return place if file is None else f"{file.absolute()}:{place.rpartition(':')[2]}"


def _import_file(file: Path) -> ModuleType:
    """Import a file as a module of its folder, so that other processes with this one's path can import it too."""
    if not file.is_file():
        if find_spec(file.stem) is None:
            raise ValueError(f"there is no file '{file}'")
        return import_own(file.stem)  # another host, on which the module is elsewhere
    folder = str(file.absolute().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    found = import_own(file.stem)
    if Path(str(found.__file__)).resolve() != file.resolve():
        raise ValueError(f"there is another module '{file.stem}' ({found.__file__}); rename the file")
    return found
