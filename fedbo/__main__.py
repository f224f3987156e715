"""The command `fedbo`, also as `python -m fedbo`. Ctrl-C during its imports ends it with one line."""

from __future__ import annotations

import sys

from fedbo.settings.interrupts import ends_at_once


def main() -> int:
    """Import the command line, and run the command of this process."""
    with ends_at_once("interrupted"):
        from fedbo.cli import main as command
    return command()


if __name__ == "__main__":
    sys.exit(main())
