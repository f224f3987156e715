"""What `fedbo list` shows beside the declaration of each method: what attacks found in the table of all methods."""

from __future__ import annotations

import json
from pathlib import Path

# Written by `python -m fedbo_leak.publish FOLDER`; it names the command that measured.
MEASURED = Path(__file__).with_name("measured.json")


def measured_column() -> tuple[str, str, dict[str, str]]:
    """Return the group of `fedbo list`, the heading, and the word for each method that was measured."""
    return "algorithms", "measured", json.loads(MEASURED.read_text(encoding="utf-8"))["methods"]
