"""The libraries of the extra `serve`, which nothing else needs and which are imported at first use."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from fedbo.objectives.base import LibraryMissingError

_LIBRARIES = ("cryptography", "httpx", "uvicorn")


@cache
def require_libraries() -> None:
    """Raise LibraryMissingError unless the libraries of the extra `serve` are installed."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        words = f"keys and sites require {', '.join(missing)}"
        raise LibraryMissingError(f"{words}; install with: pip install {' '.join(missing)}")
