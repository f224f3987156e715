"""How much the messages of a method reveal about the observations behind them: one declaration for each method."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fedbo.settings.errors import unknown


class Reveals(StrEnum):
    """The knowledge that messages of one agent give to a reader who knows the method and its settings; most first.

    A method declares the worst that holds for its settings, as its attribute `reveals`. `NOTHING` means that no message is
    sent. The aggregator of a method with `NOISY_SUMS` still reads each message, unless aggregation is secure.
    """

    OBSERVATIONS = "observations"
    COMPUTABLE = "computable"
    DRAWS = "draws"
    NOISY_SUMS = "noisy sums"
    NOTHING = "nothing"

    @property
    def meaning(self) -> str:
        """Return a clause for readers of a list."""
        return MEANINGS[self]

    def exceeds(self, accepted: Reveals) -> bool:
        """Check whether this reveals more than the accepted level."""
        order = [*Reveals]
        return order.index(self) < order.index(accepted)


MEANINGS = {
    Reveals.OBSERVATIONS: "messages hold points that an agent evaluates, or their values",
    Reveals.COMPUTABLE: "observations can be computed from messages, exactly or closely",
    Reveals.DRAWS: "a message is a random draw of the surrogate; many draws, or a known seed, reveal observations",
    Reveals.NOISY_SUMS: "other agents receive only sums, means or votes with noise for differential privacy",
    Reveals.NOTHING: "no message is sent",
}


def revealed_by(algorithm: Any) -> Reveals:
    """Return a method's declaration; `OBSERVATIONS` without one. ValueError for an unknown word."""
    return read_reveals(getattr(algorithm, "reveals", Reveals.OBSERVATIONS))


def read_reveals(word: Any) -> Reveals:
    """Return the member of `Reveals` for a word; ValueError for an unknown word."""
    if word not in [*Reveals]:
        raise ValueError(f"reveals = {word!r}: {unknown('choice', str(word), [*Reveals])}")
    return Reveals(word)


def meaning_of(word: str) -> str:
    """Return the meaning of a word in a run's record; "not known to this version" for words of another version."""
    return MEANINGS[Reveals(word)] if word in [*Reveals] else "not known to this version"
