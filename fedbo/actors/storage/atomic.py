"""Files that appear complete or not at all, and logs and folders that survive a power cut.

A power cut may lose any write without an fsync of its file, and any new name without an fsync of its folder. Every file that a
later step relies on is therefore written by these functions.
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
    """Write a file that `fill` fills under a temporary name, rename it once it is on the disk, and return its SHA-256.

    With `new` an existing file is left as it is. OSError as the disk raises it, for instance when it is full.
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
    """Create a folder and its missing parents, and put every new name on the disk; do nothing if it exists."""
    if path.is_dir():
        return
    if path.exists() and not path.is_dir():  # another process may have created it since
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    make_folder(path.parent)
    path.mkdir(mode, exist_ok=True)
    sync_names(path.parent)


def open_log(path: Path) -> int:
    """Open a file for `append`. A new file's name is put on the disk, so that synced appends are never lost."""
    new = not path.exists()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    if new:
        sync_names(path.parent)
    return file


def no_link(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a file as an opener of `open`, but never through a symbolic link; OSError where there is one."""
    return os.open(path, flags | os.O_NOFOLLOW, mode)


def append(file: int, data: bytes, sync: bool = False) -> None:
    """Append all of the data to a file or nothing; with `sync`, put it on the disk. OSError when the disk is full."""
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
    """Return whether the end of a log, from position `place` on, may be an append that a power cut tore.

    Sectors that were not written are zero where the file has its new length already. Bytes that were written and damaged later
    leave no such sector, so the two cases differ.
    """
    edges = [0, *range(_SECTOR - place % _SECTOR, len(data), _SECTOR), len(data)]
    return any(not data[edge:following].strip(b"\0") for edge, following in pairwise(edges))


def copy(source: Path, to: Path) -> str:
    """Copy a file, as `write` writes one; return the SHA-256 of the copy."""
    with source.open("rb") as file:
        return write(to, lambda target: shutil.copyfileobj(file, target))


def copy_folder(source: Path, to: Path) -> None:
    """Copy a folder with its contents; the copy appears complete or not at all."""
    draft = to.with_name(f".{to.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    for path in (source, *sorted(source.rglob("*"))):
        copied = draft / path.relative_to(source)
        copy(path, copied) if path.is_file() else make_folder(copied)
    rename(draft, to)


def rename(path: Path, to: Path) -> None:
    """Rename a file or a folder within its folder, and put the new name on the disk."""
    path.replace(to)
    sync_names(to.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder with its contents permanently: a power cut does not bring its name back."""
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
