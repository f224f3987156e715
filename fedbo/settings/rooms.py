"""Rooms: folders of the package that can be deleted, and those of plug-ins. The file `room.py` of each declares what it adds.

A `room.py` imports nothing but this module, and names functions and classes as "module:attribute". Nothing outside a room
imports it: `fedbo`, the command line, `show`, `resume` and the report read these declarations.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its function or `typer.Typer`, and its help: a title, the place below this title, a sentence, an example."""

    function: str
    title: str
    place: int
    sentence: str
    example: str


@dataclass(frozen=True, slots=True)
class AnswerKind:
    """What a directory holds that is no run: `file` in it marks a finished answer, `begun` one that was not finished.

    `read(folder, trust)` returns the `StoredAnswer` of `fedbo.commands.answers`; `resume(folder, printed, quiet)` finishes it.
    """

    name: str
    file: str
    begun: str
    read: str
    resume: str

    def is_in(self, folder: Path) -> bool:
        """Check whether a directory holds a finished answer."""
        return os.path.isfile(folder / self.file)  # False too where the name is too long for one

    def has_begun_in(self, folder: Path) -> bool:
        """Check whether a directory holds an answer that was not finished."""
        return os.path.isfile(folder / self.begun) and not self.is_in(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a room adds to the package.

    - `sentence`: what it is for; `tests`: the folders and files of its tests, below `tests/`; none of a plug-in's.
    - `needs`: rooms without which it cannot work, such as "lab/fork"; where one of them is not there, it counts as deleted too.
    - `commands`, `names`: its commands and its public names in `fedbo`, those that end in Error in `fedbo.errors`.
    - `errors`: those that a command reports as wrong input.
    - `answers`: what its directories hold; `sections`: its sections of the report by their headings, each a function of a
      result and of the keys of the runs through whose time the page can move, which returns markup.
    - `functions`: functions that others call if the room is there, by the names under which they ask `optional` for them.
    - `analyses`: functions of a `Result` that `fedbo.analysis` offers too.
    - `schemas`: the columns of its tables in the directory of a run, by the names of their files.
    - `tables`: its tables of a study file by their keys, each a `RoomTable` of `fedbo.study.base` with its defaults and checks.
    """

    sentence: str
    tests: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    commands: Mapping[str, Command] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    answers: tuple[AnswerKind, ...] = ()
    sections: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    analyses: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)


@cache
def rooms() -> dict[str, Room]:
    """Import the declarations of all rooms that are there with what they need.

    They are named by their folders, such as "lab/why", and those of plug-ins, which come first, by their entry points.
    """
    found = {name: import_module(f"fedbo.{name.replace('/', '.')}.room").ROOM for name in sorted(_folders())}
    if _are_declared():
        found = dict(plugin_rooms().usable()) | found
    while lacking := [name for name, room in found.items() if not found.keys() >= {*room.needs}]:
        for name in lacking:
            del found[name]
    return found


def package_folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder of the package and all those below it, each with the names of its files, in a fixed order."""
    for folder, below, files in os.walk(root):
        if "room.py" in files and Path(folder).relative_to(_PACKAGE).as_posix() not in rooms():
            below.clear()  # without a room that it needs, this one counts as deleted
            continue
        below[:] = sorted(name for name in below if name.isidentifier() and name != "__pycache__")
        yield Path(folder), sorted(files)


def _folders() -> Iterator[str]:
    return (path.parent.relative_to(_PACKAGE).as_posix() for path in _PACKAGE.rglob("room.py"))


def _are_declared() -> bool:
    """Check whether an installed package declares rooms: importing the reader of entry points takes longer than a command."""
    files = (path for folder in sys.path for path in Path(folder or ".").glob("*-info/entry_points.txt"))
    return any(b"[fedbo.rooms]" in path.read_bytes() for path in files if os.access(path, os.R_OK))


@cache
def plugin_rooms() -> Any:
    """Return the catalogue of the rooms of plug-ins: the objects of entry points of the group `fedbo.rooms`."""
    from fedbo.settings.plugins import Catalogue

    return Catalogue[Room]("rooms", {}, _room)


def _room(found: Any) -> Room:
    if not isinstance(found, Room):
        raise ValueError(f"it is {found!r:.80}, and a Room of fedbo.settings.rooms would do")
    return found


def public_names(errors: bool) -> dict[str, str]:
    """Return the places of the names that rooms add to `fedbo`, or to `fedbo.errors`, by name."""
    named = (item for room in rooms().values() for item in room.names.items())
    return {name: place for name, place in named if name.endswith("Error") == errors}


def loaded(place: str) -> Any:
    """Import and return what "module:attribute" names."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def offered(name: str) -> Iterator[Callable[..., Any]]:
    """Import and yield the functions that rooms offer by this name, one of each room that does."""
    places = ({**room.functions, **room.analyses}.get(name) for room in rooms().values())
    yield from (loaded(place) for place in places if place is not None)


def optional(name: str) -> Callable[..., Any] | None:
    """Import and return a function that a room offers by this name; None if no room that is there does."""
    return next(offered(name), None)


def optional_or(name: str, otherwise: Any) -> Callable[..., Any]:
    """Return what `optional` does, or a function that returns `otherwise` if no room that is there offers this name."""
    return optional(name) or (lambda *_, **__: otherwise)


@cache
def study_tables() -> dict[str, Any]:
    """Import and return the tables of a study file that rooms declare, by their keys."""
    return {key: loaded(place) for room in rooms().values() for key, place in room.tables.items()}
