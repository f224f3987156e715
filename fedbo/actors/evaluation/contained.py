"""What an evaluation does to its process: what it prints is kept and passed on, and the working directory is set back."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

LONGEST = 65_536  # characters that are kept of one evaluation


class SentText(str):
    """What an objective printed in a process of its own, which sends it at once: it may be ended before it returns."""


class KeptText:
    """A stream that keeps what is written to it, up to `LONGEST` characters, and passes it on to the stream `below`."""

    def __init__(self, below: TextIO) -> None:
        self.below, self._parts, self._length = below, list[str](), 0

    def write(self, text: str) -> int:
        """Write a text."""
        if self._length < LONGEST:
            self._parts.append(text[: LONGEST - self._length])
        self._length += len(text)
        return self.below.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    @property
    def text(self) -> str:
        """Return what was kept, with a note where it is not all."""
        more = self._length - LONGEST
        return "".join(self._parts) + (f"\n… and {more:,} more characters" if more > 0 else "")


@contextmanager
def contained() -> Iterator[KeptText]:
    """Contain an evaluation."""
    with contextlib.suppress(FileNotFoundError):  # the working directory may have been removed
        before = os.getcwd()
    kept = KeptText(sys.stdout)
    try:
        with contextlib.redirect_stdout(kept):
            yield kept
    finally:
        with contextlib.suppress(OSError, UnboundLocalError):
            os.chdir(before)
