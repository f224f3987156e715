"""Files that appear whole or not at all and are on the disk when they do, and logs and folders that a power cut keeps.

A power cut may forget any write that was not followed by an fsync of its file, and any new name that was not followed by an
fsync of its folder. Every file that a later step relies on is therefore written by these functions.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import IO

_SECTOR = 512  # bytes that a disk writes whole or not at all; those of larger sectors are several of these


def write(path: Path, fill: Callable[[IO[bytes]], object], new: bool = False, mode: int = 0o666) -> str:
    """Let `fill` write a file under another name, rename it when it is on the disk, and give the SHA-256 of what was written.

    With `new` a file that is there already is left as it is. OSError as the disk gives it, for instance when it is full.
    """
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(draft, "w+b", opener=lambda name, flags: no_link(name, flags, mode)) as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if new:
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)  # unlike a rename it does not replace the file of another process
        else:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_names(path.parent)
    return digest


def write_text(path: Path, text: str) -> str:
    """Write a text as UTF-8, as `write` does."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> str:
    """Write bytes, as `write` does."""
    return write(path, lambda file: file.write(data))


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder, and those above it that are missing, unless it exists; every new name is on the disk."""
    if path.is_dir():
        return
    if path.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    make_folder(path.parent)
    path.mkdir(mode, exist_ok=True)
    sync_names(path.parent)


def open_log(path: Path) -> int:
    """Open a file for `append`; a new file's name is on the disk, so that what is appended and synced is never lost."""
    new = not path.exists()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    if new:
        sync_names(path.parent)
    return file


def no_link(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a file as `open` asks its opener to, but never through a link; OSError where there is one."""
    return os.open(path, flags | os.O_NOFOLLOW, mode)


def append(file: int, data: bytes, sync: bool = False) -> None:
    """Append all of the data to a file or nothing, and with `sync` put it on the disk; OSError when the disk is full."""
    size = os.fstat(file).st_size
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        if sync:
            os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise


def is_torn(data: bytes, place: int) -> bool:
    """Return whether the last bytes of a log, from a place in it on, may be an append that a power cut tore.

    Sectors that were not written are zero where the file has its new length already. Bytes that were written and are damaged
    since leave no such sector, so that the two can be told apart.
    """
    edges = [0, *range(_SECTOR - place % _SECTOR, len(data), _SECTOR), len(data)]
    return any(not data[edge:following].strip(b"\0") for edge, following in pairwise(edges))


def copy(source: Path, to: Path) -> str:
    """Copy a file, as `write` writes one; return the SHA-256 of the copy."""
    with source.open("rb") as file:
        return write(to, lambda target: shutil.copyfileobj(file, target))


def copy_folder(source: Path, to: Path) -> None:
    """Copy a folder with all that is below it; the copy appears whole or not at all."""
    draft = to.with_name(f".{to.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    for path in (source, *sorted(source.rglob("*"))):
        copied = draft / path.relative_to(source)
        copy(path, copied) if path.is_file() else make_folder(copied)
    rename(draft, to)


def rename(path: Path, to: Path) -> None:
    """Rename a file or a folder within its folder; the new name is on the disk."""
    path.replace(to)
    sync_names(to.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is below it, for good: a power cut does not bring its name back."""
    shutil.rmtree(path, ignore_errors=True)
    if path.parent.is_dir():
        sync_names(path.parent)


def sync_names(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
