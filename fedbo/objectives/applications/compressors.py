"""Compressors on files that differ by agent: real evaluations with a size, a time and a memory, on any machine.

This package writes the files itself, byte for byte the same on every machine except for its sources.
"""

from __future__ import annotations

import bz2
import importlib.util
import json
import lzma
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from annotated_types import Ge, Le

from fedbo.objectives.base import Array, LibraryMissingError, Metric, Parameter, Part, require, require_agent
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.space import inside
from fedbo.objectives.typed_spaces.typed import Rule, Space
from fedbo.settings.ranges import check

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


DEVELOPMENT = ("text", "numbers", "sources", "dna")
CODECS = ("zlib", "bz2", "lzma")
METRICS = ("size", "seconds", "memory")
LEVEL, WINDOW, BLOCK = (1, 9), (10, 17), (12, 17)


Compress = Callable[[bytes], bytes]
ZSTD = "zstandard"  # the package
_ZSTD_LEVELS = (1, 2, 3, 5, 7, 9, 12, 16, 19)
_FAST = 3  # levels of lzma up to this one find matches by hash chains, higher ones by binary trees


class Compressor(NamedTuple):
    """A function that compresses a block, and the memory that it needs, in bytes."""

    compress: Compress
    memory: float


def has_zstd() -> bool:
    """Return whether the package of Zstandard is installed."""
    return importlib.util.find_spec(ZSTD) is not None


def compressor(codec: str, level: int, window: int) -> Compressor:
    """Return a compressor with a level of 1 to 9 and a window of 2^`window` bytes, at most that of the codec.

    Memory is that of the libraries' manuals: zconf.h of zlib, the manual of bzip2, and lzma12.h of XZ Utils; Zstandard states
    its own.
    """
    if codec == "zlib":
        bits = min(max(window, 9), 15)

        def deflate(block: bytes) -> bytes:
            stream = zlib.compressobj(level, wbits=bits)
            return stream.compress(block) + stream.flush()

        return Compressor(deflate, float((1 << (bits + 2)) + (1 << 17)))
    if codec == "bz2":
        return Compressor(lambda block: bz2.compress(block, level), 400e3 + 800e3 * level)
    if codec == "lzma":
        size = 1 << max(window, 12)
        filters = [{"id": lzma.FILTER_LZMA2, "preset": level, "dict_size": size}]
        per_byte = 7.5 if level <= _FAST else 11.5
        return Compressor(lambda block: lzma.compress(block, filters=filters), per_byte * size)
    zstandard = import_module("zstandard")  # untyped where it is not installed
    parameters = zstandard.ZstdCompressionParameters.from_level(_ZSTD_LEVELS[level - 1], window_log=max(window, 10))
    compress = zstandard.ZstdCompressor(compression_params=parameters).compress
    return Compressor(compress, float(parameters.estimated_compression_context_size()))


@cache
def _space(codecs: tuple[str, ...]) -> Space:
    ranges = {"codec": (0, len(codecs) - 1), "level": LEVEL, "window": WINDOW, "block": BLOCK}
    parameters = tuple(Parameter(name, float(low), float(high), whole=True) for name, (low, high) in ranges.items())
    windowed = tuple(float(place) for place, codec in enumerate(codecs) if codec != "bz2")
    conditions = ((2, Rule("in", axis=0, values=windowed)),)
    return Space(parameters, (codecs, None, None, None), (0.0, 6.0, 15.0, 17.0), conditions, unordered=(0,))


@dataclass(frozen=True, eq=False)
class CompressedFile:
    """One agent's file. A value is minus the compressed share of its length, which draws nothing."""

    kind: str
    length: int
    codecs: tuple[str, ...]
    repeats: int
    parameters: tuple[Parameter, ...] = field(repr=False)
    best_value: float | None = None

    def evaluate(self, x: Array, rng: np.random.Generator) -> float:
        """Return minus the compressed share at x `(d,)`."""
        chosen, block = self._chosen(x)
        return -self._compressed(chosen, block) / self.length

    def measure(self, x: Array, rng: np.random.Generator, fidelity: int | None = None) -> Outcome:
        """Return the outcome at x with the least processor time of some repeats in seconds, and the memory in bytes."""
        chosen, block = self._chosen(x)
        seconds, compressed = np.inf, 0
        for _ in range(self.repeats):
            start = time.thread_time()  # of this thread alone, so that a busy machine counts less
            compressed = self._compressed(chosen, block)
            seconds = min(seconds, time.thread_time() - start)
        share = compressed / self.length
        return Outcome(-share, metrics=dict(zip(METRICS, (share, seconds, chosen.memory), strict=True)))

    def score(self, x: Array) -> float | None:
        """Return None: the share of an evaluation has no noise."""
        return None

    def _chosen(self, x: Array) -> tuple[Compressor, int]:
        codec, level, window, block = (int(place) for place in inside(self.parameters, x))
        return compressor(self.codecs[codec], level, window), 1 << block

    def _compressed(self, chosen: Compressor, block: int) -> int:
        content = written_file(self.kind, self.length)
        return sum(len(chosen.compress(content[start : start + block])) for start in range(0, self.length, block))


@dataclass(frozen=True)
class Compressors:
    """Compressors of the standard library: each agent compresses its own kind of file, live.

    Tune the codec, its level, its window and the length of blocks that are compressed on their own (both as powers of 2). The
    metrics are `size` (share of the file's length), `seconds` (processor time, which differs at every call) and `memory`
    (bytes). Files are text, numbers, this package's sources, DNA, and held out a log, a table, sound and documents.
    """

    random_per_replicate: ClassVar[bool] = False
    metric: ClassVar[Metric] = Metric("size", sign=-1)
    metrics: ClassVar[tuple[str, ...]] = METRICS

    part: Part = "all"
    """All files, those for development, or held-out ones."""
    agents: Annotated[int, Ge(1)] | None = None
    """First files of the part that take part. Default: all."""
    kibibytes: Annotated[int, Ge(1), Le(65536)] = 128
    """Length of a file."""
    repeats: Annotated[int, Ge(1), Le(100)] = 3
    """Compressions of which the fastest counts, where seconds are a metric."""
    zstd: bool = False
    """Whether Zstandard is one of the codecs; it needs the package zstandard."""

    def __post_init__(self) -> None:
        check(self)
        most = len(self._part)
        require(self.agents is None or self.agents <= most, "agents", self.agents, f"use 1 to {most}, the files of this part")
        if self.zstd and not has_zstd():
            raise LibraryMissingError(
                f"zstd = true: the package '{ZSTD}' is not installed; install it with: pip install {ZSTD}"
            )

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Name the agents by their kinds of files."""
        return self._part[: self.agents]

    @property
    def n_agents(self) -> int:
        """Count the agents."""
        return len(self.agent_names)

    @property
    def lattice(self) -> Space:
        """Return the typed space."""
        return _space((*CODECS, "zstd") if self.zstd else CODECS)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return codec, level, window and block; the last two are powers of 2."""
        return self.lattice.parameters

    def objective(self, agent: int, shared_rng: np.random.Generator, agent_rng: np.random.Generator) -> CompressedFile:
        """Build one agent's file, which does not depend on the streams."""
        require_agent(agent, self.n_agents)
        codecs = (*CODECS, "zstd") if self.zstd else CODECS
        return CompressedFile(self.agent_names[agent], 1024 * self.kibibytes, codecs, self.repeats, self.parameters)

    @property
    def _part(self) -> tuple[str, ...]:
        return tuple(kind for kind in KINDS if self.part == "all" or (kind in DEVELOPMENT) == (self.part == "development"))


FEDERATIONS = {"compressors": Compressors}
