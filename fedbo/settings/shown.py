"""Text for a terminal: characters that would control the terminal, or reverse the order of a line, are escaped.

The texts of a run, a study or an objective may come from other people, and are printed only through `shown`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from fedbo.settings.errors import FedboError

UNENCODABLE = "contains characters that UTF-8 cannot encode; use others"
_ACTING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for the tab and the end of a line
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks, embeddings, overrides and isolates of direction
    r"\u2028\u2029\ufeff\ud800-\udfff]"  # ends of lines and paragraphs, a byte order mark, halves of characters
)


def shown(text: str) -> str:
    """Return a text with such characters escaped as in JSON and TOML, so that these formats stay valid."""
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def encodable(text: str) -> str:
    """Return a text with characters escaped that UTF-8 cannot encode (halves of surrogate pairs), since no table holds them."""
    return text.encode("utf-8", "backslashreplace").decode()


def quoted(path: object) -> str:
    """Return a path quoted for a shell, for a command that a user copies."""
    return shlex.quote(str(path))


def unfit(text: str) -> str | None:
    """Return the first such character, tab or line end of a text; None if it fits on one line."""
    found = re.search(r"[\t\n]", text) or _ACTING.search(text)
    return None if found is None else found[0]


@contextmanager
def written() -> Iterator[None]:
    """Convert a system error while something is printed to OutputError, except for a closed pipe."""
    try:
        yield
    except BrokenPipeError:  # its reader, such as `head`, has seen enough
        raise
    except OSError as error:
        raise OutputError(f"the output cannot be written ({error.strerror}); write it somewhere else") from None


class OutputError(FedboError):
    """Standard output or standard error cannot be written, such as a file on a full disk."""


class ShownStream:
    """A text stream that escapes what is written to it; `raw` is the stream itself, for fedbo's own control codes.

    Characters that its encoding lacks become question marks. Raises OutputError where it cannot be written,
    except for a closed pipe.
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
        """Flush the stream."""
        with written():
            self.raw.flush()

    def writelines(self, lines: Any) -> None:
        """Write several texts, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)
