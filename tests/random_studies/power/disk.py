"""A disk that forgets: what may be left of a folder after a power cut, by what was fsynced in it until then.

A write may be lost until its file is fsynced, and a name (of a new file, a renaming, a removal) until its folder is. A disk may
keep any part of what was not fsynced: names in any subset, and files with any of their sectors.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

Policy = Literal["all", "synced", "names", "random"]
POLICIES: tuple[Policy, ...] = ("all", "synced", "names", "random")
_SECTOR = 512  # bytes that a disk writes whole or not at all


@dataclass(eq=False)
class _File:
    """A file: its bytes at the last fsync, and those that it had when its last name was removed."""

    synced: bytes = b""
    last: bytes | None = None


@dataclass(eq=False)
class _Folder:
    """A folder: its names now, those at the last fsync, and the changes since, each of which is kept whole or lost."""

    live: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)
    changes: list[dict[str, _File | _Folder | None]] = field(default_factory=list)

    def change(self, names: dict[str, _File | _Folder | None]) -> None:
        """Change names at one stroke; None removes one."""
        self.changes.append(names)
        _apply(self.live, names)

    def sync(self) -> None:
        """Keep all names for good."""
        self.synced, self.changes = dict(self.live), []


def _apply(names: dict[str, _File | _Folder], change: dict[str, _File | _Folder | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """The disk under a folder, which watches the file operations of this process from now on.

    `cut` is called before each operation that is counted in `at`; `count` is their number so far. It replaces `os.fsync`, and
    hears of all else by an audit hook, so that it serves a process that ends with what it watches.
    """

    def __init__(self, folder: Path, at: Collection[int] = (), cut: Callable[[int], object] = lambda number: None) -> None:
        self._place, self.count, self._at, self._cut = folder, 0, at, cut
        self._root = _read(folder) if folder.exists() else _Folder()
        os.fsync = self._sync  # type: ignore[assignment]
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & os.O_CREAT and (inside := self._inside(path)) and not os.path.lexists(inside):
                self._happens(partial(self._add, inside, _File()))
        elif event == "os.mkdir" and (inside := self._inside(arguments[0], arguments[2])) and not inside.exists():
            if inside != self._place:
                self._happens(partial(self._add, inside, _Folder()))
        elif event in ("os.remove", "os.rmdir") and (inside := self._inside(*arguments)) and os.path.lexists(inside):
            if inside != self._place:
                self._happens(partial(self._remove, inside))
        elif event in ("os.rename", "os.link") and (inside := self._inside(arguments[0], arguments[2])):
            target = self._inside(arguments[1], arguments[3])
            if target is not None and inside.exists() and not (event == "os.link" and target.exists()):
                self._happens(partial(self._rename, inside, target, event == "os.rename"))

    def _happens(self, operation: Callable[[], object]) -> None:
        self.count += 1
        if self.count in self._at:
            self._cut(self.count)
        operation()

    def _inside(self, path: Any, folder: int = -1) -> Path | None:
        """Return the path of what an operation is about, if it is in the folder."""
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        found = Path(os.fsdecode(path))
        if not found.is_absolute():
            found = (Path.cwd() if folder < 0 else Path(os.readlink(f"/proc/self/fd/{folder}"))) / found
        return found if found == self._place or self._place in found.parents else None

    def _node(self, path: Path) -> Any:
        node: Any = self._root
        for name in path.relative_to(self._place).parts:
            node = node.live[name]
        return node

    def _parent(self, path: Path) -> _Folder:
        found: _Folder = self._node(path.parent)
        return found

    def _add(self, path: Path, node: _File | _Folder) -> None:
        self._parent(path).change({path.name: node})

    def _remove(self, path: Path) -> None:
        self._leave(path)
        self._parent(path).change({path.name: None})

    def _rename(self, path: Path, to: Path, moves: bool) -> None:
        """Rename or link; within one folder that is one change, which a disk with a journal makes whole or not at all."""
        if to.exists():
            self._leave(to)
        node, here, there = self._node(path), self._parent(path), self._parent(to)
        if moves and here is there:
            here.change({path.name: None, to.name: node})
            return
        there.change({to.name: node})
        if moves:
            here.change({path.name: None})

    def _leave(self, path: Path) -> None:
        """Keep the bytes of a file whose name is about to go: a lost removal brings them back."""
        node = self._node(path)
        if isinstance(node, _File):
            node.last = path.read_bytes()

    def _sync(self, file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        path = self._inside(os.readlink(f"/proc/self/fd/{number}"))
        if path is not None and path.exists():
            node = self._node(path)
            self._happens(node.sync if isinstance(node, _Folder) else lambda: setattr(node, "synced", path.read_bytes()))

    def write_image(self, to: Path, policy: Policy, rng: random.Random) -> None:
        """Write what the folder may be after a power cut now."""
        _Image(policy, rng, _contents(self._root, self._place)).write(self._root, to)


@dataclass(frozen=True)
class _Image:
    """What is left by a policy; `contents` has the bytes of the files that have a name now."""

    policy: Policy
    rng: random.Random
    contents: dict[_File, bytes]

    def write(self, folder: _Folder, to: Path) -> None:
        """Write a folder and all that is below it."""
        to.mkdir()
        names = dict(folder.synced)
        for change in folder.changes:
            if self.policy in ("all", "names") or (self.policy == "random" and self.rng.random() < 0.5):
                _apply(names, change)
        for name, node in names.items():
            if isinstance(node, _Folder):
                self.write(node, to / name)
            else:
                (to / name).write_bytes(self._left(node))

    def _left(self, file: _File) -> bytes:
        now = self.contents.get(file, file.synced if file.last is None else file.last)
        kind = self.rng.choice(("all", "synced", "torn", "zeros")) if self.policy == "random" else self.policy
        if kind == "all" or now == file.synced:
            return now
        if kind == "torn":
            return self._torn(file.synced, now)
        if kind == "zeros" or (kind == "names" and self.rng.random() < 0.5):  # its length was kept, and not its sectors
            return file.synced + bytes(max(0, len(now) - len(file.synced)))
        return file.synced

    def _torn(self, before: bytes, now: bytes) -> bytes:
        """Return a file of which some sectors are as they were at the last fsync, up to any length between the two."""
        length = self.rng.randint(*sorted((len(before), len(now))))
        before, now = before.ljust(length, b"\0"), now.ljust(length, b"\0")
        starts = range(0, length, _SECTOR)
        return b"".join(self.rng.choice((before, now))[start : min(start + _SECTOR, length)] for start in starts)


def _read(folder: Path) -> _Folder:
    """Read a folder in which nothing is lost any more."""
    found = _Folder({path.name: _read(path) if path.is_dir() else _File(path.read_bytes()) for path in folder.iterdir()})
    found.sync()
    return found


def _contents(folder: _Folder, place: Path) -> dict[_File, bytes]:
    """Return the bytes of all files that have a name now."""
    found = dict[_File, bytes]()
    for name, node in folder.live.items():
        if isinstance(node, _Folder):
            found |= _contents(node, place / name)
        elif (place / name).is_file():
            found[node] = (place / name).read_bytes()
    return found
