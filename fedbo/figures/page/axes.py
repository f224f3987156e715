"""Axes of the report's drawings: round ticks, and labels as short as possible."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinearAxis:
    """A linear axis: the values at its ends, and their places in the drawing."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        """Return the place of a value, to a tenth of a pixel."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.first + share * (self.last - self.first), 1)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about `count` round values between the ends: multiples of 1, 2 or 5 times a power of ten."""
        step = round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def round_step(rough: float) -> float:
    """Return the smallest of 1, 2, 5 and 10 times a power of ten that is not below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))


def spanned(low: float, high: float, margin: float = 0.0) -> tuple[float, float]:
    """Widen a range by a share of itself on both sides, and an empty range by a visible amount."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0, 1.0
    span = high - low
    if span <= 1e-12 * max(abs(low), abs(high)):
        span = max(abs(high), 1e-9)
        return low - 0.1 * span, high + 0.1 * span
    return low - margin * span, high + margin * span


def label_of(value: float, step: float) -> str:
    """Return the label of a tick, with as many digits as the step between two of them needs."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}"
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    words = f"{value:,.{digits}f}"
    return words if float(words.replace(",", "")) else words.lstrip("-")
