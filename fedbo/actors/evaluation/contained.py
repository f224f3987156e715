"""Containment of an evaluation: its prints are captured and passed on, and standard streams and working directory restored."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

from fedbo.settings.shown import encodable

LONGEST = 65_536  # characters that are kept of one evaluation


class SentText(NamedTuple):
    """Text that an objective printed in a separate process.

    It is sent at once, because the process may be killed before it returns.
    """

    text: str
    error: bool  # to standard error


class KeptText:
    """The first `LONGEST` characters that an evaluation prints to standard output and standard error, in order."""

    def __init__(self) -> None:
        self._parts, self._length = list[str](), 0

    def add(self, text: str) -> None:
        """Append a text, as far as there is room."""
        if self._length < LONGEST:
            self._parts.append(text[: LONGEST - self._length])
        self._length += len(text)

    @property
    def text(self) -> str:
        """Return the captured text, with a note if it was cut."""
        more = self._length - LONGEST
        return "".join(self._parts) + (f"\n… and {more:,} more characters" if more > 0 else "")


class _KeepingStream:
    """A stream that captures what is written to it, and passes it on to the stream `below`."""

    def __init__(self, kept: KeptText, below: TextIO) -> None:
        self.below, self._kept = below, kept

    def write(self, text: str) -> int:
        """Write a text."""
        self._kept.add(encodable(text))
        return self.below.write(text)

    def close(self) -> None:
        """Leave the stream below open, to which later evaluations write."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)


@contextmanager
def contained() -> Iterator[KeptText]:
    """Capture what an evaluation prints, and restore the working directory afterwards."""
    with contextlib.suppress(FileNotFoundError):  # the working directory may have been removed
        before = os.getcwd()
    kept, streams = KeptText(), (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = (_KeepingStream(kept, stream) for stream in streams)
    try:
        yield kept
    finally:
        sys.stdout, sys.stderr = streams
        with contextlib.suppress(OSError, UnboundLocalError):
            os.chdir(before)
