"""fedbo in Optuna: a sampler, and runs as studies. Needs Optuna: pip install optuna."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbo.settings.rooms import loaded

if TYPE_CHECKING:
    from fedbo.optuna.sampler import Sampler

__all__ = ["Sampler"]


def __getattr__(name: str) -> Any:  # the declaration of this room must not need Optuna
    if name not in __all__:
        raise AttributeError(f"module 'fedbo.optuna' has no attribute '{name}'")
    return loaded(f"fedbo.optuna.sampler:{name}")
