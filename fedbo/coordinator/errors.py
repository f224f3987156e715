"""What ends a run between agents."""

from __future__ import annotations

from fedbo.settings.errors import FedboError


class ProtocolError(FedboError, RuntimeError):
    """An algorithm broke its own declaration, or left an agent waiting."""


class EndlessError(FedboError, RuntimeError):
    """A run that would never end."""


class ReplayError(FedboError, RuntimeError):
    """A run in real time could not be replayed."""


class ForkError(FedboError, ValueError):
    """A run cannot be forked there, or not with that change; the message says why, and the remedy."""
