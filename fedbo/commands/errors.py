"""The errors that a command reports in one line: wrong input, and runs that failed.

They are known by their names: an error cannot come from a module that was not imported, and some of these take a second.
"""

from __future__ import annotations

import errno
import os

from fedbo.settings.rooms import rooms

# Arguments and directories that were wrong, before anything ran.
WRONG_INPUT = frozenset(
    (
        "fedbo.actors.storage.rows.TooLargeError",
        "fedbo.actors.storage.sealed.DamagedError",
        "fedbo.actors.storage.sealed.FormatError",
        "fedbo.analysis.finished_run.ResultError",
        "fedbo.coordinator.errors.ForkError",
        "fedbo.figures.layout.PlotError",
        "fedbo.settings.errors.ArgumentError",
        "fedbo.settings.errors.SettingError",
        "fedbo.settings.trust.UntrustedError",
        "fedbo.study.document.StudyError",
        "fedbo.study.paths.DirectoryError",
    )
)
# Runs that failed for a reason that the message explains.
FAILURES = frozenset(
    (
        "fedbo.actors.storage.record_types.CheckpointError",
        "fedbo.coordinator.errors.ProtocolError",
        "fedbo.coordinator.errors.ReplayError",
        "fedbo.execution.cluster.ClusterError",
        "fedbo.execution.head.HeadLostError",
        "fedbo.execution.failures.RunError",
        "fedbo.objectives.base.LibraryMissingError",
        "fedbo.objectives.datasets.data.DataDamagedError",
        "fedbo.objectives.datasets.data.DataMissingError",
        "fedbo.settings.own_code.ExitError",
    )
)
# Errors of the system for which no code is at fault: something is full, at its limit, read-only or broken.
SURROUNDINGS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.EROFS, errno.EIO, errno.ESTALE)
)


def is_wrong_input(error: Exception) -> bool:
    """Check whether an argument or a directory was wrong, before anything ran."""
    own = {place.replace(":", ".") for room in rooms().values() for place in room.errors}
    return isinstance(error, FileExistsError | PermissionError) or _is_of(error, WRONG_INPUT | own)


def is_failure(error: Exception) -> bool:
    """Check whether a run failed for a reason that its message explains."""
    return _is_of(error, FAILURES)


def system_words(error: Exception) -> str | None:
    """Return one line about an error of the system for which no code is at fault; None for any other error."""
    if isinstance(error, FileNotFoundError) and not _in_a_directory():
        return "the working directory no longer exists; change to another one with cd"
    if isinstance(error, OSError) and error.errno in SURROUNDINGS:
        where = "" if error.filename is None else f"'{error.filename}': "
        return f"{where}{error.strerror}; free space, raise the limit (ulimit), or use another folder, and repeat the command"
    return None


def _in_a_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _is_of(error: Exception, names: frozenset[str]) -> bool:
    return any(f"{kind.__module__}.{kind.__qualname__}" in names for kind in type(error).__mro__)
