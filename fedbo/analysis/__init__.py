"""The results of runs: `Result`, and functions of it, such as `fedbo.analysis.curves(result)`: `functions.py` and rooms."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbo.analysis.functions import *  # noqa: F403

    def __getattr__(name: str) -> Any: ...  # those of rooms
else:
    from fedbo.settings.rooms import loaded, rooms

    def _places() -> dict[str, str]:
        return {name: place for room in rooms().values() for name, place in room.analyses.items()}

    def __getattr__(name: str) -> Any:
        # Imported when first asked for: to read a manifest must not wait for SciPy.
        functions = {} if name.startswith("_") else vars(import_module("fedbo.analysis.functions"))
        if name not in functions | _places():
            raise AttributeError(f"module 'fedbo.analysis' has no attribute '{name}'")
        return functions[name] if name in functions else loaded(_places()[name])

    def __dir__() -> list[str]:
        return [*globals(), *_places(), *(name for name in vars(import_module("fedbo.analysis.functions")) if name[0] != "_")]
