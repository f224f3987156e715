"""Errors that end a run between agents."""

from __future__ import annotations

from fedbo.settings.errors import FedboError


class ProtocolError(FedboError, RuntimeError):
    """An algorithm broke its own declaration, or left an agent waiting."""


class EndlessError(FedboError, RuntimeError):
    """A run that would never end."""


class ReplayError(FedboError, RuntimeError):
    """A run in real time could not be replayed."""


class ForkError(FedboError, ValueError):
    """A run cannot be forked at this time, or not with this change; the message has the reason and the remedy."""
