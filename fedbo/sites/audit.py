"""The audit log of a site or a coordinator: JSON lines that are only appended, each with the SHA-256 of the one before.

A record is on the disk before what it tells of leaves the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


class AuditLog:
    """An audit log, opened for appending by one process; its methods may be called from several threads."""

    def __init__(self, path: Path) -> None:
        raise NotImplementedError

    def record(self, event: str, *, sync: bool = True, **facts: Any) -> None:
        """Append a record, on the disk before this returns; bytes among the facts are written as base64."""
        raise NotImplementedError

    def sent(self, target: str, body: bytes, **facts: Any) -> None:
        """Record every byte of a body that is about to leave, and its target (method and URL path)."""
        raise NotImplementedError

    def refused(self, why: str, **facts: Any) -> None:
        """Record a refused request, without waiting for the disk; beyond 100,000 of them only their number is recorded."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""
        raise NotImplementedError


def read_audit(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a log in order; DamagedError where the chain is broken."""
    raise NotImplementedError
