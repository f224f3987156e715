"""Secrets of 128 bits and their shares (Shamir 1979): any `needed` shares give a secret, and fewer say nothing about it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Limbs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

FIELD = 2**31 - 1  # of the shares: products of two numbers below it are exact in 64 bits
LIMBS, LIMB_BITS = 5, 30  # a secret is so many numbers below FIELD
SECRET, SHARE = 16, 4 * LIMBS  # bytes of a secret, as hard to guess as a key of X25519, and of a share


def to_limbs(secrets: Sequence[bytes]) -> Limbs:
    """Write secrets of `SECRET` bytes as numbers `(n, LIMBS)`."""
    numbers = [int.from_bytes(secret, "little") for secret in secrets]
    least = (1 << LIMB_BITS) - 1
    return np.array([[number >> LIMB_BITS * place & least for place in range(LIMBS)] for number in numbers], dtype=np.int64)


def from_limbs(limbs: Limbs) -> list[bytes]:
    """Read secrets from numbers `(n, LIMBS)`; ValueError where these come from shares of different secrets."""
    if (limbs >> LIMB_BITS).any():
        raise ValueError("the shares belong to different secrets")
    numbers = [sum(limb << LIMB_BITS * place for place, limb in enumerate(row)) for row in limbs.tolist()]
    if any(number >> 8 * SECRET for number in numbers):
        raise ValueError("the shares belong to different secrets")
    return [number.to_bytes(SECRET, "little") for number in numbers]


def polynomials(words: Words, needed: int) -> Limbs:
    """Return random coefficients `(needed - 1, n, LIMBS)` from as many words of 64 random bits."""
    return (words % np.uint64(FIELD)).astype(np.int64).reshape(needed - 1, -1, LIMBS)


def dealt(secrets: Limbs, coefficients: Limbs, points: Limbs) -> Limbs:
    """Return shares `(h, n, LIMBS)` at `points (h,)` of secrets `(n, LIMBS)`, from `coefficients (needed - 1, n, LIMBS)`."""
    shares = np.zeros((len(points), *secrets.shape), dtype=np.int64)
    # Horner's rule for polynomials whose constant terms are the secrets.
    for row in (*coefficients[::-1], secrets):
        shares = (shares * points[:, None, None] + row) % FIELD
    return shares


def rejoined(shares: Limbs, points: Limbs) -> Limbs:
    """Return the secrets `(n, LIMBS)` from `needed` of their shares `(h, n, LIMBS)`, by interpolation at 0."""
    known, total = [int(point) for point in points], np.zeros(shares.shape[1:], dtype=np.int64)
    for point, share in zip(known, shares, strict=True):
        above, below = 1, 1
        for other in known:
            if other != point:
                above, below = above * other % FIELD, below * (other - point) % FIELD
        # The Lagrange coefficient of this point at 0, modulo FIELD.
        total = (total + share * (above * pow(below, -1, FIELD) % FIELD)) % FIELD
    return total


def share_bytes(shares: Limbs) -> bytes:
    """Write shares `(..., LIMBS)`, `SHARE` bytes each."""
    return shares.astype("<u4").tobytes()


def read_shares(data: bytes) -> Limbs:
    """Read shares `(n, LIMBS)`; ValueError where one is not a number of the field."""
    shares = np.frombuffer(data, "<u4").astype(np.int64).reshape(-1, LIMBS)
    if (shares >= FIELD).any():
        raise ValueError("a share is not a number of the field")
    return shares
