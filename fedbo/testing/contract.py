"""What both contracts share: the error that names a broken promise."""

from __future__ import annotations


class ContractBroken(AssertionError):
    """An algorithm or a federation does not do what a simulation relies on."""


def need(kept: bool, words: str) -> None:
    """Raise ContractBroken with these words unless a promise is kept."""
    if not kept:
        raise ContractBroken(words)


def is_frozen(settings: object) -> bool:
    """Say whether settings are a frozen dataclass."""
    return bool(getattr(getattr(type(settings), "__dataclass_params__", None), "frozen", False))
