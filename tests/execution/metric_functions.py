"""Functions of tests that return several metrics."""

from __future__ import annotations

from typing import Any


def costly(x: Any, agent: int) -> dict[str, float]:
    """Return an error that falls with x, and seconds and memory that rise with it; above 0.9 the seconds are unknown."""
    at = float(x[0])
    return {"error": 1.0 - at, "seconds": 10.0 * at if at <= 0.9 else float("nan"), "memory": at * (agent + 1), "extra": 7.0}


def forgetful(x: Any) -> dict[str, float]:
    """Return an error alone."""
    return {"error": float(x[0])}
