"""Runs on remote storage, read from local copies."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fedbo.actors.storage.sealed import DamagedError
from fedbo.analysis.finished_run import FinishedRun
from fedbo.study.paths import DirectoryError
from fedbo.study.storage import copy_run

Run = TypeVar("Run", bound=FinishedRun)


def open_copy(open_folder: Callable[[str], Run], address: str) -> Run:
    """Copy the tables of a run to this machine while the result exists, and open the copy; DirectoryError in one line."""
    copy = tempfile.mkdtemp(prefix="fedbo-")
    try:
        copy_run(address, Path(copy))
        found = open_folder(copy)
    except BaseException as error:
        shutil.rmtree(copy, ignore_errors=True)
        if isinstance(error, OSError):
            raise DirectoryError(f"'{address}': cannot be reached ({' '.join(str(error).split())[:200]})") from None
        if isinstance(error, DamagedError):
            raise DirectoryError(f"'{address}': {error.path.name} is damaged ({error.why}); copy it there again") from None
        if isinstance(error, ValueError):
            raise DirectoryError(str(error).replace(copy, address)) from None
        raise
    found.address = address
    weakref.finalize(found, shutil.rmtree, copy, ignore_errors=True)
    return found
