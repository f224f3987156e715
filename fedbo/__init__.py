"""fedbo: asynchronous simulation of federated black-box optimisation.

`run` runs a study, `load_study` checks one, `Result.open` reads an earlier run, `tabulate` evaluates an objective in advance,
and `tune` tunes a function at several sites in real time. `serve` and `join` carry out a study whose sites keep their
objectives to themselves, over an authenticated network.
"""

from __future__ import annotations

from functools import cache
from typing import Any

# The public names of the main package, by module; those of a room are in its `room.py`. Each is imported when it is asked for:
# reading a help text must not wait for Ray and SciPy. Type checkers read `__init__.pyi`, which `make reference` writes.
_NAMES = {
    "fedbo.actors.storage.record_types": "CheckpointError",
    "fedbo.actors.storage.rows": "TooLargeError",
    "fedbo.actors.storage.sealed": "DamagedError FormatError",
    "fedbo.analysis.finished_run": "ResultError",
    "fedbo.analysis.result": "Result",
    "fedbo.coordinator.errors": "EndlessError ForkError ProtocolError ReplayError",
    "fedbo.execution.cluster": "ClusterError",
    "fedbo.execution.failures": "RunError",
    "fedbo.figures.layout": "PlotError",
    "fedbo.functions": "load_study resume run",
    "fedbo.objectives.base": "ConfigurationFailedError LibraryMissingError",
    "fedbo.objectives.datasets.data": "DataDamagedError DataMissingError",
    "fedbo.objectives.typed_spaces.spaces": "log",
    "fedbo.settings.errors": "ArgumentError EvaluationWarning FedboError SettingError",
    "fedbo.settings.own_code": "CodeError ExitError",
    "fedbo.settings.plugins": "PluginError",
    "fedbo.settings.shown": "OutputError",
    "fedbo.settings.trust": "UntrustedError",
    "fedbo.study.document": "StudyError",
    "fedbo.study.paths": "DirectoryError",
    "fedbo.study.study": "Study",
}


_OWN = {name: f"{module}:{name}" for module, names in _NAMES.items() for name in names.split()}


@cache
def _places() -> dict[str, str]:
    """Map each public name to its place, "module:attribute"."""
    from fedbo.settings.rooms import rooms

    return {name: place for room in rooms().values() for name, place in room.names.items()} | _OWN


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from fedbo.settings.version import fedbo_version

        return fedbo_version()
    if name == "__all__":
        return sorted(_places())
    places = _OWN if name in _OWN or name.startswith("_") else _places()  # to find the rooms takes milliseconds
    if name in globals():  # the module of a room, such as `fedbo.optuna`, which the search for rooms has imported
        return globals()[name]
    if name not in places:
        from fedbo.settings.errors import in_plugin

        raise AttributeError(in_plugin("attribute", name) or f"module 'fedbo' has no attribute '{name}'")
    from fedbo.settings.rooms import loaded

    return loaded(places[name])


def __dir__() -> list[str]:
    return [*sorted(_places()), "__version__"]
