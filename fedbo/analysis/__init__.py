"""The results of runs: `Result`, and functions of it, such as `fedbo.analysis.curves(result)`; `functions.py` lists them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbo.analysis.functions import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        # Imported when first asked for: to read a manifest must not wait for SciPy.
        functions = {} if name.startswith("_") else vars(import_module("fedbo.analysis.functions"))
        if name not in functions:
            raise AttributeError(f"module 'fedbo.analysis' has no attribute '{name}'")
        return functions[name]

    def __dir__() -> list[str]:
        return [*globals(), *(name for name in vars(import_module("fedbo.analysis.functions")) if name[0] != "_")]
