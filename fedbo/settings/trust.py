"""Code that a study names by its place, "package.module:object" or "file.py:object": imported only if it is trusted.

Importing a module runs it, and a study or a run may come from other people. So all such code is imported by `module_at`, which
refuses every place that this process has not admitted. A place stays admitted until the process ends; other processes of a run
get the places with their task.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from fedbo.settings.errors import FedboError

REMEDY = "if you trust its author, add --trust (trust=True in Python)"
_OURS = "fedbo.testing.functions:"  # functions of a few lines for studies that are drawn at random
_admitted: set[str] = set()


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


def admit(places: Iterable[str]) -> None:
    """Trust the code at some places from now on, in this process."""
    _admitted.update(map(_absolute, places))


def admitted() -> tuple[str, ...]:
    """Return the places that this process trusts, for another process of the same run."""
    return tuple(sorted(_admitted))


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
    if _absolute(place) not in _admitted and not place.startswith(_OURS):
        raise UntrustedError(place)
    file = file_of(place) if files else None
    return importlib.import_module(place.rpartition(":")[0]) if file is None else _import_file(file)


def _absolute(place: str) -> str:
    file = file_of(place)
    return place if file is None else f"{file.absolute()}:{place.rpartition(':')[2]}"


def _import_file(file: Path) -> ModuleType:
    """Import a file as a module of its folder, so that other processes with this one's path can import it too."""
    if not file.is_file():
        if find_spec(file.stem) is None:
            raise ValueError(f"there is no file '{file}'")
        return importlib.import_module(file.stem)  # another host, on which the module is elsewhere
    folder = str(file.absolute().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    found = importlib.import_module(file.stem)
    if Path(str(found.__file__)).resolve() != file.resolve():
        raise ValueError(f"there is another module '{file.stem}' ({found.__file__}); rename the file")
    return found
