"""The weight of messages that are some rounds or updates old."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from fedbo.settings.ranges import Marked, OneOf


@dataclass(frozen=True, slots=True)
class Staleness(Marked):
    """The weight of a message that is `s` rounds old: `s` rounds closed, or buffers were answered, since it was begun.

    `weight` is "constant" 1, "polynomial" (1 + s)^-a, "exponential" e^(-a s), or "hinge": 1 up to `after` rounds and
    1 / (1 + a (s - after)) beyond, where a is `decay` (Xie et al. 2019, section 5). Beyond `bound` rounds the weight is 0,
    and the message is refused when it arrives. Without rounds these are the updates of the server, as the papers count them.
    """

    weight: Annotated[str, OneOf(("constant", "polynomial", "exponential", "hinge"))] = "constant"
    """Weight of a message that is s rounds old."""
    decay: Annotated[float, Gt(0)] = 0.5
    """Decay rate a of the weight."""
    after: Annotated[int, Ge(0)] = 0
    """Staleness up to which hinge weighs 1."""
    bound: Annotated[int, Ge(0)] | None = None
    """Staleness beyond which a message is refused. Default: none."""

    @property
    def is_constant(self) -> bool:
        """Check whether all messages have the same weight."""
        return self.weight == "constant" and self.bound is None

    def of(self, s: int) -> float:
        """Return the weight of a message that is `s` rounds old."""
        if self.bound is not None and s > self.bound:
            return 0.0
        if self.weight == "polynomial":
            return float((1.0 + s) ** -self.decay)
        if self.weight == "exponential":
            return math.exp(-self.decay * s)
        if self.weight == "hinge" and s > self.after:
            return 1.0 / (1.0 + self.decay * (s - self.after))
        return 1.0
