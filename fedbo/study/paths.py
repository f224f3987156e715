"""Paths of users: errors of the file system become one-line messages, and one process at a time holds a directory."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import threading
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


_guard = threading.Lock()
_held: dict[tuple[int, int], int] = {}  # process by device and inode: what this process has locked, or its parent had


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a directory against other writers; DirectoryError where it is locked already, or cannot be locked.

    The lock is a POSIX record lock (`fcntl.lockf`), which belongs to the process. The kernel releases it when the process
    ends, however it ends, and no child process holds it. A lock of `flock` would belong to the open file, which children
    share until they close it.
    """
    path = directory / ".lock"
    with _guard:
        file = _acquire(directory, path)
        held = _identity(file)
        _held[held] = os.getpid()
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()} {socket.gethostname()}".encode(), 0)
        yield
    finally:
        with _guard:
            if _held.pop(held, None) == os.getpid():  # else the lock is of the process that made this one
                path.unlink(missing_ok=True)
            os.close(file)


def _acquire(directory: Path, path: Path) -> int:
    """Open and lock the file of a lock, and return its descriptor."""
    while True:
        # To close a second descriptor of the file would release the lock that another thread of this process holds.
        if _held.get(_identity(path)) == os.getpid():
            words = "is open in this process; wait until its run has ended, or call close() on its agent"
            raise DirectoryError(f"'{directory}': {words}")
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if out_of_space(error):
                raise
            words = f"is not writable ({error.strerror}); change its permissions, or copy it to a writable folder"
            raise DirectoryError(f"'{directory}': {words}") from None
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _identity(file) == _identity(path):
                return file
        except OSError as error:
            owner = _owner(os.pread(file, 300, 0).decode(errors="replace"))
            os.close(file)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise DirectoryError(f"'{directory}': is in use by {owner}; wait for that process, or end it") from None
            words = f"cannot be locked ({error.strerror}); use a folder on a file system with POSIX locks"
            raise DirectoryError(f"'{directory}': {words}") from None
        os.close(file)  # its last owner has just removed it


def _owner(noted: str) -> str:
    """Return a description of the process that holds a lock; the recorded one may have ended just before."""
    number, _, host = noted.partition(" ")
    if not number.isdigit() or len(number) > 10:
        return "another process"
    if host not in ("", socket.gethostname()):
        return f"process {number} on {host}"
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return "another process, which has just started"
    except OSError:
        pass  # it runs under another user
    return f"process {number}"


def _identity(file: int | Path) -> tuple[int, int]:
    """Return device and inode of a file; of none if another process has just removed it."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return (-1, -1)
    return found.st_dev, found.st_ino
