"""Text as a terminal shows it: characters that would act on the terminal, or turn the order of a line round, are escaped.

What a run, a study or an objective says may come from somebody else, and is printed nowhere but through `shown`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from fedbo.settings.errors import FedboError

_ACTING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for the tab and the end of a line
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings, overrides and isolates of direction
    r"\u2028\u2029\ufeff\ud800-\udfff]"  # ends of lines and paragraphs, a byte order mark, halves of characters
)


def shown(text: str) -> str:
    """Return a text with such characters as JSON and TOML escape them, so that those stay what they are."""
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def quoted(path: object) -> str:
    """Return a path as a shell reads it back, for a command that a user copies."""
    return shlex.quote(str(path))


def unfit(text: str) -> str | None:
    """Return the first such character of a text, a tab or an end of a line; None where it is fit for one line."""
    found = re.search(r"[\t\n]", text) or _ACTING.search(text)
    return None if found is None else found[0]


@contextmanager
def written() -> Iterator[None]:
    """Turn an error of the system while something is printed into OutputError, but for a closed pipe."""
    try:
        yield
    except BrokenPipeError:  # whoever read it has seen enough
        raise
    except OSError as error:
        raise OutputError(f"the output cannot be written ({error.strerror}); write it somewhere else") from None


class OutputError(FedboError):
    """Standard output, or standard error, cannot be written to, such as a file on a full disk."""


class ShownStream:
    """A text stream that escapes what is written to it; `raw` is the stream itself, for codes that are fedbo's own.

    What its encoding lacks becomes a question mark. Raises: OutputError where it cannot be written to, but for a closed pipe.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw
        if getattr(raw, "errors", "") == "strict" and hasattr(raw, "reconfigure"):
            raw.reconfigure(errors="replace")

    def write(self, text: str) -> int:
        """Write a text, escaped."""
        with written():
            return self.raw.write(shown(text))

    def flush(self) -> None:
        """Write what is left."""
        with written():
            self.raw.flush()

    def writelines(self, lines: Any) -> None:
        """Write several texts, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)
