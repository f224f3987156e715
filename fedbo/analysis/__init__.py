"""The results of runs: `Result`, and functions of it, such as `fedbo.analysis.curves(result)`; `functions.py` lists them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbo.analysis.functions import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        # Imported when first asked for: to read a manifest must not wait for SciPy.
        if name.startswith("_"):
            raise AttributeError(f"module 'fedbo.analysis' has no attribute '{name}'")
        return getattr(import_module("fedbo.analysis.functions"), name)
