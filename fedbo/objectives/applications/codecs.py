"""Compressors of the standard library, and Zstandard where its package is installed, with their settings and their memory."""

from __future__ import annotations

import bz2
import importlib.util
import lzma
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

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
