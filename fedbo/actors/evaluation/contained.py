"""Containment of an evaluation: its prints are captured and passed on, and standard streams and working directory restored."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, NamedTuple, Self, TextIO

from fedbo.settings.shown import encodable

LONGEST = 65_536  # characters that are kept of one evaluation


class SentText(NamedTuple):
    """Text that an objective printed in a separate process.

    It is sent at once, because the process may be killed before it returns.
    """

    text: str
    error: bool  # to standard error


class Contained:
    """Containment: captures the first `LONGEST` characters that an evaluation prints, and restores the working directory.

    What it prints to standard output and standard error is kept in order.
    """

    def __init__(self) -> None:
        self._parts, self._length = list[str](), 0

    def __enter__(self) -> Self:
        try:
            self._folder: str | None = os.getcwd()
        except FileNotFoundError:  # it may have been removed
            self._folder = None
        self._streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = _KeepingStream(self, sys.stdout), _KeepingStream(self, sys.stderr)
        return self

    def __exit__(self, *error: object) -> None:
        sys.stdout, sys.stderr = self._streams
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(self._folder)

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

    def __init__(self, kept: Contained, below: TextIO) -> None:
        self.below, self._kept = below, kept

    def write(self, text: str) -> int:
        """Write a text."""
        self._kept.add(encodable(text))
        return self.below.write(text)

    def close(self) -> None:
        """Leave the stream below open, to which later evaluations write."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)
