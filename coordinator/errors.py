"""What ends a run between agents."""

from __future__ import annotations


class ProtocolError(RuntimeError):
    """An algorithm broke its own declaration, or left an agent waiting."""


class EndlessError(RuntimeError):
    """A run that would never end."""


class ReplayError(RuntimeError):
    """A run in real time could not be replayed."""


class ForkError(ValueError):
    """A run cannot be forked there, or not with that change; the message says why, and the remedy."""
