"""fedbo in Optuna: a sampler, and runs as studies. Needs Optuna: pip install optuna."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbo.optuna.sampler import Sampler

__all__ = ["Sampler"]


def __getattr__(name: str) -> Any:
    """Import the sampler when it is asked for: the declaration of this room must not need Optuna."""
    if name != "Sampler":
        raise AttributeError(f"module 'fedbo.optuna' has no attribute '{name}'")
    from fedbo.optuna.sampler import Sampler

    return Sampler
