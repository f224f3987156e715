"""The error of a study that fails after its start: the reason in a line, and how it continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import DamagedError
from fedbo.execution.cluster import ClusterError
from fedbo.execution.head import HeadLostError
from fedbo.settings.errors import FedboError
from fedbo.settings.own_code import CodeError
from fedbo.settings.shown import quoted
from fedbo.settings.trust import ChangedCodeError
from fedbo.study.paths import out_of_space

TRACEBACK = "traceback.txt"


class RunError(FedboError, RuntimeError):
    """A study failed after its start; all results so far are in `directory`."""

    def __init__(self, message: str, directory: Path) -> None:
        super().__init__(message, directory)  # by which it is made again in another process
        self.directory = directory

    def __str__(self) -> str:
        """Return the message."""
        return str(self.args[0])


@contextmanager
def room_in(directory: Path) -> Iterator[None]:
    """Raise RunError with the remedy where the disk is full from the start."""
    try:
        yield
    except OSError as error:
        if not out_of_space(error):
            raise
        raise RunError(_words(error, directory), directory) from error


def failed(failure: Exception, directory: Path) -> RunError:
    """Return the error of a run that failed, and keep the traceback of an error in code outside fedbo in its directory."""
    return RunError(_words(failure, directory) + _kept_traceback(failure, directory), directory)


def _words(failure: Exception, directory: Path) -> str:
    plain = ClusterError | HeadLostError | DamagedError | CodeError | ChangedCodeError
    words = str(failure) if isinstance(failure, plain) else f"{type(failure).__name__}: {failure}"
    if type(failure).__module__.startswith("ray."):  # which explains itself in many lines
        words = f"{words.splitlines()[0]}; Ray's logs show the cause; continue with: fedbo resume {quoted(directory)}"
    if isinstance(failure, HeadLostError):
        return f"{words}; continue with: fedbo resume {quoted(directory)}"
    if out_of_space(failure):
        return f"{words}; the disk is full: free some space, then continue with: fedbo resume {quoted(directory)}"
    return words


def _kept_traceback(failure: Exception, directory: Path) -> str:
    """Write the traceback of an error in code outside fedbo into the run's folder, and return a note of its place."""
    if not isinstance(failure, CodeError):
        return ""
    with suppress(OSError):
        atomic.write_text(directory / TRACEBACK, failure.traceback)
    remedy = f"fix the code, then continue with: fedbo resume {quoted(directory)}, or run the study again"
    return f"; the traceback is in {quoted(directory / TRACEBACK)}; {remedy}"
