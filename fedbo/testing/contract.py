"""The common part of both contracts: the error for a broken contract."""

from __future__ import annotations


class ContractBroken(AssertionError):
    """An algorithm or a federation breaks an assumption of the simulation."""


def need(kept: bool, words: str) -> None:
    """Raise ContractBroken with these words unless a condition holds."""
    if not kept:
        raise ContractBroken(words)


def is_frozen(settings: object) -> bool:
    """Check whether settings are a frozen dataclass."""
    return bool(getattr(getattr(type(settings), "__dataclass_params__", None), "frozen", False))
