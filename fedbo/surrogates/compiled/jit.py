"""Compilation by Numba with a cache on disk, which is stale as soon as any module of the same folder has changed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.core import event

Function = TypeVar("Function", bound=Callable[..., Any])
INT, FLOAT, BOOL = types.int64, types.float64, types.boolean
# What is only read may be read-only, as messages are, and every array is contiguous: one compiled version serves all.
VECTOR, MATRIX = (types.Array(FLOAT, dimensions, "C", readonly=True) for dimensions in (1, 2))
Tuple: Any = types.Tuple


class _Notice(event.Listener):
    """Prints one notice when the compiler runs, since that takes one minute to three with an empty cache."""

    told = False

    def on_start(self, event: Any) -> None:
        """Print the notice when numba compiles a function that is not in the cache."""
        if not self.told:
            self.told = True
            print(
                "fedbo: compiling arithmetic for the first use of these methods (one to three minutes)",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None:
        """Ignore the end of a compilation."""


if getattr(numba.config, "DISABLE_JIT", 0):  # which leaves the intrinsics without a meaning
    raise ImportError("NUMBA_DISABLE_JIT is set, but fedbo's arithmetic must be compiled; unset it")

_register: Callable[..., None] = event.register
_register("numba:compile", _Notice())


@cache
def _sources(folder: Path) -> str:
    """Return a digest of all modules in a folder of compiled routines."""
    return sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()


def compiled(*signatures: Any) -> Callable[[Function], Function]:
    """Compile a function at its first call, or for the signatures given when it is imported, unless the cache has it."""

    def compile_(function: Function) -> Function:
        dispatcher: Any = numba.njit(cache=True, error_model="numpy")(function)
        # Numba looks at the file of the function alone, and would go on with a routine that has changed in another one.
        index = dispatcher._cache._cache_file
        index._source_stamp = _sources(Path(function.__code__.co_filename).parent)
        try:
            index._load_index()
        except (AttributeError, ImportError):  # of an earlier revision: it names classes that have other names now
            index.flush()
        for signature in signatures:
            dispatcher.compile(signature)
        if signatures:
            dispatcher.disable_compile()
        return cast(Function, dispatcher)

    return compile_
