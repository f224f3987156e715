"""The errors that a command reports in one line: wrong input, and runs that failed."""

from __future__ import annotations

from fedbo.actors.storage.checkpoint import CheckpointError
from fedbo.actors.storage.rows import TooLargeError
from fedbo.actors.storage.sealed import DamagedError, FormatError
from fedbo.analysis.finished_run import ResultError
from fedbo.coordinator.errors import ForkError, ProtocolError, ReplayError
from fedbo.execution.cluster import ClusterError
from fedbo.execution.runner import RunError
from fedbo.figures.layout import PlotError
from fedbo.figures.page.page import ReportError
from fedbo.lab.twins.measurements import MeasurementError
from fedbo.objectives.base import LibraryMissingError
from fedbo.objectives.datasets.data import DataDamagedError, DataMissingError
from fedbo.objectives.tables.table import TableError
from fedbo.settings.errors import ArgumentError, SettingError
from fedbo.settings.exits import ExitError
from fedbo.settings.trust import UntrustedError
from fedbo.sites.errors import SitesError
from fedbo.study.paths import DirectoryError


def is_wrong_input(error: Exception) -> bool:
    """Check whether an argument or a directory was wrong, before anything ran."""
    ours = ResultError | PlotError | ReportError | DirectoryError | TableError | DamagedError | FormatError
    ours |= ArgumentError | SettingError | MeasurementError | ForkError | UntrustedError | TooLargeError | SitesError
    return isinstance(error, ours | FileExistsError | PermissionError)


def is_failure(error: Exception) -> bool:
    """Check whether a run failed for a reason that its message explains."""
    ours = RunError | ReplayError | CheckpointError | ClusterError | ProtocolError | ExitError
    return isinstance(error, ours | DataMissingError | DataDamagedError | LibraryMissingError)
