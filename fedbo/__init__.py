"""fedbo: asynchronous simulation of federated black-box optimisation.

`run` runs a study, `load_study` checks one, `Result.open` reads an earlier run, and `tune` tunes a function at several sites in
real time. Other commands are functions of the same names, such as `validate`, `compare` and `bench`. `serve` and `join` carry
out a study whose sites keep their objectives to themselves, over an authenticated network. What they raise is in
`fedbo.errors`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

# The public names of the main package, by module; those of a room are in its `room.py`. Each is imported when it is asked for:
# reading a help text must not wait for Ray and SciPy. Type checkers read `__init__.pyi`, which `make reference` writes.
_NAMES = {
    "fedbo.analysis.result": "Result",
    "fedbo.functions": "compare load_study replay resume run validate",
    "fedbo.objectives.typed_spaces.spaces": "log",
    "fedbo.study.study": "Study",
}


_OWN = {name: f"{module}:{name}" for module, names in _NAMES.items() for name in names.split()}


@cache
def _places() -> dict[str, str]:
    """Map each public name to its place, "module:attribute"."""
    from fedbo.settings.rooms import public_names

    return public_names(errors=False) | _OWN


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from fedbo.settings.version import fedbo_version

        return fedbo_version()
    if name == "__all__":
        return sorted(_places())
    if name == "errors":
        return import_module("fedbo.errors")
    places = _OWN if name in _OWN or name.startswith("_") else _places()  # to find the rooms takes milliseconds
    if name in globals():  # the module of a room, such as `fedbo.optuna`, which the search for rooms has imported
        return globals()[name]
    if name not in places:
        from fedbo.settings.errors import in_plugin

        moved = f"; errors are in fedbo.errors: fedbo.errors.{name}" if name.endswith(("Error", "Warning")) else ""
        raise AttributeError(in_plugin("attribute", name) or f"module 'fedbo' has no attribute '{name}'{moved}")
    from fedbo.settings.rooms import loaded

    return loaded(places[name])


def __dir__() -> list[str]:
    return [*sorted(_places()), "errors", "__version__"]
