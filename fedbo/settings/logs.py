"""The standard logger `fedbo`: progress and warnings are records of it, whether they are printed or not."""

from __future__ import annotations

import logging
import sys
from typing import IO

LOGGER = logging.getLogger("fedbo")
LOGGER.addHandler(logging.NullHandler())  # else Python would print warnings where no handler is set up


def record(words: str, level: int = logging.WARNING, printed: IO[str] | None = None) -> None:
    """Send a record to all handlers of the logger, but to none that writes to the stream on which the words are `printed`."""
    if not LOGGER.isEnabledFor(level):
        return
    made = LOGGER.makeRecord(LOGGER.name, level, "fedbo", 0, words, (), None)
    logger = LOGGER if LOGGER.filter(made) else None
    while logger is not None:
        for handler in logger.handlers:
            if level >= handler.level and (printed is None or getattr(handler, "stream", None) is not printed):
                handler.handle(made)
        logger = logger.parent if logger.propagate else None


def say(words: str, level: int = logging.WARNING) -> None:
    """Print a line to standard error, and record it."""
    print(words, file=sys.stderr, flush=True)
    record(words.removeprefix("warning: "), level, sys.stderr)
