"""Paths of users: errors of the file system become one-line messages."""

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
    """Return the address of a folder on remote storage, such as "s3://bucket/folder"; None for a local path."""
    found = _ADDRESS.fullmatch(str(folder))
    if found is None:
        return None
    scheme = found[1].lower()
    return f"{scheme}://{'/' if scheme == 'file' else ''}{found[2]}"


def refuse_address(folder: Path) -> None:
    """Raise DirectoryError for a folder on remote storage, which only a few commands can read."""
    if (address := address_of(folder)) is not None:
        words = "only `fedbo show` and `fedbo plot` read runs on remote storage; copy the run to a folder of this machine"
        raise DirectoryError(f"'{address}': {words}")


PRIVATE = 0o700  # the mode of folders with what agents observed: only their owner reads them


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder and its parents; DirectoryError where that is impossible, or where it is not writable."""
    refuse_address(folder)
    with usable(folder, "cannot create a folder there"):
        atomic.make_folder(folder, mode)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DirectoryError(f"'{folder}': is not writable; use another one, or change its permissions")


@contextmanager
def usable(path: Path, what: str) -> Iterator[None]:
    """Convert the system's error for a path to a DirectoryError of one line; a full disk's error passes unchanged."""
    try:
        yield
    except OSError as error:
        if out_of_space(error):
            raise
        raise DirectoryError(f"'{path}': {what} ({error.strerror or error}); use another one") from None


def out_of_space(error: BaseException) -> bool:
    """Return whether an error comes from a full disk."""
    causes = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) in causes:
            return True
        seen = seen.__cause__ or seen.__context__
    return False
