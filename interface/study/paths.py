"""Paths that a user gives: errors of the file system become one-line messages."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DirectoryError(ValueError):
    """A directory that cannot be used as asked."""


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; DirectoryError where none may be made, or where it may not be written to."""
    with usable(folder, "no folder can be made there"):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DirectoryError(f"'{folder}': may not be written to; name another one, or change its permissions")


@contextmanager
def usable(path: Path, what: str) -> Iterator[None]:
    """Say in one line that a path cannot be used as asked, with the system's reason: DirectoryError; not of a full disk."""
    try:
        yield
    except OSError as error:
        if out_of_space(error):
            raise
        raise DirectoryError(f"'{path}': {what} ({error.strerror or error}); name another one") from None


def out_of_space(error: BaseException) -> bool:
    """Say whether an error comes from a disk that is full."""
    causes = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) in causes:
            return True
        seen = seen.__cause__ or seen.__context__
    return False
