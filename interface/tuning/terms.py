"""The terms of an ask/tell agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings that all agents that tune together share.

    `algorithm` is a name or a table with settings, `agents` their number, `mode` "max" or "min". An agent's first `initial`
    points are random. A point without a value for `lease` seconds is given to the next client that asks; without a lease that
    happens only when the agent's process starts again.
    """

    algorithm: str | Mapping[str, Any] = "fts"
    agents: int = 1
    mode: str = "max"
    initial: int = 3
    seed: int = 0
    lease: float | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("max", "min"):
            raise ValueError(f"mode = {self.mode!r}: must be 'max' or 'min'")
        if self.agents < 1 or self.initial < 0 or (self.lease is not None and not self.lease > 0):
            raise ValueError(f"terms: agents >= 1, initial >= 0 and a lease above 0 seconds are needed, not {self}")
