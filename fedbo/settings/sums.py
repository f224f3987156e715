"""A sum of numbers with the same bits in every version of Python."""

from __future__ import annotations

from collections.abc import Iterable


def plain_sum(numbers: Iterable[float]) -> float:
    """Return the sum of numbers, added one by one and rounded each time, as `sum` did before Python 3.12."""
    found = 0.0
    for number in numbers:
        found += number
    return found
