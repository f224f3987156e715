"""Files of different kinds that this package writes itself, byte for byte the same on every machine except for its sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

Rng = np.random.Generator
_LETTERS = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
_SEED = 20
_AT_ONCE = 4096  # words or records that are written before the length is looked at


@cache
def written_file(kind: str, length: int) -> bytes:
    """Return the first `length` bytes of a file of a kind of `KINDS`, built once for each process."""
    rng, parts, written = np.random.Generator(np.random.Philox([_SEED, list(KINDS).index(kind)])), list[bytes](), 0
    while written < length:
        parts.append(KINDS[kind](rng))
        written += len(parts[-1])
    return b"".join(parts)[:length]


def _words(rng: Rng) -> list[str]:
    """Return words of which few are frequent (Zipf), as in natural language."""
    vocabulary = ["".join(_LETTERS[np.minimum(rng.geometric(0.12, n) - 1, 25)]) for n in rng.integers(2, 11, 800)]
    return [vocabulary[place] for place in np.minimum(rng.zipf(1.4, _AT_ONCE), 800) - 1]


def _text(rng: Rng) -> bytes:
    return " ".join(_words(rng)).encode()


def _numbers(rng: Rng) -> bytes:
    return "\n".join(f"{number:.4f}" for number in np.cumsum(rng.standard_normal(_AT_ONCE))).encode()


def _sources(rng: Rng) -> bytes:
    """Return the sources of this package, which a new release changes."""
    package = Path(__file__).resolve().parents[2]
    return b"".join(path.read_bytes() for path in sorted(package.rglob("*.py")))


def _dna(rng: Rng) -> bytes:
    """Return letters of four, in which earlier stretches come again with few changes."""
    bases = rng.integers(0, 4, 4 * _AT_ONCE)
    for start in rng.integers(1000, len(bases) - 300, 20):
        bases[start : start + 300] = bases[start - 1000 : start - 700]
    return np.frombuffer(b"ACGT", dtype=np.uint8)[bases].tobytes()


def _log(rng: Rng) -> bytes:
    seconds, events = np.cumsum(rng.exponential(3.0, _AT_ONCE)), ("GET /data", "GET /index", "POST /answer", "timeout")
    chosen, clients = rng.choice(4, _AT_ONCE, p=(0.6, 0.25, 0.1, 0.05)), rng.integers(0, 40, _AT_ONCE)
    lines = (f"{at:014.3f} client-{who:02d} {events[which]}" for at, who, which in zip(seconds, clients, chosen, strict=True))
    return "\n".join(lines).encode()


def _table(rng: Rng) -> bytes:
    groups, ages = rng.choice(["control", "treated", "lost"], _AT_ONCE), rng.integers(18, 90, _AT_ONCE)
    rows = (
        f"{group},{age},{120 + 20 * level:.1f}" for group, age, level in zip(groups, ages, rng.random(_AT_ONCE), strict=True)
    )
    return "\n".join(rows).encode()


def _sound(rng: Rng) -> bytes:
    at = np.arange(_AT_ONCE)
    tones = np.sin(np.outer(rng.uniform(0.01, 0.3, 4), at)).sum(axis=0)
    loudness: bytes = (2000.0 * tones + 20.0 * rng.standard_normal(_AT_ONCE)).astype("<i2").tobytes()
    return loudness


def _documents(rng: Rng) -> bytes:
    words = _words(rng)
    documents = ({"id": place, "title": words[place], "tags": words[place : place + 3]} for place in range(0, 400))
    return "\n".join(json.dumps(document) for document in documents).encode()


KINDS: dict[str, Callable[[Rng], bytes]] = {
    "text": _text,
    "numbers": _numbers,
    "sources": _sources,
    "dna": _dna,
    "log": _log,
    "table": _table,
    "sound": _sound,
    "documents": _documents,
}
