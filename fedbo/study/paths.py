"""Paths that a user gives: errors of the file system become one-line messages."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedbo.actors.storage import atomic
from fedbo.settings.errors import FedboError


class DirectoryError(FedboError, ValueError):
    """A directory that cannot be used as asked."""


_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)")  # with one slash, too, which is what pathlib leaves of two


def address_of(folder: str | Path) -> str | None:
    """Give a folder that is named by an address, such as "s3://bucket/folder", as an address; None for any other."""
    found = _ADDRESS.fullmatch(str(folder))
    if found is None:
        return None
    scheme = found[1].lower()
    return f"{scheme}://{'/' if scheme == 'file' else ''}{found[2]}"


def refuse_address(folder: Path) -> None:
    """DirectoryError where a folder is on storage that is not a disk of this machine, which only a few can read."""
    if (address := address_of(folder)) is not None:
        words = "only `fedbo show` and `fedbo plot` read runs on remote storage; copy the run to a folder of this machine"
        raise DirectoryError(f"'{address}': {words}")


PRIVATE = 0o700  # the mode of folders with what agents observed: only their owner reads them


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and those above it; DirectoryError where none may be made, or where it may not be written to."""
    refuse_address(folder)
    with usable(folder, "cannot create a folder there"):
        atomic.make_folder(folder, mode)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DirectoryError(f"'{folder}': is not writable; use another one, or change its permissions")


@contextmanager
def usable(path: Path, what: str) -> Iterator[None]:
    """Say in one line that a path cannot be used as asked, with the system's reason: DirectoryError; not of a full disk."""
    try:
        yield
    except OSError as error:
        if out_of_space(error):
            raise
        raise DirectoryError(f"'{path}': {what} ({error.strerror or error}); use another one") from None


def out_of_space(error: BaseException) -> bool:
    """Say whether an error comes from a disk that is full."""
    causes = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) in causes:
            return True
        seen = seen.__cause__ or seen.__context__
    return False
