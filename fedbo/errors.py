"""The errors that fedbo raises on purpose, and its warning of failed evaluations; each is imported when it is asked for."""

from __future__ import annotations

from functools import cache
from typing import Any

from fedbo.settings.rooms import loaded, public_names

# The errors of the main package, by module; those of a room are in its `room.py`. Type checkers read `errors.pyi`.
_NAMES = {
    "fedbo.actors.storage.record_types": "CheckpointError",
    "fedbo.actors.storage.rows": "TooLargeError",
    "fedbo.actors.storage.sealed": "DamagedError FormatError",
    "fedbo.analysis.finished_run": "ResultError",
    "fedbo.coordinator.errors": "EndlessError ForkError ProtocolError ReplayError",
    "fedbo.execution.cluster": "ClusterError",
    "fedbo.execution.failures": "RunError",
    "fedbo.figures.layout": "PlotError",
    "fedbo.objectives.base": "ConfigurationFailedError LibraryMissingError",
    "fedbo.objectives.datasets.data": "DataDamagedError DataMissingError",
    "fedbo.settings.errors": "ArgumentError EvaluationWarning FedboError SettingError",
    "fedbo.settings.own_code": "CodeError ExitError",
    "fedbo.settings.plugins": "PluginError",
    "fedbo.settings.shown": "OutputError",
    "fedbo.settings.trust": "UntrustedError",
    "fedbo.study.document": "StudyError",
    "fedbo.study.paths": "DirectoryError",
}


@cache
def _places() -> dict[str, str]:
    """Map the name of each error to its place, "module:attribute"."""
    own = {name: f"{module}:{name}" for module, names in _NAMES.items() for name in names.split()}
    return public_names(errors=True) | own


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_places())
    if name not in _places():
        raise AttributeError(f"module 'fedbo.errors' has no attribute '{name}'")
    return loaded(_places()[name])


def __dir__() -> list[str]:
    return sorted(_places())
