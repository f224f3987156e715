"""The command `fedbo`, also as `python -m fedbo`: Ctrl-C ends it in one line while it is still being imported."""

from __future__ import annotations

import sys

from fedbo.settings.interrupts import ends_at_once


def main() -> int:
    """Import the command line, and run the command that the process was started with."""
    with ends_at_once("interrupted"):
        from fedbo.cli import main as command
    return command()


if __name__ == "__main__":
    sys.exit(main())
