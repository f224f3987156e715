"""Files that appear whole or not at all, and are on the disk when they do."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write(path: Path, fill: Callable[[IO[bytes]], object], new: bool = False, mode: int = 0o666) -> str:
    """Let `fill` write a file under another name, rename it when it is on the disk, and give the SHA-256 of what was written.

    With `new` a file that is there already is left as it is. OSError as the disk gives it, for instance when it is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(draft, "w+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
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
    _sync(path.parent)
    return digest


def write_text(path: Path, text: str) -> str:
    """Write a text as UTF-8, as `write` does."""
    return write(path, lambda file: file.write(text.encode()))


def append(file: int, data: bytes) -> None:
    """Append all of it to a file or nothing; OSError when the disk is full."""
    size = os.fstat(file).st_size
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        os.ftruncate(file, size)
        raise


def _sync(folder: Path) -> None:
    """Put the names in a folder on the disk: else a power failure may forget a new one."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
